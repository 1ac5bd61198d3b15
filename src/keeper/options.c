/* Options: see options.h. */
#include "keeper/options.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENUMERATOR(name, enumerator, argument, fallback, help) enumerator,
enum { NONE, KEEPER_WORDS(ENUMERATOR) };

enum {
    CAN_TAKE = HELP + 1
}; /* asked by a keeper that is to be replaced, of nobody else's concern */

#define WORD(name, enumerator, argument, fallback, help) \
    {name, (argument) == NULL ? no_argument : required_argument, NULL, enumerator},
static const struct option words[] = {
    KEEPER_WORDS(WORD){"can-take", required_argument, NULL, CAN_TAKE}, {NULL, 0, NULL, 0}};

/* "FORMAT:FD"; what is neither is no format of ours. */
static void can_take(struct options *options, const char *value)
{
    // NOLINTNEXTLINE(cert-err34-c): a number that is too large is none of ours either
    if (sscanf(value, "%u:%d", &options->can_take, &options->can_take_fd) == 2 &&
        options->can_take != 0)
        return;
    options->can_take = UINT_MAX;
    options->can_take_fd = -1;
}

static void take(struct options *options, int word)
{
    switch (word) {
    case LISTEN:
        options->listen = optarg;
        return;
    case SOCKET:
        options->socket = optarg;
        return;
    case DATA:
        options->data = optarg;
        return;
    case CONFIG:
        options->config = optarg;
        return;
    case LOG_FORMAT:
        options->log_format = optarg;
        return;
    case INSECURE:
        options->insecure_http = true;
        return;
    case LEVEL:
        options->allow_level = optarg;
        return;
    case PRIVATE:
        options->is_private = true;
        return;
    case DELEGATED:
        options->is_delegated = true;
        return;
    case CHECK:
        options->wants_check = true;
        return;
    case PID:
        options->wants_pid = true;
        return;
    case RELOAD:
        options->wants_reload = true;
        return;
    case STOP:
        options->wants_stop = true;
        return;
    case CAN_TAKE:
        can_take(options, optarg);
        return;
    default:
        options->wants_help = true;
    }
}

static bool is_bad_path(const char *path)
{
    return path != NULL && (path[0] == '\0' || strpbrk(path, "\n\r") != NULL);
}

int options_parse(int argc, char **argv, struct options *options, struct error *err)
{
    int word;

    *options = (struct options){0};
    opterr = 0;
    while ((word = getopt_long(argc, argv, "", words, NULL)) !=
           -1) { // NOLINT(concurrency-mt-unsafe)
        if (word == '?')
            return error_set(err, "bad_option", 0,
                             "%.80s: there is no such option, or its value is missing; cove serve "
                             "--help lists them",
                             argv[optind - 1]);
        take(options, word);
    }
    if (optind < argc)
        return error_set(err, "bad_option", 0, "%.80s: cove serve takes options only",
                         argv[optind]);
    if (is_bad_path(options->socket) || is_bad_path(options->data) || is_bad_path(options->config))
        return error_set(err, "bad_option", 0, "an empty path, or one of several lines, is none");
    if (options->log_format != NULL && strcmp(options->log_format, "text") != 0 &&
        strcmp(options->log_format, "json") != 0)
        return error_set(err, "bad_option", 0, "--log-format %.40s: it is text or json",
                         options->log_format);
    options->log_json = options->log_format != NULL && strcmp(options->log_format, "json") == 0;
#ifdef COVE_TEST_SWITCHES
    const char *hang = getenv("COVE_TEST_HANG_MS");

    options->engine = getenv("COVE_TEST_ENGINE");
    options->hang_ms = hang != NULL ? (unsigned)strtoul(hang, NULL, 10) : 0;
#endif
    return 0;
}

void options_help(void)
{
    (void)fputs("cove serve --help says what there is\n", stdout);
}
