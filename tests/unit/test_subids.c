/* The ids of an ordinary user: what the files and the kernel's map give, slices that no two boxes
 * share, and maps that the kernel takes. */
#include "box/ids.h"
#include "box/ids_parts.h"

#include "check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char top[] = "/tmp/cove-test-subids-XXXXXX";
static char directory[64], lock_path[80];

/* ---- what is given ---- */

static void check_parts_of_user(void)
{
    struct ids_part parts[IDS_PARTS_MAX] = {0};

    CHECK(ids_parts_of_user("a:100000:65536\nb:165536:65536\n", "b", 1000, parts) == 1 &&
              parts[0].first == 165536 && parts[0].count == 65536,
          "%u+%u", parts[0].first, parts[0].count);
    CHECK(ids_parts_of_user("1000:100000:2000\nb:200000:3000", "b", 1000, parts) == 2 &&
              parts[0].count == 2000 && parts[1].count == 3000,
          "by number, by name, and a last line without its end");
    CHECK(ids_parts_of_user("b:1:1\n", "b", 1000, parts) == 0, "fewer than a slice are none");
    CHECK(ids_parts_of_user("b:0:65536\n", "b", 1000, parts) == 0, "root of the host");
    CHECK(ids_parts_of_user("b:4294967295:65536\nb:4294967296:65536\n", "b", 1000, parts) == 0,
          "-1 is no id, and what is larger no number of one");
    CHECK(ids_parts_of_user("b:4294901760:65536\n", "b", 1000, parts) == 1 &&
              parts[0].count == 65535,
          "cut before -1: %u", parts[0].count);
}

static void check_parts_of_hostile_files(void)
{
    static const char *const texts[] = {
        "",
        "\n\n\n",
        "b",
        "b:",
        "b:1",
        "b:100000",
        "b:100000:",
        "b::65536",
        "b:-1:65536",
        "b:100000:65536x",
        "b:100000x:65536",
        "b:0x186a0:65536",
        "b: 100000:65536",
        "bb:100000:65536",
        ":100000:65536",
        "#b:100000:65536",
        "b:100000:99999999999999999999999:5",
        "10000:100000:65536",
        "100:100000:65536",
    };
    struct ids_part parts[IDS_PARTS_MAX];
    char many[64 * IDS_PARTS_MAX] = "";

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        CHECK(ids_parts_of_user(texts[i], "b", 1000, parts) == 0, "%s", texts[i]);
    CHECK(ids_parts_of_user(":100000:65536\n", "", 1000, parts) == 0,
          "who has no name is nobody's");
    CHECK(ids_parts_of_user("b:100000:65536\nb:165535:65536\n", "b", 1000, parts) == 1,
          "ids that are given twice count once");
    for (unsigned i = 0; i < IDS_PARTS_MAX + 4; i++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "b:%u:65536\n",
                       100000 + i * 65536);
    CHECK(ids_parts_of_user(many, "b", 1000, parts) == IDS_PARTS_MAX,
          "more than there is room for");
}

static void check_parts_of_map(void)
{
    struct ids_part parts[IDS_PARTS_MAX] = {0};

    CHECK(ids_parts_of_map("         0       1000          1\n         1     100000      65536\n",
                           parts) == 1 &&
              parts[0].first == 2000 && parts[0].count == 65536 - 1999,
          "a container's accounts are kept: %u+%u", parts[0].first, parts[0].count);
    CHECK(ids_parts_of_map("0 0 4294967295\n", parts) == 1 && parts[0].first == 2000, "all ids");
    CHECK(ids_parts_of_map("0 1000 1\n", parts) == 0, "one id");
    CHECK(ids_parts_of_map("0 1000 1500\n", parts) == 0, "accounts alone");
    CHECK(ids_parts_of_map("", parts) == 0 && ids_parts_of_map("x", parts) == 0, "no map");
}

/* ---- slices ---- */

