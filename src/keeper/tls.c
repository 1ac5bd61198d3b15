/* See tls.h. Both files together are one memfd: the certificate, a NUL, the key. */
#include "keeper/tls.h"

#include "base/fd.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX ((size_t)128 << 10)
#define LOOK_NS 2000000000ULL
#define AGAIN_NS 60000000000ULL

/* What is not there has a stamp, too. */
static void stamp_all(const struct keeper *keeper, struct tls_stamp stamps[TLS_FILES])
{
    const char *const paths[TLS_FILES] = {keeper->config.tls_certificate, keeper->config.tls_key};

    for (int i = 0; i < TLS_FILES; i++) {
        struct stat st;

        stamps[i] = (struct tls_stamp){0};
        if (stat(paths[i], &st) < 0)
            continue;
        stamps[i].device = st.st_dev;
        stamps[i].inode = st.st_ino;
        stamps[i].size = (uint64_t)st.st_size;
        stamps[i].changed_ns = st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
        stamps[i].written_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
}

/* Appends it to `text`; `used` grows. */
static int file_read(const char *name, const char *path, bool is_secret, char *text, size_t *used,
                     struct error *err)
{
    _cleanup_close_ int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t length;

    if (file < 0 || fstat(file, &st) < 0)
        return error_set(err, "bad_config", errno, "cannot read %s %s", name, path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, "bad_config", 0, "%s %s is no file", name, path);
    if (is_secret && (st.st_mode & 077) != 0)
        return error_set(err, "bad_config", 0,
                         "%s %s is a secret, and others may read it; chmod 600 it", name, path);
    length = fd_read_full(file, text + *used, FILE_MAX + 1);
    if (length < 0 || length > (ssize_t)FILE_MAX)
        return error_set(err, "bad_config", length < 0 ? errno : EFBIG, "cannot read %s %s", name,
                         path);
    if (memchr(text + *used, '\0', (size_t)length) != NULL)
        return error_set(err, "bad_config", 0, "%s %s is no PEM: give one in that form", name,
                         path);
    *used += (size_t)length;
    return 0;
}

static int both_read(struct keeper *keeper, struct error *err)
{
    const struct config *config = &keeper->config;
    _cleanup_free_ char *text = NULL;
    size_t used = 0;
    int failed;

    text = malloc(2 * (FILE_MAX + 1));
    if (text == NULL)
        return error_set(err, "capacity", ENOMEM, "cannot read %s", config->tls_key);
    failed = file_read("tls_certificate", config->tls_certificate, false, text, &used, err);
    text[used++] = '\0';
    if (failed == 0)
        failed = file_read("tls_key", config->tls_key, true, text, &used, err);
    if (failed == 0)
        failed = engine_seal(text, used, &keeper->engine.tls, err);
    explicit_bzero(text, 2 * (FILE_MAX + 1));
    return failed;
}

int tls_read(struct keeper *keeper, struct error *err)
{
    struct tls_watch *watch = &keeper->tls;

    watch->has_failed = false;
    if (keeper->config.tls_certificate == NULL) {
        fd_close(&keeper->engine.tls);
        return 0;
    }
    /* Before they are read: what changes meanwhile is seen at the next look. */
    stamp_all(keeper, watch->taken);
    memcpy(watch->seen, watch->taken, sizeof(watch->seen));
    watch->has_failed = both_read(keeper, err) < 0;
    watch->said = watch->has_failed ? *err : (struct error){0};
    return watch->has_failed ? -1 : 0;
}

/* What is tried again and again is said once. */
static void read_again(struct keeper *keeper, uint64_t now_ns)
{
    const struct error before = keeper->tls.said;
    struct error err;

    keeper->tls.again_ns = now_ns + AGAIN_NS;
    if (tls_read(keeper, &err) == 0)
        engine_tell_tls(keeper);
    else if (strcmp(err.text, before.text) != 0)
        keeper_say(err.code, "%s; the certificate that was read before holds on", err.text);
}

uint64_t tls_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct tls_watch *watch = &keeper->tls;
    struct tls_stamp now[TLS_FILES];
    bool rests, is_taken;

    if (keeper->config.tls_certificate == NULL || keeper->is_stopping || keeper->has_ended)
        return 0;
    if (now_ns < watch->next_ns)
        return watch->next_ns;
    watch->next_ns = now_ns + LOOK_NS;
    stamp_all(keeper, now);
    rests = memcmp(now, watch->seen, sizeof(now)) == 0;
    memcpy(watch->seen, now, sizeof(now));
    is_taken = memcmp(now, watch->taken, sizeof(now)) == 0;
    /* Two files are not replaced in one moment. */
    if (rests && (!is_taken || (watch->has_failed && now_ns >= watch->again_ns)))
        read_again(keeper, now_ns);
    return watch->next_ns;
}
