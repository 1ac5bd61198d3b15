/* Ports of a sandbox: opened, listed, closed; and reached, as a page below a path of this API, as a page of a name
 * of its own, or as a plain stream of bytes.
 *
 * Below the path a page of a stranger has the origin of the API. So what it says is shown to programs only: a
 * browser that would go there is refused, and if one does so after all, the page is sandboxed and sets nothing. A
 * name of its own is an origin of its own, and there a page is what it is. No secret of ours reaches the server in
 * the box. */
#include "base/parse.h"
#include "front/native/body.h"
#include "front/native/origin.h"
#include "front/native/parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define HOST_TEXT 512
#define TOKEN "cove_token"
/* The cookie: the page of a neighbour cannot set one of this name. Only over TLS is there any, for in clear text a
 * browser does not say which page has it ask (Sec-Fetch-Site). */
#define TOKEN_HOST "__Host-" TOKEN

static const char *const no_query[] = {NULL};

/* ---- opened, listed, closed ---- */

static void print_port(struct out *out, const struct job *job, const struct sandbox_port *port)
{
    const char *domain = job->native->port_domain;
    char text[HOST_TEXT];

    out_object(out, NULL);
    out_number(out, "port", port->port);
    out_bool(out, "open", port->is_declared);
    out_bool(out, "public", port->is_public);
    out_bool(out, "listening", port->is_listening);
    if (port->host_port != 0) {
        (void)snprintf(text, sizeof(text), "http://127.0.0.1:%u", port->host_port);
        out_text(out, "url", text);
    } else {
        out_null(out, "url");
    }
    (void)snprintf(text, sizeof(text), "/v1/sandboxes/%s/ports/%u/", job->own_id, port->port);
    out_text(out, "path", text);
    (void)snprintf(text, sizeof(text), "%u-%s.%s", port->port, job->own_id,
                   domain != NULL ? domain : "");
    out_text(out, "host", domain != NULL ? text : NULL);
    out_object_end(out);
}

static int port_of(const struct job *job, uint16_t *port, struct error *err)
{
    uint64_t number;

    if (parse_count("port", http_param(job->request, "port"), 1, 65535, &number, err) < 0) {
        (void)snprintf(err->code, sizeof(err->code), "bad_request");
        return -1;
    }
    *port = (uint16_t)number;
    return 0;
}

/* Its name may be asked for: what is answered says the id. */
static int find_id(struct job *job, enum engine_verb verb, struct error *err)
{
    return engine_id_of(job->native->options.engine, &job->caller, http_param(job->request, "id"),
                        verb, job->own_id, err);
}

static void listed(void *arg, const struct sandbox_port *ports, size_t count,
                   const struct error *err)
{
    struct job *job = arg;
    struct out *out;

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    out = job_out(job);
    out_object(out, NULL);
    out_array(out, "ports");
    for (size_t i = 0; i < count; i++)
        print_port(out, job, &ports[i]);
    out_array_end(out);
    out_object_end(out);
    job_answer(job, 200);
}

HANDLER(port_list)
{
    struct native *native = data;
    struct job *job = job_begin_for(request, ENGINE_LOOK);
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (find_id(job, ENGINE_LOOK, &err) < 0)
        job_problem(job, &err);
    else
        engine_ports_list(native->options.engine, &job->caller, job->own_id, listed, job);
}

static void opened(void *arg, const struct sandbox_port *port, const struct error *err)
{
    struct job *job = arg;

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    print_port(job_out(job), job, port);
    job_answer(job, 200);
}

HANDLER(port_open)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct error err;
    uint16_t port;
    int is_public;

    if (job == NULL || !job_query(job, no_query) || !job_once(job, true))
        return;
    if (body_port(job_body(job), &port, &is_public, &err) < 0 ||
        find_id(job, ENGINE_PORTS, &err) < 0)
        job_problem(job, &err);
    else
        engine_port_open(native->options.engine, &job->caller, job->own_id, port, is_public, opened,
                         job);
}

static void closed(void *arg, const struct error *err)
{
    if (err != NULL)
        job_problem(arg, err);
    else
        job_answer_nothing(arg);
}

