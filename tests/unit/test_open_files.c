/* When the open files of boxes are to be counted: how many more the host has to have. */
#include "box/open_files.h"

#include "check.h"

#define SECOND 1000000000ULL
#define MUCH (FILES_BOX_MAX / 2)

static void check_growth(void)
{
    struct growth files = {0};

    CHECK(!files_have_grown(&files, 0, SECOND), "nobody tells");
    CHECK(!files_have_grown(&files, 5000, SECOND), "the first look");
    CHECK(!files_have_grown(&files, 5000 + MUCH - 1, SECOND), "just not");
    CHECK(files_have_grown(&files, 5000 + MUCH, SECOND), "it has grown");
    CHECK(!files_have_grown(&files, 1000, SECOND), "fewer than ever");
    CHECK(files_have_grown(&files, 1000 + MUCH, SECOND), "and from there on");
}

static void check_pauses(void)
{
    struct growth files = {0};

    (void)files_have_grown(&files, 1000, SECOND);
    CHECK(files_have_grown(&files, 100000, SECOND), "due");
    growth_counted(&files, true, true, 2 * SECOND);
    CHECK(files_have_grown(&files, 100000, 2 * SECOND), "again when a box was ended");
    growth_counted(&files, false, false, 3 * SECOND);
    CHECK(!files_have_grown(&files, 100000, 4 * SECOND - 1), "a pause");
    CHECK(files_have_grown(&files, 100000, 4 * SECOND), "after a count that came to no end");
    growth_counted(&files, true, false, 5 * SECOND);
    CHECK(!files_have_grown(&files, 100000 + MUCH - 1, 9 * SECOND), "the growth was nobody's");
    CHECK(files_have_grown(&files, 100000 + MUCH, 9 * SECOND), "and from there on, too");
}

int main(void)
{
    check_growth();
    check_pauses();
    CHECK(files_read() > 0, "the host has open files");
    return check_finish();
}