static bool pool_make(struct ids_pool *pool, const char *users, const char *groups)
{
    struct error err = {0};

    *pool = (struct ids_pool){.lock = -1};
    (void)ids_parts_of_user(users, "b", 1000, pool->uids);
    (void)ids_parts_of_user(groups, "b", 1000, pool->gids);
    for (size_t i = 0; i < IDS_PARTS_MAX; i++)
        pool->slices += pool->uids[i].count / IDS_SLICE_SPAN;
    return ids_lock_open(pool, directory, 0700, &err) == 0;
}

static bool overlap(const struct ids *a, const struct ids *b)
{
    return a->first <= b->first + IDS_SLICE && b->first <= a->first + IDS_SLICE;
}

static void check_slices_are_apart(void)
{
    static const char *const users = "b:100000:65536\n", *const groups = "b:300000:65536\n";
    static const struct caller caller = {.uid = 1000, .gid = 1000};
    enum { SLICES = 65536 / IDS_SLICE_SPAN };
    struct ids taken[SLICES], more;
    struct ids_pool pools[2];
    struct error err = {0};
    bool apart = true, inside = true;

    CHECK(pool_make(&pools[0], users, groups) && pool_make(&pools[1], users, groups), "no pools");
    CHECK(pools[0].slices == SLICES, "%u slices", pools[0].slices);
    for (int i = 0; i < SLICES; i++) {
        CHECK(ids_take_user(&pools[i % 2], &caller, &taken[i], &err) == 0, "%s", err.text);
        inside = inside && taken[i].kind == IDS_SLICED && taken[i].first >= 100000 &&
                 taken[i].first + IDS_SLICE < 165536 &&
                 taken[i].first_group == taken[i].first + 200000;
        for (int j = 0; j < i; j++)
            apart = apart && !overlap(&taken[i], &taken[j]);
    }
    CHECK(apart, "two boxes share ids");
    CHECK(inside, "ids that are not this user's");
    CHECK(ids_take_user(&pools[0], &caller, &more, &err) < 0 &&
              strstr(err.text, "/etc/subuid") != NULL,
          "one too many was taken");
    ids_release(&pools[1], &taken[1]);
    CHECK(ids_take_user(&pools[0], &caller, &more, &err) == 0, "what was given back is not taken");
    ids_close(&pools[0]); /* as a crash does */
    CHECK(ids_take_user(&pools[1], &caller, &more, &err) == 0, "what a crash freed is not taken");
    ids_close(&pools[1]);
}

static void check_many_ids_give_ranges(void)
{
    static const char *const plenty = "b:1000000:2000000\n";
    static const struct caller caller = {.uid = 1000, .gid = 1000};
    struct ids_pool pool;
    struct error err = {0};
    struct ids a = {0}, b = {0};

    CHECK(pool_make(&pool, plenty, plenty), "no pool");
    CHECK(ids_take_user(&pool, &caller, &a, &err) == 0 &&
              ids_take_user(&pool, &caller, &b, &err) == 0,
          "%s", err.text);
    CHECK(a.kind == IDS_RANGE && a.count == IDS_COUNT && b.kind == IDS_RANGE, "kind %d", a.kind);
    CHECK(a.first >= 1000000 && a.first + a.count <= 3000000, "%u", a.first);
    CHECK(a.first + a.count <= b.first || b.first + b.count <= a.first, "%u, %u", a.first, b.first);
    ids_close(&pool);
}

static void check_ranges_lie_in_one_part(void)
{
    static const struct caller caller = {.uid = 1000, .gid = 1000};
    char text[IDS_PARTS_MAX * 32] = "";
    struct ids_pool pool;
    struct error err = {0};
    struct ids ids;

    /* Enough in all, and no part holds a range. */
    for (unsigned i = 0; i < IDS_PARTS_MAX; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "b:%u:65000\n",
                       1000000 + i * 100000);
    CHECK(pool_make(&pool, text, text), "no pool");
    CHECK(ids_take_user(&pool, &caller, &ids, &err) == 0 && ids.kind == IDS_SLICED,
          "a range over a gap: kind %d", ids.kind);
    ids_close(&pool);
}

