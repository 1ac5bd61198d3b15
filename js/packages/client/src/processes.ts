// The processes of a sandbox: started, listed, followed by byte offset, written to, signalled, killed.
import { findTagged, isRepetition, isUnsure, newTag, tagOf } from "./begin.js";
import { asBegun, CoveError } from "./error.js";
import { readLines } from "./lines.js";
import { aborted, pause, unlessAborted, type Link, type LinkOptions } from "./link.js";
import type { CallOptions, FollowLine, Process, ProcessSpec } from "./types.js";
import { Cut } from "./wire.js";

export type StreamName = "stdout" | "stderr";

/** What a process printed (`data`), what of it is gone (`gap`), and its end. */
export type Followed =
    | { type: "data"; stream: StreamName; from: number; to: number; data: Buffer }
    | { type: "gap"; stream: StreamName; from: number; to: number }
    | { type: "exit"; process: Process };

export interface FollowOptions extends CallOptions {
    /** The first byte of each stream that is wanted; 0 without it. */
    stdoutFrom?: number | undefined;
    stderrFrom?: number | undefined;
    stream?: StreamName | "both" | undefined;
    /** `close`: until nobody holds its pipes any more, which what it left behind may do for long. */
    until?: "exit" | "close" | undefined;
}

export interface OutputOptions extends CallOptions {
    stream?: StreamName | undefined;
    offset?: number | undefined;
    limit?: number | undefined;
    /** The newest so many bytes; not together with `offset`. */
    tail?: number | undefined;
}

export interface Output {
    data: Buffer;
    /** The offset of the first byte, and that after the last one. */
    from: number;
    next: number;
    /** How many of the bytes that were asked for are gone. */
    dropped: number;
    /** Whether the process has ended and nothing follows. */
    ended: boolean;
}

const AGAIN_MS = 10;
const REPEATED_MOST = 5;

export function hasEnded(process: Process): boolean {
    // One that is `lost` and has no end yet is looked for by an engine that has just begun.
    return process.state !== "starting" && process.state !== "running" && process.ended_at !== null;
}

export class Processes {
    readonly #link: Link;
    readonly #path: string;

    /** @internal */
    constructor(link: Link, path: string) {
        this.#link = link;
        this.#path = path;
    }

    /**
     * Starts it in the background; it runs until it ends, whatever becomes of this program. A `tag` finds it again; one
     * that no other process has (`uniqueTag` says so) lets the start survive a restart of the engine, as does none. Where
     * `signal` is aborted before it is started, it is killed as soon as it is.
     */
    start(spec: ProcessSpec, options: CallOptions & { uniqueTag?: boolean | undefined } = {}): Promise<Process> {
        const { signal, uniqueTag } = options;
        if (signal?.aborted) return Promise.reject(aborted(signal));
        const starting = this.#start(spec, uniqueTag);
        if (!signal) return starting;
        // It is not given up half way, for then nobody would know what runs: what comes late is killed.
        return unlessAborted(starting, signal, (late) => void this.kill(late.id).catch(() => undefined));
    }

    async #start(spec: ProcessSpec, isUnique: boolean | undefined): Promise<Process> {
        const { stdin, ...rest } = spec;
        const isFar = this.#link.isFar() ?? (await this.#link.connect(undefined), this.#link.isFar() === true);
        const tag = tagOf(spec.tag, isUnique);
        const body = { ...rest, ...stdinBody(stdin), tag: tag.text };
        const headers = isFar ? { "Idempotency-Key": newTag() } : undefined;
        let isBegun = false;
        try {
            for (let sent = 1; ; sent++) {
                try {
                    return await this.#link.json("POST", this.#path, { json: body, headers, runs: true });
                } catch (error) {
                    if (!isUnsure(error) && !(sent > 1 && sent < REPEATED_MOST && isRepetition(error))) throw error;
                }
                // See begin.ts.
                isBegun = true;
                const found = await findTagged(this.#link, this.#path, tag, undefined);
                if (found && stdin !== undefined && !hasEnded(found))
                    await this.mendStdin(found.id, stdin, spec.open_stdin === true, undefined);
                if (found) return found;
                isBegun = false;
                await pause(AGAIN_MS, undefined);
            }
        } catch (error) {
            throw isBegun ? asBegun(error) : error;
        }
    }

