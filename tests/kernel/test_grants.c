/* Files by the manifest: what is granted works, and nothing else can be reached, by no name and no link. */
#include "kit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/kernel-grants-XXXXXX";

/* Path below the directory of this test. */
static const char *at(const char *path)
{
    static char texts[8][512];
    static unsigned next;
    char *text = texts[next++ % 8];

    (void)snprintf(text, sizeof(texts[0]), "%s/%s", top, path);
    return text;
}

static void file_put(const char *path, const char *text)
{
    int fd = open(at(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s", path);
    (void)close(fd);
}

static bool file_is(const char *path, const char *text)
{
    char has[256] = {0};
    int fd = open(at(path), O_RDONLY | O_CLOEXEC);
    bool is = fd >= 0 && read(fd, has, sizeof(has) - 1) == (ssize_t)strlen(text) &&
              strcmp(has, text) == 0;

    if (fd >= 0)
        (void)close(fd);
    return is;
}

/* A source with the directory in the place of each '@'. */
static const char *with(const char *source)
{
    static char texts[4][4096];
    static unsigned next;
    char *text = texts[next++ % 4], *to = text;

    for (; *source != 0; source++) {
        if (*source == '@')
            to = stpcpy(to, top);
        else
            *to++ = *source;
    }
    *to = 0;
    return text;
}

static const char helpers[] =
    "globalThis.read = (path) => { const b = host.call('fs.read_file', {path}).bytes;"
    " return b === undefined ? '' : String.fromCharCode(...b) };"
    "globalThis.write = (path, text, more) => host.call('fs.write_file', {path, ...more},"
    " new Uint8Array([...text].map((c) => c.charCodeAt(0))));"
    "globalThis.fs = (op, meta, bytes) => host.call('fs.' + op, meta, bytes).meta; 1";

static void tree_make(void)
{
    CHECK(mkdtemp(top) != NULL, "a directory");
    CHECK(mkdir(at("in"), 0755) == 0 && mkdir(at("out"), 0755) == 0 &&
              mkdir(at("in/deep"), 0755) == 0 && mkdir(at("secret"), 0755) == 0 &&
              mkdir(at("in-not"), 0755) == 0,
          "the tree");
    file_put("in/a.txt", "hello");
    file_put("in/deep/b.txt", "below");
    file_put("secret/key", "secret");
    file_put("in-not/key", "secret");
    file_put("single", "single");
    file_put("single2", "other");
    CHECK(symlink("../secret", at("in/up")) == 0 && symlink(at("secret"), at("in/absolute")) == 0 &&
              symlink("deep/b.txt", at("in/within")) == 0 &&
              symlink("/proc/self/root", at("in/magic")) == 0 &&
              symlink("../secret", at("out/up")) == 0 &&
              symlink("../secret/new", at("out/dangling")) == 0 && mkfifo(at("in/pipe"), 0644) == 0,
          "the links");
}

static void reading(struct kernel_context *context)
{
    RUN_IS(context, with("read('@/in/a.txt')"), "hello");
    RUN_IS(context, with("read('@/in/./deep/../deep//b.txt')"), "below");
    RUN_IS(context, with("read('@/in/within')"), "below");
    RUN_IS(context, with("read('@/single')"), "single");
    RUN_IS(context,
           with("fs('list', {path: '@/in/deep'}).entries.map((e) => e.name + e.type).join()"),
           "b.txtfile");
    RUN_IS(context, with("const s = fs('stat', {path: '@/in/a.txt'}); s.type + s.size"), "file5");
    RUN_IS(context, with("fs('stat', {path: '@/in/within', follow: false}).type"), "symlink");
    RUN_IS(context, with("fs('stat', {path: '@/in'}).type"), "directory");
    RUN_IS(context,
           with("const {fd} = fs('open', {path: '@/in/a.txt'});"
                "const b = host.call('fs.read', {fd, length: 3, position: 1}).bytes;"
                "fs('close', {fd}); String.fromCharCode(...b)"),
           "ell");
    RUN_THROWS(context, "fs('read', {fd: 3})", "EBADF");
    RUN_THROWS(context, "fs('read', {fd: 0})", "EBADF");
    RUN_THROWS(context, "fs('read', {fd: 99999999999999999999})", "EBADF");
    /* It wraps to 384. */
    RUN_THROWS(context,
               with("const {fd} = fs('open', {path: '@/in/a.txt'});"
                    "try { fs('read', {fd, length: 2 ** 64}) } finally { fs('close', {fd}) }"),
               "EINVAL");
    RUN_THROWS(context, with("read('@/in/nothing')"), "ENOENT");
    RUN_THROWS(context, with("read('@/in/deep')"), "EISDIR");
    RUN_THROWS(context, with("read('@/in/a.txt/x')"), "ENOTDIR");
    RUN_THROWS(context, with("read('@/in/pipe')"), "it is no file");
    RUN_THROWS(context,
               with("const fds = []; while (true) fds.push(fs('open', {path: '@/in/a.txt'}))"),
               "EMFILE");
}

/* What is not granted: always with the name of what would allow it, and never with more. */
static void walls(struct kernel_context *context)
{
    static const char *const outside[] = {
        "/etc/passwd",
        "@/secret/key",
        "@/in/../secret/key",
        "@/in-not/key",
        "@",
        "/",
        "@/single2",
        "@/single/x",
        "@/in/deep/../../secret/key",
        "@/out/x",
        "/proc/self/environ",
        "@/secret/nothing",
        "@//secret///key",
    };
    static const char *const by_link[] = {
        "@/in/up/key",
        "@/in/absolute/key",
        "@/in/magic/etc/passwd",
        "@/in/magic",
    };

    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        char source[512];

        (void)snprintf(source, sizeof(source), "read('%s')", with(outside[i]));
        RUN_THROWS(context, source, "allowedReadPaths (--allow-read)");
        (void)snprintf(source, sizeof(source), "fs('list', {path: '%s'})", with(outside[i]));
        RUN_THROWS(context, source, "allowedReadPaths (--allow-read)");
        (void)snprintf(source, sizeof(source), "write('%s', 'x')",
                       strcmp(outside[i], "@/out/x") == 0 ? "/etc/passwd" : with(outside[i]));
        RUN_THROWS(context, source, "allowedWritePaths (--allow-write)");
    }
    for (size_t i = 0; i < sizeof(by_link) / sizeof(by_link[0]); i++) {
        char source[512];

        (void)snprintf(source, sizeof(source), "read('%s')", with(by_link[i]));
        RUN_THROWS(context, source, "EACCES");
        (void)snprintf(source, sizeof(source), "fs('stat', {path: '%s'})", with(by_link[i]));
        RUN_THROWS(context, source, "EACCES");
    }
    RUN_THROWS(context, "read('relative')", "ENOENT");
    RUN_THROWS(context, "read('')", "ENOENT");
    RUN_THROWS(context, "read('/' + 'x/'.repeat(3000))", "EINVAL");
    RUN_THROWS(context, with("read('@/in/a.txt\\0/etc/passwd')"), "EINVAL");
    RUN_THROWS(context, "fs('read_file', {})", "EINVAL");
    RUN_THROWS(context, "fs('read_file', {path: {}})", "EINVAL");
    RUN_THROWS(context, "fs('read_file', [])", "EINVAL");
    RUN_THROWS(context, "fs('nothing', {})", "knows no call");
    RUN_THROWS(context, with("write('@/in/a.txt', 'x')"), "allowedWritePaths");
    RUN_THROWS(context, with("fs('open', {path: '@/in/a.txt', flags: 'r+'})"), "allowedWritePaths");
    RUN_THROWS(context, with("fs('open', {path: '@/in/a.txt', flags: 'rwx'})"), "EINVAL");
    CHECK(file_is("in/a.txt", "hello") && file_is("secret/key", "secret"), "all is as it was");
}

static void writing(struct kernel_context *context)
{
    RUN_IS(context, with("write('@/out/new', 'one'); 1"), "1");
    CHECK(file_is("out/new", "one"), "written");
    RUN_IS(context, with("write('@/out/new', ' two', {append: true}); 1"), "1");
    CHECK(file_is("out/new", "one two"), "appended");
    RUN_THROWS(context, with("write('@/out/new', 'x', {exclusive: true})"), "EEXIST");
    RUN_THROWS(context, with("read('@/out/new')"), "allowedReadPaths");
    RUN_IS(context, with("fs('stat', {path: '@/out/new'}).size"), "7");
    RUN_IS(context, with("fs('mkdir', {path: '@/out/a/b/c', recursive: true}); 1"), "1");
    RUN_IS(context, with("fs('mkdir', {path: '@/out/a/b/c', recursive: true}); 1"), "1");
    RUN_THROWS(context, with("fs('mkdir', {path: '@/out/a'})"), "EEXIST");
    RUN_THROWS(context, with("fs('mkdir', {path: '@/out/x/y'})"), "ENOENT");
    RUN_IS(context,
           with("write('@/out/a/b/c/file', 'x'); fs('rename', {path: '@/out/a/b/c/file',"
                " to: '@/out/moved'}); 1"),
           "1");
    CHECK(file_is("out/moved", "x"), "moved");
    RUN_THROWS(context, with("fs('rename', {path: '@/out/moved', to: '@/in/x'})"),
               "allowedWritePaths");
    RUN_THROWS(context, with("fs('rename', {path: '@/in/a.txt', to: '@/out/x'})"),
               "allowedWritePaths");
    RUN_THROWS(context, with("fs('remove', {path: '@/out/a', directory: true})"), "ENOTEMPTY");
    RUN_THROWS(context, with("fs('remove', {path: '@/out/a'})"), "operation");
    RUN_IS(context, with("fs('remove', {path: '@/out/a', recursive: true}); 1"), "1");
    RUN_IS(context, with("fs('remove', {path: '@/out/a', force: true}); 1"), "1");
    RUN_THROWS(context, with("fs('remove', {path: '@/out'  , recursive: true})"), "EPERM");
    RUN_IS(
        context,
        with(
            "const {fd} = fs('open', {path: '@/out/w', flags: 'w'});"
            "host.call('fs.write', {fd}, new Uint8Array([65, 66]));"
            "host.call('fs.write', {fd, position: 1}, new Uint8Array([67])); fs('close', {fd}); 1"),
        "1");
    CHECK(file_is("out/w", "AC"), "by its number");
    RUN_IS(context, with("write('@/out/bin', 'x', {mode: 0o4777}); 1"), "1");
    struct stat about;
    CHECK(stat(at("out/bin"), &about) == 0 && (about.st_mode & 07000) == 0, "no set-id file");
}

/* A way out by what the code itself, or a neighbour, made. */
static void ways_out(struct kernel_context *context)
{
    RUN_THROWS(context, with("write('@/out/up/new', 'x')"), "EACCES");
    RUN_THROWS(context, with("write('@/out/dangling', 'x')"), "EACCES");
    RUN_THROWS(context, with("fs('mkdir', {path: '@/out/up/d'})"), "EACCES");
    RUN_THROWS(context, with("fs('mkdir', {path: '@/out/up/d/e', recursive: true})"), "EACCES");
    RUN_THROWS(context, with("fs('remove', {path: '@/out/up/key'})"), "EACCES");
    RUN_THROWS(context, with("fs('rename', {path: '@/out/up/key', to: '@/out/k'})"), "EACCES");
    RUN_THROWS(context, with("fs('rename', {path: '@/out/new', to: '@/out/up/k'})"), "EACCES");
    CHECK(file_is("secret/key", "secret") && access(at("secret/new"), F_OK) < 0 &&
              access(at("secret/d"), F_OK) < 0,
          "nothing got out");
    /* What is removed is the link, not what it leads to. */
    RUN_IS(context, with("fs('mkdir', {path: '@/out/tree'}); 1"), "1");
    CHECK(symlink("../../secret", at("out/tree/link")) == 0, "a link");
    RUN_IS(context, with("fs('remove', {path: '@/out/tree', recursive: true}); 1"), "1");
    CHECK(file_is("secret/key", "secret"), "it is there");
    /* A granted file that has become a link is not followed. */
    CHECK(unlink(at("single")) == 0 && symlink("secret/key", at("single")) == 0, "a link");
    RUN_THROWS(context, with("read('@/single')"), "ELOOP");
}

/* One that is to be made. */
static void granted_file(void)
{
    const char *const writes[] = {at("result.json"), NULL}, *const missing[] = {at("no/x"), NULL};
    struct kernel_grants grants = {.write_paths = writes};
    struct kernel_manifest *manifest = kit_manifest(&grants), *none;
    struct kernel_context *context = kit_context(manifest);
    struct error err;

    RUN_IS(context, helpers, "1");
    RUN_IS(context, with("write('@/result.json', '{}'); 1"), "1");
    CHECK(file_is("result.json", "{}"), "written");
    RUN_THROWS(context, with("write('@/result.json2', '{}')"), "allowedWritePaths");
    RUN_THROWS(context, with("write('@/other', '{}')"), "allowedWritePaths");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    grants.write_paths = missing;
    CHECK(kernel_manifest_new(&grants, &none, &err) < 0 && strstr(err.text, "no/x") != NULL, "%s",
          err.text);
    grants = (struct kernel_grants){.read_paths = (const char *const[]){"relative", NULL}};
    CHECK(kernel_manifest_new(&grants, &none, &err) < 0 && strstr(err.text, "absolute") != NULL,
          "%s", err.text);
    grants = (struct kernel_grants){.read_paths = (const char *const[]){"/dev/null", NULL}};
    CHECK(kernel_manifest_new(&grants, &none, &err) < 0 && strstr(err.text, "no file") != NULL,
          "%s", err.text);
}

/* A grant of all is one of files; the host's own process, which /proc shows, is none of them. */
static void all_but_proc(void)
{
    static const char *const of_proc[] = {
        "/proc",
        "/proc/self",
        "/proc/self/environ",
        "/proc/self/mem",
        "/proc/cpuinfo",
        "/proc/self/fd",
        "/proc/sys/kernel",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd",
        "/proc/self/task/../",
        "/dev/fd",
        "@/in/process",
        "/proc/self/exe",
        "/proc/999999999",
        "/proc/1/environ",
        "@/in/process/self/environ",
    };
    static const char *const ways[] = {
        "fs('read_file', {path: '%s'})",
        "fs('open', {path: '%s'})",
        "fs('open', {path: '%s', flags: 'a'})",
        "fs('list', {path: '%s'})",
        "fs('stat', {path: '%s'})",
        "fs('write_file', {path: '%s', append: true})",
        "fs('mkdir', {path: '%s/x'})",
        "fs('rename', {path: '%s/x', to: '/x'})",
        "fs('remove', {path: '%s/x', recursive: true})",
    };
    static const char *const links[] = {"/proc/self", "/proc/self/cwd", "/proc/self/exe",
                                        "/proc/self/root"};
    const char *const all[] = {"/", NULL};
    struct kernel_grants grants = {.read_paths = all, .write_paths = all};
    struct kernel_manifest *manifest = kit_manifest(&grants), *none;
    struct kernel_context *context = kit_context(manifest);
    const struct kernel_result *result;
    char source[512];
    struct error err;

    CHECK(symlink("../../../proc", at("in/process")) == 0, "a link");
    RUN_IS(context, helpers, "1");
    RUN_IS(context, with("read('@/in/a.txt')"), "hello");
    for (size_t i = 0; i < sizeof(of_proc) / sizeof(of_proc[0]); i++)
        for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
            (void)snprintf(source, sizeof(source), ways[way], with(of_proc[i]));
            result = kit_run(context, source);
            CHECK(result->end == KERNEL_END_ERROR &&
                      kit_has(result->message, "EACCES: it leads out"),
                  "%s ends by %s: %.*s", source, kernel_end_name(result->end),
                  (int)result->message.size, result->message.data);
        }
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        (void)snprintf(source, sizeof(source), "fs('readlink', {path: '%s'})", links[i]);
        RUN_THROWS(context, source, "EACCES");
        (void)snprintf(source, sizeof(source), "fs('stat', {path: '%s', follow: false})", links[i]);
        RUN_THROWS(context, source, "EACCES");
        grants = (struct kernel_grants){.read_paths = (const char *const[]){of_proc[i], NULL}};
        CHECK(kernel_manifest_new(&grants, &none, &err) < 0 &&
                  strcmp(err.code, "bad_manifest") == 0 && strstr(err.text, of_proc[i]) != NULL,
              "%s", err.text);
        grants = (struct kernel_grants){.write_paths = (const char *const[]){of_proc[i + 1], NULL}};
        CHECK(kernel_manifest_new(&grants, &none, &err) < 0 &&
                  strcmp(err.code, "bad_manifest") == 0,
              "%s", err.text);
    }
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

