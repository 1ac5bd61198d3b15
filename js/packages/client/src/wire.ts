// HTTP to one server: requests over connections that stay open, whole answers and streams.
//
// What costs time in node:http is avoided: headers are one flat array, the body is written with them, an answer is
// read by one listener, and no timer, signal or promise is made that nobody asked for.
import * as http from "node:http";
import * as https from "node:https";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Address } from "./address.js";
import type { Body } from "./request.js";

export interface Answer {
    status: number;
    headers: http.IncomingHttpHeaders;
    body: Buffer;
}

/** No answer came, or not all of it. */
export class Cut extends Error {
    constructor(
        /** Whether the server may have got the request. */
        readonly reached: boolean,
        cause: unknown,
    ) {
        super(cause instanceof Error ? cause.message : String(cause), { cause });
    }
}

/** The caller gave it up. */
export class Aborted extends Error {}

const EMPTY = Buffer.alloc(0);
const LARGE = 1024 * 1024;
/** No more is taken on the word of a length alone: for all of a longer one when so much of it has come. */
const AHEAD = 16 * LARGE;

/**
 * A body in the making. A large one whose length is known gets its memory once, and each part is copied as it comes: parts
 * that are kept to the end take twice the memory, and the kernel as long to hand it out as all the rest takes.
 * Its calls throw where there is no memory.
 */
class Whole {
    #parts: Buffer[] = [];
    #all: Buffer | undefined;
    #used = 0;

    constructor(readonly length: number) {
        if (length >= LARGE && length <= AHEAD) this.#all = Buffer.allocUnsafeSlow(length);
    }

