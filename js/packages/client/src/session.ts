// Runs of kernels whose code calls functions of this program: one WebSocket, many runs, answers in any order.
import { CoveError } from "./error.js";
import { aborted, problemOf, type Link } from "./link.js";
import type { CallOptions, KernelResult, KernelRunInSpec, KernelRunSpec } from "./types.js";
import { closedError, upgradeHeaders, WebSocketClient } from "./websocket.js";
import { Aborted, Cut } from "./wire.js";

/** A function of this program that the code of a kernel calls, as `await tools.name(args)`. */
export type Tool = (args: unknown) => unknown;
export type Tools = { readonly [name: string]: Tool };

/** One connection, with any number of runs; of these 64 at once, and the rest after them. */
export interface KernelSession {
    /** A run in a pristine kernel. */
    run(spec: KernelRunSpec, tools: Tools, options?: CallOptions): Promise<KernelResult>;
    /** A run in a kernel that stays; its tools are those that it was made with. */
    runIn(id: string, spec: KernelRunInSpec, tools: Tools, options?: CallOptions): Promise<KernelResult>;
    /** Ends the connection; what still runs is stopped. */
    close(): void;
}

const RUNS_MOST = 64;

interface Call {
    type: "call";
    run: string;
    call: number;
    name: string;
    args: unknown;
}
type Message =
    | Call
    | { type: "done"; run: string; result: KernelResult }
    | { type: "error"; run: string | null; code: string; detail: string };

interface Run {
    tools: Tools;
    resolve(result: KernelResult): void;
    reject(error: Error): void;
}

export async function openSession(link: Link, path: string, signal: AbortSignal | undefined): Promise<KernelSession> {
    if (signal?.aborted) throw aborted(signal);
    // So that the server is found, or started, and answers: an upgrade is not tried twice.
    await link.connect(signal);
    const wire = await link.wire(signal);
    const { headers, accept } = upgradeHeaders();
    try {
        const { answer, socket, head } = await wire.upgrade(path, headers, signal);
        if (!socket) {
            const parts: Buffer[] = [];
            for await (const part of answer) parts.push(part as Buffer);
            throw problemOf({ status: answer.statusCode as number, headers: answer.headers, body: Buffer.concat(parts) });
        }
        if (answer.headers["sec-websocket-accept"] !== accept) {
            socket.destroy();
            throw new CoveError("bad_answer", "the server's answer opens no WebSocket");
        }
        return new Session(socket, head as Buffer);
    } catch (error) {
        if (error instanceof Aborted) throw aborted(signal);
        if (!(error instanceof Cut)) throw error;
        throw new CoveError("unreachable", `${link.address}: no connection for kernels (${error.message})`, { cause: error.cause });
    }
}

class Session implements KernelSession {
    readonly #socket: WebSocketClient;
    readonly #runs = new Map<string, Run>();
    readonly #waiting: (() => void)[] = [];
    #count = 0;
    #closed: CoveError | undefined;

    constructor(socket: import("node:net").Socket, head: Buffer) {
        this.#socket = new WebSocketClient(socket, head, {
            message: (text) => this.#heard(text),
            closed: (code, reason) => {
                this.#closed = closedError(code, reason);
                for (const run of this.#runs.values()) run.reject(this.#closed);
                this.#runs.clear();
                for (const go of this.#waiting.splice(0)) go();
            },
        });
        this.#socket.hold(false);
    }

    run(spec: KernelRunSpec, tools: Tools, options: CallOptions = {}): Promise<KernelResult> {
        return this.#run({ ...spec, tools: Object.keys(tools) }, tools, options.signal);
    }

    runIn(id: string, spec: KernelRunInSpec, tools: Tools, options: CallOptions = {}): Promise<KernelResult> {
        return this.#run({ ...spec, context: id }, tools, options.signal);
    }

    close(): void {
        this.#socket.close();
    }

    async #run(body: object, tools: Tools, signal: AbortSignal | undefined): Promise<KernelResult> {
        while (this.#runs.size >= RUNS_MOST && !this.#closed && !signal?.aborted) await this.#turn(signal);
        if (signal?.aborted) {
            // It may have been its turn just now: then it is the next one's.
            if (this.#runs.size < RUNS_MOST) this.#waiting.shift()?.();
            throw aborted(signal);
        }
        if (this.#closed) throw this.#closed;
        const id = (++this.#count).toString(36);
        let stop: (() => void) | undefined;
        try {
            return await new Promise<KernelResult>((resolve, reject) => {
                this.#runs.set(id, { tools, resolve, reject });
                this.#socket.hold(true);
                this.#socket.send(JSON.stringify({ type: "run", run: id, ...body }));
                stop = () => {
                    this.#socket.send(JSON.stringify({ type: "stop", run: id }));
                    reject(aborted(signal));
                };
                signal?.addEventListener("abort", stop, { once: true });
            });
        } finally {
            if (stop) signal?.removeEventListener("abort", stop);
            this.#runs.delete(id);
            if (this.#runs.size === 0) this.#socket.hold(false);
            this.#waiting.shift()?.();
        }
    }

    /** Until one of the places may be free, or it is given up. */
    async #turn(signal: AbortSignal | undefined): Promise<void> {
        let go: (() => void) | undefined;
        const turn = new Promise<void>((resolve) => (go = resolve));
        this.#waiting.push(go as () => void);
        if (signal && go) signal.addEventListener("abort", go, { once: true });
        await turn;
        if (signal && go) signal.removeEventListener("abort", go);
        const at = this.#waiting.indexOf(go as () => void);
        if (at >= 0) this.#waiting.splice(at, 1);
    }

    #heard(text: string): void {
        let message: Message;
        try {
            message = JSON.parse(text) as Message;
            if (typeof message !== "object" || message === null) throw new TypeError("no message");
        } catch {
            this.#socket.close(1003); // it speaks of something else
            return;
        }
        const run = message.run === null ? undefined : this.#runs.get(message.run);
        if (message.type === "call") void this.#answer(run, message);
        else if (message.type === "done") run?.resolve(message.result);
        else if (message.type === "error") run?.reject(new CoveError(message.code, message.detail));
    }

    /** What a function throws, its code gets as an exception; so does what JSON cannot hold. */
    async #answer(run: Run | undefined, { run: id, call, name, args }: Call): Promise<void> {
        if (!run) return; // given up
        let text: string;
        try {
            const tool = Object.hasOwn(run.tools, name) ? run.tools[name] : undefined;
            if (!tool) throw new Error(`there is no tool "${name}"`);
            const value = JSON.stringify((await tool(args)) ?? null) ?? "null";
            text = `{"type":"result","run":${JSON.stringify(id)},"call":${call},"value":${value}}`;
        } catch (error) {
            text = JSON.stringify({ type: "error", run: id, call, message: wordsOf(error) });
        }
        this.#socket.send(text);
    }
}

/** Anything can be thrown, also what has no words or throws when it is asked for them. */
function wordsOf(error: unknown): string {
    try {
        return String(error instanceof Error ? error.message : error);
    } catch {
        return "a tool threw something that is no error";
    }
}