/* What may be written only is not read by being moved to where it can be. */
static void moving(void)
{
    CHECK(mkdir(at("mv"), 0755) == 0 && mkdir(at("mv/drop"), 0755) == 0 &&
              mkdir(at("mv/drop/dir"), 0755) == 0 && mkdir(at("mv/both"), 0755) == 0 &&
              mkdir(at("mv/both/deep"), 0755) == 0 &&
              symlink("../both/deep", at("mv/drop/door")) == 0,
          "the tree");
    file_put("mv/one", "one");
    file_put("mv/drop/secret", "secret");
    file_put("mv/both/open", "open");

    const char *const reads[] = {at("mv/both"), at("mv/one"), NULL}, *const writes[] = {at("mv"),
                                                                                        NULL};
    struct kernel_grants grants = {.read_paths = reads, .write_paths = writes};
    struct kernel_manifest *manifest = kit_manifest(&grants);
    struct kernel_context *context = kit_context(manifest);
    static const char *const into[] = {"both/secret", "both/deep/secret", "drop/door/secret",
                                       "one"};
    char source[512];

    RUN_IS(context, helpers, "1");
    RUN_IS(context,
           with("globalThis.move = (path, to) => (fs('rename', {path: '@/mv/' + path,"
                " to: '@/mv/' + to}), 1)"),
           "[Function (anonymous)]");
    for (size_t i = 0; i < sizeof(into) / sizeof(into[0]); i++) {
        (void)snprintf(source, sizeof(source), "move('drop/secret', '%s')", into[i]);
        RUN_THROWS(context, source, "allowedReadPaths (--allow-read)");
    }
    RUN_THROWS(context, "move('drop/dir', 'both/dir')", "allowedReadPaths");
    CHECK(file_is("mv/drop/secret", "secret") && file_is("mv/one", "one"),
          "they are where they were");
    RUN_IS(context, "move('drop/secret', 'drop/dir/secret')", "1");
    RUN_IS(context, "move('both/open', 'both/deep/open')", "1");
    RUN_IS(context, "move('one', 'both/one')", "1");
    RUN_IS(context, with("read('@/mv/both/one')"), "one");
    RUN_IS(context, "move('drop/door/open', 'drop/open')", "1");
    CHECK(file_is("mv/drop/open", "open") && file_is("mv/drop/dir/secret", "secret"), "moved");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

/* Numbers of open files end with their context. */
static void closed_again(const struct kernel_manifest *manifest)
{
    for (int i = 0; i < 40; i++) {
        struct kernel_context *context = kit_context(manifest);

        RUN_IS(context, helpers, "1");
        RUN_THROWS(context, with("while (true) fs('open', {path: '@/in/a.txt'})"), "EMFILE");
        kernel_context_free(context);
    }
}

static void nothing_granted(void)
{
    struct kernel_grants none = {0};
    struct kernel_manifest *manifest = kit_manifest(&none);
    struct kernel_context *context = kit_context(manifest);

    RUN_IS(context, helpers, "1");
    RUN_THROWS(context, "read('/etc/hostname')", "allowedReadPaths");
    RUN_THROWS(context, "write('/tmp/x', '')", "allowedWritePaths");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

int main(void)
{
    struct kernel_manifest *manifest;
    struct kernel_context *context;

    tree_make();
    const char *const reads[] = {at("in"), at("single"), NULL}, *const writes[] = {at("out"), NULL};
    struct kernel_grants grants = {.read_paths = reads, .write_paths = writes};
    manifest = kit_manifest(&grants);
    context = kit_context(manifest);
    RUN_IS(context, helpers, "1");
    reading(context);
    struct error err;
    CHECK(kernel_context_reset(context, NULL, &err) == 0, "reset");
    RUN_IS(context, helpers, "1");
    walls(context);
    writing(context);
    ways_out(context);
    granted_file();
    all_but_proc();
    moving();
    closed_again(manifest);
    nothing_granted();
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    kernel_image_free(kit_image());
    char remove[64];
    (void)snprintf(remove, sizeof(remove), "rm -rf %s", top);
    CHECK(system(remove) == 0, "removed"); // NOLINT(cert-env33-c): a name of our own
    return check_finish();
}
