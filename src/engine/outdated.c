/* A box whose init is older than the version of the protocol before ours: it is looked at, listed, stopped
 * and deleted, and nothing is said to it.
 *
 * It lives on because to end it would be worse. Its socket is kept for one thing: it says when the box
 * ends by itself. Nothing is read from it. */
#include "base/fd.h"
#include "box/proto.h"
#include "engine/parts.h"

#include <stdlib.h>

struct outdated {
    uv_poll_t poll;
    struct sandbox *sandbox;
    int fd;
};

static void closed(uv_handle_t *handle)
{
    struct outdated *outdated = handle->data;

    fd_close(&outdated->fd);
    free(outdated);
}

static void hung_up(uv_poll_t *poll, int status, int events)
{
    struct sandbox *sandbox = ((struct outdated *)poll->data)->sandbox;

    (void)status;
    (void)events;
    outdated_close(sandbox);
    sandbox_fall(sandbox, "box_ended");
}

bool outdated_is(const struct engine *engine, uint32_t protocol)
{
    return protocol + 1 < engine->host.protocol || protocol < PROTO_VERSION_WITH_HELLO;
}

void outdated_take(struct sandbox *sandbox, uint32_t protocol, int *fd)
{
    struct outdated *outdated = engine_alloc(sizeof(*outdated));
    struct error why;

    sandbox->protocol = protocol;
    (void)outdated_check(sandbox, &why);
    log_say(LOG_LEVEL_WARN, why.code, "%s", why.text);
    outdated->sandbox = sandbox;
    outdated->poll.data = outdated;
    outdated->fd = fd_take(fd);
    if (uv_poll_init(sandbox->engine->options.loop, &outdated->poll, outdated->fd) != 0) {
        fd_close(&outdated->fd);
        free(outdated);
        return;
    }
    sandbox->outdated = outdated;
    (void)uv_poll_start(&outdated->poll, UV_DISCONNECT, hung_up);
}

void outdated_close(struct sandbox *sandbox)
{
    if (sandbox->outdated != NULL)
        uv_close((uv_handle_t *)&sandbox->outdated->poll, closed);
    sandbox->outdated = NULL;
}

int outdated_check(const struct sandbox *sandbox, struct error *err)
{
    if (sandbox->protocol == 0)
        return 0;
    return error_set(
        err, "sandbox_outdated", 0,
        "sandbox %s was started by an older cove: its init speaks version %u, and this "
        "one speaks version %u and the one before; stop it, and start it again",
        sandbox->id, sandbox->protocol, sandbox->engine->host.protocol);
}
