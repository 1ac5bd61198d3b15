// Headers, Request, Response and fetch. The host does the request and enforces what may be reached;
// here are the classes, the body in all its forms, and the stream of an answer's body.
(function (host, native, share) {
    "use strict";

    const { P, ReadableStream, URL } = share;
    const { append, ArrSplice, ArrSort, ArrJoin, StrToLowerCase, StrToUpperCase, StrToWellFormed, matches, TypeError, RangeError, webClass, WeakMap,
        WeakMapGet, WeakMapSet, hide, listOf, replaceAll, JsonParse, JsonStringify, PromiseThen, ReflectOwnKeys, ObjGetOwnPropertyDescriptor,
        bytesOf, Uint8Array, TaBuffer, TaByteOffset, BufSlice, ArrIncludes, ObjCreate, StrSlice, Error, deferred } = P;
    const { utf8_encode, utf8_decode } = native;

    // ---- Headers -----------------------------------------------------------------------------

    const lists = new WeakMap(); // Headers → {list: [[lower-case name, value]], isFixed}
    const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
    const iterate = share.pairIterator("Headers Iterator");

    function clean(value) {
        const text = replaceAll(/^[\t\n\r ]+|[\t\n\r ]+$/g, `${value}`, () => "");
        if (matches(/[\0\r\n]|[^\0-\xff]/, text)) throw new TypeError(`Headers.append: "${text}" is an invalid header value.`);
        return text;
    }

    function nameOf(name, method) {
        const text = `${name}`;
        if (!matches(TOKEN, text)) throw new TypeError(`Headers.${method}: ${text} is an invalid header name.`);
        return StrToLowerCase(text);
    }

    function writable(headers) {
        const self = WeakMapGet(lists, headers);
        if (self.isFixed) throw new TypeError("immutable");
        return self.list;
    }

    const separator = (name) => name === "cookie" ? "; " : ", ";

    // Names in order, values of one name joined; each Set-Cookie stays for itself.
    function sorted(list) {
        const out = [];
        for (let i = 0; i < list.length; i++) {
            let at = -1;
            for (let j = 0; list[i][0] !== "set-cookie" && j < out.length; j++) if (out[j][0] === list[i][0]) at = j;
            if (at >= 0) out[at][1] += separator(list[i][0]) + list[i][1];
            else append(out, [list[i][0], list[i][1]]);
        }
        return ArrSort(out, (a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0);
    }

    class Headers {
        constructor(init) {
            WeakMapSet(lists, this, { __proto__: null, list: [], isFixed: false });
            if (init === undefined) return;
            if (init === null || (typeof init !== "object" && typeof init !== "function")) {
                throw new TypeError("Headers constructor: init given is not a record or a sequence.");
            }
            if (typeof init[Symbol.iterator] === "function") {
                const pairs = listOf(init);
                for (let i = 0; i < pairs.length; i++) {
                    const pair = listOf(pairs[i]);
                    if (pair.length !== 2) throw new TypeError("Headers constructor: expected name/value pair to be length 2.");
                    this.append(pair[0], pair[1]);
                }
                return;
            }
            const keys = ReflectOwnKeys(init);
            for (let i = 0; i < keys.length; i++) {
                const found = ObjGetOwnPropertyDescriptor(init, keys[i]);
                if (found !== undefined && found.enumerable) this.append(keys[i], init[keys[i]]);
            }
        }
        append(name, value) { append(writable(this), [nameOf(name, "append"), clean(value)]); }
        set(name, value) {
            const list = writable(this), key = nameOf(name, "set"), text = clean(value);
            let isSet = false;
            for (let i = 0; i < list.length; i++) {
                if (list[i][0] !== key) continue;
                if (isSet) ArrSplice(list, i--, 1);
                else list[i] = [key, text];
                isSet = true;
            }
            if (!isSet) append(list, [key, text]);
        }
        delete(name) {
            const list = writable(this), key = nameOf(name, "delete");
            for (let i = list.length - 1; i >= 0; i--) if (list[i][0] === key) ArrSplice(list, i, 1);
        }
        get(name) {
            const { list } = WeakMapGet(lists, this), key = nameOf(name, "get"), found = [];
            for (let i = 0; i < list.length; i++) if (list[i][0] === key) append(found, list[i][1]);
            return found.length === 0 ? null : ArrJoin(found, separator(key));
        }
        has(name) {
            const { list } = WeakMapGet(lists, this), key = nameOf(name, "has");
            for (let i = 0; i < list.length; i++) if (list[i][0] === key) return true;
            return false;
        }
        getSetCookie() {
            const { list } = WeakMapGet(lists, this), out = [];
            for (let i = 0; i < list.length; i++) if (list[i][0] === "set-cookie") append(out, list[i][1]);
            return out;
        }
        forEach(callback, self) {
            const pairs = sorted(WeakMapGet(lists, this).list);
            for (let i = 0; i < pairs.length; i++) P.apply(callback, self, [pairs[i][1], pairs[i][0], this]);
        }
        entries() { return iterate(() => sorted(WeakMapGet(lists, this).list), "both"); }
        keys() { return iterate(() => sorted(WeakMapGet(lists, this).list), "key"); }
        values() { return iterate(() => sorted(WeakMapGet(lists, this).list), "value"); }
        [share.inspectCustom](depth, options, inspect) {
            const shown = {}, pairs = sorted(WeakMapGet(lists, this).list);
            for (let i = 0; i < pairs.length; i++) shown[pairs[i][0]] = pairs[i][1];
            return `Headers ${inspect(shown, options)}`;
        }
    }
    webClass(Headers, "Headers");
    hide(Headers.prototype, Symbol.iterator, Headers.prototype.entries);

    // ---- bodies ------------------------------------------------------------------------------

    // → {bytes, stream, type}: one of bytes and stream is there, or neither.
    function bodyOf(value) {
        const out = { __proto__: null, bytes: undefined, stream: undefined, type: null };
        if (value === undefined || value === null) return out;
        if (typeof value === "object") {
            if (share.isReadable(value)) {
                if (share.isDisturbed(value) || share.isLocked(value)) throw new TypeError("Response body object should not be disturbed or locked");
                out.stream = value;
                return out;
            }
            if (share.isBlob(value)) {
                out.bytes = share.blobBytes(value);
                if (value.type !== "") out.type = value.type;
                return out;
            }
            if (share.isForm(value)) return share.writeForm(value);
            if (value instanceof share.URLSearchParams) {
                out.bytes = utf8_encode(value.toString());
                out.type = "application/x-www-form-urlencoded;charset=UTF-8";
                return out;
            }
            const bytes = bytesOf(value);
            if (bytes !== undefined) {
                out.bytes = new Uint8Array(bytes);
                return out;
            }
            if (typeof value[Symbol.asyncIterator] === "function") {
                out.stream = ReadableStream.from(value);
                return out;
            }
        }
        out.bytes = utf8_encode(StrToWellFormed(`${value}`));
        out.type = "text/plain;charset=UTF-8";
        return out;
    }

    const bodies = new WeakMap(); // Request or Response → {bytes, stream, isUsed}

    function streamOf(owner) {
        const body = WeakMapGet(bodies, owner);
        if (body.stream === undefined && body.bytes !== undefined) {
            const { bytes } = body;
            body.stream = new ReadableStream({
                pull(controller) {
                    if (bytes.length > 0) controller.enqueue(bytes);
                    controller.close();
                },
            }, { highWaterMark: 0 });
        }
        return body.stream === undefined ? null : body.stream;
    }

    async function consume(owner) {
        const body = WeakMapGet(bodies, owner);
        if (isUsed(body)) throw new TypeError("Body is unusable: Body has already been read");
        if (body.stream !== undefined && share.isLocked(body.stream)) throw new TypeError("Body is unusable: Body has already been read");
        if (body.bytes === undefined && body.stream === undefined) return new Uint8Array(0);
        body.isUsed = true;
        return body.stream === undefined ? body.bytes : share.drain(body.stream);
    }

    const isUsed = (body) => body.isUsed || (body.stream !== undefined && share.isDisturbed(body.stream));

    function text(bytes) {
        const out = utf8_decode(bytes, 0, bytes.length, false);
        return out[0] === "\ufeff" ? StrSlice(out, 1) : out;
    }

    class Body {
        get body() { return streamOf(this); }
        get bodyUsed() { return isUsed(WeakMapGet(bodies, this)); }
        async text() { return text(await consume(this)); }
        async json() { return JsonParse(text(await consume(this))); }
        async bytes() { return new Uint8Array(await consume(this)); }
        async arrayBuffer() {
            const bytes = await consume(this);
            return BufSlice(TaBuffer(bytes), TaByteOffset(bytes), TaByteOffset(bytes) + bytes.length);
        }
        async blob() { return share.newBlob(new Uint8Array(await consume(this)), this.headers.get("content-type") || ""); }
        async formData() { return share.readForm(await consume(this), this.headers.get("content-type") || ""); }
    }

    function give(target) {
        const keys = ReflectOwnKeys(Body.prototype);
        for (let i = 0; i < keys.length; i++) {
            if (keys[i] !== "constructor") P.ObjDefineProperty(target.prototype, keys[i], ObjGetOwnPropertyDescriptor(Body.prototype, keys[i]));
        }
    }

    function cloned(owner, from) {
        const body = WeakMapGet(bodies, from);
        if (isUsed(body) || (body.stream !== undefined && share.isLocked(body.stream))) {
            throw new TypeError("Response.clone: Body has already been consumed.");
        }
        const copy = { __proto__: null, bytes: body.bytes, stream: undefined, isUsed: false };
        if (body.stream !== undefined) {
            const halves = body.stream.tee();
            body.stream = halves[0];
            copy.stream = halves[1];
            body.bytes = copy.bytes = undefined;
        }
        WeakMapSet(bodies, owner, copy);
    }

    // ---- Request -----------------------------------------------------------------------------

    const requests = new WeakMap();
    const METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"];

    function methodOf(value) {
        const name = `${value}`, upper = StrToUpperCase(name);
        if (!matches(TOKEN, name)) throw new TypeError(`'${name}' is not a valid HTTP method.`);
        if (upper === "CONNECT" || upper === "TRACE" || upper === "TRACK") throw new TypeError(`'${name}' HTTP method is unsupported.`);
        return ArrIncludes(METHODS, upper) && upper !== "PATCH" ? upper : name;
    }

    class Request {
        constructor(input, init) {
            if (arguments.length === 0) throw new TypeError("Request constructor: 1 argument required, but only 0 present.");
            const given = init === undefined || init === null ? {} : init;
            const before = typeof input === "object" && input !== null ? WeakMapGet(requests, input) : undefined;
            const self = { __proto__: null, url: undefined, method: "GET", headers: undefined, redirect: "follow", signal: undefined, given: {} };
            if (before !== undefined) {
                self.url = before.url;
                self.method = before.method;
                self.redirect = before.redirect;
                self.signal = before.signal;
            } else {
                let url;
                try {
                    url = new URL(input);
                } catch (error) {
                    throw new TypeError(`Failed to parse URL from ${input}`, { cause: error });
                }
                if (url.username !== "" || url.password !== "") {
                    throw new TypeError(`Request cannot be constructed from a URL that includes credentials: ${input}`);
                }
                self.url = url.href;
            }
            if (given.method !== undefined) self.method = methodOf(given.method);
            if (given.redirect !== undefined) {
                if (!ArrIncludes(["follow", "error", "manual"], given.redirect)) throw new TypeError(`Request constructor: ${given.redirect} is not an accepted type.`);
                self.redirect = given.redirect;
            }
            if (given.signal !== undefined && given.signal !== null) {
                if (!share.isSignal(given.signal)) throw new TypeError("Request constructor: Expected signal to be an instance of AbortSignal.");
                self.signal = given.signal;
            } else if (given.signal === null) {
                self.signal = undefined;
            }
            self.headers = new Headers(given.headers !== undefined ? given.headers : before !== undefined ? before.headers : undefined);
            self.given = { cache: given.cache, credentials: given.credentials, mode: given.mode };
            WeakMapSet(requests, this, self);
            if (given.body !== undefined && given.body !== null) {
                if (self.method === "GET" || self.method === "HEAD") throw new TypeError("Request with GET/HEAD method cannot have body.");
                const body = bodyOf(given.body);
                if (body.stream !== undefined && given.duplex === undefined) {
                    throw new TypeError("RequestInit: duplex option is required when sending a body.");
                }
                WeakMapSet(bodies, this, { __proto__: null, bytes: body.bytes, stream: body.stream, isUsed: false });
                if (body.type !== null && !self.headers.has("content-type")) self.headers.append("content-type", body.type);
            } else if (before !== undefined) {
                const body = WeakMapGet(bodies, input);
                if (isUsed(body)) throw new TypeError("Cannot construct a Request with a Request object that has already been used.");
                WeakMapSet(bodies, this, { __proto__: null, bytes: body.bytes, stream: body.stream, isUsed: false });
                if (body.bytes !== undefined || body.stream !== undefined) body.isUsed = true;
            } else {
                WeakMapSet(bodies, this, { __proto__: null, bytes: undefined, stream: undefined, isUsed: false });
            }
        }
        get method() { return WeakMapGet(requests, this).method; }
        get url() { return WeakMapGet(requests, this).url; }
        get headers() { return WeakMapGet(requests, this).headers; }
        get redirect() { return WeakMapGet(requests, this).redirect; }
        get signal() {
            const self = WeakMapGet(requests, this);
            if (self.signal === undefined) self.signal = new AbortController().signal;
            return self.signal;
        }
        get cache() { return WeakMapGet(requests, this).given.cache || "default"; }
        get credentials() { return WeakMapGet(requests, this).given.credentials || "same-origin"; }
        get mode() { return WeakMapGet(requests, this).given.mode || "cors"; }
        get destination() { return ""; }
        get referrer() { return "about:client"; }
        get referrerPolicy() { return ""; }
        get integrity() { return ""; }
        get keepalive() { return false; }
        get duplex() { return "half"; }
        clone() {
            const copy = new Request(this.url, { method: this.method, headers: this.headers, redirect: this.redirect, signal: WeakMapGet(requests, this).signal });
            cloned(copy, this);
            return copy;
        }
    }
    const { AbortController } = globalThis;
    give(Request);
    webClass(Request, "Request");

    // ---- Response ----------------------------------------------------------------------------

    const responses = new WeakMap();

    class Response {
        constructor(body, init) {
            const given = init === undefined || init === null ? {} : init;
            const status = given.status === undefined ? 200 : +given.status;
            if (!(P.NumIsInteger(status) && status >= 200 && status <= 599)) {
                throw new RangeError('init["status"] must be in the range of 200 to 599, inclusive.');
            }
            const statusText = given.statusText === undefined ? "" : `${given.statusText}`;
            if (matches(/[^\t\x20-\x7e\x80-\xff]/, statusText)) throw new TypeError("Invalid statusText");
            const headers = new Headers(given.headers);
            const made = bodyOf(body);
            if (body !== undefined && body !== null) {
                if (ArrIncludes([204, 205, 304], status)) throw new TypeError(`Response constructor: Invalid response status code ${status}`);
                if (made.type !== null && !headers.has("content-type")) headers.append("content-type", made.type);
            }
            WeakMapSet(responses, this, { __proto__: null, status, statusText, headers, url: "", redirected: false, type: "default" });
            WeakMapSet(bodies, this, { __proto__: null, bytes: made.bytes, stream: made.stream, isUsed: false });
        }
        static error() {
            const out = new Response(null);
            const self = WeakMapGet(responses, out);
            self.type = "error";
            self.status = 0;
            WeakMapGet(lists, self.headers).isFixed = true;
            return out;
        }
        static json(value, init) {
            const json = JsonStringify(value);
            if (json === undefined) throw new TypeError("Value is not JSON serializable");
            const out = new Response(json, init);
            if (!(init && init.headers && new Headers(init.headers).has("content-type"))) out.headers.set("content-type", "application/json");
            return out;
        }
        static redirect(url, status = 302) {
            let full;
            try {
                full = new URL(url);
            } catch (error) {
                throw new TypeError(`Failed to parse URL from ${url}`, { cause: error });
            }
            if (!ArrIncludes([301, 302, 303, 307, 308], status)) throw new RangeError(`Invalid status code ${status}`);
            return new Response(null, { status, headers: { location: full.href } });
        }
        get type() { return WeakMapGet(responses, this).type; }
        get url() { return WeakMapGet(responses, this).url; }
        get redirected() { return WeakMapGet(responses, this).redirected; }
        get status() { return WeakMapGet(responses, this).status; }
        get ok() {
            const { status } = WeakMapGet(responses, this);
            return status >= 200 && status < 300;
        }
        get statusText() { return WeakMapGet(responses, this).statusText; }
        get headers() { return WeakMapGet(responses, this).headers; }
        clone() {
            const self = WeakMapGet(responses, this);
            const copy = new Response(null, { headers: self.headers });
            WeakMapSet(responses, copy, { ...self, __proto__: null, headers: copy.headers });
            cloned(copy, this);
            return copy;
        }
        [share.inspectCustom](depth, options, inspect) {
            if (typeof depth === "number" && depth < 0) return "[Response]";
            const { status, statusText, headers, redirected, url } = this;
            return `Response ${inspect({ status, statusText, headers, body: this.body, bodyUsed: this.bodyUsed, ok: this.ok, redirected, type: this.type, url }, options)}`;
        }
    }
    give(Response);
    webClass(Response, "Response");

    // ---- fetch -------------------------------------------------------------------------------

    // The body of an answer: each pull is one read of the host's.
    function bodyStream(id, cancelled) {
        return new ReadableStream({
            async pull(controller) {
                const { meta, bytes } = await share.begin("fetch.read", { __proto__: null, stream: id });
                if (bytes !== undefined && bytes !== null && bytes.length > 0) controller.enqueue(bytes);
                if (meta && meta.end) {
                    cancelled.isOver = true;
                    controller.close();
                } else if (bytes === undefined || bytes === null || bytes.length === 0) {
                    return this.pull(controller);
                }
                return undefined;
            },
            cancel() { stop(id, cancelled); },
        }, { highWaterMark: 0 });
    }

    function stop(id, cancelled) {
        if (cancelled.isOver) return;
        cancelled.isOver = true;
        try {
            share.call("fetch.cancel", { __proto__: null, stream: id });
        } catch {
            // it ended meanwhile
        }
    }

    function answered(meta, signal, request) {
        const headers = new Headers();
        const pairs = meta.headers || [];
        for (let i = 0; i < pairs.length; i++) append(WeakMapGet(lists, headers).list, [StrToLowerCase(pairs[i][0]), `${pairs[i][1]}`]);
        WeakMapGet(lists, headers).isFixed = true;
        const out = ObjCreate(Response.prototype);
        WeakMapSet(responses, out, { __proto__: null, status: meta.status, statusText: meta.statusText || "", headers, url: meta.url || request.url,
            redirected: meta.redirected === true, type: "basic" });
        const body = { __proto__: null, bytes: undefined, stream: undefined, isUsed: false };
        if (meta.stream !== undefined && meta.stream !== null) {
            const cancelled = { __proto__: null, isOver: false };
            body.stream = bodyStream(meta.stream, cancelled);
            if (signal !== undefined) {
                share.onAbort(signal, () => {
                    if (cancelled.isOver) return;
                    stop(meta.stream, cancelled);
                    share.errorStream(body.stream, signal.reason);
                });
            }
        }
        WeakMapSet(bodies, out, body);
        return out;
    }

    // data: URLs need no host.
    function fromData(url) {
        const found = P.ReExec(/^data:([^,]*?)(;base64)?,(.*)$/s, url);
        if (found === null) throw new TypeError("fetch failed");
        const bytes = found[2] ? native.base64_decode(text(share.urls.decodedBytes(found[3]))) : share.urls.decodedBytes(found[3]);
        const out = new Response(bytes, { headers: { "content-type": found[1] === "" ? "text/plain;charset=US-ASCII" : found[1] } });
        WeakMapGet(responses, out).url = url;
        return out;
    }

    const HOPS_MAX = 20;

    function headerOf(headers, name) {
        for (let i = 0; i < headers.length; i++) if (StrToLowerCase(headers[i][0]) === name) return `${headers[i][1]}`;
        return undefined;
    }

    function without(headers, names) {
        const out = [];
        for (let i = 0; i < headers.length; i++) if (!ArrIncludes(names, headers[i][0])) append(out, headers[i]);
        return out;
    }

    // Each hop is a request of its own to the host, which judges each.
    async function followed(request, signal, bytes) {
        let { method, url } = request, headers = sorted(WeakMapGet(lists, request.headers).list), body = bytes;
        for (let hop = 0; ; hop++) {
            const { meta } = await share.begin("fetch.start", { __proto__: null, method, url, headers, redirect: request.redirect }, body);
            const target = ArrIncludes([301, 302, 303, 307, 308], meta.status) && request.redirect !== "manual"
                ? headerOf(meta.headers || [], "location") : undefined;
            if (target === undefined) return { __proto__: null, meta: { ...meta, __proto__: null, url: meta.url || url, redirected: hop > 0 || meta.redirected === true } };
            if (meta.stream !== undefined && meta.stream !== null) stop(meta.stream, { isOver: false });
            if (request.redirect === "error") throw new Error("unexpected redirect");
            if (hop === HOPS_MAX) throw new Error("redirect count exceeded");
            if (signal !== undefined && signal.aborted) throw signal.reason;
            const from = new URL(url), to = new URL(target, url);
            if (!matches(/^https?:$/, to.protocol)) throw new Error("URL scheme must be a HTTP(S) scheme");
            if (to.hash === "") to.hash = from.hash;
            if (meta.status === 303 ? method !== "GET" && method !== "HEAD" : meta.status < 303 && method === "POST") {
                method = "GET";
                body = undefined;
                headers = without(headers, ["content-type", "content-length", "content-encoding", "content-language", "content-location"]);
            }
            // What is meant for one server is told to no other.
            if (to.origin !== from.origin) headers = without(headers, ["authorization", "cookie", "proxy-authorization"]);
            url = to.href;
        }
    }

    async function fetch(input, init) {
        const request = new Request(input, init);
        const self = WeakMapGet(requests, request), { signal } = self;
        if (signal !== undefined && signal.aborted) throw signal.reason;
        if (P.StrStartsWith(request.url, "data:")) return fromData(request.url);
        if (!matches(/^https?:/, request.url)) {
            throw new TypeError("fetch failed", { cause: new Error(`unknown scheme: only http, https and data are fetched, not ${request.url}`) });
        }
        const body = WeakMapGet(bodies, request);
        let bytes;
        if (body.bytes !== undefined || body.stream !== undefined) bytes = await consume(request);
        const pending = PromiseThen(followed(request, signal, bytes), undefined, (error) => {
            if (signal !== undefined && signal.aborted && error === signal.reason) throw error;
            // A denial says itself which capability would allow it.
            const isDenied = error.code === "denied" || error.code === "EACCES" || matches(/\bdenied\b/, `${error.message}`);
            const made = isDenied ? new TypeError(error.message) : new TypeError(`fetch failed: ${error.message}`, { cause: error });
            if (isDenied) made.code = error.code;
            throw made;
        });
        if (signal === undefined) return answered((await pending).meta, undefined, request);
        const gone = deferred();
        share.onAbort(signal, () => gone.reject(signal.reason));
        let isGone = false;
        PromiseThen(gone.promise, undefined, () => { isGone = true; });
        const settled = PromiseThen(pending, ({ meta }) => {
            if (isGone) {
                if (meta.stream !== undefined) stop(meta.stream, { isOver: false });
                return undefined;
            }
            return answered(meta, signal, request);
        });
        return P.PromiseRace([settled, gone.promise]);
    }
    P.ObjDefineProperty(globalThis, "fetch", { __proto__: null, value: fetch, writable: true, enumerable: true, configurable: true });
})
