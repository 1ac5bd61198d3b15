/* The environment of a command: five variables with known values and what --env says, nothing of
 * the caller's else. A token that the caller holds in a variable must not get in by being there. */
#include "cmd/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TERM_MAX 64

static const char env_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* Only locales that every root has: another one makes programs complain about it. */
static const char *lang_value(void)
{
    static const char *const harmless[] = {"C.UTF-8", "C.utf8", "C", "POSIX"};
    const char *lang = getenv("LANG");

    for (size_t i = 0; lang != NULL && i < sizeof(harmless) / sizeof(harmless[0]); i++)
        if (strcmp(lang, harmless[i]) == 0)
            return harmless[i];
    return harmless[0];
}

static const char *term_value(void)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._+-";
    const char *term = getenv("TERM");

    if (term == NULL || term[0] == '\0' || strlen(term) > TERM_MAX ||
        term[strspn(term, letters)] != '\0')
        return "dumb";
    return term;
}

static const char *option_value(const struct run_options *options, const char *pair)
{
    size_t key = strcspn(pair, "=") + 1;

    for (size_t i = 0; i < options->env.count; i++)
        if (strncmp(options->env.list[i], pair, key) == 0)
            return options->env.list[i];
    return NULL;
}

int run_env_make(struct run_env *env, const struct run_options *options,
                 const struct box_user *user, struct error *err)
{
    size_t count = 0;

    env->list = calloc(RUN_ENV_OWN + options->env.count + 1, sizeof(*env->list));
    if (env->list == NULL)
        return error_set(err, "no_memory", 0,
                         "memory: the machine has none left for this; end something and try again");
    (void)snprintf(env->own[0], sizeof(env->own[0]), "%s", env_path);
    (void)snprintf(env->own[1], sizeof(env->own[1]), "HOME=%s",
                   user->home[0] == '\0' ? "/" : user->home);
    if (user->name[0] == '\0')
        (void)snprintf(env->own[2], sizeof(env->own[2]), "USER=%u", (unsigned)user->uid);
    else
        (void)snprintf(env->own[2], sizeof(env->own[2]), "USER=%s", user->name);
    (void)snprintf(env->own[3], sizeof(env->own[3]), "LANG=%s", lang_value());
    (void)snprintf(env->own[4], sizeof(env->own[4]), "TERM=%s", term_value());
    for (size_t i = 0; i < RUN_ENV_OWN; i++)
        if (option_value(options, env->own[i]) == NULL)
            env->list[count++] = env->own[i];
    for (size_t i = 0; i < options->env.count; i++)
        env->list[count++] = options->env.list[i];
    return 0;
}

void run_env_free(struct run_env *env)
{
    free(env->list);
    env->list = NULL;
}
