// The way to the server: found when it is needed, found again when it is lost, and requests over it.
//
// What may be sent twice and what may not is decided here, once. A request that never reached the server, or that the
// server says it did not begin (`draining`, `not_ready`, ...), is sent again whatever it is. One that was cut after it
// may have got there is sent again only where a second time changes nothing; else it fails with the code `lost`, and
// whoever asked has to look (exec and processes.start do: see exec.ts). All of it within `retryMs` of the first failure.
import type { IncomingMessage } from "node:http";
import { addressText, answers } from "./address.js";
import { CoveError, type Problem } from "./error.js";
import { findPlace, findPrivate, type Place } from "./find.js";
import { checkKeys, type CoveOptions } from "./options.js";
import { queryText, type RequestOptions } from "./request.js";
import { Aborted, Cut, Wire, type Answer } from "./wire.js";

export interface LinkOptions extends RequestOptions {
    /** Lines or bytes that are read as they come, and so: what an `Accept` asks for. */
    accept?: string | undefined;
    /** It also waits for its turn where the sandbox works on as many files as it can (`capacity`). */
    waits?: boolean | undefined;
    /** It runs a command: `draining` may be said of one that ran, too. */
    runs?: boolean | undefined;
    /** False: where this user's own engine is gone, none is started for this. */
    starts?: boolean | undefined;
    /** False: while it waits for its next try, the program may end. */
    holds?: boolean | undefined;
}

// The server has begun nothing.
const NOT_BEGUN = new Set(["not_ready", "too_many_connections", "too_many_requests"]);
const PAUSE_FIRST_MS = 5;
const PAUSE_MOST_MS = 400;
const ENGINE_MS = 30_000;
const RETRY_MS = 15_000;
const RETRY_FIRST_MS = 1_500; // where nobody ever answered: most often the address is wrong
/** What is wrong with a connection by TLS, and what to do, where it is not for want of an authority. */
const DISTRUST: { readonly [why: string]: readonly [string, string] | undefined } = {
    EPROTO: ["no TLS comes about", "check the port; where the server speaks no TLS, begin the address with http"],
    ERR_TLS_CERT_ALTNAME_INVALID: ["its certificate is for other names", "use one of them as the address"],
    CERT_HAS_EXPIRED: ["its certificate has expired", "whoever runs the server has to renew it"],
};
const JSON_BODY = ["Content-Type", "application/json"] as const;

export function aborted(signal: AbortSignal | undefined): CoveError {
    return new CoveError("aborted", "the call was given up", { cause: signal?.reason });
}

/** Where it `holds` not, the program may end meanwhile. */
export function pause(ms: number, signal: AbortSignal | undefined, holds = true): Promise<void> {
    return new Promise((resolve, reject) => {
        if (signal?.aborted) {
            reject(aborted(signal));
            return;
        }
        const over = (): void => {
            clearTimeout(timer);
            reject(aborted(signal));
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", over);
            resolve();
        }, ms);
        if (!holds) timer.unref();
        signal?.addEventListener("abort", over, { once: true });
    });
}

/** Rejects at once when it is given up; what comes of it then is for `late`. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal, late: (value: T) => void): Promise<T> {
    return new Promise((resolve, reject) => {
        const stop = (): void => {
            reject(aborted(signal));
            promise.then(late, () => undefined);
        };
        signal.addEventListener("abort", stop, { once: true });
        promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    });
}

function parse(body: Buffer): unknown {
    try {
        return JSON.parse(body.toString("utf8"));
    } catch (cause) {
        throw new CoveError("bad_answer", "the server's answer is no JSON", {
            remedy: "check that the address is that of a cove server",
            cause,
        });
    }
}

function isJson(answer: Answer): boolean {
    return /^application\/(json|problem\+json)/.test(answer.headers["content-type"] ?? "");
}

/** What an answer that is none of success says. */
export function problemOf(answer: Answer): CoveError {
    let problem: Partial<Problem> = {};
    if (isJson(answer))
        try {
            problem = JSON.parse(answer.body.toString("utf8")) as Problem;
        } catch {
            // Then its status is all there is.
        }
    const code = problem.code ?? "bad_answer";
    const detail = problem.detail ?? problem.title ?? `the server answered ${answer.status}`;
    // A detail in two parts says itself what to do, and knows better than the remedy of its kind.
    const remedy = code === "bad_key" ? "check apiKey, or COVE_API_KEY" : detail.includes(";") ? undefined : problem.remedy;
    return new CoveError(code, detail, { status: answer.status, remedy });
}