HANDLER(port_close)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct error err;
    uint16_t port;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (port_of(job, &port, &err) < 0)
        job_problem(job, &err);
    else
        engine_port_close(native->options.engine, &job->caller, http_param(request, "id"), port,
                          closed, job);
}

/* ---- reached ---- */

struct reach {
    struct engine *engine;
    char id[24];
    uint16_t port;
    uint64_t box;
    bool is_named;  /* by a name of its own */
    bool is_public; /* the caller is anybody */
    bool is_tunnel; /* bytes, and no HTTP */
    const char *target;
    char *cookie;
    char prefix[96];
};

static void reach_free(void *own)
{
    struct reach *reach = own;

    free(reach->cookie);
    free(reach);
}

static void over(void *arg)
{
    struct reach *reach = arg;

    engine_port_left(reach->engine, reach->id, reach->is_public);
    free(reach);
}

/* By a name a server has its own Authorization. Who sends ours by mistake does not tell it to the server. */
static bool is_our_secret(const char *name, const char *value)
{
    if (strcasecmp(name, "X-API-Key") == 0)
        return engine_is_secret(value);
    if (strcasecmp(name, "Authorization") != 0)
        return false;
    return engine_is_secret(value) ||
           engine_is_secret(value + strcspn(value, " ") + strspn(value + strcspn(value, " "), " "));
}