    add(part: Buffer): void {
        if (!this.#all && this.length > AHEAD && this.#used + part.length > AHEAD) {
            this.#all = Buffer.allocUnsafeSlow(this.length);
            this.#used = 0;
            for (const before of this.#parts.splice(0)) this.#used += before.copy(this.#all, this.#used);
        }
        if (!this.#all) this.#parts.push(part);
        this.#used += this.#all ? part.copy(this.#all, this.#used) : part.length;
    }

    take(): Buffer {
        if (this.#all) return this.#all.subarray(0, this.#used);
        return this.#parts.length > 1 ? Buffer.concat(this.#parts) : (this.#parts[0] ?? EMPTY);
    }
}

function isTls(socket: Socket): boolean {
    return (socket as TLSSocket).encrypted === true;
}

function isBytes(body: Body): body is string | Uint8Array {
    return typeof body === "string" || body instanceof Uint8Array;
}

export class Wire {
    readonly #agent: http.Agent;
    readonly #base: http.RequestOptions;
    readonly #always: readonly string[];
    readonly #request: typeof http.request;

    constructor(address: Address, apiKey: string | undefined) {
        const options: http.AgentOptions = {
            keepAlive: true,
            maxSockets: Infinity,
            maxFreeSockets: 512,
            scheduling: "lifo",
            noDelay: true,
        };
        const isSecure = address.kind === "tcp" && address.tls;
        this.#request = isSecure ? https.request : http.request;
        this.#agent = isSecure ? new https.Agent(options) : new http.Agent(options);
        this.#base =
            address.kind === "unix"
                ? { socketPath: address.path, agent: this.#agent }
                : { host: address.host, port: address.port, agent: this.#agent };
        const always = ["Host", address.kind === "unix" ? "localhost" : address.header];
        if (apiKey) always.push("Authorization", `Bearer ${apiKey}`);
        this.#always = always;
    }

    /** What goes on over it may end; a connection that becomes free is ended. */
    close(): void {
        const agent = this.#agent;
        agent.maxFreeSockets = 0;
        (agent as { keepAlive?: boolean }).keepAlive = false;
        for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
    }

    /** Sends it; `begun` hears of the answer's head, `failed` of whatever comes instead of it, or later of the request. */
    open(
        method: string,
        path: string,
        headers: readonly string[] | undefined,
        body: Body | undefined,
        begun: (answer: http.IncomingMessage) => void,
        failed: (error: Cut) => void,
    ): http.ClientRequest {
        let all = headers ? this.#always.concat(headers) : this.#always;
        if (body !== undefined && isBytes(body))
            all = all.concat("Content-Length", String(typeof body === "string" ? Buffer.byteLength(body) : body.length));
        else if (body !== undefined) all = all.concat("Transfer-Encoding", "chunked");
        else if (method !== "GET" && method !== "HEAD") all = all.concat("Content-Length", "0");
        const request = this.#request({ ...this.#base, method, path, headers: all });
        request.on("response", begun);
        let isOpen = false;
        request.on("socket", (socket) => {
            const { connecting, secureConnecting, destroyed } = socket as TLSSocket & { secureConnecting?: boolean };
            if (request.reusedSocket || !(connecting || secureConnecting || destroyed)) isOpen = true;
            // Before that nothing was sent; with TLS, before its certificate was found good.
            else socket.once(isTls(socket) ? "secureConnect" : "connect", () => (isOpen = true));
        });
        request.on("error", (error: NodeJS.ErrnoException) => failed(new Cut(isOpen && error.syscall !== "connect", error)));
        if (body === undefined) request.end();
        else if (isBytes(body)) request.end(body);
        else void pour(body, request);
        return request;
    }

    /** The whole answer. */
    call(
        method: string,
        path: string,
        headers: readonly string[] | undefined,
        body: Body | undefined,
        signal: AbortSignal | undefined,
    ): Promise<Answer> {
        return new Promise((resolve, reject) => {
            let stop: (() => void) | undefined;
            const fail = (error: Error): void => {
                if (stop) signal?.removeEventListener("abort", stop);
                reject(error);
            };
            const request = this.open(
                method,
                path,
                headers,
                body,
                (answer) => {
                    const whole = new Whole(Number(answer.headers["content-length"]));
                    // Thrown from here it would end the caller's process.
                    const guarded = (act: () => void): void => {
                        try {
                            act();
                        } catch (error) {
                            fail(new Cut(true, error));
                            request.destroy();
                        }
                    };
                    answer.on("data", (part: Buffer) => guarded(() => whole.add(part)));
                    answer.on("end", () => {
                        if (stop) signal?.removeEventListener("abort", stop);
                        // An answer may come before all of the body was taken; then nobody takes the rest.
                        if (!request.writableEnded) request.destroy();
                        guarded(() =>
                            resolve({
                                status: answer.statusCode as number,
                                headers: answer.headers,
                                body: whole.take(),
                            }),
                        );
                    });
                    answer.on("error", (error) => fail(new Cut(true, error)));
                },
                fail,
            );
            if (signal) {
                stop = () => {
                    request.destroy();
                    fail(new Aborted());
                };
                signal.addEventListener("abort", stop, { once: true });
            }
        });
    }

    /** The answer as it comes. Whoever does not read it to its end has to destroy it. */
    stream(
        method: string,
        path: string,
        headers: readonly string[] | undefined,
        body: Body | undefined,
        signal: AbortSignal | undefined,
    ): Promise<http.IncomingMessage> {
        return new Promise((resolve, reject) => {
            let answer: http.IncomingMessage | undefined;
            const request = this.open(
                method,
                path,
                headers,
                body,
                (begun) => {
                    answer = begun;
                    resolve(begun);
                },
                reject,
            );
            if (signal) {
                const stop = (): void => {
                    answer?.destroy(new Aborted());
                    request.destroy();
                    reject(new Aborted());
                };
                signal.addEventListener("abort", stop, { once: true });
                request.once("close", () => signal.removeEventListener("abort", stop));
            }
        });
    }

    /** Asks for another protocol on the connection. Resolves to the answer alone where the server does not change it. */
    upgrade(
        path: string,
        headers: readonly string[],
        signal: AbortSignal | undefined,
    ): Promise<{ answer: http.IncomingMessage; socket?: Socket; head?: Buffer }> {
        return new Promise((resolve, reject) => {
            // A connection of its own: the agent is for what comes back to it.
            const { agent: _, ...base } = this.#base;
            const request = this.#request({ ...base, agent: false, method: "GET", path, headers: this.#always.concat(headers) });
            const stop = (): void => {
                request.destroy();
                reject(new Aborted());
            };
            const over = (): void => signal?.removeEventListener("abort", stop);
            signal?.addEventListener("abort", stop, { once: true });
            request.on("error", (error: NodeJS.ErrnoException) => {
                over();
                reject(new Cut(false, error));
            });
            request.on("response", (answer) => {
                over();
                resolve({ answer });
            });
            request.on("upgrade", (answer, socket, head) => {
                over();
                resolve({ answer, socket: socket as Socket, head });
            });
            request.end();
        });
    }
}

/** Writes a body that comes in parts, no faster than it is taken. */
async function pour(body: AsyncIterable<Uint8Array | string>, request: http.ClientRequest): Promise<void> {
    try {
        for await (const part of body) {
            if (request.destroyed || request.writableEnded) return;
            if (!request.write(part))
                await new Promise<void>((resolve) => {
                    const go = (): void => {
                        request.off("drain", go);
                        request.off("close", go);
                        resolve();
                    };
                    request.on("drain", go);
                    request.on("close", go);
                });
        }
        request.end();
    } catch (error) {
        // What was to be sent could not be read; half of it must not be taken for the whole.
        request.destroy(error as Error);
    }
}