    /** What runs, and what has ended and is not forgotten; the oldest first. */
    async list(options: CallOptions = {}): Promise<Process[]> {
        return (await this.#link.json<{ processes: Process[] }>("GET", this.#path, options)).processes;
    }

    async get(pid: string, options: CallOptions = {}): Promise<Process> {
        return this.#link.json("GET", this.#one(pid), options);
    }

    /** Waits for its end; with `timeoutMs` at most so long: it is answered as it is then. */
    async wait(pid: string, options: CallOptions & { timeoutMs?: number | undefined } = {}): Promise<Process> {
        const { timeoutMs, signal } = options;
        if (timeoutMs === undefined) return this.#link.json("GET", `${this.#one(pid)}/wait`, { signal });
        return this.#link.json("GET", `${this.#one(pid)}/wait`, { query: { timeout_ms: Math.max(0, Math.round(timeoutMs)) }, signal });
    }

    /**
     * What it prints, as it prints it, up to its end. Where the connection breaks or the engine restarts, it goes on
     * with the next byte.
     */
    async *follow(pid: string, options: FollowOptions = {}): AsyncIterableIterator<Followed> {
        for await (const batch of this.followBatches(pid, options)) yield* batch;
    }

    /** @internal As many at once as came. */
    async *followBatches(pid: string, options: FollowOptions): AsyncIterableIterator<Followed[]> {
        const { signal, stream = "both", until } = options;
        const from = { stdout: options.stdoutFrom ?? 0, stderr: options.stderrFrom ?? 0 };
        for (;;) {
            const answer = await this.#link.stream("GET", `${this.#one(pid)}/follow`, {
                query: { stdout_from: from.stdout, stderr_from: from.stderr, encoding: "base64", stream, until },
                signal,
            });
            try {
                for await (const lines of readLines<FollowLine>(answer, signal)) {
                    const batch: Followed[] = [];
                    for (const line of lines)
                        if (line.type === "stdout" || line.type === "stderr") {
                            from[line.type] = line.to;
                            batch.push({
                                type: "data",
                                stream: line.type,
                                from: line.from,
                                to: line.to,
                                data: Buffer.from(line.data, "base64"),
                            });
                        } else if (line.type === "gap") {
                            from[line.stream] = line.to;
                            batch.push(line);
                        } else if (line.type === "exit") batch.push(line);
                    if (batch.length === 0) continue;
                    yield batch;
                    if (batch[batch.length - 1]?.type === "exit") return;
                }
            } catch (error) {
                if (!(error instanceof Cut)) throw error;
            }
            await pause(AGAIN_MS, signal);
        }
    }

    /** What it printed until now. */
    async output(pid: string, options: OutputOptions = {}): Promise<Output> {
        const { signal, ...query } = options;
        const { body, headers } = await this.#link.call("GET", `${this.#one(pid)}/output`, { query, signal });
        return {
            data: body,
            from: Number(headers["cove-from"]),
            next: Number(headers["cove-next"]),
            dropped: Number(headers["cove-dropped"] ?? 0),
            ended: headers["cove-ended"] === "true",
        };
    }

    /**
     * Writes to its standard input, which it was started with open; resolves when all of it is in its pipe. Where the
     * engine ends within that, nobody knows how much was: `lost`.
     */
    async stdin(
        pid: string,
        data: string | Uint8Array,
        options: CallOptions & { close?: boolean | undefined } = {},
    ): Promise<void> {
        await this.#link.call("POST", `${this.#one(pid)}/stdin`, {
            body: data,
            query: { close: options.close ? true : undefined },
            headers: { "Content-Type": "application/octet-stream" },
            signal: options.signal,
        });
    }

    async closeStdin(pid: string, options: CallOptions = {}): Promise<void> {
        try {
            await this.stdin(pid, "", { ...options, close: true });
        } catch (error) {
            // Closed by an engine that ended before it could say so.
            if (!(error instanceof CoveError && error.code === "lost")) throw error;
            await this.stdin(pid, "", { ...options, close: true }).catch((again: unknown) => {
                if (!(again instanceof CoveError && (again.code === "stdin_closed" || again.code === "process_ended"))) throw again;
            });
        }
    }

    /** Sends a signal (`"INT"`, `"SIGINT"`, 2) to its process group. */
    async signal(pid: string, signal: string | number, options: CallOptions = {}): Promise<void> {
        await this.#link.call("POST", `${this.#one(pid)}/signal`, { json: { signal }, ...options, repeat: true });
    }

    /** Kills it and all that it started, and waits for its end. False: it had ended before, or is not known. */
    async kill(pid: string, options: CallOptions = {}): Promise<boolean> {
        return this.killWith(pid, options);
    }

    /** @internal */
    async killWith(pid: string, options: LinkOptions): Promise<boolean> {
        for (let wasSent = false; ; ) {
            try {
                // DELETE kills what runs, and forgets what has ended: so what has ended is left alone.
                if (hasEnded(await this.#link.json<Process>("GET", this.#one(pid), options))) return wasSent;
                wasSent = true;
                await this.#link.call("DELETE", this.#one(pid), { ...options, repeat: false });
                return true;
            } catch (error) {
                if (error instanceof CoveError && error.code === "process_not_found") return wasSent;
                if (!(error instanceof CoveError && error.code === "lost")) throw error;
            }
        }
    }

    /** Forgets one that has ended, with its output. One that runs is left alone: `process_running`. */
    async forget(pid: string, options: CallOptions = {}): Promise<void> {
        if (!hasEnded(await this.get(pid, options)))
            throw new CoveError("process_running", `process ${pid} runs`, { status: 409, remedy: "kill it, or wait for its end" });
        try {
            await this.#link.call("DELETE", this.#one(pid), options);
        } catch (error) {
            if (!(error instanceof CoveError && error.code === "process_not_found")) throw error;
        }
    }

    /**
     * @internal Input that was sent with the command, where the engine ended before it answered. So much as fits into
     * an empty pipe is written and the input closed in one go: where it is closed, all of it was; where it is open,
     * none. Of more nobody knows how much the command got, and half of its input must not pass for all of it.
     */
    async mendStdin(pid: string, data: string | Uint8Array, staysOpen: boolean, signal: AbortSignal | undefined): Promise<void> {
        const bytes = typeof data === "string" ? Buffer.from(data) : data;
        if (bytes.length === 0) return;
        // An engine that has just begun has not its input yet; when its box has told it of the process, it has its pid, too.
        for (;;) {
            const process = await this.get(pid, { signal });
            if (hasEnded(process)) return;
            if (process.state === "running" && process.pid !== null) break;
            await pause(AGAIN_MS, signal);
        }
        try {
            if (!staysOpen && bytes.length <= PIPE_BYTES) {
                await this.stdin(pid, "", { signal });
                await this.stdin(pid, bytes, { close: true, signal });
                return;
            }
        } catch (error) {
            if (error instanceof CoveError && (error.code === "stdin_closed" || error.code === "process_ended")) return;
            if (!isUnsure(error)) throw error;
        }
        await this.kill(pid, { signal });
        throw new CoveError("lost", `the engine restarted while process ${pid} got its standard input, and it was killed`, {
            remedy: "run it again, if that does no harm",
        });
    }

    #one(pid: string): string {
        return `${this.#path}/${encodeURIComponent(pid)}`;
    }
}

const PIPE_BYTES = 65_536;

/** The fields of a body for input: text as it is, bytes in base64. */
export function stdinBody(stdin: string | Uint8Array | undefined): { stdin?: string; stdin_base64?: string } {
    if (stdin === undefined) return {};
    // JSON can hold neither NUL nor half of a surrogate pair for the server.
    if (typeof stdin === "string" && !/\0|\p{Surrogate}/u.test(stdin)) return { stdin };
    return { stdin_base64: Buffer.from(stdin as string).toString("base64") };
}
