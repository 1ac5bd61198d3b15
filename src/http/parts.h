/* What the files of this room share: a server, its connections, their requests.
 *
 * A connection has one request at a time. A request outlives its connection where the client is gone
 * before it is answered; `conn` is NULL then, and everything it still sends goes nowhere. */
#pragma once

#include "http/bytes.h"
#include "http/http.h"
#include "http/parse.h"
#include "http/tls.h"

#include <sys/queue.h>
#include <sys/uio.h>

#define HTTP_SCRATCH ((size_t)256 * 1024)
/* Between two requests, and while one is answered, so much is read at once: what follows a request waits in
 * memory. */
#define HTTP_AHEAD ((size_t)16 * 1024)
#define HTTP_PARAMS_MAX 8
/* Beyond the limit of connections, so many more are told so; then accepting stops. */
#define HTTP_REFUSED_MAX 64
#define HTTP_HOUSES 1024
#define HTTP_LANES 256
/* Requests of one lane that are begun in a round of the loop: others wait for no more than these. */
#define HTTP_LANE_MAX 2
#define HTTP_OWNER_SIZE 256
/* Connections that linger have no place any more; so many of them may be there, on TCP and on unix each. */
#define HTTP_LINGER_MAX 256

struct http_listener {
    SLIST_ENTRY(http_listener) next;
    uv_poll_t poll;
    int fd;
    bool is_unix;
    struct http_server *server;
};

/* The peer whose key the requests of some connections have: see owners.c. */
struct http_owner {
    LIST_ENTRY(http_owner) next;
    size_t places[2]; /* of connections, on TCP and on unix sockets; it ends with its last */
    size_t at_work[2];
    size_t held;    /* bytes of bodies and messages */
    size_t waiting; /* bytes of whole answers that it does not take, when they were last added up */
    char name[];
};

enum http_conn_state {
    CONN_HEADER,    /* between two requests, or in a header */
    CONN_HANDSHAKE, /* before that, TLS has not come about */
    CONN_BODY,      /* the body is coming */
    CONN_HANDLING,  /* the request is whole, the answer is not */
    CONN_WEBSOCKET, /* frames are read, until both have closed */
    CONN_PROXY,     /* bytes go to a server, and come back */
    CONN_LINGER,    /* answered and shut down, without a place: what still comes is thrown away */
    CONN_CLOSED,
};

struct http_conn {
    TAILQ_ENTRY(http_conn) next;
    TAILQ_ENTRY(http_conn) kicked_next;
    TAILQ_ENTRY(http_conn) linger_next;
    TAILQ_ENTRY(http_conn) line_next;
    TAILQ_ENTRY(http_conn) put_off_next;
    struct http_server *server;
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    int events; /* that the poll watches */
    enum http_conn_state state;
    bool is_closing; /* after the answer and what waits to be written */
    bool is_broken;  /* cannot be written to; or is to be cut */
    bool is_kicked;
    bool is_processing;
    bool is_in_line; /* its request is here, and waits in the line of its lane */
    bool is_put_off; /* what it sent of a body, of frames or of bytes waits in a line of its lane */
    bool has_turn;   /* it was the first of that line: what it sent ahead may begin, too */
    bool is_known;   /* its first request was looked at for an owner */
    bool has_asked;  /* a request, whole up to its body */
    bool is_in_header;                /* the deadline is that of a header that has begun */
    bool has_unread;                  /* more of a body may come that nobody will read */
    bool is_stuck;                    /* the socket takes no more of a pipe for now */
    bool copies;                      /* it takes no splice */
    bool is_silent;                   /* nothing that was sent was acknowledged at the last look */
    bool is_shutting;                 /* it has still to be said that no more follows */
    struct http_handshake *handshake; /* NULL: not begun, or over */
    struct http_tls *tls;             /* NULL: none, or not yet */
    struct http_owner *owner;         /* of its last request; NULL: a stranger's */
    bool is_at_work;                  /* its owner has a request under way on it */
    unsigned house;                   /* its peer's */
    unsigned lane;                    /* of its last request, at first of its house */
    unsigned put_off_lane;            /* in whose line it waits */
    unsigned handles;                 /* of libuv, not closed yet */
    uint64_t deadline;                /* 0: none */
    uint64_t timer_due;
    uint64_t answer_until; /* all of the last answer must be taken by then */
    size_t scanned;        /* of the header in `in` */
    size_t lingered;
    uint64_t moved; /* bytes that came or went since the last look while draining */
    size_t waiting; /* as it counts in the server's: of an answer that is whole */
    struct http_bytes in;
    struct http_bytes out;
    struct http_bytes behind; /* what follows `out`, where that has bytes */
    struct http_chunks chunks;
    uint64_t body_left; /* where the body is not chunked */
    struct http_request *request;
    uint64_t received, sent; /* since a request was asked for that: http_moved() */
    struct http_peer peer;
};

