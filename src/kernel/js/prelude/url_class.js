// The classes URL and URLSearchParams over the parser, and node:url.
(function (host, native, share) {
    "use strict";

    const { P, urls } = share;
    const { append, ArrSplice, ArrSort, ArrIsArray, StrSplit, StrSlice, StrIndexOf, StrIncludes, StrStartsWith, matches, ReExec, TypeError, webClass,
        WeakMap, WeakMapGet, WeakMapSet, ReflectOwnKeys, replaceAll, utf8_decode, ObjCreate, ObjDefineProperty, IteratorPrototype,
        StrToLowerCase, ArrJoin, String, hide, listOf, decodeURIComponent, StrLastIndexOf, encodeURIComponent } = P;

    // ---- URLSearchParams ---------------------------------------------------------------------

    const KEEP = /[^A-Za-z0-9*\-._]/g;
    function formEncoded(text) {
        return replaceAll(KEEP, urls.encoded(text, urls.C0), (found) => found[0] === " " ? "+"
            : found[0] === "%" ? "%" : "%" + P.StrToUpperCase(P.NumToString(P.StrCharCodeAt(found[0], 0), 16)));
    }
    // A percent sign that was there before is encoded first, so that the ones just made stay.
    const component = (text) => {
        const parts = StrSplit(text, "%");
        for (let i = 0; i < parts.length; i++) parts[i] = formEncoded(parts[i]);
        return ArrJoin(parts, "%25");
    };

    function formDecoded(text) {
        const bytes = urls.decodedBytes(replaceAll(/\+/g, text, () => " "));
        return native.utf8_decode(bytes, 0, bytes.length, false);
    }

    function parsed(query) {
        const pairs = [], parts = StrSplit(query, "&");
        for (let i = 0; i < parts.length; i++) {
            if (parts[i] === "") continue;
            const at = StrIndexOf(parts[i], "=");
            append(pairs, at < 0 ? [formDecoded(parts[i]), ""] : [formDecoded(StrSlice(parts[i], 0, at)), formDecoded(StrSlice(parts[i], at + 1))]);
        }
        return pairs;
    }

    function written(pairs) {
        let out = "";
        for (let i = 0; i < pairs.length; i++) out += `${i ? "&" : ""}${component(pairs[i][0])}=${component(pairs[i][1])}`;
        return out;
    }

    // Text as the web takes it: a lone surrogate is replaced.
    const usv = (value) => P.StrToWellFormed(`${value}`);

    const lists = new WeakMap(); // params → {pairs, url}

    function changed(params) {
        const self = WeakMapGet(lists, params);
        if (self.url !== undefined) {
            const text = written(self.pairs);
            self.url.query = text === "" ? null : text;
        }
    }

    function pairsOf(init) {
        if (typeof init !== "object" && typeof init !== "function") {
            const text = usv(init);
            return parsed(text[0] === "?" ? StrSlice(text, 1) : text);
        }
        const out = [];
        const method = init[Symbol.iterator];
        if (method !== undefined && method !== null) {
            for (const pair of init) {
                if (pair === null || typeof pair !== "object" && typeof pair !== "function" || typeof pair[Symbol.iterator] !== "function") {
                    throw share.codeError(TypeError, "ERR_INVALID_TUPLE", "Each query pair must be an iterable [name, value] tuple");
                }
                const two = listOf(pair);
                if (two.length !== 2) throw share.codeError(TypeError, "ERR_INVALID_TUPLE", "Each query pair must be an iterable [name, value] tuple");
                append(out, [usv(two[0]), usv(two[1])]);
            }
            return out;
        }
        const keys = ReflectOwnKeys(init);
        for (let i = 0; i < keys.length; i++) {
            const found = P.ObjGetOwnPropertyDescriptor(init, keys[i]);
            if (found !== undefined && found.enumerable) append(out, [usv(keys[i]), usv(init[keys[i]])]);
        }
        return out;
    }

    // Iterators over pairs, for URLSearchParams, Headers and FormData alike.
    share.pairIterator = (name) => {
        const prototype = ObjCreate(IteratorPrototype);
        const states = new WeakMap();
        P.hide(prototype, "next", function next() {
            const state = WeakMapGet(states, this);
            if (state === undefined) {
                throw share.codeError(TypeError, "ERR_INVALID_THIS", `Value of "this" must be of type ${name}`);
            }
            const pairs = state.pairs();
            if (state.at >= pairs.length) return { value: undefined, done: true };
            const pair = pairs[state.at++];
            return { value: state.kind === "key" ? pair[0] : state.kind === "value" ? pair[1] : [pair[0], pair[1]], done: false };
        });
        ObjDefineProperty(prototype, Symbol.toStringTag, { __proto__: null, value: name, configurable: true });
        return (pairs, kind) => {
            const iterator = ObjCreate(prototype);
            WeakMapSet(states, iterator, { __proto__: null, pairs, kind, at: 0 });
            return iterator;
        };
    };
    const iterate = share.pairIterator("URLSearchParams Iterator");

    const NEW = Symbol("of a URL");
    class URLSearchParams {
        constructor(init, owner) {
            const self = { __proto__: null, pairs: [], url: undefined };
            WeakMapSet(lists, this, self);
            if (init === NEW) {
                self.url = owner;
                self.pairs = owner.query === null ? [] : parsed(owner.query);
            } else if (init !== undefined && init !== null) {
                self.pairs = pairsOf(init);
            }
        }
        get size() { return WeakMapGet(lists, this).pairs.length; }
        append(name, value) {
            need(arguments, 2, '"name" and "value"');
            append(WeakMapGet(lists, this).pairs, [usv(name), usv(value)]);
            changed(this);
        }
        delete(name, value) {
            need(arguments, 1, '"name"');
            const { pairs } = WeakMapGet(lists, this);
            name = usv(name);
            for (let i = pairs.length - 1; i >= 0; i--) {
                if (pairs[i][0] === name && (value === undefined || pairs[i][1] === usv(value))) ArrSplice(pairs, i, 1);
            }
            changed(this);
        }
        get(name) {
            need(arguments, 1, '"name"');
            const { pairs } = WeakMapGet(lists, this);
            name = usv(name);
            for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === name) return pairs[i][1];
            return null;
        }
        getAll(name) {
            need(arguments, 1, '"name"');
            const { pairs } = WeakMapGet(lists, this), out = [];
            name = usv(name);
            for (let i = 0; i < pairs.length; i++) if (pairs[i][0] === name) append(out, pairs[i][1]);
            return out;
        }
        has(name, value) {
            need(arguments, 1, '"name"');
            const { pairs } = WeakMapGet(lists, this);
            name = usv(name);
            for (let i = 0; i < pairs.length; i++) {
                if (pairs[i][0] === name && (value === undefined || pairs[i][1] === usv(value))) return true;
            }
            return false;
        }
        set(name, value) {
            need(arguments, 2, '"name" and "value"');
            const { pairs } = WeakMapGet(lists, this);
            name = usv(name);
            value = usv(value);
            let isSet = false;
            for (let i = 0; i < pairs.length; i++) {
                if (pairs[i][0] !== name) continue;
                if (!isSet) {
                    pairs[i][1] = value;
                    isSet = true;
                } else {
                    ArrSplice(pairs, i--, 1);
                }
            }
            if (!isSet) append(pairs, [name, value]);
            changed(this);
        }
        sort() {
            ArrSort(WeakMapGet(lists, this).pairs, (a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0);
            changed(this);
        }
        forEach(callback, self) {
            share.needFunction(callback, "callback");
            const list = WeakMapGet(lists, this); // the callback may give it other pairs
            for (let i = 0; i < list.pairs.length; i++) P.apply(callback, self, [list.pairs[i][1], list.pairs[i][0], this]);
        }
        entries() { return iterate(() => WeakMapGet(lists, this).pairs, "both"); }
        keys() { return iterate(() => WeakMapGet(lists, this).pairs, "key"); }
        values() { return iterate(() => WeakMapGet(lists, this).pairs, "value"); }
        toString() { return written(WeakMapGet(lists, this).pairs); }
        [share.inspectCustom](depth, options, inspect) {
            const { pairs } = WeakMapGet(lists, this);
            if (pairs.length === 0) return "URLSearchParams {}";
            const out = [];
            for (let i = 0; i < pairs.length; i++) append(out, `${share.quoted(pairs[i][0])} => ${share.quoted(pairs[i][1])}`);
            const line = ArrJoin(out, ", ");
            return line.length + 20 <= options.breakLength && !StrIncludes(line, "\n")
                ? `URLSearchParams { ${line} }` : `URLSearchParams {\n  ${ArrJoin(out, ",\n  ")} }`;
        }
    }
    webClass(URLSearchParams, "URLSearchParams");
    hide(URLSearchParams.prototype, Symbol.iterator, URLSearchParams.prototype.entries);

    function need(args, count, what) {
        if (args.length < count) {
            throw share.codeError(TypeError, "ERR_MISSING_ARGS",
                `The ${what} argument${count > 1 ? "s" : ""} must be specified`);
        }
    }

    // ---- URL ---------------------------------------------------------------------------------

    const records = new WeakMap(); // URL → {url, params}
    const of = (value) => WeakMapGet(records, value).url;

    function refresh(self) {
        if (self.params !== undefined) {
            WeakMapGet(lists, self.params).pairs = self.url.query === null ? [] : parsed(self.url.query);
        }
    }

    function parseWith(input, base) {
        let from;
        if (base !== undefined) {
            from = urls.parse(usv(base));
            if (from === undefined) return undefined;
        }
        return urls.parse(usv(input), from);
    }

    class URL {
        constructor(input, base) {
            need(arguments, 1, '"url"');
            const url = parseWith(input, base);
            if (url === undefined) {
                const error = share.codeError(TypeError, "ERR_INVALID_URL", "Invalid URL");
                error.input = `${input}`;
                if (base !== undefined) error.base = `${base}`;
                throw error;
            }
            WeakMapSet(records, this, { __proto__: null, url, params: undefined });
        }
        static canParse(input, base) {
            need(arguments, 1, '"url"');
            return parseWith(input, base) !== undefined;
        }
        static parse(input, base) {
            need(arguments, 1, '"url"');
            return parseWith(input, base) === undefined ? null : new URL(input, base);
        }
        get href() { return urls.textOf(of(this)); }
        set href(value) {
            const self = WeakMapGet(records, this), url = urls.parse(usv(value));
            if (url === undefined) {
                const error = share.codeError(TypeError, "ERR_INVALID_URL", "Invalid URL");
                error.input = `${value}`;
                throw error;
            }
            self.url = url;
            if (self.params !== undefined) WeakMapGet(lists, self.params).url = url;
            refresh(self);
        }
        get origin() {
            const url = of(this);
            if (url.scheme === "blob:") {
                const inner = urls.parse(urls.pathOf(url));
                return inner !== undefined && matches(/^https?:$/, inner.scheme) ? originOf(inner) : "null";
            }
            return url.scheme !== "file:" && urls.isSpecial(url) ? originOf(url) : "null";
        }
        get protocol() { return of(this).scheme; }
        set protocol(value) {
            const url = of(this), found = ReExec(/^([a-zA-Z][a-zA-Z0-9+\-.]*)(?::|$)/, usv(value));
            if (found === null) return;
            const scheme = StrToLowerCase(found[1]) + ":";
            if ((urls.PORTS[scheme] !== undefined) !== urls.isSpecial(url)) return;
            if (scheme === "file:" && (url.username !== "" || url.password !== "" || url.port !== null)) return;
            if (url.scheme === "file:" && url.host === "") return;
            url.scheme = scheme;
            if (url.port === urls.PORTS[scheme]) url.port = null;
        }
        get username() { return of(this).username; }
        set username(value) {
            if (canHaveUser(of(this))) of(this).username = urls.encoded(usv(value), urls.USERINFO);
        }
        get password() { return of(this).password; }
        set password(value) {
            if (canHaveUser(of(this))) of(this).password = urls.encoded(usv(value), urls.USERINFO);
        }
        get host() {
            const url = of(this);
            return url.host === null ? "" : url.port === null ? url.host : `${url.host}:${url.port}`;
        }
        set host(value) {
            const url = of(this), found = cutHost(url, value);
            if (url.isOpaque || found === null) return;
            if (urls.setHost(url, found[1], false) && found[2] !== undefined) setLeadingPort(url, found[2]);
        }
        get hostname() { return of(this).host === null ? "" : of(this).host; }
        set hostname(value) {
            const url = of(this), found = cutHost(url, value);
            if (!url.isOpaque && found !== null && found[2] === undefined) urls.setHost(url, found[1], url.port !== null);
        }
        get port() { return of(this).port === null ? "" : `${of(this).port}`; }
        set port(value) {
            const url = of(this), text = usv(value);
            if (!canHaveUser(url)) return;
            if (text === "") url.port = null;
            else setLeadingPort(url, text);
        }
        get pathname() { return urls.pathOf(of(this)); }
        set pathname(value) {
            const url = of(this);
            if (url.isOpaque) return;
            url.path = [];
            const { query, fragment } = url;
            let text = replaceAll(/[\t\n\r]/g, usv(value), () => "");
            text = replaceAll(/[?#]/g, text, (found) => found[0] === "?" ? "%3F" : "%23");
            urls.parsePath(url, text);
            url.query = query;
            url.fragment = fragment;
        }
        get search() {
            const { query } = of(this);
            return query === null || query === "" ? "" : `?${query}`;
        }
        set search(value) {
            const self = WeakMapGet(records, this), text = replaceAll(/[\t\n\r]/g, usv(value), () => "");
            self.url.query = text === "" ? null
                : urls.encoded(text[0] === "?" ? StrSlice(text, 1) : text, urls.isSpecial(self.url) ? urls.SPECIAL_QUERY : urls.QUERY);
            refresh(self);
        }
        get searchParams() {
            const self = WeakMapGet(records, this);
            if (self.params === undefined) self.params = new URLSearchParams(NEW, self.url);
            return self.params;
        }
        get hash() {
            const { fragment } = of(this);
            return fragment === null || fragment === "" ? "" : `#${fragment}`;
        }
        set hash(value) {
            const text = replaceAll(/[\t\n\r]/g, usv(value), () => "");
            of(this).fragment = text === "" ? null : urls.encoded(text[0] === "#" ? StrSlice(text, 1) : text, urls.FRAGMENT);
        }
        toString() { return urls.textOf(of(this)); }
        toJSON() { return urls.textOf(of(this)); }
        [share.inspectCustom](depth, options, inspect) {
            if (typeof depth === "number" && depth < 0) return "[URL]";
            const shown = {};
            for (const name of ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search"]) {
                shown[name] = this[name];
            }
            shown.searchParams = this.searchParams;
            shown.hash = this.hash;
            return `URL ${inspect(shown, options)}`;
        }
    }
    webClass(URL, "URL");

    const originOf = (url) => `${url.scheme}//${url.host}${url.port === null ? "" : `:${url.port}`}`;
    const canHaveUser = (url) => url.host !== null && url.host !== "" && url.scheme !== "file:";

    function cutHost(url, value) {
        const text = replaceAll(/[\t\n\r]/g, usv(value), () => "");
        const end = ReExec(urls.isSpecial(url) ? /[/\\?#]/ : /[/?#]/, text);
        return ReExec(/^(\[[^\]]*\]|[^:]*)(?::(.*))?$/s, end === null ? text : StrSlice(text, 0, end.index));
    }

    function setLeadingPort(url, text) {
        const digits = ReExec(/^[0-9]+/, replaceAll(/[\t\n\r]/g, text, () => ""));
        if (digits !== null) urls.setPort(url, digits[0]);
    }

    share.URL = URL;
    share.URLSearchParams = URLSearchParams;
    share.isURL = (value) => typeof value === "object" && value !== null && WeakMapGet(records, value) !== undefined;

    // ---- node:url ----------------------------------------------------------------------------

    function fileURLToPath(value) {
        const url = typeof value === "string" ? new URL(value) : value;
        if (!share.isURL(url)) throw share.wrongType("path", "of type string or an instance of URL", value);
        if (url.protocol !== "file:") {
            throw share.codeError(TypeError, "ERR_INVALID_URL_SCHEME", "The URL must be of scheme file");
        }
        if (url.hostname !== "") {
            throw share.codeError(TypeError, "ERR_INVALID_FILE_URL_HOST", 'File URL host must be "localhost" or empty on linux');
        }
        if (matches(/%2f/i, url.pathname)) {
            throw share.codeError(TypeError, "ERR_INVALID_FILE_URL_PATH", "File URL path must not include encoded / characters");
        }
        return decodeURIComponent(url.pathname);
    }

    function pathToFileURL(path) {
        let full = share.paths.resolve(path);
        if (path[path.length - 1] === "/" && full[full.length - 1] !== "/") full += "/";
        const safe = replaceAll(/[%\\\n\r\t?#]/g, full, (found) => encodeURIComponent(found[0]));
        return new URL(`file://${safe}`);
    }

    // The older interface, as far as people still use it.
    function legacyParse(text, withQuery) {
        const out = { protocol: null, slashes: null, auth: null, host: null, port: null, hostname: null, hash: null, search: null,
            query: null, pathname: null, path: null, href: text };
        const url = urls.parse(text);
        if (url === undefined || url.host === null) {
            let rest = text;
            const hash = StrIndexOf(rest, "#");
            if (hash >= 0) {
                out.hash = StrSlice(rest, hash);
                rest = StrSlice(rest, 0, hash);
            }
            const mark = StrIndexOf(rest, "?");
            if (mark >= 0) {
                out.search = StrSlice(rest, mark);
                out.query = StrSlice(rest, mark + 1);
                rest = StrSlice(rest, 0, mark);
            }
            const scheme = ReExec(/^([a-z][a-z0-9+.-]*:)(.*)$/i, rest);
            if (scheme !== null) {
                out.protocol = StrToLowerCase(scheme[1]);
                rest = scheme[2];
            }
            out.pathname = rest === "" ? null : rest;
        } else {
            const full = new URL(text);
            out.protocol = full.protocol;
            out.slashes = true;
            out.auth = full.username === "" ? null : `${full.username}${full.password === "" ? "" : `:${full.password}`}`;
            out.host = full.host;
            out.port = full.port === "" ? null : full.port;
            out.hostname = full.hostname;
            out.hash = full.hash === "" ? null : full.hash;
            out.search = full.search === "" ? null : full.search;
            out.query = full.search === "" ? null : StrSlice(full.search, 1);
            out.pathname = full.pathname;
            out.href = full.href;
        }
        out.path = out.pathname === null && out.search === null ? null : `${out.pathname || ""}${out.search || ""}`;
        if (withQuery) out.query = share.builtins.querystring.parse(out.query || "");
        return out;
    }

    function format(value, options) {
        if (typeof value === "string") return legacyParse(value).href;
        if (share.isURL(value)) {
            const copy = new URL(value.href), given = options || {};
            if (given.fragment === false) copy.hash = "";
            if (given.search === false) copy.search = "";
            if (given.auth === false) copy.username = copy.password = "";
            return copy.href;
        }
        let protocol = value.protocol || "";
        if (protocol !== "" && protocol[protocol.length - 1] !== ":") protocol += ":";
        let name = value.host || "";
        if (name === "" && value.hostname) name = value.hostname + (value.port ? `:${value.port}` : "");
        if (value.auth && name !== "") name = `${encodeURIComponent(value.auth)}@${name}`;
        const search = value.search || (value.query && typeof value.query === "object"
            ? share.builtins.querystring.stringify(value.query) : value.query ? `${value.query}` : "");
        const slashes = value.slashes || urls.PORTS[protocol] !== undefined ? "//" : "";
        let pathname = value.pathname || "";
        if (name !== "" && pathname !== "" && pathname[0] !== "/") pathname = "/" + pathname;
        const hash = value.hash || "";
        return `${protocol}${name !== "" || protocol === "file:" ? slashes : ""}${name}${pathname}` +
            `${search === "" ? "" : search[0] === "?" ? search : `?${search}`}${hash === "" ? "" : hash[0] === "#" ? hash : `#${hash}`}`;
    }

    share.builtins.url = {
        URL, URLSearchParams, fileURLToPath, pathToFileURL, parse: legacyParse, format,
        resolve(from, to) {
            const base = new URL(from, "resolve://host"), url = new URL(to, base);
            return url.protocol === "resolve:" ? `${url.pathname}${url.search}${url.hash}` : url.href;
        },
        domainToASCII(domain) {
            const found = urls.hostOf(`${domain}`, true);
            return found === undefined ? "" : found;
        },
        domainToUnicode(domain) { return urls.domainToUnicode(urls.hostOf(`${domain}`, true) || ""); },
        urlToHttpOptions(url) {
            return { protocol: url.protocol, hostname: url.hostname, hash: url.hash, search: url.search, pathname: url.pathname,
                path: `${url.pathname}${url.search}`, href: url.href, port: url.port === "" ? undefined : +url.port };
        },
    };
    share.fileURLToPath = fileURLToPath;
    share.pathToFileURL = pathToFileURL;

    // ---- node:querystring --------------------------------------------------------------------

    const unescape = (text) => {
        const bytes = urls.decodedBytes(text);
        return native.utf8_decode(bytes, 0, bytes.length, false);
    };
    const escape = (value) => replaceAll(/[^A-Za-z0-9\-_.!~*'()]/g, encodeURIComponent(`${value}`), (found) => found[0]);
    share.builtins.querystring = {
        parse(text, separator = "&", equals = "=") {
            const out = ObjCreate(null), parts = StrSplit(`${text}`, separator);
            for (let i = 0; i < parts.length; i++) {
                if (parts[i] === "") continue;
                const at = StrIndexOf(parts[i], equals);
                const clean = (piece) => unescape(replaceAll(/\+/g, piece, () => " "));
                const key = clean(at < 0 ? parts[i] : StrSlice(parts[i], 0, at));
                const value = at < 0 ? "" : clean(StrSlice(parts[i], at + equals.length));
                if (out[key] === undefined) out[key] = value;
                else if (ArrIsArray(out[key])) append(out[key], value);
                else out[key] = [out[key], value];
            }
            return out;
        },
        stringify(values, separator = "&", equals = "=") {
            const out = [];
            if (values === null || typeof values !== "object") return "";
            const keys = P.ObjKeys(values);
            const plain = (value) => typeof value === "string" ? value : typeof value === "number" && P.isFinite(value) ||
                typeof value === "bigint" || typeof value === "boolean" ? `${value}` : "";
            for (let i = 0; i < keys.length; i++) {
                const value = values[keys[i]];
                const all = ArrIsArray(value) ? value : [value];
                for (let j = 0; j < all.length; j++) append(out, `${escape(keys[i])}${equals}${escape(plain(all[j]))}`);
            }
            return ArrJoin(out, separator);
        },
        escape, unescape,
    };
    share.builtins.querystring.encode = share.builtins.querystring.stringify;
    share.builtins.querystring.decode = share.builtins.querystring.parse;
})
