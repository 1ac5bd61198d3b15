/* Options: see options.h. */
#include "keeper/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: cove serve [OPTIONS]\n\n"
    "Runs the engine: sandboxes that live, behind an API.\n\n"
    "  --listen HOST:PORT  address of the API, or none (" OPTIONS_LISTEN_DEFAULT ")\n"
    "  --socket PATH       unix socket of the API (/run/cove/cove.sock; cove/cove.sock in\n"
    "                      XDG_RUNTIME_DIR for who is not root)\n"
    "  --data DIR          where sandboxes are kept (/var/lib/cove; cove in XDG_DATA_HOME)\n"
    "  --config FILE       configuration (/etc/cove/cove.conf; cove/cove.conf in XDG_CONFIG_HOME)\n"
    "  --log-format FORMAT text, or json: one object a line (text)\n"
    "  --insecure-http     allow an address that other machines reach, without TLS\n"
    "  --private           this user's own engine, which ends when nobody needs it\n"
    "  --delegated         the cgroup this runs in is its own (Delegate=yes in a systemd unit)\n";

enum { LISTEN = 1, SOCKET, DATA, CONFIG, LOG_FORMAT, INSECURE, PRIVATE, DELEGATED, HELP };

static const struct option words[] = {
    {"listen", required_argument, NULL, LISTEN},
    {"socket", required_argument, NULL, SOCKET},
    {"data", required_argument, NULL, DATA},
    {"config", required_argument, NULL, CONFIG},
    {"log-format", required_argument, NULL, LOG_FORMAT},
    {"insecure-http", no_argument, NULL, INSECURE},
    {"private", no_argument, NULL, PRIVATE},
    {"delegated", no_argument, NULL, DELEGATED},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

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
    case PRIVATE:
        options->is_private = true;
        return;
    case DELEGATED:
        options->is_delegated = true;
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
    options->engine = getenv("COVE_TEST_ENGINE");
#endif
    return 0;
}

void options_help(void)
{
    (void)fputs(help, stdout);
}