struct http_server {
    uv_loop_t *loop;
    const struct http_route *routes;
    size_t routes_count;
    void *data;
    struct http_limits limits;
    bool (*find_owner)(const struct http_request *request, char *name, size_t size, void *data);
    bool (*admit)(struct http_request *request, void *data);
    void (*handle)(struct http_request *request, void *data);
    void (*refuse)(struct http_request *request, unsigned status, const char *code,
                   const char *detail, void *data);
    void (*over)(const struct http_request *request, unsigned status, void *data);
    bool is_tls;
    struct http_certificate *certificate;
    TAILQ_HEAD(http_handshakes, http_handshake) handshakes; /* begun */
    size_t handshakes_count, handshakes_working;
    unsigned short handshakes_houses[HTTP_HOUSES];
    uint64_t handshakes_turn, house_turns[HTTP_HOUSES]; /* when each had its last */
    uint64_t accepted, received_bytes, sent_bytes;
    SLIST_HEAD(http_listeners, http_listener) listeners;
    TAILQ_HEAD(http_conns, http_conn) conns;
    TAILQ_HEAD(http_kicked, http_conn) kicked; /* to be looked after at the next turn of `idle` */
    TAILQ_HEAD(http_lingering, http_conn) lingering[2];
    size_t conns_count;
    size_t open_count[2];          /* on TCP, on unix sockets */
    size_t houses[2][HTTP_HOUSES]; /* the same of strangers, by where the peer is */
    size_t at_work[2];             /* the same, where owners have a request under way */
    LIST_HEAD(http_owners, http_owner) owners[HTTP_LANES];
    size_t linger_count[2];
    size_t linger_houses[2][HTTP_HOUSES];
    uint64_t seed;        /* of who shares a house */
    size_t waiting_bytes; /* of answers that are whole and that their clients do not take */
    size_t waiting_houses[2][HTTP_HOUSES]; /* the same of strangers, when they were last added up */
    size_t
        held_bytes; /* of bodies and messages that are kept whole, where the client is still there */
    size_t held_houses[2][HTTP_HOUSES]; /* the same of strangers */
    unsigned char begun[HTTP_LANES];    /* requests of each lane, in this round of the loop */
    TAILQ_HEAD(http_line, http_conn) lines[HTTP_LANES];
    size_t in_line;                /* connections in all lines */
    uint64_t spent_ns[HTTP_LANES]; /* on each lane's input, in this round of the loop */
    uint64_t turn_began;
    TAILQ_HEAD(http_put_off, http_conn) put_off[HTTP_LANES];
    size_t put_off_count;
    uv_prepare_t round;
    uv_idle_t idle;   /* runs while there are kicked connections, or some in a line or put off */
    uv_timer_t timer; /* accepting again; then the end of draining */
    bool is_paused;   /* accepts nothing for now */
    bool is_draining;
    bool is_stopped;
    uint64_t drain_until;
    void (*drained)(void *arg);
    void *drained_arg;
    unsigned handles;
    time_t date_of;
    char date[40];
    char scratch[HTTP_SCRATCH];
};

struct http_param {
    const char *name; /* in the pattern: not terminated */
    size_t name_length;
    const char *value;
};

struct http_request {
    struct http_server *server; /* only while there is a connection */
    struct http_conn *conn;
    const struct http_route *route;
    bool is_head;
    bool is_old;
    bool is_handed; /* a handler, or admit(), has seen it */
    bool is_whole;  /* all of the body has been read */
    bool is_held;   /* the handler wants no more of the body now */
    bool is_begun;  /* the header of the answer is out */
    bool collects;  /* the body is kept for a handler that gets it whole */
    bool waits_for_drain;
    bool is_sized;     /* the answer's length is told, and so much is left of it */
    bool sends_chunks; /* the answer's parts */
    bool has_pipe;
    int pipe;
    size_t pipe_size;
    size_t pipe_left;
    uint64_t length_left;
    void (*pipe_sent)(void *arg);
    void *pipe_arg;
    struct http_websocket *websocket;
    struct http_proxy *proxy;
    unsigned status;         /* of the answer; 0: none yet */
    uint64_t received, sent; /* that its connection had, which is gone */
    size_t size;             /* of its header and what is kept beside that; 0: it is a usual one */
    size_t held;             /* of that, its body or message, as it counts in the server's */
    bool is_charged;         /* for its size, too: its owner is known */
    void (*over)(const struct http_request *request, unsigned status, void *data);
    void *over_data; /* both the server's, who may be gone before */
    void *user;
    void (*free_user)(void *user);
    void (*gone)(void *arg);
    void *gone_arg;
    bool (*part)(void *arg, const void *data, size_t size);
    void *part_arg;
    void (*drained)(void *arg);
    void *drained_arg;
    struct http_bytes body;
    struct http_bytes extra; /* more lines of the answer's header */
    struct http_param params[HTTP_PARAMS_MAX];
    size_t params_count;
    struct http_head head;
    struct http_peer peer;
    char text[]; /* the header, and room for the decoded path and for the target */
};

