/* Others' software, by name: see library.h. */
#include "base/library.h"

#include <dlfcn.h>
#include <unistd.h>

static const char *all_found(void *library, const char *const *names, size_t count, void **found)
{
    for (size_t i = 0; i < count; i++)
        if ((found[i] = dlsym(library, names[i])) == NULL)
            return names[i];
    return NULL;
}

const char *library_find(const char *library, const char *const *names, size_t count, void **found)
{
    void *shared;

    if (all_found(RTLD_DEFAULT, names, count, found) == NULL)
        return NULL;
    shared = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    return shared == NULL ? library : all_found(shared, names, count, found);
}

const char *library_authorities(void)
{
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Alpine */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* their later ones */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/ssl/cert.pem",
    };

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (access(places[i], R_OK) == 0)
            return places[i];
    return NULL;
}
