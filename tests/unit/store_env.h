/* A store in a directory of its own, and calls that wait for their answer: what the tests of the store
 * share. */
#pragma once

#include "base/fd.h"
#include "base/remove.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct env {
    char directory[128];
    uv_loop_t loop;
    struct store *store;
    struct error err;
};

struct answer {
    unsigned count;
    uint64_t revision;
    char code[ERROR_CODE_MAX]; /* "" where it was done */
    struct error err;
};

#ifndef __clang__
/* gcc's analyser (12) loses that an answer is zero before it is filled, once it was returned by value. */
#pragma GCC diagnostic ignored "-Wanalyzer-use-of-uninitialized-value"
#endif

/* It came, once, with that code. A macro, for the analyser names no line, and so heeds no pragma, when the
 * struct is passed on. */
#define answer_is(given, expected)                                 \
    ({                                                             \
        struct answer given_ = (given);                            \
        given_.count == 1 && strcmp(given_.code, (expected)) == 0; \
    })

static inline void answer_take(void *arg, uint64_t revision, const struct error *err)
{
    struct answer *answer = arg;

    answer->count++;
    answer->revision = revision;
    if (err != NULL)
        answer->err = *err;
    (void)snprintf(answer->code, sizeof(answer->code), "%s", err == NULL ? "" : err->code);
}

static inline int env_open(struct env *env)
{
    if (uv_loop_init(&env->loop) != 0)
        abort();
    if (store_open(env->directory, &env->loop, &env->store, &env->err) == 0)
        return 0;
    (void)uv_run(&env->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&env->loop) != 0)
        abort();
    return -1;
}

static inline void env_close(struct env *env)
{
    store_close(env->store);
    env->store = NULL;
    (void)uv_run(&env->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&env->loop) != 0)
        abort(); /* the store left a handle */
}

/* A directory that is not there yet, in one that is. */
static inline void env_directory(struct env *env)
{
    *env = (struct env){.directory = "/tmp/cove-test-store-XXXXXX"};
    if (mkdtemp(env->directory) == NULL)
        abort();
    (void)strcat(env->directory, "/store");
}

static inline void env_remove(struct env *env)
{
    env->directory[strlen(env->directory) - strlen("/store")] = '\0';
    if (remove_tree(AT_FDCWD, env->directory) < 0)
        perror(env->directory);
}

static inline void env_new(struct env *env)
{
    env_directory(env);
    if (env_open(env) < 0) {
        printf("%s\n", env->err.text);
        abort();
    }
}

static inline void env_end(struct env *env)
{
    env_close(env);
    env_remove(env);
}

/* Runs a test with a store of its own. */
static inline void env_run(void (*test)(struct env *env))
{
    struct env env;

    env_new(&env);
    test(&env);
    env_end(&env);
}

/* A loop with nothing but the store ends when all is answered. */
static inline void env_wait(struct env *env)
{
    (void)uv_run(&env->loop, UV_RUN_DEFAULT);
}

static inline struct answer env_put(struct env *env, const char *key, const char *text,
                                    uint64_t if_revision)
{
    struct answer answer = {0};

    store_put(env->store, key, text, text == NULL ? 0 : strlen(text), if_revision, answer_take,
              &answer);
    env_wait(env);
    return answer;
}

static inline struct answer env_lease(struct env *env, const char *name, const char *owner,
                                      uint64_t ttl_ms)
{
    struct answer answer = {0};

    store_lease(env->store, name, owner, ttl_ms, answer_take, &answer);
    env_wait(env);
    return answer;
}

static inline struct answer env_publish(struct env *env, const char *stream, const char *text,
                                        uint64_t keep)
{
    struct answer answer = {0};

    store_publish(env->store, stream, text, strlen(text), keep, answer_take, &answer);
    env_wait(env);
    return answer;
}

/* What a listing gave, as one line: "key=text@revision " each, "key!" where it is no more. */
struct heard {
    char text[4096];
    unsigned count, most;
};

static inline void heard_add(struct heard *heard, const struct store_value *value)
{
    size_t used = strlen(heard->text);

    heard->count++;
    if (value->data == NULL)
        (void)snprintf(heard->text + used, sizeof(heard->text) - used, "%s!@%llu ", value->key,
                       (unsigned long long)value->revision);
    else
        (void)snprintf(heard->text + used, sizeof(heard->text) - used, "%s=%s@%llu ", value->key,
                       (const char *)value->data, (unsigned long long)value->revision);
}

static inline bool heard_each(void *arg, const struct store_value *value)
{
    struct heard *heard = arg;

    heard_add(heard, value);
    return heard->most == 0 || heard->count < heard->most;
}

static inline void heard_change(void *arg, const struct store_value *value)
{
    heard_add(arg, value);
}