/* ---- route.c ---- */

/* The route for the request's method and path, with its parameters in `request`. Where there is none:
 * NULL, and `no` says why; for a method that the path does not have, `allow` lists those it has. */
const struct http_route *http_route_find(struct http_request *request, char *decoded,
                                         const struct http_server *server, struct http_refusal *no,
                                         char allow[64]);

/* ---- request.c ---- */

struct http_request *http_request_new(struct http_conn *conn, size_t text_size);
void http_request_free(struct http_request *request);
/* Before its connection is taken from it. */
void http_request_part(struct http_request *request);
/* Has it answered by the front's refuse(), or plainly. */
void http_request_refuse(struct http_request *request, const struct http_refusal *no);

/* ---- conn.c ---- */

void http_conn_new(struct http_server *server, int fd, const struct http_peer *peer, unsigned house,
                   bool is_refused);
/* The client is gone, or is made so: tells the request, closes. */
void http_conn_cut(struct http_conn *conn);
/* Has the connection looked after when the caller has returned to the loop. */
void http_conn_kick(struct http_conn *conn);
void http_conn_continue(struct http_conn *conn);
/* The same, and what TLS has for it that no poll tells of; where it was put off, all that waits for it. */
void http_conn_turn(struct http_conn *conn, bool was_put_off);
/* The request is answered and no more. */
void http_conn_answered(struct http_conn *conn, bool is_whole);
/* What the poll has to watch has changed. */
void http_conn_watch(struct http_conn *conn);
/* So long until it is looked after again; 0: for ever. */
void http_conn_deadline(struct http_conn *conn, unsigned ms);
/* Its request has become a WebSocket. */
void http_conn_upgraded(struct http_conn *conn);
/* Its request is a server's to answer. */
void http_conn_proxied(struct http_conn *conn);
/* More of a whole answer is taken: it may go on. */
void http_conn_renew(struct http_conn *conn);
/* What waits of a whole answer is more or less than it was. */
void http_conn_count_waiting(struct http_conn *conn);
/* No further request is taken on it. */
void http_conn_drain(struct http_conn *conn);

/* ---- turns.c ---- */

/* Around all that comes of one event, or of one turn: the time is charged to the connection's lane. */
void http_turn_begin(struct http_server *server);
void http_turn_end(struct http_conn *conn);
/* Whether this turn alone has taken what a lane has of a round. */
bool http_turn_is_long(const struct http_server *server);
/* Puts it off if its lane has spent its time of this round; true where it must not be looked at now. */
bool http_turn_waits(struct http_conn *conn);
/* It waits no more. */
void http_turn_leave(struct http_conn *conn);
/* Lets those of each lane that were put off have their turns, as far as the lane has time. */
void http_turns_serve(struct http_server *server);

/* ---- input.c ---- */

/* Makes of the bytes what can be made of them now; how many are used up. Those may be changed. */
size_t http_conn_process(struct http_conn *conn, char *data, size_t size);
/* Answers what is no request, or none that is wanted. */
void http_conn_refuse(struct http_conn *conn, const struct http_refusal *no);
/* Whether somebody takes more of its body now; of NULL nobody does. */
bool http_wants_body(const struct http_request *request);

/* ---- handshakes.c ---- */

/* Something has come, or can be sent: begins, or goes on. */
void http_handshake_polled(struct http_conn *conn);
/* What the poll has to watch meanwhile. */
int http_handshake_events(const struct http_conn *conn);
/* The connection is no more; true where its socket is not the caller's to close. */
bool http_handshake_lost(struct http_conn *conn);
/* TLS has come about. */
void http_conn_secured(struct http_conn *conn);
/* He speaks HTTP, in clear text. */
void http_conn_is_clear(struct http_conn *conn);

/* ---- wire.c: a connection's socket, through TLS where there is such ---- */

