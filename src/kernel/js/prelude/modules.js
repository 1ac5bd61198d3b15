// Modules: names resolved as Node does (relative paths, node_modules, package.json's main and
// exports, JSON), require and its cache, what import gets for each, and `import` at the top of a run.
// Files come from the host, which decides what may be read; nothing is asked of it before it is needed.
(function (host, native, share) {
    "use strict";

    const { P, paths } = share;
    const { append, apply, ArrJoin, ArrIsArray, ArrIncludes, ArrSplice, JsonParse, Map, MapGet, MapSet, MapHas, MapDelete, StrStartsWith, StrEndsWith, StrSlice,
        StrIndexOf, StrLastIndexOf, StrIncludes, StrSplit, StrTrim, ObjKeys, ObjCreate, ObjDefineProperty, Error, SyntaxError, TypeError, matches, ReExec, replaceAll, hide,
        String } = P;
    const { erase_types, evaluate, evaluate_module, utf8_decode } = native;
    const { builtins } = share;

    // ---- builtins ----------------------------------------------------------------------------

    builtins.module = {};
    builtins.async_hooks = {};
    const MISSING = ["child_process", "cluster", "dgram", "dns", "http", "http2", "https", "inspector", "net", "repl", "tls", "v8", "vm",
        "wasi", "worker_threads", "zlib", "trace_events", "diagnostics_channel", "domain", "punycode"];

    function builtinName(specifier) {
        return StrStartsWith(specifier, "node:") ? StrSlice(specifier, 5) : specifier;
    }

    function isBuiltin(specifier) {
        const name = builtinName(specifier);
        return builtins[name] !== undefined || ArrIncludes(MISSING, name) || StrStartsWith(specifier, "node:");
    }

    function builtinOf(specifier) {
        const name = builtinName(specifier);
        if (builtins[name] !== undefined) return builtins[name];
        if (ArrIncludes(MISSING, name)) {
            throw share.codeError(Error, "ERR_UNKNOWN_BUILTIN_MODULE", `node:${name} is not part of this kernel` +
                (ArrIncludes(["http", "https", "net", "tls", "http2"], name) ? "; use fetch" : ""));
        }
        throw share.codeError(Error, "ERR_UNKNOWN_BUILTIN_MODULE", `No such built-in module: ${specifier}`);
    }
    share.builtinOf = (name) => {
        try {
            return builtinOf(name);
        } catch {
            return undefined;
        }
    };

    // ---- files -------------------------------------------------------------------------------

    let kinds = new Map(); // path → "file", "directory" or "" for the length of one resolution
    let packages = new Map(); // directory → package.json's content or null

    function kindOf(path) {
        const known = MapGet(kinds, path);
        if (known !== undefined) return known;
        let kind = "";
        try {
            const { meta } = share.call("fs.stat", { __proto__: null, path, follow: true });
            kind = meta.type;
        } catch {
            kind = "";
        }
        MapSet(kinds, path, kind);
        return kind;
    }

    function readText(path) {
        const { bytes } = share.call("fs.read_file", { __proto__: null, path });
        const text = utf8_decode(bytes, 0, bytes.length, false);
        return text[0] === "\ufeff" ? StrSlice(text, 1) : text;
    }

    function packageIn(directory) {
        if (MapHas(packages, directory)) return MapGet(packages, directory);
        const path = paths.join(directory, "package.json");
        let found = null;
        if (kindOf(path) === "file") {
            try {
                found = JsonParse(readText(path));
            } catch (error) {
                throw share.codeError(Error, "ERR_INVALID_PACKAGE_CONFIG", `Invalid package config ${path}. ${error.message}`);
            }
        }
        MapSet(packages, directory, found);
        return found;
    }

    // The package.json that a file belongs to: {directory, content}.
    function packageOf(path) {
        for (let directory = paths.dirname(path); ; directory = paths.dirname(directory)) {
            const content = packageIn(directory);
            if (content !== null && typeof content === "object") return { __proto__: null, directory, content };
            if (directory === "/") return undefined;
        }
    }

    // ---- resolution --------------------------------------------------------------------------

    const EXTENSIONS = [".js", ".json", ".mjs", ".cjs", ".ts", ".mts", ".cts"];

    function asFile(path) {
        if (kindOf(path) === "file") return path;
        for (let i = 0; i < EXTENSIONS.length; i++) {
            if (kindOf(path + EXTENSIONS[i]) === "file") return path + EXTENSIONS[i];
        }
        // TypeScript is imported by the name that it will have.
        if (StrEndsWith(path, ".js") && kindOf(StrSlice(path, 0, -3) + ".ts") === "file") return StrSlice(path, 0, -3) + ".ts";
        return undefined;
    }

    function asDirectory(path) {
        if (kindOf(path) !== "directory") return undefined;
        const content = packageIn(path);
        if (content !== null && typeof content.main === "string") {
            const main = paths.join(path, content.main);
            const found = asFile(main) || asFile(paths.join(main, "index"));
            if (found !== undefined) return found;
        }
        return asFile(paths.join(path, "index"));
    }

    // One entry of "exports" or "imports": a path, conditions, or a list of either.
    function target(directory, entry, star, conditions) {
        if (typeof entry === "string") {
            const text = star === undefined ? entry : ArrJoin(StrSplit(entry, "*"), star);
            if (!StrStartsWith(text, "./")) return StrStartsWith(text, "../") || text[0] === "/" ? undefined : { __proto__: null, bare: text };
            const full = paths.join(directory, text);
            return StrStartsWith(full, directory === "/" ? "/" : directory + "/") ? full : undefined;
        }
        if (ArrIsArray(entry)) {
            for (let i = 0; i < entry.length; i++) {
                const found = target(directory, entry[i], star, conditions);
                if (found !== undefined) return found;
            }
            return undefined;
        }
        if (entry === null || typeof entry !== "object") return undefined;
        const keys = ObjKeys(entry);
        for (let i = 0; i < keys.length; i++) {
            if (keys[i] !== "default" && !ArrIncludes(conditions, keys[i])) continue;
            const found = target(directory, entry[keys[i]], star, conditions);
            if (found !== undefined) return found;
        }
        return undefined;
    }

    function mapped(directory, table, key, conditions) {
        if (table[key] !== undefined && !StrIncludes(key, "*")) return target(directory, table[key], undefined, conditions);
        const keys = ObjKeys(table);
        let best, bestStar, bestLength = -1;
        for (let i = 0; i < keys.length; i++) {
            const at = StrIndexOf(keys[i], "*");
            if (at < 0) continue;
            const before = StrSlice(keys[i], 0, at), after = StrSlice(keys[i], at + 1);
            if (StrStartsWith(key, before) && StrEndsWith(key, after) && key.length >= keys[i].length && before.length > bestLength) {
                best = table[keys[i]];
                bestStar = StrSlice(key, before.length, key.length - after.length);
                bestLength = before.length;
            }
        }
        return best === undefined ? undefined : target(directory, best, bestStar, conditions);
    }

    function notExported(directory, subpath) {
        return share.codeError(Error, "ERR_PACKAGE_PATH_NOT_EXPORTED", subpath === "."
            ? `No "exports" main defined in ${directory}/package.json`
            : `Package subpath '${subpath}' is not defined by "exports" in ${directory}/package.json`);
    }

    function fromPackage(directory, subpath, conditions) {
        const content = packageIn(directory);
        if (content !== null && content.exports !== undefined && content.exports !== null) {
            let table = content.exports;
            const keys = typeof table === "object" && !ArrIsArray(table) ? ObjKeys(table) : [];
            if (keys.length === 0 || keys[0][0] !== ".") table = { ".": table };
            const found = mapped(directory, table, subpath, conditions);
            if (typeof found !== "string") throw notExported(directory, subpath);
            return found;
        }
        const path = subpath === "." ? directory : paths.join(directory, StrSlice(subpath, 2));
        return asFile(path) || asDirectory(path);
    }

    function splitName(specifier) {
        const parts = StrSplit(specifier, "/");
        const count = specifier[0] === "@" ? 2 : 1;
        const name = ArrJoin(ArrSplice(parts, 0, count), "/");
        return { __proto__: null, name, subpath: parts.length === 0 ? "." : "./" + ArrJoin(parts, "/") };
    }

    // The file that `specifier` means in `base`, a path or the name of a run.
    function find(specifier, base, conditions) {
        const directory = base[0] === "/" ? paths.dirname(base) : share.cwd();
        if (matches(/^(\.{0,2}\/|\.{1,2}$)/, specifier)) {
            const path = paths.resolve(directory, specifier);
            return asFile(path) || asDirectory(path);
        }
        if (specifier[0] === "#") {
            const own = packageOf(base[0] === "/" ? base : paths.join(directory, "x"));
            const found = own && own.content.imports ? mapped(own.directory, own.content.imports, specifier, conditions) : undefined;
            if (typeof found === "string") return found;
            if (found !== undefined) return find(found.bare, base, conditions);
            throw share.codeError(TypeError, "ERR_PACKAGE_IMPORT_NOT_DEFINED", `Package import specifier "${specifier}" is not defined`);
        }
        const { name, subpath } = splitName(specifier);
        const own = packageOf(base[0] === "/" ? base : paths.join(directory, "x"));
        if (own !== undefined && own.content.name === name && own.content.exports !== undefined) return fromPackage(own.directory, subpath, conditions);
        for (let at = directory; ; at = paths.dirname(at)) {
            const place = paths.join(at, "node_modules", name);
            if (kindOf(place) === "directory") {
                const found = fromPackage(place, subpath, conditions);
                if (found !== undefined) return found;
            }
            if (at === "/") return undefined;
        }
    }

    const IMPORT = ["node", "import", "module-sync"], REQUIRE = ["node", "require", "module-sync"];

    function resolve(specifier, base, conditions) {
        if (isBuiltin(specifier)) return `node:${builtinName(specifier)}`;
        if (StrStartsWith(specifier, "file:")) specifier = share.fileURLToPath(specifier);
        kinds = new Map();
        const found = find(specifier, base, conditions);
        if (found === undefined) {
            const isRequire = conditions === REQUIRE;
            const error = share.codeError(Error, isRequire ? "MODULE_NOT_FOUND" : "ERR_MODULE_NOT_FOUND", isRequire
                ? `Cannot find module '${specifier}'\nRequire stack:\n- ${base}`
                : matches(/^\.{0,2}\//, specifier)
                    ? `Cannot find module '${paths.resolve(base[0] === "/" ? paths.dirname(base) : share.cwd(), specifier)}' imported from ${base}`
                    : `Cannot find package '${splitName(specifier).name}' imported from ${base}`);
            throw error;
        }
        return found;
    }

    // ---- what a file is ----------------------------------------------------------------------

    const IS_MODULE = /^\s*(?:import\s*(?:[\w$*{"']|\{)|export\s*(?:[{*]|default\b|const\b|let\b|var\b|function\b|class\b|async\b))/m;

    // "module", "commonjs" or "json".
    function formatOf(path, source) {
        const extension = paths.extname(path);
        if (extension === ".json") return "json";
        if (extension === ".mjs" || extension === ".mts") return "module";
        if (extension === ".cjs" || extension === ".cts") return "commonjs";
        const own = packageOf(path);
        if (own !== undefined && own.content.type === "module") return "module";
        if (own !== undefined && own.content.type === "commonjs") return "commonjs";
        return matches(IS_MODULE, source) ? "module" : "commonjs";
    }

    function sourceOf(path) {
        const source = readText(path);
        return matches(/\.[mc]?ts$/, path) ? erase_types(source, path) : source;
    }

    function jsonOf(path, source) {
        try {
            return JsonParse(source);
        } catch (error) {
            error.message = `${path}: ${error.message}`;
            throw error;
        }
    }

    share.metaOf = (path) => {
        const full = path[0] === "/" ? path : paths.join(share.cwd(), path);
        return {
            url: share.pathToFileURL(full).href, filename: full, dirname: paths.dirname(full), main: path[0] !== "/",
            resolve(specifier) {
                const found = resolve(`${specifier}`, path, IMPORT);
                return StrStartsWith(found, "node:") ? found : share.pathToFileURL(found).href;
            },
        };
    };

    // ---- require -----------------------------------------------------------------------------

    const cache = ObjCreate(null); // path → module; user code may delete from it, as in Node

    class Module {
        constructor(id, parent) {
            this.id = id;
            this.path = paths.dirname(id);
            this.exports = {};
            this.filename = id;
            this.loaded = false;
            this.children = [];
            this.paths = [];
            hide(this, "parent", parent);
        }
        require(specifier) { return requireFrom(this, specifier); }
    }

    function requireFrom(parent, specifier) {
        share.needString(specifier, "id");
        if (specifier === "") throw share.codeError(TypeError, "ERR_INVALID_ARG_VALUE", "The argument 'id' must be a non-empty string. Received ''");
        const path = resolve(specifier, parent.filename, REQUIRE);
        if (StrStartsWith(path, "node:")) return builtinOf(path);
        const known = cache[path];
        if (known !== undefined) return known.exports;
        const made = new Module(path, parent);
        cache[path] = made;
        append(parent.children, made);
        try {
            load(made);
        } catch (error) {
            delete cache[path];
            throw error;
        }
        return made.exports;
    }

    function load(module) {
        const path = module.filename, source = sourceOf(path), format = formatOf(path, source);
        if (format === "json") {
            module.exports = jsonOf(path, source);
        } else if (format === "module") {
            module.exports = namespaceNow(path);
        } else {
            const body = replaceAll(/^#![^\n]*/g, source, () => "");
            const wrapper = evaluate(`(function (exports, require, module, __filename, __dirname) {${body}\n})`, path, 2);
            apply(wrapper, module.exports, [module.exports, requireOf(module), module, path, module.path]);
        }
        module.loaded = true;
    }

    // A module required: it must have no top-level await.
    function namespaceNow(path) {
        let held;
        const source = `import * as all from ${P.JsonStringify(path)}; import.meta.resolve(all);`;
        const state = native.promise_state(evaluate_module(source, "cove:require", { resolve(all) { held = all; } }));
        if (state[0] === 2) throw state[1];
        if (held === undefined) {
            throw share.codeError(Error, "ERR_REQUIRE_ASYNC_MODULE", `require() cannot be used on an ES module with top-level await: ${path}. Use import() instead.`);
        }
        return held;
    }

    function requireOf(module) {
        const require = (specifier) => requireFrom(module, specifier);
        require.resolve = (specifier) => {
            const found = resolve(share.needString(specifier, "request"), module.filename, REQUIRE);
            return StrStartsWith(found, "node:") && !StrStartsWith(specifier, "node:") ? StrSlice(found, 5) : found;
        };
        require.cache = cache;
        require.main = undefined;
        require.extensions = ObjCreate(null);
        return require;
    }

    // A run's own: its `require` looks from the current directory.
    const main = new Module("/run.js", undefined);
    ObjDefineProperty(main, "filename", { __proto__: null, get() { return paths.join(share.cwd(), "run.js"); }, enumerable: true, configurable: true });
    share.define("require", requireOf(main));
    share.define("module", main);
    share.define("exports", main.exports);
    P.getter(globalThis, "__filename", () => main.filename, (value) => share.define("__filename", value));
    P.getter(globalThis, "__dirname", () => share.cwd(), (value) => share.define("__dirname", value));

    builtins.module = {
        createRequire(from) {
            const path = share.isURL(from) || StrStartsWith(`${from}`, "file:") ? share.fileURLToPath(from) : `${from}`;
            return requireOf(new Module(path, undefined));
        },
        isBuiltin(name) { return builtins[builtinName(`${name}`)] !== undefined; },
        get builtinModules() { return ObjKeys(builtins); },
        Module, _cache: cache,
    };

    // ---- import ------------------------------------------------------------------------------

    const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;

    // Names and values of something that is no module of its own.
    function exportsOf(value) {
        const names = ["default"], values = [value];
        if ((typeof value === "object" && value !== null) || typeof value === "function") {
            const keys = ObjKeys(value);
            for (let i = 0; i < keys.length; i++) {
                if (keys[i] === "default" || !matches(IDENTIFIER, keys[i])) continue;
                append(names, keys[i]);
                append(values, value[keys[i]]);
            }
            // What a compiler made of a module keeps its default there.
            if (value.__esModule === true && "default" in value) values[0] = value;
        }
        return { __proto__: null, names, values };
    }

    function onResolve(specifier, base) {
        return resolve(specifier, base, IMPORT);
    }

    function onLoad(name, attributes) {
        if (StrStartsWith(name, "node:")) return exportsOf(builtinOf(name));
        const source = sourceOf(name), format = formatOf(name, source);
        if (format === "json") return { __proto__: null, names: ["default"], values: [jsonOf(name, source)] };
        if (format === "module") return { __proto__: null, source, meta: share.metaOf(name) };
        const known = cache[name];
        if (known !== undefined) return exportsOf(known.exports);
        return exportsOf(requireFrom(main, name));
    }

    native.set_hooks(onResolve, onLoad, share.onRejection);

    // ---- import at the top of a run ----------------------------------------------------------

    const STATEMENT = /(?<=^|;)([ \t]*)import\s*(?:([\w$]+)\s*(?:,\s*)?)?(?:(\{[^}]*\})|\*\s*as\s+([\w$]+))?\s*(?:\bfrom\b\s*)?(["'])([^"'\n]+)\5(?:\s*(?:with|assert)\s*\{[^}]*\})?[ \t]*(;|(?=\n|$|\/\/))/gm;

    // `import a, { b as c } from "x"` → `const __x = await import("x"), ...` on the same lines; undefined
    // where anything is left that only a module may have.
    share.withoutImports = (source) => {
        let count = 0;
        const text = replaceAll(STATEMENT, source, (found) => {
            const [whole, space, first, list, all, , specifier] = found;
            const lines = ArrJoin(P.ArrFill(new P.Array(StrSplit(whole, "\n").length), ""), "\n");
            const name = share.quoted(specifier);
            const parts = [];
            count++;
            if (all !== undefined) append(parts, `const ${all} = await import(${name})`);
            const fields = [];
            if (first !== undefined) append(fields, `default: ${first}`);
            if (list !== undefined) {
                const items = StrSplit(StrSlice(list, 1, -1), ",");
                for (let i = 0; i < items.length; i++) {
                    const item = StrTrim(replaceAll(/\/\/[^\n]*|\/\*[^*]*\*\//g, items[i], () => ""));
                    if (item !== "") append(fields, replaceAll(/\s+as\s+/g, replaceAll(/^type\s+/g, item, () => ""), () => ": "));
                }
            }
            if (fields.length > 0) append(parts, `const { ${ArrJoin(fields, ", ")} } = await import(${name})`);
            if (parts.length === 0) append(parts, `await import(${name})`);
            return `${space}${ArrJoin(parts, "; ")};${lines}`;
        });
        if (count === 0) return undefined;
        return replaceAll(/\bimport\.meta\b/g, text, () => "globalThis[Symbol.for('cove.meta')]");
    };
    P.getter(globalThis, P.SymFor("cove.meta"), () => share.metaOf("run.js"));
})
