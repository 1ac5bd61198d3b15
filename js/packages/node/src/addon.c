/* What JavaScript sees: plain functions over handles, for lib/ to make an API of. Nothing here waits, and nothing here
 * runs a kernel; what comes back comes by three functions that lib/ gives to start().
 *
 * The arguments are lib's, which has checked them; what is wrong all the same is an exception, never a crash. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 8

/* Flags of run(), as in lib/index.js. */
#define RUN_TYPESCRIPT 1U
#define RUN_MODULE 2U

#define GUEST_BYTES \
    (128LL << 10) /* what a kernel holds at least, for Node's collector to know of */

struct arguments {
    napi_env env;
    struct instance *instance;
    size_t count;
    napi_value value[ARGUMENTS_MAX];
};

static bool arguments_take(napi_env env, napi_callback_info info, struct arguments *arguments)
{
    void *data = NULL;

    *arguments = (struct arguments){.env = env, .count = ARGUMENTS_MAX};
    if (napi_get_cb_info(env, info, &arguments->count, arguments->value, NULL, NULL) != napi_ok ||
        napi_get_instance_data(env, &data) != napi_ok)
        return false;
    arguments->instance = data;
    return data != NULL;
}

static napi_value throw_code(napi_env env, const char *code, const char *text)
{
    (void)napi_throw_error(env, code, text);
    return NULL;
}

static napi_value throw_error(napi_env env, const struct error *err)
{
    return throw_code(env, err->code, err->text);
}

static napi_value throw_memory(napi_env env)
{
    return throw_code(env, "no_memory", "there is no memory left");
}

static napi_value throw_argument(napi_env env)
{
    bool is_pending = false;

    if (napi_is_exception_pending(env, &is_pending) == napi_ok && is_pending)
        return NULL;
    (void)napi_throw_type_error(env, "bad_value", "an argument is not what it has to be");
    return NULL;
}

/* ---- reading arguments ---- */

static bool is_there(const struct arguments *arguments, size_t at)
{
    napi_valuetype type = napi_undefined;

    return at < arguments->count &&
           napi_typeof(arguments->env, arguments->value[at], &type) == napi_ok &&
           type != napi_undefined && type != napi_null;
}

static void *handle_at(const struct arguments *arguments, size_t at)
{
    void *handle = NULL;

    if (at >= arguments->count ||
        napi_get_value_external(arguments->env, arguments->value[at], &handle) != napi_ok)
        return NULL;
    return handle;
}

static bool number_at(const struct arguments *arguments, size_t at, uint32_t *number)
{
    return at < arguments->count &&
           napi_get_value_uint32(arguments->env, arguments->value[at], number) == napi_ok;
}

/* How many bytes of UTF-8 it is; -1: it is no string. */
static ssize_t text_size(const struct arguments *arguments, size_t at)
{
    size_t size = 0;

    if (at >= arguments->count ||
        napi_get_value_string_utf8(arguments->env, arguments->value[at], NULL, 0, &size) != napi_ok)
        return -1;
    return (ssize_t)size;
}

/* With a NUL behind it. */
static bool text_read(const struct arguments *arguments, size_t at, char *into, size_t size)
{
    size_t got = 0;

    return napi_get_value_string_utf8(arguments->env, arguments->value[at], into, size + 1, &got) ==
               napi_ok &&
           got == size;
}

/* A short one, whole and without a NUL in it. */
static bool word_at(const struct arguments *arguments, size_t at, char *into, size_t room)
{
    ssize_t size = text_size(arguments, at);

    return size >= 0 && (size_t)size < room && text_read(arguments, at, into, (size_t)size) &&
           strlen(into) == (size_t)size;
}

static bool bytes_at(const struct arguments *arguments, size_t at, const uint8_t **bytes,
                     size_t *size)
{
    napi_typedarray_type type;
    void *data = NULL;
    bool is_array = false;

    if (at >= arguments->count ||
        napi_is_typedarray(arguments->env, arguments->value[at], &is_array) != napi_ok ||
        !is_array ||
        napi_get_typedarray_info(arguments->env, arguments->value[at], &type, size, &data, NULL,
                                 NULL) != napi_ok ||
        type != napi_uint8_array)
        return false;
    *bytes = data;
    return true;
}

/* ---- manifests ---- */

