// node:path, POSIX only: pure text, nothing is asked of any file system.
(function (host, native, share) {
    "use strict";

    const { P, needString } = share;
    const { StrSlice, StrCharCodeAt, StrLastIndexOf, StrSplit, StrStartsWith, StrEndsWith, ArrJoin, ArrPop, append } = P;

    // "." and ".." taken out; above the root there is nothing.
    function normalized(path, isAbsolute) {
        const parts = StrSplit(path, "/"), out = [];
        for (let i = 0; i < parts.length; i++) {
            const part = parts[i];
            if (part === "" || part === ".") continue;
            if (part !== "..") append(out, part);
            else if (out.length > 0 && out[out.length - 1] !== "..") ArrPop(out);
            else if (!isAbsolute) append(out, "..");
        }
        return ArrJoin(out, "/");
    }

    function withoutEndSlashes(path) {
        let end = path.length;
        while (end > 1 && path[end - 1] === "/") end--;
        return StrSlice(path, 0, end);
    }

    const path = {
        sep: "/",
        delimiter: ":",
        resolve(...parts) {
            let out = "", isAbsolute = false;
            for (let i = parts.length - 1; i >= -1 && !isAbsolute; i--) {
                const part = i >= 0 ? needString(parts[i], `paths[${i}]`) : share.cwd();
                if (part === "") continue;
                out = `${part}/${out}`;
                isAbsolute = part[0] === "/";
            }
            const clean = normalized(out, isAbsolute);
            return isAbsolute ? `/${clean}` : clean || ".";
        },
        normalize(path) {
            needString(path, "path");
            if (path === "") return ".";
            const isAbsolute = path[0] === "/";
            let out = normalized(path, isAbsolute);
            if (out === "") {
                if (isAbsolute) return "/";
                return StrEndsWith(path, "/") ? "./" : ".";
            }
            if (StrEndsWith(path, "/")) out += "/";
            return isAbsolute ? `/${out}` : out;
        },
        isAbsolute(path) {
            return needString(path, "path").length > 0 && path[0] === "/";
        },
        join(...parts) {
            const used = [];
            for (let i = 0; i < parts.length; i++) {
                if (needString(parts[i], "path") !== "") append(used, parts[i]);
            }
            return used.length === 0 ? "." : path.normalize(ArrJoin(used, "/"));
        },
        relative(from, to) {
            needString(from, "from");
            needString(to, "to");
            const start = path.resolve(from), end = path.resolve(to);
            if (start === end) return "";
            const a = start === "/" ? [] : StrSplit(StrSlice(start, 1), "/");
            const b = end === "/" ? [] : StrSplit(StrSlice(end, 1), "/");
            let same = 0;
            while (same < a.length && same < b.length && a[same] === b[same]) same++;
            const out = [];
            for (let i = same; i < a.length; i++) append(out, "..");
            for (let i = same; i < b.length; i++) append(out, b[i]);
            return ArrJoin(out, "/");
        },
        toNamespacedPath(path) { return path; },
        dirname(path) {
            if (needString(path, "path") === "") return ".";
            const trimmed = withoutEndSlashes(path);
            const at = StrLastIndexOf(trimmed, "/");
            if (at < 0) return ".";
            if (at === 0) return "/";
            if (at === 1 && trimmed[0] === "/") return "//";
            return withoutEndSlashes(StrSlice(trimmed, 0, at));
        },
        basename(path, suffix) {
            if (suffix !== undefined) needString(suffix, "suffix");
            needString(path, "path");
            let end = path.length;
            while (end > 0 && path[end - 1] === "/") end--;
            const trimmed = StrSlice(path, 0, end);
            const name = StrSlice(trimmed, StrLastIndexOf(trimmed, "/") + 1);
            if (suffix !== undefined && suffix === path) return "";
            if (suffix !== undefined && suffix !== name && StrEndsWith(name, suffix)) {
                return StrSlice(name, 0, name.length - suffix.length);
            }
            return name;
        },
        extname(path) {
            const name = path === "" ? "" : this === undefined ? base(path) : base(path);
            const at = StrLastIndexOf(name, ".");
            if (at <= 0 || name === "..") return "";
            return StrSlice(name, at);
        },
        format(parts) {
            if (parts === null || typeof parts !== "object") throw share.wrongType("pathObject", "object", parts);
            const dir = parts.dir || parts.root;
            const extension = parts.ext ? (StrStartsWith(parts.ext, ".") ? "" : ".") + parts.ext : "";
            const name = parts.base || `${parts.name || ""}${extension}`;
            if (!dir) return name;
            return dir === parts.root ? `${dir}${name}` : `${dir}/${name}`;
        },
        parse(path) {
            needString(path, "path");
            const out = { root: "", dir: "", base: "", ext: "", name: "" };
            if (path === "") return out;
            if (path[0] === "/") out.root = "/";
            out.base = base(path);
            out.ext = path_extname(path);
            out.name = StrSlice(out.base, 0, out.base.length - out.ext.length);
            const trimmed = withoutEndSlashes(path);
            const at = StrLastIndexOf(trimmed, "/");
            out.dir = at > 0 ? StrSlice(trimmed, 0, at) : out.root;
            return out;
        },
        matchesGlob: undefined,
    };
    delete path.matchesGlob;
    const base = (text) => path.basename(needString(text, "path"));
    const path_extname = path.extname;
    path.win32 = null;
    path.posix = path;
    share.path = path;
    share.paths = { __proto__: null, resolve: path.resolve, join: path.join, dirname: path.dirname, extname: path.extname,
        normalize: path.normalize, basename: path.basename };
    share.builtins.path = path;
    share.builtins["path/posix"] = path;
})