static int proxy(struct job *job, const struct reach *reach, int socket, struct error *err)
{
    /* What is the API's own, or tells where it is. */
    static const char *const kept[] = {"Authorization", "X-API-Key", "X-Cove-Token",
                                       "Cookie",        "Referer",   NULL};
    static const char *const kept_named[] = {"X-Cove-Token", "Cookie", NULL};
    struct reach *lasting = malloc(sizeof(*lasting));
    char host[32];

    if (lasting == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for one more request to a port");
    *lasting = *reach;
    lasting->cookie = NULL;
    (void)snprintf(host, sizeof(host), "localhost:%u", reach->port);
    struct http_proxy_options options = {
        .server = socket,
        .target = reach->is_tunnel ? NULL : reach->target,
        .host = host,
        .kept = reach->is_named ? kept_named : kept,
        .keeps = is_our_secret,
        .cookie = reach->is_named ? reach->cookie : NULL,
        .prefix = reach->is_named ? NULL : reach->prefix,
        .is_guest = !reach->is_named,
        .is_tls = job_is_tls(job),
        .over = over,
        .arg = lasting,
    };
    if (http_proxy(job->request, &options, err) == 0)
        return 0;
    free(lasting);
    return -1;
}

static void dialled(void *arg, int socket, const struct error *err)
{
    struct job *job = arg;
    const struct reach *reach = job->own;
    struct error failed;

    if (err == NULL && proxy(job, reach, socket, &failed) == 0) {
        job->reached_box = reach->box;
        return;
    }
    if (err == NULL) {
        engine_port_left(reach->engine, reach->id, reach->is_public);
        (void)close(socket);
    }
    job_problem(job, err != NULL ? err : &failed);
}

static void client_gone(void *arg)
{
    (void)arg; /* whoever is dialling answers soon, and into nothing */
}

static struct reach *reach_new(struct job *job)
{
    struct reach *reach = calloc(1, sizeof(*reach));

    if (reach == NULL) {
        job_fail(job, "no_memory", "there is no memory for one more request to a port");
        return NULL;
    }
    reach->engine = job->native->options.engine;
    job->own = reach;
    job->free_own = reach_free;
    http_on_gone(job->request, client_gone, job);
    return reach;
}

static void dial(struct job *job, struct reach *reach)
{
    (void)snprintf(reach->id, sizeof(reach->id), "%s", job->own_id);
    reach->is_public = strcmp(job->caller.key_id, ENGINE_PUBLIC) == 0;
    reach->box = engine_port_box(reach->engine, job->own_id);
    engine_port_dial(reach->engine, &job->caller, job->own_id, reach->port, dialled, job);
}

bool ports_take_public(struct job *job)
{
    const char *pattern = http_pattern(job->request);
    struct error ignored;
    uint16_t port;

    return pattern != NULL && strcmp(pattern, "/v1/sandboxes/{id}/ports/{port}/**") == 0 &&
           port_of(job, &port, &ignored) == 0 &&
           engine_port_is_public(job->native->options.engine, http_param(job->request, "id"), port,
                                 &job->caller);
}

/* A page, or what a page shows as a part of its own. */
static bool is_navigation(const struct http_request *request)
{
    static const char *const places[] = {"document", "frame",  "iframe",       "embed",
                                         "object",   "worker", "sharedworker", "serviceworker"};
    const char *mode = http_header(request, "Sec-Fetch-Mode");
    const char *place = http_header(request, "Sec-Fetch-Dest");

    if (mode != NULL && strcasecmp(mode, "navigate") == 0)
        return true;
    for (size_t i = 0; place != NULL && i < sizeof(places) / sizeof(places[0]); i++)
        if (strcasecmp(place, places[i]) == 0)
            return true;
    return false;
}

/* Behind "/v1/sandboxes/ID/ports/PORT", as it was sent. */
static const char *rest_of(const struct http_request *request)
{
    const char *at = http_target(request);

    for (int slashes = 0; slashes < 6; at++) {
        if (*at == '\0')
            return NULL;
        slashes += *at == '/';
    }
    return at - 1;
}

HANDLER(port_reach)
{
    struct job *job = job_begin_for(request, ENGINE_PORTS);
    struct reach *reach;
    struct error err;
    uint16_t port;

    (void)data;
    if (job == NULL)
        return;
    if (is_navigation(request)) {
        job_fail(job, "browser_refused",
                 "a browser does not go to a page of a sandbox below the address of the API; open "
                 "the port and go to its `url`");
        return;
    }
    if (port_of(job, &port, &err) < 0 || find_id(job, ENGINE_PORTS, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    reach = reach_new(job);
    if (reach == NULL)
        return;
    reach->port = port;
    reach->target = rest_of(request);
    (void)snprintf(reach->prefix, sizeof(reach->prefix), "/v1/sandboxes/%s/ports/%u", job->own_id,
                   port);
    if (reach->target == NULL)
        job_fail(job, "route_not_found", "there is nothing at this path");
    else
        dial(job, reach);
}

/* Of bytes: "Upgrade: tcp". */
HANDLER(port_tunnel)
{
    struct job *job = job_begin_for(request, ENGINE_PORTS);
    const char *upgrade = http_header(request, "Upgrade");
    struct reach *reach;
    struct error err;
    uint16_t port;

    (void)data;
    if (job == NULL || !job_query(job, no_query))
        return;
    if (upgrade == NULL || strcasecmp(upgrade, "tcp") != 0) {
        http_add_header(request, "Upgrade", "tcp");
        job_fail(job, "upgrade_required", "this is a stream of bytes: send \"Upgrade: tcp\"");
        return;
    }
    if (port_of(job, &port, &err) < 0 || find_id(job, ENGINE_PORTS, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    reach = reach_new(job);
    if (reach == NULL)
        return;
    reach->port = port;
    reach->is_tunnel = true;
    dial(job, reach);
}

/* ---- at a name of its own: PORT-ID.DOMAIN ---- */

/* "PORT-ID" in front of the domain, any case, with or without a port behind. */
static bool is_of_domain(const char *host, const char *domain, char label[64])
{
    size_t length, size = strcspn(host, ":");

    if (domain == NULL || host[0] == '[')
        return false;
    length = strlen(domain);
    if (size <= length + 1 || host[size - length - 1] != '.' ||
        strncasecmp(host + size - length, domain, length) != 0 || size - length - 1 >= 64)
        return false;
    for (size_t i = 0; i < size - length - 1; i++)
        label[i] = (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] + 32 : host[i]);
    label[size - length - 1] = '\0';
    return strchr(label, '.') == NULL;
}

static int label_parse(char *label, uint16_t *port, const char **id)
{
    char *dash = strchr(label, '-');
    uint64_t number;
    struct error err;

    if (dash == NULL)
        return -1;
    *dash = '\0';
    *id = dash + 1;
    if (parse_count("port", label, 1, 65535, &number, &err) < 0 || strlen(*id) != KEEPER_ID_LENGTH)
        return -1;
    *port = (uint16_t)number;
    return 0;
}

struct cookie {
    const char *text, *value;
    size_t name_length, length; /* of the latter all, "NAME=VALUE" */
};

/* The next of "a=b; c=d". */
static bool cookie_next(const char **cookies, struct cookie *cookie)
{
    const char *at = *cookies;

    if (at == NULL)
        return false;
    at += strspn(at, "; \t");
    cookie->text = at;
    cookie->length = strcspn(at, ";");
    cookie->name_length = strcspn(at, "=;");
    cookie->value = at + cookie->name_length + (at[cookie->name_length] == '=');
    *cookies = at + cookie->length;
    return cookie->length > 0;
}

static bool cookie_is(const struct cookie *cookie, const char *name)
{
    return cookie->name_length == strlen(name) &&
           strncmp(cookie->text, name, cookie->name_length) == 0;
}

/* What is not ours; NULL: nothing. */
static char *cookies_of_page(const char *cookies)
{
    size_t room = cookies != NULL ? strlen(cookies) + 2 : 0, used = 0;
    char *rest = room > 0 ? malloc(room) : NULL;
    struct cookie cookie;

    while (rest != NULL && cookie_next(&cookies, &cookie))
        if (!cookie_is(&cookie, TOKEN) && !cookie_is(&cookie, TOKEN_HOST))
            used += (size_t)snprintf(rest + used, room - used, "%s%.*s", used > 0 ? "; " : "",
                                     (int)cookie.length, cookie.text);
    if (used > 0)
        return rest;
    free(rest);
    return NULL;
}

/* Whether a part of a query has that name, as whoever reads it decodes it. */
static bool part_is(const char *part, size_t length, const char *name)
{
    for (size_t at = 0; at < length && part[at] != '='; name++) {
        char letter = part[at++];
        char digits[3] = {0};

        if (letter == '%' && length - at >= 2 && isxdigit((unsigned char)part[at]) &&
            isxdigit((unsigned char)part[at + 1])) {
            memcpy(digits, part + at, 2);
            letter = (char)strtoul(digits, NULL, 16);
            at += 2;
        }
        if (*name == '\0' || letter != *name)
            return false;
    }
    return *name == '\0';
}

/* A browser came with a token in the URL: it goes on without, and keeps it as a cookie of that name only. */
static void send_on(struct job *job, const char *secret)
{
    const char *target = http_target(job->request), *mark = strchr(target, '?');
    char cookie[ENGINE_TOKEN_TEXT_MAX + 64], *place = malloc(strlen(target) + 2);
    size_t used = mark != NULL ? (size_t)(mark - target) : strlen(target), slashes;

    if (place == NULL) {
        job_fail(job, "no_memory", "there is no memory for this now");
        return;
    }
    /* "//other.example" would be somewhere else, and so would "/\\other.example" to a browser. */
    slashes = strspn(target, "/\\");
    target += slashes - 1;
    used -= slashes - 1;
    memcpy(place, target, used);
    place[0] = '/';
    for (char separator = '?'; mark != NULL; mark = strchr(mark + 1, '&')) {
        size_t length = strcspn(mark + 1, "&");

        if (part_is(mark + 1, length, TOKEN) || length == 0)
            continue;
        place[used++] = separator;
        memcpy(place + used, mark + 1, length);
        used += length;
        separator = '&';
    }
    place[used] = '\0';
    (void)snprintf(cookie, sizeof(cookie), TOKEN_HOST "=%s; Path=/; HttpOnly; SameSite=Lax; Secure",
                   secret);
    http_add_header(job->request, "Location", place);
    http_add_header(job->request, "Set-Cookie", cookie);
    http_add_header(job->request, "Cache-Control", "no-store");
    http_add_header(job->request, "Referrer-Policy", "no-referrer");
    explicit_bzero(cookie, sizeof(cookie));
    free(place);
    job_answer_bytes(job, 302, "text/plain", "", 0);
}

/* A browser sends the cookie whatever page has it do so, and the pages of other sandboxes are of the same site to
 * it: only this one's own may use it, and a link may lead here. */
static bool is_of_own_page(const struct http_request *request)
{
    const char *origin = http_header(request, "Origin"), *host = http_header(request, "Host");
    const char *site = http_header(request, "Sec-Fetch-Site");
    const char *mode = http_header(request, "Sec-Fetch-Mode");
    const char *place = http_header(request, "Sec-Fetch-Dest"), *method = http_method(request);
    bool is_read = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    bool is_link = is_read && mode != NULL && strcasecmp(mode, "navigate") == 0 && place != NULL &&
                   strcasecmp(place, "document") == 0;

    if (origin != NULL && !origin_is_host(origin, host))
        return false;
    return origin_fetch_is_ours(site) || is_link;
}

static int take_caller(struct job *job, const struct reach *reach, const char *secret,
                       struct error *err)
{
    if (engine_key_check(reach->engine, secret, &job->caller, err) < 0)
        return -1;
    return engine_may(reach->engine, &job->caller, reach->id, ENGINE_PORTS, err);
}

/* 1: there is none that counts. Where a browser lets a neighbour's page add some, it sends them as well as ours: so
 * each is tried. */
static int take_cookie(struct job *job, const struct reach *reach, struct error *err)
{
    const char *cookies = job_is_tls(job) ? http_header(job->request, "Cookie") : NULL;
    char secret[ENGINE_TOKEN_TEXT_MAX];
    struct cookie cookie;
    int failed = 1;

    while (failed != 0 && cookie_next(&cookies, &cookie)) {
        int length = (int)(cookie.text + cookie.length - cookie.value);

        if (!cookie_is(&cookie, TOKEN_HOST) || (size_t)length >= sizeof(secret))
            continue;
        if (!is_of_own_page(job->request))
            return error_set(err, "forbidden_origin", 0,
                             "the request comes from a page of another origin");
        (void)snprintf(secret, sizeof(secret), "%.*s", length, cookie.value);
        if (engine_is_token(secret))
            failed = take_caller(job, reach, secret, err);
    }
    explicit_bzero(secret, sizeof(secret));
    return failed;
}

static int find_caller(struct job *job, const struct reach *reach, const char *given,
                       struct error *err)
{
    int failed;

    if (engine_port_is_public(reach->engine, reach->id, reach->port, &job->caller))
        return 0;
    if (given != NULL)
        return take_caller(job, reach, given, err);
    failed = take_cookie(job, reach, err);
    return failed <= 0 ? failed
                       : error_set(err, "bad_key", 0,
                                   "port %u of this sandbox is not public; send a key or a token "
                                   "as X-Cove-Token, or over TLS a token as ?" TOKEN "=TOKEN",
                                   reach->port);
}

bool ports_take_host(struct job *job)
{
    const char *host = http_header(job->request, "Host");
    char label[64];
    const char *id, *asked;
    struct reach *reach;
    struct error err;
    uint16_t port;

    if (host == NULL || !is_of_domain(host, job->native->port_domain, label))
        return false;
    asked = http_query(job->request, TOKEN);
    if (label_parse(label, &port, &id) < 0) {
        job_fail(job, "forbidden_host", "there is no sandbox of this name: it is PORT-ID");
        return true;
    }
    if (asked != NULL && (!engine_is_token(asked) || strlen(asked) >= ENGINE_TOKEN_TEXT_MAX)) {
        job_fail(job, "bad_key", "a URL takes tokens only; send a key as X-Cove-Token");
        return true;
    }
    if (asked != NULL && !job_is_tls(job)) {
        job_fail(
            job, "needs_tls",
            "a token in a URL becomes a cookie, and that is given over TLS only: serve the names of "
            "ports by https, or have the front say X-Forwarded-Proto: https, or send the token as "
            "X-Cove-Token");
        return true;
    }
    reach = reach_new(job);
    if (reach == NULL)
        return true;
    (void)snprintf(job->own_id, sizeof(job->own_id), "%s", id);
    (void)snprintf(reach->id, sizeof(reach->id), "%s", id);
    reach->port = port;
    reach->is_named = true;
    reach->target = http_target(job->request);
    reach->cookie = cookies_of_page(http_header(job->request, "Cookie"));
    if (find_caller(job, reach, asked != NULL ? asked : http_header(job->request, "X-Cove-Token"),
                    &err) < 0)
        job_problem(job, &err);
    else if (asked != NULL)
        send_on(job, asked);
    else if (admit_caller(job))
        dial(job, reach);
    return true;
}