static void strings_free(char **list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

/* An array of strings by its name, NULL-terminated; NULL where it is none. */
static char **strings_of(napi_env env, napi_value object, const char *name)
{
    struct arguments one = {.env = env, .count = 1};
    uint32_t count = 0;
    napi_value array;
    char **list;

    if (napi_get_named_property(env, object, name, &array) != napi_ok ||
        napi_get_array_length(env, array, &count) != napi_ok)
        return NULL;
    list = calloc((size_t)count + 1, sizeof(*list));
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        ssize_t size = -1;

        if (napi_get_element(env, array, i, &one.value[0]) == napi_ok)
            size = text_size(&one, 0);
        list[i] = size >= 0 ? malloc((size_t)size + 1) : NULL;
        if (list[i] == NULL || !word_at(&one, 0, list[i], (size_t)size + 1)) {
            strings_free(list);
            return NULL;
        }
    }
    return list;
}

static double number_of(napi_env env, napi_value object, const char *name)
{
    napi_value value;
    double number = 0;

    if (napi_get_named_property(env, object, name, &value) != napi_ok ||
        napi_get_value_double(env, value, &number) != napi_ok || !(number >= 0))
        return 0;
    return number;
}

static void manifest_gone(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    pool_lock();
    grants_unref(data);
    pool_unlock();
}

