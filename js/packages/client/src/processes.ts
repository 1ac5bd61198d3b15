// The processes of a sandbox: started, listed, followed by byte offset, written to, signalled, killed.
import type { Cove } from "./cove.js";
import type { CallOptions, Process, ProcessSpec } from "./types.js";

export type StreamName = "stdout" | "stderr";

/** What a process printed (`data`), what of it is gone (`gap`), and its end. */
export type Followed =
    | { type: "data"; stream: StreamName; from: number; to: number; data: Buffer }
    | { type: "gap"; stream: StreamName; from: number; to: number }
    | { type: "exit"; process: Process };

export interface FollowOptions extends CallOptions {
    /** The first byte of each stream that is wanted; 0 without it. */
    stdoutFrom?: number;
    stderrFrom?: number;
    stream?: StreamName | "both";
    /** `close`: until nobody holds its pipes any more, which what it left behind may do for long. */
    until?: "exit" | "close";
}

export interface OutputOptions extends CallOptions {
    stream?: StreamName;
    offset?: number;
    limit?: number;
    /** The newest so many bytes; not together with `offset`. */
    tail?: number;
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

export class Processes {
    /** @internal */
    constructor(
        private readonly cove: Cove,
        private readonly path: string,
    ) {}

    /** Starts it in the background; it runs until it ends, whatever becomes of this program. */
    async start(_spec: ProcessSpec, _options: CallOptions = {}): Promise<Process> {
        throw new Error("not there yet");
    }

    /** What runs, and what has ended and is not forgotten; the oldest first. */
    async list(options: CallOptions = {}): Promise<Process[]> {
        return (await this.cove.request<{ processes: Process[] }>("GET", this.path, options)).processes;
    }

    async get(pid: string, options: CallOptions = {}): Promise<Process> {
        return this.cove.request("GET", this.one(pid), options);
    }

    /** Waits for its end; with `timeoutMs` at most so long: it is answered as it is then. */
    async wait(_pid: string, _options: CallOptions & { timeoutMs?: number } = {}): Promise<Process> {
        throw new Error("not there yet");
    }

    /** What it prints, as it prints it, up to its end. Where the connection breaks, it goes on by offset. */
    follow(_pid: string, _options: FollowOptions = {}): AsyncIterableIterator<Followed> {
        throw new Error("not there yet");
    }

    /** What it printed until now. */
    async output(_pid: string, _options: OutputOptions = {}): Promise<Output> {
        throw new Error("not there yet");
    }

    /** Writes to its standard input, which it was started with open; answers when all of it is in its pipe. */
    async stdin(_pid: string, _data: string | Uint8Array, _options: CallOptions & { close?: boolean } = {}): Promise<void> {
        throw new Error("not there yet");
    }

    async closeStdin(pid: string, options: CallOptions = {}): Promise<void> {
        await this.stdin(pid, "", { ...options, close: true });
    }

    /** Sends a signal (`"INT"`, `"SIGINT"`, 2) to its process group. */
    async signal(_pid: string, _signal: string | number, _options: CallOptions = {}): Promise<void> {
        throw new Error("not there yet");
    }

    /** Kills it and all that it started. False: it had ended before, or is not known. */
    async kill(_pid: string, _options: CallOptions = {}): Promise<boolean> {
        throw new Error("not there yet");
    }

    /** Forgets one that has ended, with its output. */
    async forget(_pid: string, _options: CallOptions = {}): Promise<void> {
        throw new Error("not there yet");
    }

    private one(pid: string): string {
        return `${this.path}/${encodeURIComponent(pid)}`;
    }
}
