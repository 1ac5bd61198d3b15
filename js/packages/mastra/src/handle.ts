// A process of the sandbox as Mastra has it. Its output comes by byte offset, so nothing is lost or said twice where
// the connection breaks, the engine is restarted, or another program takes the process up again.
import type { Output, Process, Processes, StreamName } from "@cove/client";
import { ProcessHandle, type CommandResult, type SpawnProcessOptions } from "@mastra/core/workspace";
import { StringDecoder } from "node:string_decoder";
import { endOf, KILLED, type Ended } from "./command.js";
import { hasCode, isDead } from "./errors.js";

/** What spawn() retains of each stream where nothing else is said; get() takes up as much. */
export const RETAINED_BYTES = 1024 * 1024;

type HandleOptions = Pick<SpawnProcessOptions, "maxRetainedBytes" | "onStdout" | "onStderr" | "stdinMode" | "timeout">;

/** How long after its start a process is waited for that printed nothing yet. */
const BEGUN_MS = 200;

/** Where its output goes on. */
interface From {
    stdout: number;
    stderr: number;
}

export class CoveProcessHandle extends ProcessHandle {
    readonly pid: string;
    exitCode: number | undefined = undefined;
    #result: Promise<CommandResult>;
    #processes: Processes;
    #hasStdin: boolean;
    #stdin: Promise<unknown> = Promise.resolve();
    #gaps = { stdout: 0, stderr: 0 };
    #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
    #started: number;
    /** Resolves when there is something to be seen of it: output, or its end. */
    #seen!: () => void;
    readonly #isSeen = new Promise<void>((resolve) => (this.#seen = resolve));
    /** What a listener threw first. It is told by wait(), when the process has ended. */
    #thrown: { by: unknown } | undefined;

    /** @internal */
    constructor(processes: Processes, process: Process, options: HandleOptions, taken?: { stdout: Output; stderr: Output }) {
        super(options);
        this.pid = process.id;
        if (process.command !== null) this.command = process.command;
        this.#processes = processes;
        this.#hasStdin = options.stdinMode !== "ignore";
        // The engine's clock is not this program's; a process that was taken up again began when the engine says.
        this.#started = taken && process.started_at !== null ? Date.parse(process.started_at) : Date.now();
        const from = { stdout: 0, stderr: 0 };
        if (taken) {
            from.stdout = this.#takeUp("stdout", taken.stdout);
            from.stderr = this.#takeUp("stderr", taken.stderr);
        }
        this.#result = this.#follow(from, options.timeout ?? 0);
        this.#result.catch(() => {}).finally(this.#seen); // whoever waits hears it
    }

    /** Takes up one that was started before, by whomever, with the newest of what it printed. */
    static async attach(processes: Processes, process: Process): Promise<CoveProcessHandle> {
        const [stdout, stderr] = await Promise.all([
            processes.output(process.id, { stream: "stdout", tail: RETAINED_BYTES }),
            processes.output(process.id, { stream: "stderr", tail: RETAINED_BYTES }),
        ]);
        const handle = new CoveProcessHandle(processes, process, { maxRetainedBytes: RETAINED_BYTES }, { stdout, stderr });
        if (process.ended_at !== null) await handle.#result;
        return handle;
    }

    override get stdoutTruncated(): boolean {
        return this.stdoutDroppedBytes > 0;
    }

    override get stderrTruncated(): boolean {
        return this.stderrDroppedBytes > 0;
    }

    // What was dropped here, and what the engine no longer had when it was asked.
    override get stdoutDroppedBytes(): number {
        return super.stdoutDroppedBytes + this.#gaps.stdout;
    }

    override get stderrDroppedBytes(): number {
        return super.stderrDroppedBytes + this.#gaps.stderr;
    }

    override async wait(): Promise<CommandResult> {
        return this.#result;
    }

