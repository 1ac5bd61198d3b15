/* Where a fetch may go, by the manifest's policy. Node dials; it asks here first, of the name before it looks it
 * up, and of each address before it is dialled. */
#include "parts.h"

#include "base/routes.h"
#include "policy/policy.h"

#include <string.h>

static int denied(const char *host, uint16_t port, const struct policy_verdict *verdict,
                  struct error *err)
{
    if (strcmp(verdict->reason, "private") == 0)
        return error_set(err, "EACCES", 0,
                         "the host '%s' is denied: its address is private; allow that with "
                         "allowedHosts ('%s private=yes')",
                         host, host);
    if (strcmp(verdict->reason, "no_rule") == 0 || strcmp(verdict->reason, "none") == 0)
        return error_set(err, "EACCES", 0,
                         "the host '%s' (port %u) is denied: allow it with allowedHosts ('%s')",
                         host, (unsigned)port, host);
    return error_set(err, "EACCES", 0, "the host '%s' is denied, and no rule can allow it: %s",
                     host, verdict->reason);
}

int judge_name(const struct kernel_manifest *manifest, const char *name, uint16_t port,
               struct error *err)
{
    char normal[POLICY_NAME_MAX];
    struct policy_verdict verdict;
    struct error ignored;

    if (policy_name(name, normal, &ignored) < 0)
        return error_set(err, "EINVAL", 0, "'%s' is no name of a host", name);
    verdict = policy_lookup(kernel_manifest_policy(manifest), normal);
    return verdict.allowed ? 0 : denied(name, port, &verdict, err);
}

int judge_address(const struct kernel_manifest *manifest, const char *name, const char *address,
                  uint16_t port, struct error *err)
{
    struct policy_address parsed, own[POLICY_VIEWS_MAX];
    char normal[POLICY_NAME_MAX];
    struct policy_verdict verdict;
    struct error ignored;
    struct routes routes;
    size_t count, kept = 0;

    if (policy_address_parse(address, &parsed) < 0)
        return error_set(err, "EINVAL", 0, "'%s' is no address", address);
    if (name != NULL && policy_name(name, normal, &ignored) < 0)
        return error_set(err, "EINVAL", 0, "'%s' is no name of a host", name);
    count = policy_views(&parsed, NULL, own);
    routes_open(&routes);
    for (size_t i = 0; i < count; i++)
        if (routes_is_own(&routes, own[i].bytes))
            own[kept++] = own[i];
    routes_close(&routes);
    verdict = policy_dial(kernel_manifest_policy(manifest), name != NULL ? normal : NULL, &parsed,
                          port, POLICY_TCP, NULL, own, kept);
    return verdict.allowed ? 0 : denied(name != NULL ? name : address, port, &verdict, err);
}
