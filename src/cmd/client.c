/* A small HTTP/1.1 client: see client.h. Its connection, with every wait, is conn.c's. */
#include "cmd/client.h"

#include "base/base64.h"
#include "base/fd.h"
#include "base/hex.h"
#include "cmd/carry.h"
#include "cmd/conn.h"
#include "cmd/options.h"
#include "cmd/show.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#define INTERIMS_MAX 16 /* answers such as "100 Continue" */

struct client {
    struct conn conn;
    const char *key; /* the environment's; NULL: none */

    struct wire_head head; /* of the last answer; borrows from head_text */
    char head_text[WIRE_HEAD_MAX];
    bool has_body; /* and not all of it was read */
    uint64_t left; /* of a body with a length */
    struct wire_chunks chunks;

    const char *framing; /* of a body in parts, while its head is written */
    bool is_chunked;     /* that body */

    size_t in_start, in_end; /* what came and was not looked at */
    char in[WIRE_HEAD_MAX];
    char *line; /* of client_line() */
    size_t line_size, line_room, line_taken;
    size_t answer_bytes; /* of client_call() */
};

/* ---- its life ---- */

static int key_check(const char *key, struct error *err)
{
    size_t length = strlen(key);

    for (size_t i = 0; i < length; i++)
        if (key[i] <= 0x20 || key[i] >= 0x7f)
            return error_set(err, "bad_key", 0,
                             "COVE_API_KEY: it holds a character that no key has; copy it again");
    if (length > 512)
        return error_set(err, "bad_key", 0, "COVE_API_KEY: no key is that long; copy it again");
    return 0;
}

/* It is that of the server that was named, or the system's, whose socket lies where only root may put one; whatever
 * else answers must not get it. Root and the socket's owner need none there. */
static const char *key_for(const struct wire_address *address)
{
    const char *url = getenv("COVE_URL");
    const char *key = getenv("COVE_API_KEY");
    bool is_named = url != NULL && url[0] != '\0';

    if (key == NULL || key[0] == '\0')
        return NULL;
    return is_named || client_is_others_socket(address) ? key : NULL;
}

int client_new(const struct wire_address *address, struct client **out, struct error *err)
{
    const char *key = key_for(address);
    struct client *client;

    if (key != NULL && key_check(key, err) < 0)
        return -1;
    client = calloc(1, sizeof(*client));
    if (client == NULL)
        return option_no_memory(err);
    if (key != NULL)
        (void)prctl(PR_SET_DUMPABLE, 0); /* no core file gets it */
    conn_init(&client->conn, address);
    client->key = key;
    *out = client;
    return 0;
}

int client_copy(const struct client *client, struct client **out, struct error *err)
{
    return client_new(&client->conn.address, out, err);
}

const char *client_socket(const struct client *client)
{
    return client->conn.address.is_unix ? client->conn.address.path : NULL;
}

void client_abandon(struct client *client)
{
    conn_close(&client->conn);
    client->in_start = client->in_end = 0;
    client->has_body = false;
}

void client_close(struct client *client)
{
    if (client == NULL)
        return;
    client_abandon(client);
    conn_free(&client->conn);
    free(client->line);
    free(client);
}

void client_closep(struct client **client)
{
    client_close(*client);
    *client = NULL;
}

void client_watch(struct client *client, int fd, void (*call)(void *arg), void *arg)
{
    client->conn.watch_fd = fd;
    client->conn.watch_call = call;
    client->conn.watch_arg = arg;
}

/* ---- errors ---- */

bool client_was_cut(const struct error *err)
{
    return strcmp(err->code, "cut") == 0 || strcmp(err->code, "no_server") == 0;
}

bool client_may_come_back(const struct error *err)
{
    return client_was_cut(err) || strcmp(err->code, "no_answer") == 0 ||
           strcmp(err->code, "draining") == 0 || strcmp(err->code, "not_ready") == 0;
}

/* ---- connecting ---- */

int client_connect(struct client *client, struct error *err)
{
    /* A kept connection on which something comes before anything was asked has ended. */
    if (client->has_body || client->in_start != client->in_end ||
        (client->conn.fd >= 0 && !conn_is_quiet(&client->conn)))
        client_abandon(client);
    return client->conn.fd >= 0 ? 0 : conn_open(&client->conn, err);
}

/* ---- sending ---- */