    /**
     * A caller that asks for a process just after its start would find that it printed nothing, for its output comes over
     * a connection: so it is given a moment.
     */
    async begun(): Promise<void> {
        const left = Math.min(this.#started + BEGUN_MS - Date.now(), BEGUN_MS); // it may be the engine's clock
        if (left <= 0) return;
        let timer;
        const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, left)));
        await Promise.race([this.#isSeen, late]);
        clearTimeout(timer);
    }

    /** Kills it with all that it started, by SIGKILL. False: it had ended before. */
    async kill(): Promise<boolean> {
        if (this.exitCode !== undefined) return false;
        try {
            const killed = await this.#processes.kill(this.pid);
            // That it can be followed no more is for who waits for it: it is dead all the same.
            await this.#result.catch(() => {});
            return killed;
        } catch (error) {
            if (isDead(error) || hasCode(error, "process_not_found")) return false;
            throw error;
        }
    }

    async sendStdin(data: string): Promise<void> {
        this.#mayWrite();
        await this.#inOrder(() => this.#processes.stdin(this.pid, data));
    }

    override async closeStdin(): Promise<void> {
        this.#mayWrite();
        await this.#inOrder(async () => {
            try {
                await this.#processes.closeStdin(this.pid);
            } catch (error) {
                if (!hasCode(error, "stdin_closed", "process_ended")) throw error;
            }
        });
    }

    #mayWrite(): void {
        if (this.exitCode !== undefined)
            throw new Error(`Process ${this.pid} has already exited with code ${this.exitCode}`);
        if (!this.#hasStdin)
            throw new Error(`Process ${this.pid} does not have stdin available; spawn it with stdinMode "pipe"`);
    }

    /** Two requests may overtake each other, and two writes must not. */
    async #inOrder(write: () => Promise<void>): Promise<void> {
        const written = this.#stdin.then(write);
        this.#stdin = written.catch(() => {});
        return written;
    }

    #emit(stream: StreamName, text: string): void {
        if (text === "") return;
        this.#seen();
        try {
            if (stream === "stdout") this.emitStdout(text);
            else this.emitStderr(text);
        } catch (thrown) {
            // The text was kept before it was told, and the process is followed to its end.
            this.#thrown ??= { by: thrown };
        }
    }

    /** What is there of a stream already; its first bytes may be the rest of a character. Answers where it goes on. */
    #takeUp(stream: StreamName, output: Output): number {
        let start = 0;
        if (output.from > 0) while (start < 3 && (output.data[start] ?? 0) >> 6 === 2) start++;
        this.#gaps[stream] += output.from + start;
        this.#emit(stream, this.#decoders[stream].write(output.data.subarray(start)));
        return output.next;
    }

    async #follow(from: From, timeoutMs: number): Promise<CommandResult> {
        let ended: Ended | undefined;
        try {
            for await (const piece of this.#processes.follow(this.pid, { stdoutFrom: from.stdout, stderrFrom: from.stderr }))
                if (piece.type === "data") this.#emit(piece.stream, this.#decoders[piece.stream].write(piece.data));
                else if (piece.type === "gap") this.#gaps[piece.stream] += piece.to - piece.from;
                else ended = endOf(piece.process, timeoutMs);
        } catch (error) {
            // Its sandbox was deleted, or it was forgotten: it runs no more, and nobody can say how it ended.
            if (!isDead(error) && !hasCode(error, "process_not_found")) throw error;
        }
        ended ??= { exitCode: KILLED, killed: true, timedOut: false, note: "\nProcess killed: its sandbox is gone" };
        this.#emit("stdout", this.#decoders.stdout.end());
        this.#emit("stderr", this.#decoders.stderr.end() + (ended.note ?? ""));
        this.exitCode = ended.exitCode;
        if (this.#thrown) throw this.#thrown.by;
        return {
            success: ended.exitCode === 0,
            exitCode: ended.exitCode,
            stdout: this.stdout,
            stderr: this.stderr,
            executionTimeMs: Date.now() - this.#started,
            killed: ended.killed,
            timedOut: ended.timedOut,
        };
    }
}

/** Of a process that was given up before it was started: it never runs. */
export class NeverRanHandle extends ProcessHandle {
    readonly exitCode = KILLED;

    constructor(readonly pid: string) {
        super();
    }

    override async wait(): Promise<CommandResult> {
        return {
            success: false, exitCode: KILLED, stdout: "", stderr: "", executionTimeMs: 0, killed: true, timedOut: false,
        };
    }

    async kill(): Promise<boolean> {
        return false;
    }

    async sendStdin(): Promise<void> {
        throw new Error(`Process ${this.pid} has already exited with code ${KILLED}`);
    }
}
