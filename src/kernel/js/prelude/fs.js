// node:fs, node:fs/promises and __fs__ over the host's file operations. The host decides what may be
// reached; here paths are made absolute, answers get Node's shapes and failures Node's words. Every
// operation is synchronous below: the promise and callback forms only answer later.
(function (host, native, share) {
    "use strict";

    const { P, call, fileError, Buffer, paths } = share;
    const { Uint8Array, TaSubarray, TaSet, append, apply, ArrIsArray, ArrPop, ObjKeys, ObjCreate, ObjDefineProperty, StrSlice, StrStartsWith, StrLastIndexOf,
        Date, MathMin, MathFloor, Error, TypeError, bytesOf, Promise, PromiseThen, hide, Map, MapGet, MapSet, MapDelete, NumIsInteger, ArrSort,
        String, deferred, BigInt, StrIncludes } = P;

    const constants = {
        F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1, COPYFILE_EXCL: 1, O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512,
        O_APPEND: 1024, S_IFMT: 61440, S_IFREG: 32768, S_IFDIR: 16384, S_IFLNK: 40960,
    };

    // ---- arguments ---------------------------------------------------------------------------

    function pathText(path, name) {
        if (typeof path === "string") {
            if (StrIncludes(path, "\0")) throw share.wrongValue(name || "path", path, "must be a string, Uint8Array, or URL without null bytes");
            return path;
        }
        if (share.isURL(path)) return share.fileURLToPath(path);
        const bytes = bytesOf(path);
        if (bytes !== undefined) return native.utf8_decode(bytes, 0, bytes.length, false);
        throw share.wrongType(name || "path", "of type string or an instance of Buffer or URL", path);
    }

    function optionsOf(options, otherwise) {
        if (options === undefined || options === null || typeof options === "function") return otherwise;
        if (typeof options === "string") return { ...otherwise, encoding: options };
        if (typeof options !== "object") throw share.wrongType("options", "of type string or an instance of Object", options);
        return { ...otherwise, ...options };
    }

    function dataBytes(data, encoding, name) {
        if (typeof data === "string") return share.encodeText(data, encoding);
        const bytes = bytesOf(data);
        if (bytes === undefined) {
            throw share.wrongType(name || "data", "of type string or an instance of Buffer, TypedArray, or DataView", data);
        }
        return bytes;
    }

    // One operation of the host on a path; what fails says the path as the user wrote it.
    function op(name, syscall, path, meta, bytes) {
        const full = { __proto__: null, path: paths.resolve(path), ...meta };
        try {
            return call(`fs.${name}`, full, bytes);
        } catch (error) {
            throw fileError(error, syscall, path);
        }
    }

    // ---- what answers look like --------------------------------------------------------------

    const KINDS = { __proto__: null, file: 32768, directory: 16384, symlink: 40960, fifo: 4096, socket: 49152, char: 8192, block: 24576 };

    class Stats {
        isFile() { return (this.mode & 61440) === 32768; }
        isDirectory() { return (this.mode & 61440) === 16384; }
        isSymbolicLink() { return (this.mode & 61440) === 40960; }
        isFIFO() { return (this.mode & 61440) === 4096; }
        isSocket() { return (this.mode & 61440) === 49152; }
        isCharacterDevice() { return (this.mode & 61440) === 8192; }
        isBlockDevice() { return (this.mode & 61440) === 24576; }
    }

    function statsOf(meta, options) {
        const out = new Stats();
        const kind = KINDS[meta.type] || 32768;
        const ms = typeof meta.mtime_ms === "number" ? meta.mtime_ms : 0;
        out.dev = 0;
        out.mode = kind | ((typeof meta.mode === "number" ? meta.mode : kind === 16384 ? 493 : 420) & 4095);
        out.nlink = 1;
        out.uid = 1000;
        out.gid = 1000;
        out.rdev = 0;
        out.blksize = 4096;
        out.ino = typeof meta.ino === "number" ? meta.ino : 0;
        out.size = meta.size;
        out.blocks = MathFloor((meta.size + 511) / 512);
        out.atimeMs = ms;
        out.mtimeMs = ms;
        out.ctimeMs = ms;
        out.birthtimeMs = ms;
        out.atime = new Date(ms);
        out.mtime = new Date(ms);
        out.ctime = new Date(ms);
        out.birthtime = new Date(ms);
        if (options && options.bigint) {
            for (const key of ["dev", "mode", "nlink", "uid", "gid", "rdev", "blksize", "ino", "size", "blocks"]) out[key] = BigInt(out[key]);
        }
        return out;
    }

    class Dirent {
        constructor(name, parent, type) {
            this.name = name;
            this.parentPath = parent;
            this.path = parent;
            hide(this, "type", type);
        }
        isFile() { return this.type === "file"; }
        isDirectory() { return this.type === "directory"; }
        isSymbolicLink() { return this.type === "symlink"; }
        isFIFO() { return this.type === "fifo"; }
        isSocket() { return this.type === "socket"; }
        isCharacterDevice() { return this.type === "char"; }
        isBlockDevice() { return this.type === "block"; }
    }

    // ---- synchronous operations --------------------------------------------------------------

    const offsets = new Map(); // fd → true, for what was opened here

    const sync = {
        readFile(path, options) {
            const given = optionsOf(options, { encoding: null, flag: "r" });
            let bytes;
            if (typeof path === "number") {
                const parts = [];
                for (;;) {
                    const part = readFd(path, 65536, null);
                    if (part.length === 0) break;
                    append(parts, part);
                }
                bytes = Buffer.concat(parts);
            } else {
                const text = pathText(path);
                try {
                    ({ bytes } = call("fs.read_file", { __proto__: null, path: paths.resolve(text) }));
                } catch (error) {
                    throw error.code === "EISDIR" ? fileError(error, "read") : fileError(error, "open", text);
                }
            }
            if (given.encoding === null || given.encoding === undefined || given.encoding === "buffer") return share.bufferOver(bytes);
            return share.decodeText(bytes, given.encoding);
        },
        writeFile(path, data, options) {
            const given = optionsOf(options, { encoding: "utf8", flag: "w" });
            const bytes = dataBytes(data, given.encoding);
            if (typeof path === "number") {
                writeFd(path, bytes, null);
                return;
            }
            op("write_file", "open", pathText(path), { append: given.flag[0] === "a", exclusive: StrIncludes(given.flag, "x"), mode: given.mode }, bytes);
        },
        appendFile(path, data, options) {
            sync.writeFile(path, data, { ...optionsOf(options, {}), flag: "a" });
        },
        stat(path, options) {
            const text = pathText(path);
            try {
                return statsOf(op("stat", "stat", text, { follow: true }).meta, options);
            } catch (error) {
                if (options && options.throwIfNoEntry === false && (error.code === "ENOENT" || error.code === "ENOTDIR")) return undefined;
                throw error;
            }
        },
        lstat(path, options) {
            const text = pathText(path);
            try {
                return statsOf(op("stat", "lstat", text, { follow: false }).meta, options);
            } catch (error) {
                if (options && options.throwIfNoEntry === false && (error.code === "ENOENT" || error.code === "ENOTDIR")) return undefined;
                throw error;
            }
        },
        exists(path) {
            try {
                call("fs.stat", { __proto__: null, path: paths.resolve(pathText(path)), follow: true });
                return true;
            } catch {
                return false;
            }
        },
        access(path) { op("stat", "access", pathText(path), { follow: true }); },
        readdir(path, options) {
            const text = pathText(path), given = optionsOf(options, {});
            const out = [];
            const walk = (directory, prefix) => {
                const { entries } = op("list", "scandir", directory, {}).meta;
                ArrSort(entries, (a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
                for (let i = 0; i < entries.length; i++) {
                    const { name, type } = entries[i];
                    append(out, given.withFileTypes ? new Dirent(name, directory, type) : prefix + name);
                }
                for (let i = 0; given.recursive && i < entries.length; i++) {
                    if (entries[i].type === "directory") walk(paths.join(directory, entries[i].name), `${prefix}${entries[i].name}/`);
                }
            };
            walk(text, "");
            return out;
        },
        mkdir(path, options) {
            const text = pathText(path);
            const given = typeof options === "number" ? { mode: options } : optionsOf(options, {});
            if (!given.recursive) {
                op("mkdir", "mkdir", text, { mode: given.mode });
                return undefined;
            }
            let at = paths.resolve(text), first;
            const missing = [];
            for (;;) {
                let found;
                try {
                    found = call("fs.stat", { __proto__: null, path: at, follow: true }).meta;
                } catch (error) {
                    if (error.code !== "ENOENT" || at === "/") throw fileError(error, "mkdir", text);
                    append(missing, at);
                    at = paths.dirname(at);
                    continue;
                }
                if (found.type !== "directory") throw fileError(missing.length === 0 ? "EEXIST" : "ENOTDIR", "mkdir", text);
                break;
            }
            while (missing.length > 0) {
                const next = ArrPop(missing);
                op("mkdir", "mkdir", next, { mode: given.mode });
                if (first === undefined) first = next;
            }
            return first;
        },
        mkdtemp(prefix) {
            const { bytes } = call("random", { __proto__: null, length: 6 });
            let name = `${prefix}`;
            for (let i = 0; i < 6; i++) name += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[bytes[i] % 62];
            op("mkdir", "mkdtemp", name, { mode: 448 });
            return name;
        },
        unlink(path) { op("remove", "unlink", pathText(path), { directory: false }); },
        rmdir(path, options) {
            const text = pathText(path);
            if (options && options.recursive) {
                sync.rm(path, { recursive: true });
                return;
            }
            op("remove", "rmdir", text, { directory: true });
        },
        rm(path, options) {
            const text = pathText(path), given = optionsOf(options, {});
            let found;
            try {
                found = call("fs.stat", { __proto__: null, path: paths.resolve(text), follow: false }).meta;
            } catch (error) {
                if (given.force && error.code === "ENOENT") return;
                throw fileError(error, "lstat", text);
            }
            if (found.type === "directory" && !given.recursive) {
                const error = new Error(`Path is a directory: rm returned EISDIR (is a directory) ${text}`);
                error.code = "ERR_FS_EISDIR";
                error.errno = 21;
                error.syscall = "rm";
                error.path = text;
                hide(error, "name", "SystemError");
                throw error;
            }
            op("remove", "rm", text, { recursive: found.type === "directory", directory: found.type === "directory" });
        },
        rename(from, to) {
            const a = pathText(from, "oldPath"), b = pathText(to, "newPath");
            try {
                call("fs.rename", { __proto__: null, path: paths.resolve(a), to: paths.resolve(b) });
            } catch (error) {
                throw fileError(error, "rename", a, b);
            }
        },
        copyFile(from, to, mode) {
            const a = pathText(from, "src"), b = pathText(to, "dest");
            try {
                const { bytes } = call("fs.read_file", { __proto__: null, path: paths.resolve(a) });
                call("fs.write_file", { __proto__: null, path: paths.resolve(b), exclusive: (mode & 1) === 1 }, bytes);
            } catch (error) {
                throw fileError(error, "copyfile", a, b);
            }
        },
        cp(from, to, options) {
            const a = pathText(from, "src"), b = pathText(to, "dest"), given = optionsOf(options, {});
            if (!sync.stat(a).isDirectory()) {
                sync.mkdir(paths.dirname(paths.resolve(b)), { recursive: true });
                sync.copyFile(a, b);
                return;
            }
            if (!given.recursive) {
                throw share.codeError(Error, "ERR_FS_EISDIR", `Recursive option not enabled, cannot copy a directory: cp returned EISDIR (${a} is a directory (not copied)) ${b}`);
            }
            sync.mkdir(b, { recursive: true });
            const names = sync.readdir(a);
            for (let i = 0; i < names.length; i++) sync.cp(paths.join(a, names[i]), paths.join(b, names[i]), given);
        },
        realpath(path) {
            const text = pathText(path);
            const { meta } = op("stat", "realpath", text, { follow: true });
            return typeof meta.realpath === "string" ? meta.realpath : paths.resolve(text);
        },
        truncate(path, length = 0) {
            const bytes = sync.readFile(path);
            const out = new Uint8Array(length);
            TaSet(out, TaSubarray(bytes, 0, MathMin(length, bytes.length)));
            sync.writeFile(path, out);
        },
        symlink(target, path) { op("symlink", "symlink", pathText(path), { target: pathText(target, "target") }); },
        readlink(path) { return op("readlink", "readlink", pathText(path), {}).meta.target; },
        chmod(path, mode) { op("chmod", "chmod", pathText(path), { mode }); },
        utimes(path, atime, mtime) { op("utimes", "utime", pathText(path), { mtime_ms: +mtime }); },
        open(path, flags = "r", mode = 438) {
            const text = pathText(path);
            const { meta } = op("open", "open", text, { flags: flagText(flags), mode: typeof mode === "number" ? mode : 438 });
            MapSet(offsets, meta.fd, true);
            return meta.fd;
        },
        close(fd) {
            onFd("close", needFd(fd), {});
            MapDelete(offsets, fd);
        },
        read(fd, buffer, offset, length, position) {
            if (offset !== null && typeof offset === "object") ({ offset, length, position } = offset);
            const target = bytesOf(buffer);
            if (offset === undefined || offset === null) offset = 0;
            if (length === undefined || length === null) length = target.length - offset;
            const bytes = readFd(fd, MathMin(length, target.length - offset), position);
            TaSet(target, bytes, offset);
            return bytes.length;
        },
        write(fd, data, offset, length, position) {
            if (typeof data === "string") return writeFd(fd, dataBytes(data, length), typeof offset === "number" ? offset : null);
            if (offset !== null && typeof offset === "object") ({ offset, length, position } = offset);
            const bytes = dataBytes(data, undefined, "buffer");
            const from = offset === undefined || offset === null ? 0 : offset;
            return writeFd(fd, TaSubarray(bytes, from, length === undefined || length === null ? bytes.length : from + length), position);
        },
        fstat(fd, options) { return statsOf(onFd("stat", needFd(fd), {}).meta, options); },
        fsync() {},
        fdatasync() {},
    };

    function flagText(flags) {
        if (typeof flags === "string") return flags;
        const access = flags & 3;
        if (flags & 1024) return access === 2 ? "a+" : "a";
        if (flags & 512 || flags & 64) return (access === 2 ? "w+" : "w") + (flags & 128 ? "x" : "");
        return access === 0 ? "r" : "r+";
    }

    function needFd(fd) {
        if (typeof fd !== "number") throw share.wrongType("fd", "number", fd);
        if (!NumIsInteger(fd) || fd < 0 || fd > 2147483647) throw share.outOfRange("fd", ">= 0 && <= 2147483647", fd);
        return fd;
    }

    function onFd(name, fd, meta, bytes) {
        if (fd === 1 || fd === 2) {
            if (name === "write") {
                share.write(fd === 1 ? "log" : "error", native.utf8_decode(bytes, 0, bytes.length, false));
                return { meta: { written: bytes.length } };
            }
        }
        if (!MapGet(offsets, fd)) throw fileError("EBADF", name === "stat" ? "fstat" : name);
        try {
            return call(`fs.${name}`, { __proto__: null, fd, ...meta }, bytes);
        } catch (error) {
            throw fileError(error, name === "stat" ? "fstat" : name);
        }
    }

    function readFd(fd, length, position) {
        return onFd("read", needFd(fd), { length, position: typeof position === "number" && position >= 0 ? position : null }).bytes;
    }

    function writeFd(fd, bytes, position) {
        return onFd("write", needFd(fd), { position: typeof position === "number" ? position : null }, bytes).meta.written;
    }

    // ---- the three forms ---------------------------------------------------------------------

    const fs = { constants, ...constants, Stats, Dirent };
    const promises = { constants };
    const NAMES = ObjKeys(sync);
    for (let i = 0; i < NAMES.length; i++) {
        const name = NAMES[i], perform = sync[name];
        fs[`${name}Sync`] = { [`${name}Sync`](...args) { return apply(perform, undefined, args); } }[`${name}Sync`];
        fs[name] = { [name](...args) {
            const callback = share.needFunction(ArrPop(args), "cb");
            let value, error = null;
            try {
                value = apply(perform, undefined, args);
            } catch (caught) {
                if (caught.code === "ERR_INVALID_ARG_TYPE") throw caught;
                error = caught;
            }
            share.setImmediate(() => {
                if (name === "exists") callback(value);
                else if (error !== null) callback(error);
                else if (name === "read" || name === "write") callback(null, value, args[1]);
                else if (value === undefined) callback(null);
                else callback(null, value);
            });
        } }[name];
        if (name === "exists" || name === "close" || name === "read" || name === "write" || name[0] === "f") continue;
        promises[name] = { async [name](...args) { return apply(perform, undefined, args); } }[name];
    }
    P.hide(fs.exists, P.SymFor("nodejs.util.promisify.custom"), async (path) => sync.exists(path));
    P.hide(fs.read, P.SymFor("nodejs.util.promisify.custom"), async (fd, buffer, ...rest) => ({ bytesRead: sync.read(fd, buffer, ...rest), buffer }));
    fs.realpathSync.native = fs.realpathSync;

    class FileHandle {
        #fd;
        constructor(fd) { this.#fd = fd; }
        get fd() { return this.#fd; }
        async read(buffer, ...rest) {
            if (buffer === undefined || (buffer !== null && typeof buffer === "object" && bytesOf(buffer) === undefined)) {
                rest = [buffer || {}];
                buffer = (buffer && buffer.buffer) || Buffer.alloc(16384);
            }
            return { bytesRead: sync.read(this.#fd, buffer, ...rest), buffer };
        }
        async write(data, ...rest) { return { bytesWritten: sync.write(this.#fd, data, ...rest), buffer: data }; }
        async readFile(options) { return sync.readFile(this.#fd, options); }
        async writeFile(data, options) { return sync.writeFile(this.#fd, data, options); }
        async appendFile(data, options) { return sync.writeFile(this.#fd, data, options); }
        async stat(options) { return sync.fstat(this.#fd, options); }
        async sync() {}
        async close() {
            const fd = this.#fd;
            this.#fd = -1;
            if (fd >= 0) sync.close(fd);
        }
        async *readLines() {
            const text = sync.readFile(this.#fd, "utf8");
            const lines = P.StrSplit(text, "\n");
            if (lines[lines.length - 1] === "") ArrPop(lines);
            for (let i = 0; i < lines.length; i++) yield lines[i];
        }
        async [Symbol.asyncDispose]() { await this.close(); }
    }
    promises.open = async (path, flags, mode) => new FileHandle(sync.open(path, flags, mode));
    promises.opendir = async (path) => dirOf(path);
    fs.opendirSync = (path) => dirOf(path);

    function dirOf(path) {
        const entries = sync.readdir(path, { withFileTypes: true });
        let at = 0;
        const next = () => at < entries.length ? entries[at++] : null;
        return {
            path, readSync: next, closeSync() {},
            async read() { return next(); },
            async close() {},
            async *[Symbol.asyncIterator]() {
                for (let entry; (entry = next()) !== null;) yield entry;
            },
        };
    }

    // ---- streams, as far as the rest of Node's streams is not needed -------------------------

    fs.createReadStream = (path, options) => {
        const given = optionsOf(options, { encoding: null, highWaterMark: 65536 });
        const stream = share.builtins.stream.Readable.from((function* () {
            const bytes = sync.readFile(path);
            const from = given.start || 0, to = given.end === undefined ? bytes.length : MathMin(bytes.length, given.end + 1);
            for (let at = from; at < to; at += given.highWaterMark) {
                const part = bytes.subarray(at, MathMin(to, at + given.highWaterMark));
                yield given.encoding ? part.toString(given.encoding) : part;
            }
        })(), { objectMode: false, encoding: given.encoding });
        stream.path = path;
        // What cannot be opened is told of, whether anybody reads or not.
        share.nextTick(() => {
            try {
                sync.close(sync.open(path));
                stream.emit("open");
                stream.emit("ready");
            } catch (error) {
                stream.destroy(error);
            }
        });
        return stream;
    };
    fs.createWriteStream = (path, options) => {
        const given = optionsOf(options, { flags: "w", encoding: "utf8" });
        let isFirst = true;
        const put = (data) => {
            sync.writeFile(path, data, { flag: isFirst ? given.flags : "a" });
            isFirst = false;
        };
        return new share.builtins.stream.Writable({
            write(chunk, encoding, done) {
                try {
                    put(chunk);
                    done();
                } catch (error) {
                    done(error);
                }
            },
            final(done) {
                if (isFirst) put("");
                done();
            },
        });
    };
    fs.watch = fs.watchFile = () => {
        throw share.codeError(Error, "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM", "watching files is not part of this kernel");
    };
    fs.promises = promises;
    share.fs = sync;
    share.builtins.fs = fs;
    share.builtins["fs/promises"] = promises;

    // What older programs are given: text in, text out.
    share.define("__fs__", P.ObjFreeze({
        async readFile(path) { return sync.readFile(path, "utf8"); },
        async writeFile(path, data) { sync.writeFile(path, typeof data === "string" ? data : dataBytes(data)); },
    }));
})
