/* From method and path to a route.
 *
 * A table that is read from its top: some forty routes cost less than a microsecond, and what is
 * written first wins, which anybody can see; so "/a/b" stands above "/a/{id}", and is nothing of that. A path that differs in one byte is another path. */
#include "http/parts.h"

#include <stdio.h>
#include <string.h>

/* One segment, up to the next '/' or the end. */
static size_t segment(const char *text)
{
    return strcspn(text, "/");
}

/* Whether the path has the pattern's form; notes where its parameters are, still encoded. */
static bool fits(const char *pattern, const char *path, struct http_param *params, size_t *count)
{
    *count = 0;
    while (*pattern == '/' && *path == '/') {
        if (strcmp(pattern, "/**") == 0) {
            return true;
        }
        size_t want = segment(++pattern);
        size_t have = segment(++path);

        if (*pattern == '{') {
            if (have == 0 || *count == HTTP_PARAMS_MAX) {
                return false;
            }
            params[(*count)++] = (struct http_param){pattern + 1, want - 2, path};
        } else if (want != have || memcmp(pattern, path, want) != 0) {
            return false;
        }
        pattern += want;
        path += have;
    }
    return *pattern == '\0' && *path == '\0';
}

static bool method_fits(const char *wanted, const char *method)
{
    return strcmp(wanted, method) == 0 || strcmp(wanted, "*") == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(wanted, "GET") == 0);
}

/* Adds a word to a list of them, once. */
static void add_word(char allow[64], const char *word)
{
    size_t used = strlen(allow);

    if (!strstr(allow, word)) {
        snprintf(allow + used, 64 - used, "%s%s", used > 0 ? ", " : "", word);
    }
}

static int decode_params(struct http_request *request, char *decoded)
{
    for (size_t i = 0; i < request->params_count; i++) {
        struct http_param *param = &request->params[i];
        size_t length = segment(param->value);

        if (http_decode(param->value, length, false, decoded)) {
            return -1;
        }
        param->value = decoded;
        decoded += length + 1;
    }
    return 0;
}

const struct http_route *http_route_find(struct http_request *request, char *decoded,
                                         const struct http_server *server, struct http_refusal *no,
                                         char allow[64])
{
    bool is_named = false;

    allow[0] = '\0';
    for (size_t i = 0; i < server->routes_count; i++) {
        const struct http_route *route = &server->routes[i];

        if (!fits(route->pattern, request->head.path, request->params, &request->params_count)) {
            continue;
        }
        /* What is named as a whole is no parameter's value. */
        if (is_named && request->params_count > 0) {
            continue;
        }
        is_named |= request->params_count == 0;
        if (!method_fits(route->method, request->head.method)) {
            add_word(allow, route->method);
            if (strcmp(route->method, "GET") == 0) {
                add_word(allow, "HEAD");
            }
            continue;
        }
        if (decode_params(request, decoded)) {
            request->params_count = 0;
            *no = (struct http_refusal){400, "bad_request",
                                        "a part of the path is not percent-encoded UTF-8"};
            return NULL;
        }
        return route;
    }
    request->params_count = 0;
    *no = allow[0] ? (struct http_refusal){405, "method_not_allowed",
                                           "there is nothing at this path for this method"}
                   : (struct http_refusal){404, "route_not_found", "there is nothing at this path"};
    return NULL;
}
