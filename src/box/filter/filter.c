/* Picking, keying and loading the prebuilt programs: see filter.h. The kernel copies a program when
 * it is loaded, so a caller keeps it on its stack. Raw system calls only: glibc and musl differ in
 * what they wrap. */
#include "box/filter/filter.h"

#include "base/fd.h"
#include "box/filter/table.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel takes an argument register as two words, the low one first (policy.txt). */
static unsigned long key_register(uint32_t low, uint32_t high)
{
    return ((unsigned long)high << 32) | low;
}

size_t filter_program(struct sock_filter out[FILTER_MAX], unsigned flags,
                      const uint32_t key[FILTER_KEY_WORDS])
{
    const struct filter_variant *variant =
        &filter_variants[flags & (FILTER_NO_SETID | FILTER_WATCHED)];

    memcpy(out, variant->program, variant->count * sizeof(out[0]));
    for (size_t place = 0; place < FILTER_KEY_PLACES; place++)
        for (size_t i = 0; i < FILTER_KEY_WORDS; i++)
            out[variant->key_at[place][i]].k = key[i];
    return variant->count;
}

/* From Linux 5.19; musl's and older headers do not have it. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

int filter_load(const struct sock_filter *program, size_t count, int *listener)
{
    static const unsigned long heard[] = {SECCOMP_FILTER_FLAG_NEW_LISTENER |
                                              SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                                          SECCOMP_FILTER_FLAG_NEW_LISTENER};
    /* The kernel only reads it; struct sock_fprog is older than const. */
    struct sock_fprog loaded = {
        .len = (unsigned short)count,
        .filter = (struct sock_filter *)(uintptr_t)program,
    };

    for (size_t i = 0; listener != NULL && i < sizeof(heard) / sizeof(heard[0]); i++) {
        *listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, heard[i], &loaded);
        if (*listener >= 0)
            return 0;
        if (errno != EINVAL && errno != EBUSY)
            return -errno;
    }
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0UL, &loaded) < 0 ? -errno : 0;
}

long filter_clone3(void *args, size_t size, const uint32_t key[FILTER_KEY_WORDS])
{
    return syscall(SYS_clone3, args, size, key_register(key[0], key[1]),
                   key_register(key[2], key[3]));
}

int filter_add_watch(int inotify, const char *path, uint32_t mask,
                     const uint32_t key[FILTER_KEY_WORDS])
{
    return (int)syscall(SYS_inotify_add_watch, inotify, path, (unsigned long)mask, 0UL, 0UL,
                        key_register(key[0], key[1]));
}

int filter_openat2(int directory, const char *path, const struct open_how *how,
                   const uint32_t key[FILTER_KEY_WORDS])
{
    return fd_openat2(
        directory, path, how,
        (const unsigned long[]){key_register(key[0], key[1]), key_register(key[2], key[3])});
}