static char *request_text(const struct client *client, const struct client_request *request,
                          const char *body, size_t body_size, size_t *size)
{
    const char *method = request->method == NULL ? "GET" : request->method;
    char *text = NULL;
    FILE *out = open_memstream(&text, size);

    if (out == NULL)
        return NULL;
    (void)fprintf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: cove/" COVE_VERSION "\r\n",
                  method, request->path, client->conn.address.header);
    if (client->key != NULL)
        (void)fprintf(out, "Authorization: Bearer %s\r\n", client->key);
    if (request->repeat_key != NULL)
        (void)fprintf(out, "Idempotency-Key: %s\r\n", request->repeat_key);
    if (body != NULL)
        (void)fprintf(out, "Content-Type: application/%s\r\n",
                      request->json != NULL ? "json" : "octet-stream");
    if (request->upgrade_key != NULL)
        (void)fprintf(out,
                      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                      "Sec-WebSocket-Key: %s\r\n",
                      request->upgrade_key);
    if (request->is_tunnel)
        (void)fputs("Connection: Upgrade\r\nUpgrade: tcp\r\n", out);
    if (client->framing != NULL)
        (void)fprintf(out, "Content-Type: application/octet-stream\r\n%s", client->framing);
    else if (strcmp(method, "GET") != 0)
        (void)fprintf(out, "Content-Length: %zu\r\n", body_size);
    (void)fputs("\r\n", out);
    if (body_size > 0)
        (void)fwrite(body, 1, body_size, out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- receiving ---- */

/* Reads more into `in`; 0 at the end of the connection. */
static ssize_t receive(struct client *client, uint64_t deadline, struct error *err)
{
    ssize_t n;

    if (client->in_start > 0) {
        memmove(client->in, client->in + client->in_start, client->in_end - client->in_start);
        client->in_end -= client->in_start;
        client->in_start = 0;
    }
    n = conn_receive(&client->conn, client->in + client->in_end,
                     sizeof(client->in) - client->in_end, deadline, err);
    client->in_end += n > 0 ? (size_t)n : 0;
    return n;
}

static int head_read(struct client *client, uint64_t deadline, struct error *err)
{
    size_t size;

    for (;;) {
        size_t there = client->in_end - client->in_start;
        ssize_t n;

        size = wire_head_length(client->in + client->in_start, there);
        if (size > 0)
            break;
        if (there == sizeof(client->in))
            return error_set(err, "bad_answer", 0,
                             "the server's answer is no HTTP: its head does not end; check that "
                             "COVE_URL leads to cove");
        n = receive(client, deadline, err);
        if (n < 0)
            return -1;
        if (n == 0 && there > 0 &&
            memcmp(client->in + client->in_start, "HTTP/", there < 5 ? there : 5) != 0)
            return error_set(err, "bad_answer", 0,
                             "the server's answer is no HTTP; check that COVE_URL leads to cove, "
                             "and whether it has to begin with https");
        if (n == 0)
            return conn_cut(err, 0);
    }
    memcpy(client->head_text, client->in + client->in_start, size);
    client->in_start += size;
    return wire_head_parse(client->head_text, size, &client->head, err);
}

static void body_begin(struct client *client)
{
    const struct wire_head *head = &client->head;

    client->chunks = (struct wire_chunks){0};
    client->left = head->has_length ? head->length : UINT64_MAX;
    client->line_size = client->line_taken = 0;
    client->has_body = head->status != 204 && head->status != 304 && client->left != 0;
    if (!client->has_body && head->closes)
        client_abandon(client);
}

static int answer_begin(struct client *client, uint64_t deadline, bool upgrades, struct error *err)
{
    for (int i = 0; i < INTERIMS_MAX; i++) {
        if (head_read(client, deadline, err) < 0)
            return -1;
        if (client->head.status >= 200) {
            body_begin(client);
            return 0;
        }
        if (client->head.status == 101) {
            if (!upgrades)
                break;
            client->has_body = false;
            return 0;
        }
    }
    return error_set(err, "bad_answer", 0,
                     "the server's answer never comes to its point; check that COVE_URL leads to "
                     "cove");
}

static void body_end(struct client *client)
{
    client->has_body = false;
    if (client->head.closes)
        client_abandon(client);
}

/* What is there of the content, in place: how much, 0 if there is none yet. */
static ssize_t content_take(struct client *client, size_t most, char **content, struct error *err)
{
    size_t there = client->in_end - client->in_start;
    size_t size = there < most ? there : most;

    *content = client->in + client->in_start;
    if (client->head.is_chunked) {
        ssize_t taken = wire_chunks_take(&client->chunks, *content, size, &size, err);

        if (taken < 0) {
            client_abandon(client);
            return -1;
        }
        client->in_start += (size_t)taken;
        if (client->chunks.state == WIRE_CHUNK_END)
            body_end(client);
        return (ssize_t)size;
    }
    if (size > client->left)
        size = (size_t)client->left;
    client->in_start += size;
    if (client->left != UINT64_MAX)
        client->left -= size;
    if (client->left == 0)
        body_end(client);
    return (ssize_t)size;
}

ssize_t client_read(struct client *client, void *into, size_t size, struct error *err)
{
    while (client->has_body) {
        char *content;
        ssize_t n;

        if (client->in_start == client->in_end) {
            n = receive(client, conn_deadline(CLIENT_IDLE_MS), err);
            if (n < 0) {
                client_abandon(client);
                return -1;
            }
            if (n == 0) {
                bool is_whole = !client->head.is_chunked && !client->head.has_length;

                client_abandon(client);
                return is_whole ? 0 : conn_cut(err, 0);
            }
        }
        n = content_take(client, size, &content, err);
        if (n < 0)
            return -1;
        if (n > 0) {
            memcpy(into, content, (size_t)n);
            return n;
        }
    }
    return 0;
}

static int line_grow(struct client *client, struct error *err)
{
    size_t room = client->line_room == 0 ? 65536 : client->line_room * 2;
    char *line;

    if (client->line_room >= CLIENT_LINE_MAX)
        return error_set(err, "bad_answer", 0,
                         "the server's answer has a line without end; check that COVE_URL leads to "
                         "cove");
    line = realloc(client->line, room);
    if (line == NULL)
        return option_no_memory(err);
    client->line = line;
    client->line_room = room;
    return 0;
}

int client_line(struct client *client, char **line, size_t *size, struct error *err)
{
    size_t searched = 0;

    client->line_size -= client->line_taken;
    if (client->line_taken > 0)
        memmove(client->line, client->line + client->line_taken, client->line_size);
    client->line_taken = 0;
    for (;;) {
        char *end = client->line_size == searched
                        ? NULL
                        : memchr(client->line + searched, '\n', client->line_size - searched);
        ssize_t n;

        if (end != NULL) {
            *end = '\0';
            *line = client->line;
            *size = (size_t)(end - client->line);
            client->line_taken = *size + 1;
            return 1;
        }
        searched = client->line_size;
        if (client->line_size == client->line_room && line_grow(client, err) < 0)
            return -1;
        n = client_read(client, client->line + client->line_size,
                        client->line_room - client->line_size, err);
        if (n < 0)
            return -1;
        if (n == 0)
            return client->line_size == 0 ? 0 : conn_cut(err, 0);
        client->line_size += (size_t)n;
    }
}

uint64_t client_left(const struct client *client)
{
    return client->left;
}

const char *client_header(const struct client *client, const char *name)
{
    return wire_header_get(&client->head, name);
}

/* ---- whole answers ---- */

static int body_read(struct client *client, char **body, size_t *size, struct error *err)
{
    char *text = NULL;
    size_t used = 0;
    size_t room = 0;
    ssize_t n;

    do {
        if (room - used < 2) {
            size_t more = room == 0 ? 16384 : room * 2;
            char *grown = more > CLIENT_BODY_MAX ? NULL : realloc(text, more);

            if (grown == NULL) {
                free(text);
                client_abandon(client);
                return error_set(err, "bad_answer", 0,
                                 "the server's answer is longer than any of cove's; check that "
                                 "COVE_URL leads to cove");
            }
            text = grown;
            room = more;
        }
        n = client_read(client, text + used, room - used - 1, err);
        used += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    if (n < 0) {
        free(text);
        return -1;
    }
    text[used] = '\0';
    *body = text;
    *size = used;
    return 0;
}

static bool code_is_good(const char *code)
{
    return code != NULL && code[0] != '\0' && strlen(code) < ERROR_CODE_MAX &&
           code[strspn(code, "abcdefghijklmnopqrstuvwxyz_0123456789")] == '\0';
}

/* The sentence of a problem document (RFC 9457), with the remedy that only we know. */
static int refused(const struct client *client, const struct doc *problem, struct error *err)
{
    const char *code = doc_text(problem, "code");
    const char *detail = doc_text(problem, "detail");
    const char *remedy = doc_text(problem, "remedy");
    char shown[ERROR_TEXT_MAX];
    char shown_remedy[ERROR_TEXT_MAX];

    if (!code_is_good(code)) {
        (void)error_set(
            err, "bad_answer", 0,
            "the server answered with status %u and no reason; check that COVE_URL leads "
            "to cove",
            client->head.status);
        return -1;
    }
    if (detail == NULL)
        detail = doc_text(problem, "title");
    show_escape(shown, sizeof(shown), detail == NULL ? code : detail);
    /* A detail in two parts says itself what to do, and knows better than the remedy of its kind; that of
     * a bad request is the document of the API, which nobody at a command line has before him. */
    if (remedy == NULL || strchr(shown, ';') != NULL || strcmp(code, "bad_request") == 0)
        remedy = "";
    show_escape(shown_remedy, sizeof(shown_remedy), remedy);
    /* It goes on with the sentence; a word in capitals stays one. */
    if (shown_remedy[0] != '\0' && islower((unsigned char)shown_remedy[1]))
        shown_remedy[0] = (char)tolower((unsigned char)shown_remedy[0]);
    if (strcmp(code, "bad_key") == 0 && client->key == NULL)
        return error_set(err, "no_key", 0, "the server wants a key; set COVE_API_KEY");
    return error_set(err, code, 0, "%s%s%s", shown, shown_remedy[0] == '\0' ? "" : "; ",
                     shown_remedy);
}

/* Reads an answer that is no success to its end. */
static int refusal_read(struct client *client, struct error *err)
{
    _cleanup_free_ char *body = NULL;
    _cleanup_doc_ struct doc *problem = NULL;
    struct error ignored;
    size_t size = 0;

    if (body_read(client, &body, &size, err) < 0)
        return -1;
    if (size > 0)
        (void)doc_parse(body, size, &problem, &ignored);
    return refused(client, problem, err);
}

static int request_send(struct client *client, const struct client_request *request,
                        const char *body, size_t body_size, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    bool may_repeat = request->repeat_key != NULL || request->method == NULL;
    unsigned answer_ms = request->answer_ms == 0 ? CLIENT_ANSWER_MS : request->answer_ms;
    size_t size = 0;

    text = request_text(client, request, body, body_size, &size);
    if (text == NULL)
        return option_no_memory(err);
    for (int attempt = 0;; attempt++) {
        uint64_t deadline = conn_deadline(answer_ms);
        int result;

        if (client_connect(client, err) < 0)
            return -1;
        result = conn_send(&client->conn, text, size, deadline, err);
        if (result == 0)
            result = answer_begin(client, deadline,
                                  request->upgrade_key != NULL || request->is_tunnel, err);
        if (result == 0)
            return 0;
        client_abandon(client);
        if (attempt > 0 || !may_repeat || strcmp(err->code, "cut") != 0)
            return -1;
    }
}

int client_start(struct client *client, const struct client_request *request, struct error *err)
{
    _cleanup_free_ char *json = NULL;
    const char *body = request->bytes;
    size_t size = request->size;

    if (request->json != NULL) {
        json = doc_dump(request->json, err);
        if (json == NULL)
            return -1;
        body = json;
        size = strlen(json);
    }
    if (request_send(client, request, body, size, err) < 0)
        return -1;
    if (client->head.status / 100 == 2)
        return 0;
    return refusal_read(client, err);
}

int client_call(struct client *client, const struct client_request *request, struct doc **answer,
                struct error *err)
{
    _cleanup_free_ char *body = NULL;
    size_t size = 0;

    if (answer != NULL)
        *answer = NULL;
    if (client_start(client, request, err) < 0 || body_read(client, &body, &size, err) < 0)
        return -1;
    client->answer_bytes = size;
    return answer == NULL || size == 0 ? 0 : doc_parse(body, size, answer, err);
}

/* ---- bodies in parts ---- */

static int send_part(struct client *client, const char *data, size_t size, struct error *err)
{
    if (conn_send(&client->conn, data, size, conn_deadline(CLIENT_ANSWER_MS), err) == 0)
        return 0;
    client_abandon(client);
    return -1;
}

int client_begin(struct client *client, const struct client_request *request, uint64_t length,
                 struct error *err)
{
    _cleanup_free_ char *head = NULL;
    size_t size = 0;
    char text[96];

    client->is_chunked = length == UINT64_MAX;
    if (client->is_chunked)
        (void)snprintf(text, sizeof(text), "Transfer-Encoding: chunked\r\n");
    else
        (void)snprintf(text, sizeof(text), "Content-Length: %" PRIu64 "\r\n", length);
    client->framing = text;
    head = request_text(client, request, NULL, 0, &size);
    client->framing = NULL;
    if (head == NULL)
        return option_no_memory(err);
    return client_connect(client, err) < 0 ? -1 : send_part(client, head, size, err);
}

int client_send(struct client *client, const void *data, size_t size, struct error *err)
{
    char head[24];
    int length = snprintf(head, sizeof(head), "%zx\r\n", size);

    if (!conn_is_quiet(&client->conn))
        return 1;
    if (size == 0)
        return 0;
    if (!client->is_chunked)
        return send_part(client, data, size, err);
    if (send_part(client, head, (size_t)length, err) < 0 || send_part(client, data, size, err) < 0)
        return -1;
    return send_part(client, "\r\n", 2, err);
}

int client_sent(struct client *client, struct doc **answer, struct error *err)
{
    _cleanup_free_ char *body = NULL;
    size_t size = 0;

    if (answer != NULL)
        *answer = NULL;
    if (client->is_chunked && conn_is_quiet(&client->conn) &&
        send_part(client, "0\r\n\r\n", 5, err) < 0)
        return -1;
    if (answer_begin(client, CONN_FOREVER, false, err) < 0) {
        client_abandon(client);
        return -1;
    }
    if (client->head.status / 100 != 2)
        return refusal_read(client, err);
    if (body_read(client, &body, &size, err) < 0)
        return -1;
    return answer == NULL || size == 0 ? 0 : doc_parse(body, size, answer, err);
}

/* ---- a WebSocket, and a tunnel ---- */

static int upgrade(struct client *client, const struct client_request *request, const char *what,
                   struct error *err)
{
    if (request_send(client, request, NULL, 0, err) < 0)
        return -1;
    if (client->head.status == 101)
        return 0;
    if (client->head.status / 100 != 2)
        return refusal_read(client, err);
    client_abandon(client);
    return error_set(err, "bad_answer", 0,
                     "the server answers as if no %s had been asked for; if something stands "
                     "between it and here, let that pass upgrades",
                     what);
}

int client_tunnel(struct client *client, const char *path, struct error *err)
{
    const struct client_request request = {.path = path, .is_tunnel = true};

    return upgrade(client, &request, "tunnel", err);
}

int client_carry(struct client *client, int fd, struct error *err)
{
    return carry(&client->conn, client->in + client->in_start, client->in_end - client->in_start,
                 fd, err);
}

/* What the server makes of the key is not looked at: that guards against answers out of a cache, and
 * nothing stores the answer to this. */
int client_upgrade(struct client *client, const char *path, struct error *err)
{
    unsigned char bytes[16];
    char key[BASE64_SIZE(sizeof(bytes)) + 1] = {0};
    const struct client_request request = {.path = path, .upgrade_key = key};

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return error_set(err, "random", errno, "getrandom: the kernel refused it");
    base64_encode(bytes, sizeof(bytes), key);
    return upgrade(client, &request, "WebSocket", err);
}

int client_raw_send(struct client *client, const void *data, size_t size, struct error *err)
{
    return conn_send(&client->conn, data, size, CONN_FOREVER, err);
}

ssize_t client_raw_receive(struct client *client, void *into, size_t size, struct error *err)
{
    size_t there = client->in_end - client->in_start;
    ssize_t n;

    if (there > 0) { /* it came with the head */
        size = size < there ? size : there;
        memcpy(into, client->in + client->in_start, size);
        client->in_start += size;
        return (ssize_t)size;
    }
    n = conn_receive(&client->conn, into, size, CONN_FOREVER, err);
    return n == 0 ? conn_cut(err, 0) : n;
}

size_t client_answer_bytes(const struct client *client)
{
    return client->answer_bytes;
}

int client_repeat_key(char key[CLIENT_KEY_SIZE], struct error *err)
{
    unsigned char bytes[(CLIENT_KEY_SIZE - 1) / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return error_set(err, "random", errno, "getrandom: the kernel refused it");
    hex_encode(bytes, sizeof(bytes), key);
    return 0;
}