ssize_t http_wire_recv(struct http_conn *conn, void *into, size_t size);
ssize_t http_wire_send(struct http_conn *conn, struct iovec *parts, int count);
/* Whether there is something to be read that no poll tells of. */
bool http_wire_has_more(const struct http_conn *conn);
/* No more is said, and the other side can still say something. What cannot be sent now is tried again when it
 * can: is_shutting. */
void http_wire_shut(struct http_conn *conn);
/* Before it is closed with nothing left to say: false where that has still to be said to it. */
bool http_wire_farewell(struct http_conn *conn);

/* ---- write.c ---- */

/* Bytes that its client has still to take. */
static inline size_t http_conn_waits(const struct http_conn *conn)
{
    return conn->out.size + conn->behind.size;
}

/* Writes, or keeps what cannot be written now. */
void http_conn_send(struct http_conn *conn, struct iovec *parts, int count);
/* The same of bytes in a block of malloc(), which is taken. */
void http_conn_send_taken(struct http_conn *conn, void *block, size_t start, size_t size);
/* It is cut from the loop. */
void http_conn_break(struct http_conn *conn);
/* Writes what waits. False where the connection is no more. Only from the loop. */
bool http_conn_flush(struct http_conn *conn);
/* Whether nobody has acknowledged anything, at this look and at the one before. */
bool http_conn_is_silent(struct http_conn *conn);

/* ---- websocket.c ---- */

/* Takes bytes, up to the end of one frame; false where it cannot go on. */
bool http_websocket_step(struct http_conn *conn, const char *data, size_t size, size_t *used);
/* Whether bytes of the client are wanted now. */
bool http_websocket_reads(const struct http_request *request);
/* The connection is no more. */
void http_websocket_lost(struct http_request *request);
/* Less waits to be written. */
void http_websocket_flushed(struct http_request *request);
/* The messages that were to be taken in one turn are taken. */
void http_websocket_turned(struct http_request *request);
/* Anything has come from the client. */
void http_websocket_heard(struct http_request *request);
/* How many bytes to read at once: little of what follows a frame, for that may have to wait. */
size_t http_websocket_most(const struct http_request *request);
/* Closes it, and frees the request, if a message takes too long; true then. */
bool http_websocket_is_late(struct http_request *request);
/* A deadline is over; how long until the next, 0 where the connection is to be cut. */
unsigned http_websocket_tick(struct http_request *request);
void http_websocket_free(struct http_websocket *websocket);

/* ---- proxy.c ---- */

/* Takes bytes; false where it cannot go on. */
bool http_proxy_step(struct http_conn *conn, const char *data, size_t size, size_t *used);
bool http_proxy_reads(const struct http_request *request);
/* Its connection's turn has come: takes what the server has sent meanwhile. */
void http_proxy_turn(struct http_request *request);
/* The client says no more, and listens on. */
void http_proxy_shut(struct http_request *request);
/* Whether the client has said all, and nothing has come for it for a long time; asked now and then. */
bool http_proxy_is_idle(struct http_request *request);
/* The connection is no more. */
void http_proxy_lost(struct http_request *request);

/* ---- owners.c ---- */

/* A connection has, or has no longer, a place: one that lingers has none. */
void http_server_take_place(struct http_conn *conn);
void http_server_leave_place(struct http_conn *conn);
/* How many places its owner has; a stranger's house. */
size_t http_owner_places(const struct http_conn *conn);
/* Makes the connection the owner's of that name. False: there is no memory for it. */
bool http_conn_own(struct http_conn *conn, const char *name);
/* Its request is over. */
void http_owner_done(struct http_conn *conn);
/* Charges so many bytes in all of a request's body or message to the owner, and its header with them, or else to the house.
 * False, and nothing is changed: there is no room for more, as none has more than a quarter, but always enough for one
 * body. */
bool http_request_hold(struct http_request *request, size_t bytes);
/* Charges it no more: it is over. */
void http_request_let_go(struct http_request *request);

/* ---- server.c ---- */

/* Runs the turns of `idle`: there are kicked connections, or some in a line or put off. */
void http_server_wake(struct http_server *server);
/* Puts a connection at the end of its lane's line. It is not looked at again before its turn. */
void http_server_line_up(struct http_conn *conn);
/* Takes it out again, if it is in one. */
void http_server_leave_line(struct http_conn *conn);
/* Where it is stopped, and nothing of it is left. */
void http_server_free_when_closed(struct http_server *server);
/* A connection is no more. */
void http_server_left(struct http_server *server);
/* A connection begins to linger: its place is another's, and it may be the end of one that does so too. */
void http_server_lingers(struct http_conn *conn);
void http_server_lingered(struct http_conn *conn);
/* Too much waits for clients that do not read: cuts some. */
void http_server_shed(struct http_server *server);
const char *http_server_date(struct http_server *server);
