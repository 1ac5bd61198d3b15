// What a filesystem of a workspace does, case by case. Each runs in a directory of its own, with `sh` for what lies
// beside the interface. `ours` is what CoveFilesystem does where it deliberately differs from LocalFilesystem, `why`
// says why.

const bytes = (n) => Buffer.from(Array.from({ length: n }, (_, i) => (i * 7 + (i >> 8)) & 255));
const failed = (name, code) => ({ error: name, code });
/** Entries in one order, for that of a directory is nobody's promise. */
const sorted = (entries) => [...entries].sort((a, b) => ((a.path ?? a.name) < (b.path ?? b.name) ? -1 : 1));
const names = async (fs, path, options) => (await fs.readdir(path, options)).map((entry) => entry.name).sort();

export const cases = [
    // ---- readFile ----
    ["readFile: text", async (fs) => {
        await fs.writeFile("a.txt", "héllo\n");
        return [await fs.readFile("a.txt", { encoding: "utf-8" }), await fs.readFile("a.txt", { encoding: "base64" })];
    }],
    ["readFile: bytes without an encoding", async (fs) => {
        await fs.writeFile("a.bin", bytes(70_000));
        const read = await fs.readFile("a.bin");
        return [Buffer.isBuffer(read), read.equals(bytes(70_000))];
    }],
    ["readFile: an empty file", async (fs) => {
        await fs.writeFile("empty", "");
        return [await fs.readFile("empty", { encoding: "utf-8" }), (await fs.readFile("empty")).length];
    }],
    ["readFile: bytes that are no UTF-8", async (fs, { sh }) => {
        await sh("printf 'a\\377b' >a");
        return [await fs.readFile("a", { encoding: "utf-8" }), await fs.readFile("a", { encoding: "hex" })];
    }],
    ["readFile: not there", (fs) => fs.readFile("none")],
    ["readFile: a directory", async (fs) => {
        await fs.mkdir("d");
        await fs.readFile("d");
    }],
    ["readFile: below a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.readFile("a/b");
    }],
    ["readFile: through a link", async (fs, { sh }) => {
        await sh("echo 1 >a; ln -s a link");
        return fs.readFile("link", { encoding: "utf-8" });
    }],
    ["readFile: a link that leads nowhere", async (fs, { sh }) => {
        await sh("ln -s none link");
        await fs.readFile("link");
    }],
    ["readFile: names that are odd", async (fs) => {
        const odd = ["with space", "quo'te", 'dou"ble', "new\nline", "back\\slash", "ünï", "%41", "a?b#c", "-rf", "*"];
        for (const name of odd) await fs.writeFile(name, name);
        const read = [];
        for (const name of odd) read.push(await fs.readFile(name, { encoding: "utf-8" }));
        return [read, await names(fs, ".")];
    }],

    // ---- paths ----
    ["paths: ./ and inner .. lead where they lead", async (fs) => {
        await fs.writeFile("d/a", "1");
        return [await fs.exists("./d/a"), await fs.exists("d/../d/a"), await fs.exists("d//a"), await fs.exists("d/a/../a")];
    }],
    ["paths: absolute ones are those of commands", async (fs, { sh, base }) => {
        await fs.writeFile(`${base}/x/a`, "1");
        return [await sh("cat x/a"), await fs.exists("x/a")];
    }],
    ["paths: the base itself", async (fs) => {
        const stat = await fs.stat(".");
        return [stat.type, stat.path, await fs.exists(""), await fs.exists("/")];
    }],
    ["paths: resolveAbsolutePath", async (fs, { base }) => {
        await fs.writeFile("a", "1");
        const inside = [fs.resolveAbsolutePath("a") === `${base}/a`, fs.resolveAbsolutePath("d/../b") === `${base}/b`];
        return [inside, fs.resolveAbsolutePath("/etc/x")];
    }],
    ["contained: a path outside", { contained: true }, (fs) => fs.readFile("../outside")],
    ["contained: an absolute path outside", { contained: true }, (fs) => fs.readFile("/etc/hostname")],
    ["contained: exists outside", { contained: true }, (fs) => fs.exists("/etc/hostname")],
    ["contained: a neighbour whose name begins the same", { contained: true }, async (fs, { base, sh }) => {
        await sh(`mkdir ${base}-beside; echo 1 >${base}-beside/a`);
        return fs.readFile(`${base}-beside/a`);
    }],
    ["contained: an absolute path inside", { contained: true }, async (fs, { base }) => {
        await fs.writeFile("a", "1");
        return fs.readFile(`${base}/a`, { encoding: "utf-8" });
    }],
    ["contained: a link that leads out", { contained: true }, async (fs, { sh }) => {
        await sh("ln -s /etc/passwd link");
        await fs.readFile("link");
    }],
    ["contained: through a directory that leads out", { contained: true }, async (fs, { sh }) => {
        await sh("ln -s /etc out");
        await fs.readFile("out/passwd");
    }],
    ["contained: a new file behind a link that leads out", { contained: true }, async (fs, { sh }) => {
        await sh("mkdir -p inside ../elsewhere-$$; ln -s ../elsewhere-$$ out");
        await fs.writeFile("out/new", "1");
    }, {
        ours: failed("PermissionError", "EACCES"),
        why: "LocalFilesystem looks at paths that are there alone, and writes outside",
    }],
    ["contained: a link that stays inside", { contained: true }, async (fs, { sh }) => {
        await sh("mkdir d; echo 1 >d/a; ln -s d link");
        return fs.readFile("link/a", { encoding: "utf-8" });
    }],
    ["contained: copy to outside", { contained: true }, async (fs) => {
        await fs.writeFile("a", "1");
        await fs.copyFile("a", "../b");
    }],
    ["contained: move to outside", { contained: true }, async (fs) => {
        await fs.writeFile("a", "1");
        await fs.moveFile("a", "../b");
    }],
    ["contained: a name that only begins with dots", { contained: true }, async (fs) => {
        await fs.writeFile("d/..a", "1");
        return fs.readFile("d/..a", { encoding: "utf-8" });
    }],
    ["contained: resolveAbsolutePath outside", { contained: true }, async (fs) => {
        await fs.exists("a");
        return [fs.resolveAbsolutePath("/etc/passwd"), fs.resolveAbsolutePath("../x")];
    }],

    // ---- writeFile ----
    ["writeFile: makes directories above", async (fs, { sh }) => {
        await fs.writeFile("a/b/c.txt", "1");
        return sh("cat a/b/c.txt");
    }],
    ["writeFile: recursive false, directory there", async (fs) => {
        await fs.mkdir("d");
        await fs.writeFile("d/a", "1", { recursive: false });
        return fs.readFile("d/a", { encoding: "utf-8" });
    }],
    ["writeFile: recursive false, directory missing", (fs) => fs.writeFile("d/a", "1", { recursive: false })],
    ["writeFile: recursive false, below a file", async (fs) => {
        await fs.writeFile("d", "1");
        await fs.writeFile("d/a", "1", { recursive: false });
    }],
    ["writeFile: below a file", async (fs) => {
        await fs.writeFile("d", "1");
        await fs.writeFile("d/x/a", "1");
    }],
    ["writeFile: right below a file", async (fs) => {
        await fs.writeFile("d", "1");
        await fs.writeFile("d/a", "1");
    }, {
        ours: failed("NotDirectoryError", "ENOTDIR"),
        why: "LocalFilesystem gives the EEXIST of its mkdir, which is of another path",
    }],
    ["writeFile: replaces, also by something shorter", async (fs) => {
        await fs.writeFile("a", "0123456789");
        await fs.writeFile("a", "x");
        return fs.readFile("a", { encoding: "utf-8" });
    }],
    ["writeFile: Buffer, Uint8Array and text", async (fs, { sh }) => {
        await fs.writeFile("a", Buffer.from("a"));
        await fs.writeFile("b", new Uint8Array([98]));
        await fs.writeFile("c", "ç");
        return sh("cat a b c");
    }],
    ["writeFile: part of a larger array", async (fs) => {
        await fs.writeFile("a", new Uint8Array([1, 2, 3, 4, 5]).subarray(1, 3));
        return fs.readFile("a", { encoding: "hex" });
    }],
    ["writeFile: overwrite false, nothing there", async (fs) => {
        await fs.writeFile("a", "1", { overwrite: false });
        return fs.readFile("a", { encoding: "utf-8" });
    }],
    ["writeFile: overwrite false, a file there", async (fs) => {
        await fs.writeFile("a", "1");
        try {
            await fs.writeFile("a", "2", { overwrite: false });
        } catch (error) {
            return [error.constructor.name, error.code, await fs.readFile("a", { encoding: "utf-8" })];
        }
    }],
    ["writeFile: overwrite false, a directory there", async (fs) => {
        await fs.mkdir("a");
        await fs.writeFile("a", "2", { overwrite: false });
    }],
    ["writeFile: overwrite false, a link there", async (fs, { sh }) => {
        await sh("echo 1 >a; ln -s a link");
        await fs.writeFile("link", "2", { overwrite: false });
    }],
    ["writeFile: overwrite false, 20 at once, one wins", async (fs) => {
        const writes = Array.from({ length: 20 }, (_, i) => fs.writeFile("one", `${i}`, { overwrite: false }));
        const all = await Promise.allSettled(writes);
        return [
            all.filter((each) => each.status === "fulfilled").length,
            [...new Set(all.filter((each) => each.status === "rejected").map((each) => each.reason.constructor.name))],
        ];
    }],
    ["writeFile: onto a directory", async (fs) => {
        await fs.mkdir("d");
        await fs.writeFile("d", "1");
    }],
    ["writeFile: through a link", async (fs, { sh }) => {
        await sh("echo 1 >a; ln -s a link");
        await fs.writeFile("link", "2");
        return [await sh("cat a"), await sh("readlink link")];
    }],
    ["writeFile: through a link to what is not there yet", async (fs, { sh }) => {
        await sh("ln -s a link");
        await fs.writeFile("link", "2");
        return [await sh("cat a"), await sh("readlink link")];
    }],
    ["writeFile: keeps the mode", async (fs, { sh }) => {
        await sh("echo 1 >a; chmod 750 a");
        await fs.writeFile("a", "2");
        return sh("stat -c %a a");
    }],
    ["writeFile: expectedMtime is right", async (fs) => {
        await fs.writeFile("a", "1");
        const { modifiedAt } = await fs.stat("a");
        await fs.writeFile("a", "2", { expectedMtime: modifiedAt });
        return fs.readFile("a", { encoding: "utf-8" });
    }],
    ["writeFile: expectedMtime is stale", async (fs, { sh }) => {
        await fs.writeFile("a", "1");
        const { modifiedAt } = await fs.stat("a");
        await sh("touch -d '2020-01-02 03:04:05.678' a");
        try {
            await fs.writeFile("a", "2", { expectedMtime: modifiedAt });
        } catch (error) {
            return [
                error.constructor.name, error.code, error.path, error.actualMtime.toISOString(),
                error.expectedMtime.getTime() === modifiedAt.getTime(), await fs.readFile("a", { encoding: "utf-8" }),
            ];
        }
    }],
    ["writeFile: expectedMtime a millisecond off", async (fs, { sh }) => {
        await sh("echo 1 >a; touch -d '2020-01-02 03:04:05.678' a");
        await fs.writeFile("a", "2", { expectedMtime: new Date(new Date((await fs.stat("a")).modifiedAt).getTime() + 1) });
    }],
    ["writeFile: expectedMtime of a file that is gone", async (fs) => {
        await fs.writeFile("a", "1", { expectedMtime: new Date(0) });
        return fs.readFile("a", { encoding: "utf-8" });
    }],

    // ---- appendFile ----
    ["appendFile: makes and appends", async (fs) => {
        await fs.appendFile("d/log", "one\n");
        await fs.appendFile("d/log", Buffer.from("two\n"));
        return fs.readFile("d/log", { encoding: "utf-8" });
    }],
    ["appendFile: to a directory", async (fs) => {
        await fs.mkdir("d");
        await fs.appendFile("d", "1");
    }],
    ["appendFile: 20 at once, all of each", async (fs) => {
        await Promise.all(Array.from({ length: 20 }, (_, i) => fs.appendFile("log", `line ${String(i).padStart(2, "0")}\n`)));
        return (await fs.readFile("log", { encoding: "utf-8" })).split("\n").sort();
    }],

    // ---- deleteFile ----
    ["deleteFile: a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.deleteFile("a");
        return fs.exists("a");
    }],
    ["deleteFile: not there", (fs) => fs.deleteFile("none")],
    ["deleteFile: not there, force", (fs) => fs.deleteFile("none", { force: true })],
    ["deleteFile: a directory", async (fs) => {
        await fs.mkdir("d");
        await fs.deleteFile("d");
    }],
    ["deleteFile: a directory, force", async (fs) => {
        await fs.mkdir("d");
        await fs.deleteFile("d", { force: true });
    }],
    ["deleteFile: below a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.deleteFile("a/b");
    }],
    ["deleteFile: a link, its target stays", async (fs, { sh }) => {
        await sh("echo 1 >a; ln -s a link");
        await fs.deleteFile("link");
        return sh("ls");
    }],
    ["deleteFile: a link to a directory", async (fs, { sh }) => {
        await sh("mkdir d; ln -s d link");
        await fs.deleteFile("link");
    }],
    ["deleteFile: a link that leads nowhere", async (fs, { sh }) => {
        await sh("ln -s none link");
        await fs.deleteFile("link");
        return sh("ls");
    }, { ours: { value: "" }, why: "LocalFilesystem cannot delete it: it says that there is no such file" }],

    // ---- copyFile ----
    ["copyFile: a file, into a new directory", async (fs, { sh }) => {
        await fs.writeFile("a", "1");
        await fs.copyFile("a", "d/e/b");
        return sh("cat a d/e/b");
    }],
    ["copyFile: keeps the mode", async (fs, { sh }) => {
        await sh("echo 1 >a; chmod 751 a");
        await fs.copyFile("a", "b");
        return sh("stat -c %a b");
    }],
    ["copyFile: replaces", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.writeFile("b", "22");
        await fs.copyFile("a", "b");
        return fs.readFile("b", { encoding: "utf-8" });
    }],
    ["copyFile: overwrite false, a file there", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.writeFile("b", "2");
        await fs.copyFile("a", "b", { overwrite: false });
    }],
    ["copyFile: not there", (fs) => fs.copyFile("none", "b")],
    ["copyFile: a directory without recursive", async (fs) => {
        await fs.mkdir("d");
        await fs.copyFile("d", "e");
    }],
    ["copyFile: onto a directory", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.mkdir("d");
        await fs.copyFile("a", "d");
    }],
    ["copyFile: what a link leads to", async (fs, { sh }) => {
        await sh("echo 1 >a; ln -s a link");
        await fs.copyFile("link", "b");
        return sh("cat b; test -L b && echo link || echo file");
    }],
    ["copyFile: through a link at the destination", async (fs, { sh }) => {
        await sh("echo 1 >a; echo 2 >b; ln -s b link");
        await fs.copyFile("a", "link");
        return sh("cat b; readlink link");
    }],
    ["copyFile: a directory, recursive", async (fs, { sh }) => {
        await sh("mkdir -p d/e/f; echo 1 >d/a; echo 2 >d/e/b; echo 3 >d/.h");
        await fs.copyFile("d", "new/copy", { recursive: true });
        return sh("cd new/copy && find . | sort && cat a e/b .h");
    }],
    ["copyFile: a directory into one that is there", async (fs, { sh }) => {
        await sh("mkdir -p d/e t/e; echo new >d/a; echo new >d/e/b; echo old >t/a; echo kept >t/c");
        await fs.copyFile("d", "t", { recursive: true });
        return sh("cd t && find . | sort && cat a c e/b");
    }],
    ["copyFile: a directory into one that is there, overwrite false", async (fs, { sh }) => {
        await sh("mkdir -p d t; echo new >d/a; echo new >d/b; echo old >t/a");
        await fs.copyFile("d", "t", { recursive: true, overwrite: false });
        return sh("cat t/a t/b");
    }],
    ["copyFile: a directory onto a file", async (fs) => {
        await fs.mkdir("d");
        await fs.writeFile("a", "1");
        await fs.copyFile("d", "a", { recursive: true });
    }],
    ["copyFile: a directory with a link to a directory", async (fs, { sh }) => {
        await sh("mkdir -p d/e; echo 1 >d/e/a; ln -s e d/link");
        await fs.copyFile("d", "t", { recursive: true });
        return sh("readlink t/link; cat t/link/a");
    }, { ours: { value: "e\n1\n" }, why: "LocalFilesystem fails halfway: it takes the link for a file" }],

    // ---- moveFile ----
    ["moveFile: a file, into a new directory", async (fs, { sh }) => {
        await fs.writeFile("a", "1");
        await fs.moveFile("a", "d/b");
        return sh("find . | sort; cat d/b");
    }],
    ["moveFile: replaces", async (fs, { sh }) => {
        await fs.writeFile("a", "1");
        await fs.writeFile("b", "2");
        await fs.moveFile("a", "b");
        return sh("ls; cat b");
    }],
    ["moveFile: overwrite false, a file there", async (fs, { sh }) => {
        await fs.writeFile("a", "1");
        await fs.writeFile("b", "2");
        try {
            await fs.moveFile("a", "b", { overwrite: false });
        } catch (error) {
            return [error.constructor.name, error.code, error.path, await sh("cat a b")];
        }
    }],
    ["moveFile: overwrite false, nothing there", async (fs, { sh }) => {
        await fs.writeFile("a", "1");
        await fs.moveFile("a", "b", { overwrite: false });
        return sh("ls");
    }],
    ["moveFile: not there", (fs) => fs.moveFile("none", "b")],
    ["moveFile: a directory", async (fs, { sh }) => {
        await fs.writeFile("d/e/a", "1");
        await fs.moveFile("d", "x/y");
        return sh("find . | sort");
    }],
    ["moveFile: a directory, overwrite false", async (fs, { sh }) => {
        await fs.writeFile("d/a", "1");
        await fs.moveFile("d", "e", { overwrite: false });
        return sh("find . | sort");
    }, { ours: { value: ".\n./e\n./e/a\n" }, why: "LocalFilesystem copies, and refuses directories; here it is one step" }],
    ["moveFile: a file onto a directory", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.mkdir("d");
        await fs.moveFile("a", "d");
    }],
    ["moveFile: a directory onto one that is not empty", async (fs) => {
        await fs.mkdir("d");
        await fs.writeFile("e/a", "1");
        await fs.moveFile("d", "e");
    }],
    ["moveFile: a directory onto a file", async (fs) => {
        await fs.mkdir("d");
        await fs.writeFile("a", "1");
        await fs.moveFile("d", "a");
    }],
    ["moveFile: a link is moved itself", async (fs, { sh }) => {
        await sh("echo 1 >a; ln -s a link");
        await fs.moveFile("link", "other");
        return sh("ls; readlink other");
    }],

    // ---- mkdir ----
    ["mkdir: with what is above", async (fs, { sh }) => {
        await fs.mkdir("a/b/c");
        return sh("find . | sort");
    }],
    ["mkdir: one that is there", async (fs) => {
        await fs.mkdir("a");
        await fs.mkdir("a");
        return fs.exists("a");
    }],
    ["mkdir: one that is there, not recursive", async (fs) => {
        await fs.mkdir("a");
        await fs.mkdir("a", { recursive: false });
        return fs.exists("a");
    }],
    ["mkdir: not recursive, nothing above", (fs) => fs.mkdir("a/b", { recursive: false })],
    ["mkdir: a file there", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.mkdir("a");
    }],
    ["mkdir: a file there, not recursive", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.mkdir("a", { recursive: false });
    }],
    ["mkdir: below a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.mkdir("a/b/c");
    }],
    ["mkdir: below a file, not recursive", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.mkdir("a/b", { recursive: false });
    }],
    ["mkdir: a link to a directory", async (fs, { sh }) => {
        await sh("mkdir d; ln -s d link");
        await fs.mkdir("link");
        return sh("ls");
    }],

    // ---- rmdir ----
    ["rmdir: an empty one", async (fs) => {
        await fs.mkdir("a");
        await fs.rmdir("a");
        return fs.exists("a");
    }],
    ["rmdir: one that is not empty", async (fs) => {
        await fs.writeFile("a/b", "1");
        await fs.rmdir("a");
    }],
    ["rmdir: one that is not empty, force alone", async (fs) => {
        await fs.writeFile("a/b", "1");
        await fs.rmdir("a", { force: true });
    }],
    ["rmdir: one that is not empty, recursive", async (fs) => {
        await fs.writeFile("a/b/c", "1");
        await fs.rmdir("a", { recursive: true });
        return fs.exists("a");
    }],
    ["rmdir: not there", (fs) => fs.rmdir("none")],
    ["rmdir: not there, recursive", (fs) => fs.rmdir("none", { recursive: true })],
    ["rmdir: not there, force", (fs) => fs.rmdir("none", { force: true })],
    ["rmdir: not there, recursive and force", (fs) => fs.rmdir("none", { recursive: true, force: true })],
    ["rmdir: a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.rmdir("a");
    }],
    ["rmdir: a file, recursive and force", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.rmdir("a", { recursive: true, force: true });
    }],
    ["rmdir: a link to a directory", async (fs, { sh }) => {
        await sh("mkdir d; ln -s d link");
        await fs.rmdir("link");
    }],
    ["rmdir: a link to a directory, recursive", async (fs, { sh }) => {
        await sh("mkdir d; echo 1 >d/a; ln -s d link");
        await fs.rmdir("link", { recursive: true });
        return sh("find . | sort");
    }],
    ["rmdir: links below are not followed", async (fs, { sh }) => {
        await sh("mkdir d t; echo 1 >t/a; ln -s ../t d/link");
        await fs.rmdir("d", { recursive: true });
        return sh("find . | sort");
    }],

    // ---- readdir ----
    ["readdir: files and directories", async (fs) => {
        await fs.writeFile("a.txt", "123");
        await fs.mkdir("d");
        await fs.writeFile(".hidden", "");
        return sorted(await fs.readdir("."));
    }],
    ["readdir: nothing", async (fs) => {
        await fs.mkdir("d");
        return fs.readdir("d");
    }],
    ["readdir: not there", (fs) => fs.readdir("none")],
    ["readdir: a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.readdir("a");
    }],
    ["readdir: below a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.readdir("a/b");
    }],
    ["readdir: links", async (fs, { sh }) => {
        await sh("mkdir d; echo 1 >a; ln -s a file; ln -s d directory; ln -s none nowhere; ln -s file chain");
        return sorted(await fs.readdir("."));
    }],
    ["readdir: a link to a directory", async (fs, { sh }) => {
        await sh("mkdir d; echo 1 >d/a; ln -s d link");
        return names(fs, "link");
    }],
    ["readdir: recursive", async (fs) => {
        for (const path of ["a", "d/b", "d/e/c", "d/e/f/g"]) await fs.writeFile(path, path);
        return sorted(await fs.readdir(".", { recursive: true }));
    }],
    ["readdir: recursive, maxDepth 0", async (fs) => {
        for (const path of ["a", "d/b", "d/e/c"]) await fs.writeFile(path, path);
        return names(fs, ".", { recursive: true, maxDepth: 0 });
    }],
    ["readdir: recursive, maxDepth 1", async (fs) => {
        for (const path of ["a", "d/b", "d/e/c"]) await fs.writeFile(path, path);
        return names(fs, ".", { recursive: true, maxDepth: 1 });
    }],
    ["readdir: maxDepth alone", async (fs) => {
        await fs.writeFile("d/b", "1");
        return names(fs, ".", { maxDepth: 5 });
    }],
    ["readdir: recursive, not from the base", async (fs) => {
        for (const path of ["x/a", "x/d/b"]) await fs.writeFile(path, path);
        return names(fs, "x", { recursive: true });
    }],
    ["readdir: extension", async (fs) => {
        for (const path of ["a.ts", "b.js", "c", "d/e.ts", "f.d.ts", ".ts"]) await fs.writeFile(path, "1");
        return [
            await names(fs, ".", { extension: ".ts" }),
            await names(fs, ".", { extension: "ts" }),
            await names(fs, ".", { extension: [".js", "ts"], recursive: true }),
        ];
    }],
    ["readdir: recursive, a link to a directory", async (fs, { sh }) => {
        await sh("mkdir d; echo 1 >d/a; ln -s ../d d/self; ln -s d link");
        return names(fs, ".", { recursive: true });
    }, {
        ours: { value: ["d", "d/a", "d/self", "link"] },
        why: "links are told and not entered: LocalFilesystem lists one that leads up 40 levels deep",
    }],
    ["readdir: 3,000 entries", async (fs, { sh }) => {
        await sh("mkdir d; cd d; i=0; while [ $i -lt 3000 ]; do : >f$i; i=$((i+1)); done");
        return (await fs.readdir("d")).length;
    }],

    // ---- exists ----
    ["exists", async (fs, { sh }) => {
        await sh("echo 1 >a; mkdir d; ln -s none nowhere; ln -s a link");
        return [
            await fs.exists("a"), await fs.exists("d"), await fs.exists("none"), await fs.exists("nowhere"),
            await fs.exists("link"), await fs.exists("a/b"), await fs.exists("x".repeat(300)),
        ];
    }],

    // ---- stat ----
    ["stat: a file", async (fs, { sh }) => {
        await sh("mkdir d; printf 12345 >d/a.txt; touch -d '2021-02-03 04:05:06.789' d/a.txt");
        const { name, path, type, size, modifiedAt, createdAt, mimeType } = await fs.stat("d/a.txt");
        return { name, path, type, size, modifiedAt, hasCreatedAt: createdAt instanceof Date, mimeType };
    }],
    ["stat: the same time again", async (fs) => {
        await fs.writeFile("a", "1");
        const times = [];
        for (let i = 0; i < 3; i++) times.push((await fs.stat("a")).modifiedAt.getTime());
        return [new Set(times).size, Number.isInteger(times[0])];
    }],
    ["stat: a time with less than a millisecond", async (fs, { sh }) => {
        await sh("echo 1 >a; touch -d '2021-02-03 04:05:06.789987654' a");
        return (await fs.stat("a")).modifiedAt.toISOString();
    }, {
        ours: { value: "2021-02-03T04:05:06.789Z" },
        why: "LocalFilesystem rounds as Node does; both are stable, and only compared with themselves",
    }],
    ["stat: a directory", async (fs) => {
        await fs.mkdir("d");
        const { name, path, type, mimeType } = await fs.stat("d");
        return { name, path, type, mimeType };
    }],
    ["stat: the size of a directory", async (fs) => {
        await fs.mkdir("d");
        return (await fs.stat("d")).size;
    }, { ours: { value: 0 }, why: "the interface says 0; LocalFilesystem gives what the disk says, such as 4096" }],
    ["stat: not there", (fs) => fs.stat("none")],
    ["stat: below a file", async (fs) => {
        await fs.writeFile("a", "1");
        await fs.stat("a/b");
    }],
    ["stat: a link", async (fs, { sh }) => {
        await sh("printf 123 >a; ln -s a link.txt");
        const { name, path, type, size } = await fs.stat("link.txt");
        return { name, path, type, size };
    }],
    ["stat: outside of the base", async (fs) => (await fs.stat("/etc/passwd")).path, {
        ours: { value: "/etc/passwd" },
        why: "LocalFilesystem gives ../../..; the agent sees this path, and the absolute one is what commands understand",
    }],
    ["stat: mime types by name", async (fs) => {
        const types = {};
        for (const extension of (
            "txt md html css csv js mjs ts tsx jsx json xml yaml yml py rb go rs java c cpp h hpp sh toml ini sql graphql " +
            "vue svelte scss less swift kt lua r tf log png jpg jpeg gif svg webp ico bmp pdf mp3 wav mp4 webm mov zip tar " +
            "gz tgz wasm woff2 docx xlsx pptx bin so PNG Md"
        ).split(" ")) {
            await fs.writeFile(`a.${extension}`, "");
            types[extension] = (await fs.stat(`a.${extension}`)).mimeType;
        }
        return types;
    }],
    ["stat: mime types of names that say nothing", async (fs, { sh }) => {
        await fs.writeFile("Makefile", "all:\n\ttrue\n");
        await fs.writeFile(".gitignore", "a\n");
        await fs.writeFile("program", Buffer.from("\x7fELF\x02\x01\x01\0", "latin1"));
        await fs.writeFile("picture", Buffer.from("\x89PNG\r\n\x1a\n\0\0", "latin1"));
        await fs.writeFile("data", Buffer.from([1, 2, 0, 255]));
        await fs.writeFile("latin", Buffer.from("caf\xe9\n", "latin1"));
        await fs.writeFile("long", "é".repeat(4000));
        await sh(": >empty");
        const types = [];
        for (const name of ["Makefile", ".gitignore", "program", "picture", "data", "latin", "long", "empty"])
            types.push((await fs.stat(name)).mimeType);
        return types;
    }, {
        ours: {
            value: [
                "text/plain", "text/plain", "application/x-executable", "image/png", "application/x-binary", "text/plain",
                "text/plain", "text/plain",
            ],
        },
        why: "LocalFilesystem says application/octet-stream, which read_file takes for text, also of a program",
    }],
    ["stat: mime types of text that LocalFilesystem calls binary", async (fs) => {
        await fs.writeFile("a.php", "<?php\n");
        await fs.writeFile("a.jsonl", "{}\n");
        return [(await fs.stat("a.php")).mimeType, (await fs.stat("a.jsonl")).mimeType];
    }, { ours: { value: ["text/x-php", "text/x-jsonl"] }, why: "read_file would refuse to show them" }],

    // ---- realpath ----
    ["realpath: .. behind a link", async (fs, { sh }) => {
        await sh("mkdir -p d/e; ln -s d/e link; echo 1 >a; echo 2 >d/a");
        return fs.realpath("link/../a");
    }],
    ["realpath: links", async (fs, { sh }) => {
        await sh("mkdir -p d/e; echo 1 >d/e/a; ln -s d/e link; ln -s ../link d/again; ln -s link/a file; ln -s link/../e/a up");
        return [
            await fs.realpath("d/e/a"), await fs.realpath("link/a"), await fs.realpath("d/again/a"), await fs.realpath("file"),
            await fs.realpath("up"), await fs.realpath("."),
        ];
    }],
    ["realpath: not there", (fs) => fs.realpath("none")],
    ["realpath: links in a circle", async (fs, { sh }) => {
        await sh("ln -s b a; ln -s a b");
        await fs.realpath("a");
    }, {
        ours: failed("FileNotFoundError", "ENOENT"),
        why: "LocalFilesystem gives ELOOP of the system, which core has no class for",
    }],

    // ---- read only ----
    ...[
        ["writeFile", (fs) => fs.writeFile("a", "1")],
        ["appendFile", (fs) => fs.appendFile("a", "1")],
        ["deleteFile", (fs) => fs.deleteFile("a")],
        ["copyFile", (fs) => fs.copyFile("a", "b")],
        ["moveFile", (fs) => fs.moveFile("a", "b")],
        ["mkdir", (fs) => fs.mkdir("a")],
        ["rmdir", (fs) => fs.rmdir("a")],
    ].map(([method, run]) => [`read only: ${method}`, { readOnly: true }, run]),
    ["read only: reading", { readOnly: true }, async (fs, { sh }) => {
        await sh("echo 1 >a");
        return [await fs.readFile("a", { encoding: "utf-8" }), await names(fs, "."), fs.readOnly];
    }],

    // ---- what it is ----
    ["isTextFile", { textExtensions: ["sasx"] }, (fs) =>
        ["a.ts", "a.png", "a.sasx", "Makefile", "A.MD"].map((name) => fs.isTextFile(name))],
    ["getInfo", { id: "files" }, async (fs) => {
        await fs.exists("a");
        const { id, status, error } = await fs.getInfo();
        return { id, status, error };
    }],
    ["getInstructions: replaced", { instructions: "read the manual" }, (fs) => fs.getInstructions()],
    ["getInstructions: added to", { instructions: ({ defaultInstructions }) => `${defaultInstructions.length > 0} and more` },
        (fs) => fs.getInstructions()],
    ["onInit and status", { onInit: ({ filesystem }) => (filesystem.seen = filesystem.status) }, async (fs) => {
        const before = fs.status;
        await Promise.all([fs.exists("a"), fs.exists("b")]);
        return [before, fs.status, fs.seen];
    }],
    ["destroy keeps the files", async (fs, { sh }) => {
        await fs.writeFile("a", "1");
        await fs._destroy();
        return [fs.status, await sh("cat a")];
    }],
];
