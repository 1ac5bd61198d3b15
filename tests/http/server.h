/* What the files of the test server share. */
#pragma once

#include "http/http.h"

extern uv_loop_t *loop;
extern struct http_server *server;
extern size_t gone_count, live_count, most_waiting, backlog_bytes;
/* WebSockets that have ended, and how the last one did. */
extern size_t closed_count;
extern unsigned closed_code;

/* A number of the query. */
size_t number(struct http_request *request, const char *name, size_t otherwise);
void answer_text(struct http_request *request, unsigned status, const char *text);

/* pipes.c */
void get_sized(struct http_request *request, void *data);
void get_pipe(struct http_request *request, void *data);

/* proxies.c */
void any_proxy(struct http_request *request, void *data);

/* websockets.c */
void get_talk(struct http_request *request, void *data);
void get_source(struct http_request *request, void *data);