static void check_none_is_the_callers_own(void)
{
    static const struct caller caller = {.uid = 1234, .gid = 1235};
    struct ids_pool pool = {.lock = -1};
    struct error err = {0};
    struct ids ids;

    CHECK(ids_take_user(&pool, &caller, &ids, &err) == 0 && ids.kind == IDS_SINGLE &&
              ids.first == 1234 && ids.first_group == 1235 && ids.slots == 0,
          "kind %d, %u", ids.kind, ids.first);
}

/* ---- maps ---- */

static const char *map_of(const struct ids *ids, int64_t inside)
{
    static char text[160];
    struct ids_lent lent = {.inside = inside, .outside = 1000};

    return ids_map_text(ids, ids->first, &lent, text, sizeof(text)) ? text : "no room";
}

static void check_maps(void)
{
    static const struct ids slice = {.kind = IDS_SLICED, .first = 100000, .count = IDS_SLICE};
    static const struct ids range = {.kind = IDS_RANGE, .first = 200000, .count = IDS_COUNT};
    static const struct ids single = {.kind = IDS_SINGLE, .first = 1000};
    static const struct {
        const struct ids *ids;
        int64_t lent;
        const char *map;
    } cases[] = {
        {&slice, -1, "0 100000 1024\n65534 101024 1"},
        {&slice, 0, "1 100001 1023\n65534 101024 1\n0 1000 1"},
        {&slice, 1000, "0 100000 1000\n1001 101001 23\n65534 101024 1\n1000 1000 1"},
        {&slice, 1023, "0 100000 1023\n65534 101024 1\n1023 1000 1"},
        {&slice, 5000, "0 100000 1024\n65534 101024 1\n5000 1000 1"},
        {&slice, 65534, "0 100000 1024\n65534 1000 1"},
        {&range, -1, "0 200000 65536"},
        {&range, 65535, "0 200000 65535\n65535 1000 1"},
        {&single, 1000, "1000 1000 1"},
        {&single, 0, "0 1000 1"},
    };
    char small[16];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK(strcmp(map_of(cases[i].ids, cases[i].lent), cases[i].map) == 0, "case %zu: %s", i,
              map_of(cases[i].ids, cases[i].lent));
    CHECK(
        !ids_map_text(&slice, slice.first, &(struct ids_lent){.inside = -1}, small, sizeof(small)),
        "a map that is cut is no map");
}

static void check_what_a_box_has(void)
{
    static const struct ids slice = {.kind = IDS_SLICED, .first = 100000, .count = IDS_SLICE};
    static const struct ids_lent none = {.inside = -1}, lent = {.inside = 5000, .outside = 1000};

    CHECK(ids_has(&slice, &none, 0) && ids_has(&slice, &none, 1023) &&
              ids_has(&slice, &none, IDS_NOBODY),
          "what is mapped");
    CHECK(!ids_has(&slice, &none, 1024) && !ids_has(&slice, &none, 5000) &&
              !ids_has(&slice, &none, UINT32_MAX),
          "what is not");
    CHECK(ids_has(&slice, &lent, 5000), "what is lent");
}

int main(void)
{
    if (mkdtemp(top) == NULL) {
        perror(top);
        return 1;
    }
    (void)snprintf(directory, sizeof(directory), "%s/run", top);
    (void)snprintf(lock_path, sizeof(lock_path), "%s/ids.lock", directory);
    check_parts_of_user();
    check_parts_of_hostile_files();
    check_parts_of_map();
    check_slices_are_apart();
    check_many_ids_give_ranges();
    check_ranges_lie_in_one_part();
    check_none_is_the_callers_own();
    check_maps();
    check_what_a_box_has();
    (void)unlink(lock_path);
    (void)rmdir(directory);
    CHECK(rmdir(top) == 0, "%s is left", top);
    return check_finish();
}
