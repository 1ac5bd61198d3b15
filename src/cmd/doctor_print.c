/* The words and the JSON of `cove doctor`, from the same struct: see doctor.h. What one of them says,
 * the other says too; a test compares them. */
#include "base/fd.h"
#include "cmd/cmd.h"
#include "cmd/doctor.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH 100
#define TITLE_WIDTH 21

static const char *state_name(enum doctor_state state)
{
    switch (state) {
    case DOCTOR_YES:
        return "yes";
    case DOCTOR_LESS:
        return "less";
    case DOCTOR_NO:
        return "no";
    case DOCTOR_UNTRIED:
        break;
    }
    return "-";
}

/* ---- words ---- */

/* Starts at column `at` and goes on below itself. */
static void wrap(FILE *out, const char *text, size_t left, size_t at)
{
    while (*text != '\0') {
        size_t length = strcspn(text, " ");

        if (at > left && at + 1 + length > WIDTH) {
            (void)fprintf(out, "\n%*s", (int)left, "");
            at = left;
        } else if (at > left) {
            (void)fputc(' ', out);
            at++;
        }
        (void)fwrite(text, 1, length, out);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    (void)fputc('\n', out);
}

static void check_print(FILE *out, const struct doctor_check *check)
{
    enum { left = 7 + TITLE_WIDTH };

    if (check->found[0] == '\0') {
        (void)fprintf(out, "  %-4s %s\n", state_name(check->state), check->title);
    } else {
        (void)fprintf(out, "  %-4s %-*s", state_name(check->state), TITLE_WIDTH, check->title);
        wrap(out, check->found, left, left);
    }
    if (check->cause[0] != '\0') {
        (void)fprintf(out, "       why: ");
        wrap(out, check->cause, 12, 12);
    }
    if (check->remedy[0] != '\0') {
        (void)fprintf(out, "       do:  ");
        wrap(out, check->remedy, 12, 12);
    }
    /* Whole, however long: it is there to be copied. */
    if (check->command[0] != '\0')
        (void)fprintf(out, "            $ %s\n", check->command);
}

static void places_print(FILE *out, const struct doctor_host *host)
{
    bool any = false;

    for (size_t i = 0; i < PLACE_COUNT; i++) {
        if (!host->is_in[i])
            continue;
        (void)fprintf(out, "%s%s", any ? ", " : "This is ",
                      doctor_place_words(host, (enum doctor_place)i));
        any = true;
    }
    if (any)
        (void)fprintf(out, ".\n");
    else
        (void)fprintf(out, "No container and no other sandbox around it is recognised.\n");
}

/* All checks fit on one screen: those that find nothing on nearly every host have no line then. */
static bool is_shown(const struct doctor *doctor, size_t check)
{
    return (check != DOCTOR_CORES && check != DOCTOR_FILES && check != DOCTOR_DISKS) ||
           doctor->checks[check].state != DOCTOR_YES;
}

static void all_print(FILE *out, const struct doctor *doctor)
{
    const struct doctor_host *host = &doctor->host;

    (void)fprintf(out, "cove %s on Linux %s, %s, as uid %u\n", COVE_VERSION, host->release,
                  host->machine, host->uid);
    places_print(out, host);
    for (size_t i = 0; i < DOCTOR_CHECKS; i++)
        if (is_shown(doctor, i))
            check_print(out, &doctor->checks[i]);
    if (doctor->has_box)
        (void)fprintf(out, "cove run has here: level %s, limits %s, ids %s, disk %s\n",
                      doctor->level, doctor->limits, doctor->ids, doctor->disk);
    else
        (void)fprintf(out, "cove run has here: level none\n");
    wrap(out, doctor->summary, 0, 0);
    if (doctor_container_line(doctor)[0] != '\0')
        (void)fprintf(
            out, "A server in a container of its own has all, when this line starts it:\n  $ %s\n",
            doctor_container_line(doctor));
}

/* A path or a setting in the text may hold a terminal's escape sequence. */
static void make_printable(char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\n') || text[i] == 0x7f)
            text[i] = '?';
}

int doctor_print_words(const struct doctor *doctor)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    int result;

    if (out == NULL)
        return -1;
    all_print(out, doctor);
    if (fclose(out) != 0) {
        free(text);
        errno = ENOMEM;
        return -1;
    }
    make_printable(text, size);
    result = cmd_print(text, size);
    free(text);
    return result;
}

/* ---- JSON ---- */

/* Bytes that are no UTF-8 (in a path, say) become '?': the words are for people in both. */
static json_t *text_json(const char *text)
{
    json_t *string = json_string(text);
    char clean[1024];
    size_t i;

    if (string != NULL)
        return string;
    for (i = 0; i < sizeof(clean) - 1 && text[i] != '\0'; i++)
        clean[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    clean[i] = '\0';
    return json_string(clean);
}

static json_t *given_json(const char *text)
{
    return text[0] != '\0' ? text_json(text) : json_null();
}

static json_t *checks_json(const struct doctor *doctor)
{
    json_t *list = json_array();

    for (size_t i = 0; i < DOCTOR_CHECKS; i++) {
        const struct doctor_check *check = &doctor->checks[i];

        if (!is_shown(doctor, i))
            continue;
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "name", check->name, "title",
                            check->title, "state", state_name(check->state), "found",
                            given_json(check->found), "cause", given_json(check->cause), "remedy",
                            given_json(check->remedy), "command", given_json(check->command)));
    }
    return list;
}

static json_t *places_json(const struct doctor_host *host)
{
    json_t *list = json_array();

    for (size_t i = 0; i < PLACE_COUNT; i++)
        if (host->is_in[i])
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s}", "name", doctor_place_name((enum doctor_place)i),
                                "words", doctor_place_words(host, (enum doctor_place)i)));
    return list;
}

int doctor_print_json(const struct doctor *doctor)
{
    const struct doctor_host *host = &doctor->host;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:i, s:o, s:o, s:s, s:o, s:o, s:o, s:s, s:o, s:i}", "cove", COVE_VERSION,
        "kernel", host->release, "machine", host->machine, "uid", (int)host->uid, "places",
        places_json(host), "checks", checks_json(doctor), "level",
        doctor->has_box ? doctor->level : "none", "limits", given_json(doctor->limits), "ids",
        given_json(doctor->ids), "disk", given_json(doctor->disk), "summary", doctor->summary,
        "container", given_json(doctor_container_line(doctor)), "exit_status", doctor->exit_status);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;

    json_decref(object);
    return cmd_print_line(text);
}
