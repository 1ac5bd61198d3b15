/* Connections for code without sockets of its own: dialled as a box's are, by the same policy, proxy and bounds, and
 * given to whoever speaks on them. They count among their tenant's until they are closed, for the fds of the
 * engine are everybody's. */
#include "net/carry.h"

#include <stdlib.h>
#include <string.h>

struct net_call {
    struct net_box *box;
    struct dial *dial; /* NULL: it is over */
    net_call_done done;
    void *arg;
    char name[POLICY_NAME_MAX];
};

static void on_dialled(void *arg, const struct dial_result *result)
{
    struct net_call *call = arg;

    call->dial = NULL;
    call->done(call->arg, result->fd, &result->verdict, result->failure);
}

struct net_call *net_call_new(struct net_box *box, const char *name,
                              const struct policy_address *address, uint16_t port,
                              net_call_done done, void *arg)
{
    struct net_call *call = calloc(1, sizeof(*call));

    if (call == NULL)
        return NULL;
    *call = (struct net_call){.box = box, .done = done, .arg = arg};
    if (name != NULL)
        (void)strncpy(call->name, name, sizeof(call->name) - 1);
    call->dial = dial_new(box, name != NULL ? call->name : NULL, address, port, on_dialled, call);
    if (call->dial == NULL) {
        free(call);
        return NULL;
    }
    net_box_tenant(box)->flows++;
    return call;
}

void net_call_free(struct net_call *call)
{
    if (call == NULL)
        return;
    if (call->dial != NULL)
        dial_cancel(call->dial);
    net_box_tenant(call->box)->flows--;
    free(call);
}
