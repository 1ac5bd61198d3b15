// fetch() of kernels, by Node's own http and https: the TLS, the certificates and the names are those of this process. Where it
// may go is not decided here: the manifest's policy judges the name before it is looked up and each address before it is
// dialled, and the address that was judged is the one that is dialled. A redirect is an answer like any other; who asked
// follows it by a request of its own, which is judged anew.
"use strict";

const http = require("node:http");
const https = require("node:https");
const net = require("node:net");
const { Lookup } = require("./lookup.js");

// Of one run. All that belongs to it ends with it.
const AT_ONCE = 32; // that no answer has begun of; what comes on top waits
const OPEN_MAX = 256; // those, those that wait, and answers that are not read
const COUNT_MAX = 1000; // in all; each hop of a redirect is one
const BODY_MAX = 16 * 1024 * 1024; // bytes that one request sends
const OUT_MAX = 64 * 1024 * 1024; // that all of them send
const IN_MAX = 256 * 1024 * 1024; // that all answers bring
const HEAD_MAX = 65536; // bytes of headers, and of a URL
const HEADERS_MAX = 128;
const CONNECT_MS = 10000;
const ANSWER_MS = 120000; // without a byte
const PIECE = 65536;

// What the connection decides, and no code.
const OURS = new Set(["accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const CONTROL = /[\0-\x08\n-\x1f\x7f]/; // all but the tab: a line's end would begin another header
const WITHOUT_BODY = new Set([204, 205, 304]);

function failure(code, message) {
    const error = new Error(message);
    error.code = code;
    return error;
}

// The texts of sockets name addresses; the code knows its host.
function explained(error, host) {
    switch (error.code) {
    case "EACCES":
    case "EINVAL":
    case "EFBIG":
    case "EDQUOT":
    case "ETIMEDOUT":
        return error;
    case "ECONNRESET":
        return failure("ECONNRESET", `${host} ended the connection before its answer was whole`);
    case "ECONNREFUSED":
        return failure("ECONNREFUSED", `${host} cannot be reached: the connection was refused`);
    case "ENOTFOUND":
    case "EAI_AGAIN":
        return failure("ENOTFOUND", `${host}: the name is not known`);
    default:
        return failure(/^HPE_/.test(error.code) ? "EPROTO" : typeof error.code === "string" ? error.code : "EIO",
            /^HPE_/.test(error.code) ? `what ${host} answers is no HTTP` : `${host}: ${error.message}`);
    }
}

function headersOf(pairs, hostHeader, body, method) {
    const headers = ["Host", hostHeader];
    let hasAgent = false, hasAccept = false, size = 0;
    if (Array.isArray(pairs) && pairs.length > HEADERS_MAX) throw failure("EINVAL", `a request has at most ${HEADERS_MAX} headers`);
    for (const pair of Array.isArray(pairs) ? pairs : []) {
        const [name, value] = Array.isArray(pair) ? pair : [];
        if (typeof name !== "string" || typeof value !== "string" || !TOKEN.test(name) || CONTROL.test(value)) {
            throw failure("EINVAL", "a header is none");
        }
        size += name.length + value.length + 4;
        if (size > HEAD_MAX) throw failure("EINVAL", `the headers of a request are at most ${HEAD_MAX} bytes`);
        const lower = name.toLowerCase();
        if (OURS.has(lower)) continue;
        hasAgent ||= lower === "user-agent";
        hasAccept ||= lower === "accept";
        headers.push(name, value);
    }
    if (!hasAgent) headers.push("User-Agent", "cove");
    if (!hasAccept) headers.push("Accept", "*/*");
    headers.push("Accept-Encoding", "identity", "Connection", "close");
    if (body !== undefined || method === "POST" || method === "PUT") headers.push("Content-Length", String(body === undefined ? 0 : body.length));
    return headers;
}

function targetOf(text) {
    let url;
    if (text.length > HEAD_MAX) throw failure("EINVAL", `a URL is at most ${HEAD_MAX} bytes`);
    try {
        url = new URL(text);
    } catch {
        throw failure("EINVAL", "the URL is none");
    }
    if (url.protocol !== "http:" && url.protocol !== "https:") throw failure("EINVAL", `'${url.protocol}' is not fetched: only http and https are`);
    if (url.hostname === "") throw failure("EINVAL", "the URL names no host");
    const isSecure = url.protocol === "https:";
    return { url, isSecure, host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port === "" ? isSecure ? 443 : 80 : Number(url.port) };
}

class Fetches {
    constructor(binding, manifest) {
        this.binding = binding;
        this.manifest = manifest;
        this.streams = new Map();
        this.requests = new Set();
        this.lookups = new Set();
        this.waiting = [];
        this.running = 0;
        this.last = 0;
        this.all = 0;
        this.open = 0; // requests under way or waiting
        this.sent = 0;
        this.received = 0;
        this.isClosed = false;
    }

    close() {
        this.isClosed = true;
        for (const lookup of this.lookups) lookup.cancel();
        for (const request of this.requests) request.destroy();
        for (const { answer } of this.streams.values()) answer.destroy();
        this.requests.clear();
        this.streams.clear();
        for (const go of this.waiting) go();
        this.waiting = [];
    }

    async turn() {
        if (this.running < AT_ONCE) {
            this.running++;
            return;
        }
        await new Promise((resolve) => { this.waiting.push(resolve); });
    }

    // A turn goes to the next who waits, or is free again.
    turnOver() {
        const next = this.waiting.shift();
        if (next !== undefined) next();
        else this.running--;
    }

    async start(meta, bytes) {
        const size = bytes === undefined ? 0 : bytes.length;
        if (this.all >= COUNT_MAX) throw failure("EDQUOT", `a run may make ${COUNT_MAX} requests, and no more`);
        if (this.open + this.streams.size >= OPEN_MAX) throw failure("EMFILE", `${OPEN_MAX} requests and answers are open: read them or cancel them first`);
        if (size > BODY_MAX) throw failure("EFBIG", `a request may send ${BODY_MAX} bytes, and no more`);
        if (this.sent + size > OUT_MAX) throw failure("EDQUOT", `a run may send ${OUT_MAX} bytes, and no more`);
        this.all++;
        this.sent += size;
        this.open++;
        try {
            await this.turn();
            try {
                if (this.isClosed) throw failure("ECANCELED", "the run is over");
                return await this.ask(meta, bytes);
            } finally {
                this.turnOver();
            }
        } finally {
            this.open--;
        }
    }

    async ask(meta, bytes) {
        const { method } = meta;
        if (typeof method !== "string" || !TOKEN.test(method) || /^(connect|trace|track)$/i.test(method)) {
            throw failure("EINVAL", "the request has no method that can be used");
        }
        const target = targetOf(`${meta.url}`);
        const headers = headersOf(meta.headers, target.url.host, bytes, method);
        let last;
        for (const address of await this.addresses(target)) {
            if (this.isClosed) throw failure("ECANCELED", "the run is over");
            let answer;
            try {
                answer = await this.dial(target, address, method, headers, bytes);
            } catch (error) {
                last = explained(error, target.url.host);
                if (this.isClosed || error.isConnected) throw last;
                continue;
            }
            return this.answered(meta, answer);
        }
        throw last;
    }

    // Those that may be dialled, of a name that may be asked for; a denial where there is none.
    async addresses({ host, port }) {
        if (net.isIP(host) !== 0) {
            this.binding.judgeAddress(this.manifest, undefined, host, port);
            return [{ address: host, family: net.isIP(host) }];
        }
        this.binding.judgeName(this.manifest, host, port);
        const lookup = new Lookup();
        let found, denial;
        try {
            this.lookups.add(lookup);
            found = await lookup.of(host);
        } catch (error) {
            throw explained(error, host);
        } finally {
            this.lookups.delete(lookup);
        }
        const allowed = found.filter(({ address }) => {
            try {
                this.binding.judgeAddress(this.manifest, host, address, port);
                return true;
            } catch (error) {
                denial = error;
                return false;
            }
        });
        if (allowed.length === 0) throw denial ?? failure("ENOTFOUND", `${host}: the name has no address`);
        return allowed;
    }

    dial({ url, isSecure, host, port }, { address, family }, method, headers, bytes) {
        return new Promise((resolve, reject) => {
            let isConnected = false;
            const request = (isSecure ? https : http).request({
                agent: false,
                host,
                port,
                method,
                headers,
                path: url.pathname + url.search,
                setHost: false,
                servername: net.isIP(host) === 0 ? host : "",
                lookup: (name, options, done) => options.all ? done(null, [{ address, family }]) : done(null, address, family),
                insecureHTTPParser: false,
                maxHeaderSize: HEAD_MAX,
                rejectUnauthorized: true,
            });
            this.requests.add(request);
            const timer = setTimeout(() => request.destroy(failure("ETIMEDOUT", `${url.host} cannot be reached`)), CONNECT_MS);
            request.setTimeout(ANSWER_MS, () => request.destroy(failure("ETIMEDOUT", `${url.host} does not answer`)));
            request.on("socket", (socket) => {
                socket.once(isSecure ? "secureConnect" : "connect", () => clearTimeout(timer));
                socket.once("connect", () => {
                    isConnected = true;
                    // Whatever stands between here and the socket: it is the address that was judged.
                    if (net.isIP(socket.remoteAddress) === 0 || !same(socket.remoteAddress, address)) request.destroy(failure("EACCES", `${url.host}: another address was dialled than was judged`));
                });
            });
            request.on("response", (answer) => {
                answer.on("error", () => {});
                answer.request = request;
                resolve(answer);
            });
            request.on("error", (error) => {
                error.isConnected = isConnected;
                reject(error);
            });
            request.on("close", () => {
                clearTimeout(timer);
                this.requests.delete(request);
                reject(failure("ECONNRESET", ""));
            });
            request.end(bytes);
        });
    }

    answered(meta, answer) {
        const headers = [];
        if (answer.rawHeaders.length > 2 * HEADERS_MAX) {
            answer.destroy();
            throw failure("EPROTO", `what ${new URL(meta.url).host} answers has more than ${HEADERS_MAX} headers`);
        }
        for (let i = 0; i < answer.rawHeaders.length; i += 2) headers.push([answer.rawHeaders[i], answer.rawHeaders[i + 1]]);
        const out = { status: answer.statusCode, statusText: answer.statusMessage, url: meta.url, headers };
        if (this.isClosed || meta.method === "HEAD" || WITHOUT_BODY.has(answer.statusCode)) {
            answer.destroy();
        } else {
            out.stream = ++this.last;
            this.streams.set(out.stream, { answer, host: new URL(meta.url).host, isBusy: false });
        }
        return { meta: out };
    }

    // The next piece of a body: it is read no faster than the code asks for it.
    async read(id) {
        const stream = this.streams.get(id);
        if (stream === undefined || stream.isBusy) throw failure("EBADF", "there is no answer of this number to be read");
        stream.isBusy = true;
        try {
            const piece = await next(stream);
            if (piece !== null) this.received += piece.length;
            if (this.received > IN_MAX) throw failure("EDQUOT", `a run may read ${IN_MAX} bytes of answers, and no more`);
            if (piece === null) this.forget(id, stream);
            return { meta: { end: piece === null }, bytes: piece === null ? undefined : piece };
        } catch (error) {
            this.forget(id, stream);
            throw explained(error, stream.host);
        } finally {
            stream.isBusy = false;
        }
    }

    forget(id, { answer }) {
        this.streams.delete(id);
        answer.destroy();
    }

    cancel(id) {
        const stream = this.streams.get(id);
        if (stream !== undefined) this.forget(id, stream);
    }
}

function same(one, other) {
    const list = new net.BlockList();
    list.addAddress(one, net.isIPv6(one) ? "ipv6" : "ipv4");
    return list.check(other, net.isIPv6(other) ? "ipv6" : "ipv4");
}

// A piece, or null at the end.
function next({ answer }) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => answer.destroy(failure("ETIMEDOUT", "the answer does not go on")), ANSWER_MS);
        const over = (take, value) => {
            clearTimeout(timer);
            answer.off("readable", look);
            answer.off("end", end);
            answer.off("error", fail);
            answer.off("close", cut);
            take(value);
        };
        const look = () => {
            const piece = answer.read(Math.min(PIECE, answer.readableLength) || undefined);
            if (piece !== null) over(resolve, piece);
        };
        const end = () => over(resolve, null);
        const fail = (error) => over(reject, error);
        const cut = () => (answer.complete ? over(resolve, null) : over(reject, failure("ECONNRESET", "")));
        if (answer.readableEnded) return end();
        if (answer.errored) return fail(answer.errored);
        if (answer.destroyed) return cut();
        answer.on("readable", look);
        answer.on("end", end);
        answer.on("error", fail);
        answer.on("close", cut);
        return look();
    });
}

module.exports = { Fetches };