/** Of a failure that says how long to wait. */
function retryAfterMs(answer: Answer): number {
    const seconds = Number(answer.headers["retry-after"]);
    return seconds > 0 ? seconds * 1000 : 0;
}

/** How long and how often one request is tried. */
class Patience {
    #until = 0;
    #pause = PAUSE_FIRST_MS;
    constructor(private readonly mostMs: number) {}

    /** False when it is over. */
    async wait(signal: AbortSignal | undefined, atLeastMs = 0, holds = true): Promise<boolean> {
        const now = performance.now();
        if (this.#until === 0) this.#until = now + this.mostMs;
        const left = this.#until - now;
        if (left <= 0) return false;
        // Not all at the same moment, where many wait.
        const ms = Math.max(this.#pause * (0.75 + Math.random() / 2), Math.min(atLeastMs, 1000));
        await pause(Math.min(left, ms), signal, holds);
        this.#pause = Math.min(this.#pause * 2, PAUSE_MOST_MS);
        return true;
    }
}

export class Link {
    readonly #options: CoveOptions;
    readonly #retryMs: number;
    #place: Place | undefined;
    #wire: Wire | undefined;
    #finding: Promise<Wire> | undefined;
    #hasAnswered = false;

    constructor(options: CoveOptions) {
        checkKeys("Cove", options, ["url", "apiKey", "engine", "bin", "retryMs"]);
        if (options.engine !== undefined && options.engine !== "any" && options.engine !== "private")
            throw new CoveError("bad_option", 'engine: it is "any" or "private"');
        if (options.engine === "private" && options.url)
            throw new CoveError("bad_option", 'url: it goes with no engine "private"', { remedy: "leave one of them out" });
        if (options.engine === "private" && options.apiKey)
            throw new CoveError("bad_option", 'apiKey: it goes with no engine "private", which needs none', {
                remedy: "leave one of them out",
            });
        this.#options = options;
        this.#retryMs = options.retryMs ?? RETRY_MS;
        if (!(this.#retryMs >= 0)) throw new CoveError("bad_option", "retryMs: it is a number of milliseconds, from 0");
    }

    get address(): string | undefined {
        return this.#place && addressText(this.#place.address);
    }

    get bin(): string | undefined {
        return this.#options.bin;
    }

    isPrivate(): boolean {
        return this.#place?.kind === "private";
    }

    /** Whether something between here and the server may cut a connection; undefined: it is not known yet where it is. */
    isFar(): boolean | undefined {
        return this.#place && this.#place.address.kind === "tcp";
    }

    close(): void {
        this.#wire?.close();
        this.#wire = undefined;
    }

    async connect(signal: AbortSignal | undefined): Promise<void> {
        await this.call("GET", "/healthz", { signal });
    }

    /** The server, found or started; one search for all that ask meanwhile. */
    wire(signal: AbortSignal | undefined): Promise<Wire> {
        if (this.#wire) return Promise.resolve(this.#wire);
        this.#finding ??= this.#find().finally(() => (this.#finding = undefined));
        if (!signal) return this.#finding;
        return unlessAborted(this.#finding, signal, () => undefined);
    }

    async #find(): Promise<Wire> {
        // Once chosen it stays: the sandboxes are there and nowhere else.
        if (!this.#place) this.#place = await findPlace(this.#options);
        else if (this.#place.kind === "private") this.#place = { ...(await findPrivate(this.#options)), apiKey: this.#place.apiKey };
        const wire = new Wire(this.#place.address, this.#place.apiKey);
        await this.#awaitEngine(wire, this.#place);
        this.#wire = wire;
        return wire;
    }

    /**
     * Of one's own engine the socket is its keeper's, and listens also where the engine behind it never comes up. Elsewhere
     * anything may take a connection and say nothing, and a command may rightly be silent for hours.
     */
    async #awaitEngine(wire: Wire, { kind, started }: Place): Promise<void> {
        const over = new AbortController();
        const timer = setTimeout(() => over.abort(), ENGINE_MS);
        started?.catch(() => over.abort());
        try {
            await wire.call("GET", "/healthz", undefined, undefined, over.signal);
        } catch (error) {
            // Nothing of what is to be asked has been sent yet.
            if (error instanceof Cut) throw new Cut(false, error.cause);
            if (!(error instanceof Aborted)) throw error;
            await started; // which says what is wrong
            const isOwn = kind === "private";
            throw new CoveError(
                "unreachable",
                `${this.address}: ${isOwn ? "your engine" : "the server"} does not answer in ${ENGINE_MS / 1000} seconds`,
                {
                    remedy: isOwn
                        ? "what it says is in serve.log beside its socket"
                        : "see whether it is busy, and whether the address leads to it",
                },
            );
        } finally {
            clearTimeout(timer);
        }
    }

    async #isThere(): Promise<boolean> {
        const address = this.#place?.kind === "private" ? this.#place.address : undefined;
        return address?.kind !== "unix" || (await answers(address.path));
    }

    /** It broke: what still goes on over it may end; the next request looks for the server again. */
    #lose(wire: Wire): void {
        if (this.#place?.kind === "private" && this.#wire === wire) {
            this.#wire = undefined;
            wire.close();
        }
    }

    /** The whole answer, of success. */
    async call(method: string, path: string, options: LinkOptions = {}): Promise<Answer> {
        return this.#try(method, path, options, (wire, target, headers, body) =>
            wire.call(method, target, headers, body, options.signal),
        );
    }

    /** The answer's body as JSON; undefined where there is none. */
    async json<T>(method: string, path: string, options: LinkOptions = {}): Promise<T> {
        const answer = await this.call(method, path, options);
        return (answer.body.length === 0 ? undefined : parse(answer.body)) as T;
    }

    /** JSON where it is, else bytes; undefined where there is nothing. */
    async any<T>(method: string, path: string, options: LinkOptions = {}): Promise<T> {
        const answer = await this.call(method, path, options);
        if (answer.body.length === 0) return undefined as T;
        return (isJson(answer) ? parse(answer.body) : answer.body) as T;
    }

    /** An answer of success as it comes; whoever asked destroys it, or reads it to its end. */
    async stream(method: string, path: string, options: LinkOptions = {}): Promise<IncomingMessage> {
        let stream: IncomingMessage | undefined;
        await this.#try(method, path, options, async (wire, target, headers, body) => {
            const answer = await wire.stream(method, target, headers, body, options.signal);
            const status = answer.statusCode as number;
            if (status < 400) {
                stream = answer;
                return { status, headers: answer.headers, body: Buffer.alloc(0) };
            }
            const parts: Buffer[] = [];
            try {
                for await (const part of answer) parts.push(part as Buffer);
            } catch (error) {
                throw new Cut(true, error);
            }
            return { status, headers: answer.headers, body: Buffer.concat(parts) };
        });
        return stream as IncomingMessage;
    }

    async #try(
        method: string,
        path: string,
        options: LinkOptions,
        send: (wire: Wire, target: string, headers: string[] | undefined, body: RequestOptions["body"]) => Promise<Answer>,
    ): Promise<Answer> {
        const { signal } = options;
        const target = options.query ? path + queryText(options.query) : path;
        const body = options.json !== undefined ? JSON.stringify(options.json) : options.body;
        const isStream = body !== undefined && typeof body !== "string" && !(body instanceof Uint8Array);
        let headers: string[] | undefined;
        if (options.json !== undefined) headers = [...JSON_BODY];
        if (options.accept) (headers ??= []).push("Accept", options.accept);
        for (const name in options.headers) (headers ??= []).push(name, options.headers[name] as string);
        let patience: Patience | undefined;
        for (;;) {
            if (signal?.aborted) throw aborted(signal);
            let wire = this.#wire;
            let failure: CoveError;
            let waitMs = 0;
            try {
                if (!wire && options.starts === false && !(await this.#isThere())) throw new Cut(false, "it is gone");
                wire ??= await this.wire(signal);
                const answer = await send(wire, target, headers, body);
                this.#hasAnswered = true;
                if (answer.status < 400) return answer;
                failure = problemOf(answer);
                const { code } = failure;
                const isAgain =
                    NOT_BEGUN.has(code) || (code === "draining" && !options.runs) || (code === "capacity" && options.waits);
                if (!isAgain || isStream) throw failure;
                // Of all else it says a second, which is long where an engine begins or a file is written.
                if (code === "too_many_requests") waitMs = retryAfterMs(answer);
            } catch (error) {
                if (error instanceof Aborted) throw aborted(signal);
                if (!(error instanceof Cut)) throw error;
                if (wire) this.#lose(wire);
                failure = this.#failure(error, method, path);
                if (isDistrust(error)) throw failure;
                if (error.reached && !mayRepeat(method, options)) throw failure;
                if (isStream) throw failure;
            }
            patience ??= new Patience(this.#hasAnswered ? this.#retryMs : Math.min(this.#retryMs, RETRY_FIRST_MS));
            if (!(await patience.wait(signal, waitMs, options.holds))) throw failure;
        }
    }

    #failure(cut: Cut, method: string, path: string): CoveError {
        const why = (cut.cause as NodeJS.ErrnoException | undefined)?.code ?? cut.message;
        if (why.startsWith("HPE_"))
            return new CoveError("bad_answer", `${this.address}: the answer is no HTTP (${why})`, {
                remedy: "check that the address is that of a cove server, and whether it has to begin with https",
                cause: cut.cause,
                begun: cut.reached,
            });
        if (isDistrust(cut)) {
            const known = DISTRUST[why];
            return new CoveError("unreachable", `${this.address}: ${known?.[0] ?? "no connection that can be trusted"} (${why})`, {
                remedy: known?.[1] ?? "check the address; Node trusts a certificate of one's own by NODE_EXTRA_CA_CERTS",
                cause: cut.cause,
            });
        }
        if (cut.reached)
            return new CoveError(
                "lost",
                `${method} ${path}: the connection to ${this.address} broke before the answer was there (${why})`,
                { remedy: "look whether it was done before you do it again", cause: cut.cause, begun: true },
            );
        if (why === "ENOTFOUND" || why === "EAI_AGAIN")
            return new CoveError("unreachable", `${this.address}: the name of the server leads nowhere (${why})`, {
                remedy: "check the address",
                cause: cut.cause,
            });
        return new CoveError("unreachable", `${this.address}: nobody answers there (${why})`, {
            remedy: "check the address, and that the server runs",
            cause: cut.cause,
        });
    }
}

/** No TLS, or a certificate that is not good: it is no better in a moment. */
function isDistrust(cut: Cut): boolean {
    const code = (cut.cause as NodeJS.ErrnoException | undefined)?.code ?? "";
    return !cut.reached && /CERT|CRL|SELF_SIGNED|UNABLE_TO_|HOSTNAME_MISMATCH|INVALID_|PATH_LENGTH|^ERR_(TLS|SSL)|^EPROTO$/.test(code);
}

function mayRepeat(method: string, options: LinkOptions): boolean {
    return options.repeat ?? (method !== "POST" && method !== "PATCH");
}