/* manifest({hosts, reads, writes, env, tools, argv, cpuMs, wallMs, memoryBytes}) */
static napi_value manifest(napi_env env, napi_callback_info info)
{
    static const char *const names[] = {"hosts", "reads", "writes", "env", "tools", "argv"};
    char **lists[sizeof(names) / sizeof(names[0])];
    struct arguments arguments;
    struct grants *grants = calloc(1, sizeof(*grants));
    struct kernel_grants wanted;
    napi_value handle = NULL;
    struct error err;
    int status = -1;
    bool whole = true;

    if (grants == NULL || !arguments_take(env, info, &arguments) || arguments.count < 1) {
        free(grants);
        return throw_argument(env);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        lists[i] = strings_of(env, arguments.value[0], names[i]);
        whole = whole && lists[i] != NULL;
    }
    error_set(&err, "bad_manifest", 0, "a grant is no text, or has a NUL in it");
    if (whole) {
        wanted = (struct kernel_grants){
            .hosts = (const char *const *)lists[0],
            .read_paths = (const char *const *)lists[1],
            .write_paths = (const char *const *)lists[2],
            .env = (const char *const *)lists[3],
            .tools = (const char *const *)lists[4],
            .argv = (const char *const *)lists[5],
            .cpu_ms = (uint32_t)number_of(env, arguments.value[0], "cpuMs"),
            .wall_ms = (uint32_t)number_of(env, arguments.value[0], "wallMs"),
            .memory_bytes = (uint64_t)number_of(env, arguments.value[0], "memoryBytes"),
        };
        status = kernel_manifest_new(&wanted, &grants->manifest, &err);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        strings_free(lists[i]);
    grants->refs = 1;
    if (status == 0 && napi_create_external(env, grants, manifest_gone, NULL, &handle) == napi_ok)
        return handle;
    manifest_gone(env, grants, NULL);
    return status < 0 ? throw_error(env, &err) : throw_memory(env);
}

/* ---- guests and jobs ---- */

static void guest_gone(napi_env env, void *data, void *hint)
{
    int64_t all;

    (void)hint;
    (void)napi_adjust_external_memory(env, -GUEST_BYTES, &all);
    guest_drop(data);
    guest_unref(data);
}

static napi_value guest_handle(struct arguments *arguments, struct grants *grants,
                               struct guest **guest)
{
    napi_value handle;
    int64_t all;

    *guest = guest_new(arguments->instance, grants, false);
    if (*guest == NULL)
        return throw_memory(arguments->env);
    (void)napi_adjust_external_memory(arguments->env, GUEST_BYTES, &all);
    if (napi_create_external(arguments->env, *guest, guest_gone, NULL, &handle) != napi_ok) {
        guest_gone(arguments->env, *guest, NULL);
        return throw_memory(arguments->env);
    }
    return handle;
}

/* guest(manifest) */
static napi_value guest(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct grants *grants;
    struct guest *made;

    if (!arguments_take(env, info, &arguments) || (grants = handle_at(&arguments, 0)) == NULL)
        return throw_argument(env);
    return guest_handle(&arguments, grants, &made);
}

/* While something is to be told the process has something to do. */
static void pending_add(struct instance *instance)
{
    if (instance->pending++ == 0)
        (void)napi_ref_threadsafe_function(instance->env, instance->wake);
}

static struct job *job_new(enum job_kind kind, uint32_t ticket, size_t text)
{
    struct job *job = malloc(sizeof(*job) + text);

    if (job != NULL)
        *job = (struct job){.kind = kind, .event = {.ticket = ticket}};
    return job;
}

static void job_add(struct arguments *arguments, struct guest *guest, struct job *job)
{
    pending_add(arguments->instance);
    guest_add(guest, job);
}

/* The guest and the ticket that begin each call; false: it threw. */
static bool job_take(napi_env env, napi_callback_info info, struct arguments *arguments,
                     void **handle, uint32_t *ticket)
{
    if (arguments_take(env, info, arguments) && (*handle = handle_at(arguments, 0)) != NULL &&
        number_at(arguments, 1, ticket))
        return true;
    throw_argument(env);
    return false;
}

static bool key_take(struct arguments *arguments, size_t at, struct job *job)
{
    const uint8_t *bytes;
    struct error err;
    size_t size;

    if (!is_there(arguments, at)) {
        if (process_key(job->key, &err) == 0)
            return true;
        throw_error(arguments->env, &err);
    } else if (bytes_at(arguments, at, &bytes, &size) && size == KERNEL_KEY_BYTES) {
        memcpy(job->key, bytes, size);
        return true;
    } else {
        throw_argument(arguments->env);
    }
    return false;
}

/* open(guest, ticket, snapshot, key) */
static napi_value open_guest(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    const uint8_t *bytes;
    struct job *job;
    uint32_t ticket;
    void *handle;

    if (!job_take(env, info, &arguments, &handle, &ticket))
        return NULL;
    job = job_new(JOB_OPEN, ticket, 0);
    if (job == NULL)
        return throw_memory(env);
    if (!key_take(&arguments, 3, job)) {
        event_free(&job->event);
        return NULL;
    }
    if (is_there(&arguments, 2)) {
        if (!bytes_at(&arguments, 2, &bytes, &job->size) ||
            (job->bytes = malloc(job->size + 1)) == NULL) {
            event_free(&job->event);
            return throw_argument(env);
        }
        memcpy(job->bytes, bytes, job->size);
    }
    job_add(&arguments, handle, job);
    return NULL;
}

static struct job *run_job(struct arguments *arguments, uint32_t ticket)
{
    ssize_t code = text_size(arguments, 2);
    ssize_t name = is_there(arguments, 4) ? text_size(arguments, 4) : 0;
    struct kernel_source *source;
    uint32_t flags = 0;
    struct job *job;
    char *at;

    if (code < 0 || name < 0 || !number_at(arguments, 3, &flags))
        return NULL;
    job = job_new(JOB_RUN, ticket, (size_t)code + (size_t)name + 2);
    if (job == NULL)
        return NULL;
    source = &job->source;
    *source = (struct kernel_source){.text = job->text,
                                     .size = (size_t)code,
                                     .language = (flags & RUN_TYPESCRIPT) != 0 ? KERNEL_TS
                                                                               : KERNEL_JS,
                                     .module = (flags & RUN_MODULE) != 0};
    at = job->text + code + 1;
    if (!text_read(arguments, 2, job->text, (size_t)code) ||
        (name > 0 && !word_at(arguments, 4, at, (size_t)name + 1)) ||
        (is_there(arguments, 5) && !number_at(arguments, 5, &source->cpu_ms)) ||
        (is_there(arguments, 6) && !number_at(arguments, 6, &source->wall_ms))) {
        event_free(&job->event);
        return NULL;
    }
    source->filename = name > 0 ? at : NULL;
    return job;
}

/* run(guest, ticket, code, flags, filename, cpuMs, wallMs) */
static napi_value run(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct job *job;
    uint32_t ticket;
    void *handle;

    if (!job_take(env, info, &arguments, &handle, &ticket))
        return NULL;
    job = run_job(&arguments, ticket);
    if (job == NULL)
        return throw_argument(env);
    job_add(&arguments, handle, job);
    return NULL;
}

/* once(manifest, ticket, code, flags, filename, cpuMs, wallMs): in a pristine one */
static napi_value once(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct guest *made;
    struct job *job;
    uint32_t ticket;
    void *handle;

    if (!job_take(env, info, &arguments, &handle, &ticket))
        return NULL;
    job = run_job(&arguments, ticket);
    if (job == NULL)
        return throw_argument(env);
    made = guest_new(arguments.instance, handle, true);
    if (made == NULL) {
        event_free(&job->event);
        return throw_memory(env);
    }
    job_add(&arguments, made, job);
    guest_unref(made);
    return NULL;
}

/* reset(guest, ticket) */
static napi_value reset(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct job *job;
    uint32_t ticket;
    void *handle;

    if (!job_take(env, info, &arguments, &handle, &ticket))
        return NULL;
    job = job_new(JOB_RESET, ticket, 0);
    if (job == NULL)
        return throw_memory(env);
    job_add(&arguments, handle, job);
    return NULL;
}

/* snapshot(guest, ticket, key) */
static napi_value snapshot(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct job *job;
    uint32_t ticket;
    void *handle;

    if (!job_take(env, info, &arguments, &handle, &ticket))
        return NULL;
    job = job_new(JOB_SNAPSHOT, ticket, 0);
    if (job == NULL)
        return throw_memory(env);
    if (!key_take(&arguments, 2, job)) {
        event_free(&job->event);
        return NULL;
    }
    job_add(&arguments, handle, job);
    return NULL;
}

/* fork(guest, ticket): the handle of the second one, which is there when the job is done */
static napi_value fork_guest(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct guest *child;
    napi_value made;
    struct job *job;
    uint32_t ticket;
    void *handle;

    if (!job_take(env, info, &arguments, &handle, &ticket))
        return NULL;
    job = job_new(JOB_FORK, ticket, 0);
    if (job == NULL)
        return throw_memory(env);
    made = guest_handle(&arguments, ((struct guest *)handle)->grants, &child);
    if (made == NULL) {
        event_free(&job->event);
        return NULL;
    }
    pool_lock();
    child->refs++;
    pool_unlock();
    job->child = child;
    job_add(&arguments, handle, job);
    return made;
}

/* stop(guest, ticket) */
static napi_value stop(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    uint32_t ticket;
    void *handle;

    if (job_take(env, info, &arguments, &handle, &ticket))
        guest_stop(handle, ticket);
    return NULL;
}

/* drop(guest) */
static napi_value drop(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    void *handle;

    if (!arguments_take(env, info, &arguments) || (handle = handle_at(&arguments, 0)) == NULL)
        return throw_argument(env);
    guest_drop(handle);
    return NULL;
}

/* ---- answers ---- */

/* Two texts, each with its NUL, and bytes if there are any. */
static struct settle *settle_new(struct arguments *arguments, size_t at, bool ok)
{
    ssize_t first = text_size(arguments, at);
    ssize_t second = ok ? 0 : text_size(arguments, at + 1);
    const uint8_t *bytes = NULL;
    struct settle *settle;
    size_t size = 0;
    char *text;

    if (first < 0 || second < 0 ||
        (ok && is_there(arguments, at + 1) && !bytes_at(arguments, at + 1, &bytes, &size)))
        return NULL;
    settle = malloc(sizeof(*settle) + (size_t)first + (size_t)second + 2 + size);
    if (settle == NULL)
        return NULL;
    *settle = (struct settle){.ok = ok, .meta = settle->text, .meta_size = (size_t)first};
    text = settle->text + first + 1;
    if (!text_read(arguments, at, settle->text, (size_t)first) ||
        (!ok && !text_read(arguments, at + 1, text, (size_t)second))) {
        free(settle);
        return NULL;
    }
    text += second + 1;
    if (bytes != NULL) {
        memcpy(text, bytes, size);
        settle->bytes = (const uint8_t *)text;
        settle->bytes_size = size;
    }
    return settle;
}

static napi_value settle_any(napi_env env, napi_callback_info info, bool ok)
{
    struct arguments arguments;
    struct settle *settle;
    uint32_t ticket, id;
    void *handle;

    if (!job_take(env, info, &arguments, &handle, &ticket))
        return NULL;
    if (!number_at(&arguments, 2, &id) || (settle = settle_new(&arguments, 3, ok)) == NULL)
        return throw_argument(env);
    settle->id = id;
    guest_settle(handle, ticket, settle);
    return NULL;
}

/* settle(guest, ticket, call, json, bytes) */
static napi_value settle(napi_env env, napi_callback_info info)
{
    return settle_any(env, info, true);
}

/* fail(guest, ticket, call, code, message) */
static napi_value fail(napi_env env, napi_callback_info info)
{
    return settle_any(env, info, false);
}

/* ---- verdicts ---- */

/* Throws where it may not be asked for. judgeName(manifest, name, port) */
static napi_value judge_name_of(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct grants *grants;
    char name[256];
    uint32_t port;
    struct error err;

    if (!arguments_take(env, info, &arguments) || (grants = handle_at(&arguments, 0)) == NULL ||
        !word_at(&arguments, 1, name, sizeof(name)) || !number_at(&arguments, 2, &port) ||
        port > UINT16_MAX)
        return throw_argument(env);
    if (judge_name(grants->manifest, name, (uint16_t)port, &err) < 0)
        return throw_error(env, &err);
    return NULL;
}

/* judgeAddress(manifest, name or undefined, address, port) */
static napi_value judge_address_of(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct grants *grants;
    char name[256], address[64];
    bool is_named;
    uint32_t port;
    struct error err;

    if (!arguments_take(env, info, &arguments) || (grants = handle_at(&arguments, 0)) == NULL)
        return throw_argument(env);
    is_named = is_there(&arguments, 1);
    if ((is_named && !word_at(&arguments, 1, name, sizeof(name))) ||
        !word_at(&arguments, 2, address, sizeof(address)) || !number_at(&arguments, 3, &port) ||
        port > UINT16_MAX)
        return throw_argument(env);
    if (judge_address(grants->manifest, is_named ? name : NULL, address, (uint16_t)port, &err) < 0)
        return throw_error(env, &err);
    return NULL;
}

/* ---- beginning and end ---- */

static void instance_end(void *data)
{
    struct instance *instance = data;

    instance_close(instance);
    (void)napi_release_threadsafe_function(instance->wake, napi_tsfn_abort);
}

static void instance_gone(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    pool_lock();
    instance_unref(data);
    pool_unlock();
}

/* start(onDone, onCall, onCancel), once in each environment */
static napi_value start(napi_env env, napi_callback_info info)
{
    struct arguments arguments;
    struct instance *instance;
    napi_value name;

    if (!arguments_take(env, info, &arguments) || arguments.count < 3)
        return throw_argument(env);
    instance = arguments.instance;
    if (instance->env != NULL)
        return throw_code(env, "bad_value", "this environment has started already");
    if (napi_create_reference(env, arguments.value[0], 1, &instance->on_done) != napi_ok ||
        napi_create_reference(env, arguments.value[1], 1, &instance->on_call) != napi_ok ||
        napi_create_reference(env, arguments.value[2], 1, &instance->on_cancel) != napi_ok ||
        napi_create_string_utf8(env, "cove", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_threadsafe_function(env, NULL, NULL, name, 0, 1, NULL, NULL, instance, tell_all,
                                        &instance->wake) != napi_ok ||
        napi_unref_threadsafe_function(env, instance->wake) != napi_ok ||
        napi_add_env_cleanup_hook(env, instance_end, instance) != napi_ok)
        return throw_code(env, "kernel_failed", "Node gives no way to be told of results");
    instance->env = env;
    return NULL;
}

NAPI_MODULE_INIT()
{
    static const struct {
        const char *name;
        napi_callback function;
    } functions[] = {{"start", start},
                     {"manifest", manifest},
                     {"guest", guest},
                     {"open", open_guest},
                     {"run", run},
                     {"once", once},
                     {"reset", reset},
                     {"snapshot", snapshot},
                     {"fork", fork_guest},
                     {"stop", stop},
                     {"drop", drop},
                     {"settle", settle},
                     {"fail", fail},
                     {"judgeName", judge_name_of},
                     {"judgeAddress", judge_address_of}};
    struct instance *instance = instance_new();

    if (instance == NULL)
        return throw_memory(env);
    if (napi_set_instance_data(env, instance, instance_gone, NULL) != napi_ok) {
        instance_gone(env, instance, NULL);
        return throw_code(env, "kernel_failed", "Node refused the addon");
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        napi_value function;

        if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function,
                                 NULL, &function) != napi_ok ||
            napi_set_named_property(env, exports, functions[i].name, function) != napi_ok)
            return throw_code(env, "kernel_failed", "Node refused the addon");
    }
    return exports;
}
