// One interpreter in a box, on the host's side: started, asked one thing after the other, followed, and killed when its time is
// up. What it prints comes as lines; those with the mark are its answers.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { CoveError, type Sandbox } from "@cove/client";
import { KernelRunError } from "./errors.js";
import { frameOf, type Frame } from "./remote-frame.js";
import { Lines, TEXT_MAX } from "./remote-lines.js";
import { NODE_DRIVER } from "./remote-node.js";
import { PYTHON_DRIVER } from "./remote-python.js";

export type GuestLanguage = "javascript" | "python";

export interface GuestRequest {
    code: string;
    env: Readonly<Record<string, string>>;
    hosts: readonly string[];
    reads: readonly string[];
    writes: readonly string[];
}

export interface GuestAnswer {
    output: unknown;
    logs: string[];
    isFinalAnswer: boolean;
}

interface Waiting {
    id: number;
    resolve(frame: Frame): void;
    reject(error: unknown): void;
}

const LOG_BYTES = 2 * TEXT_MAX; // of output that the engine keeps: it is read as it comes, and an answer is the newest of it
const START_MS = 60000; // an interpreter's, on a machine that has much to do
const INPUT_MS = 5000; // until an engine that came back knows of an input
const AGAIN_MS = 20;
const LOGS_MAX = 65536; // entries of a run, as a kernel's; of their text TEXT_MAX
const PROGRAMS: Record<GuestLanguage, string[]> = {
    javascript: ["node", "--no-warnings", "-e", NODE_DRIVER],
    python: ["python3", "-c", PYTHON_DRIVER],
};
const UNHEARD = ["sandbox_not_found", "sandbox_gone", "sandbox_stopped", "process_not_found", "process_ended"];

/** The interpreter was gone before it was asked anything: the code did not run. */
export class NotAsked extends Error {
    readonly guest: Guest;

    constructor(guest: Guest, cause: unknown) {
        super(cause instanceof Error ? cause.message : String(cause), { cause });
        this.guest = guest;
    }
}

export class Guest {
    readonly #sandbox: Sandbox;
    readonly #language: GuestLanguage;
    readonly #mark = `cove-${randomBytes(12).toString("hex")} `;
    readonly #abort = new AbortController();
    #pid = "";
    #waiting: Waiting | undefined;
    #logs: string[] = [];
    #logged = 0; // characters
    #isFull = false;
    #dropped = 0;
    #last = 0;
    #ended: KernelRunError | undefined;
    #killed: Promise<unknown> | undefined;
    #isReady = false;
    readonly #ready: Promise<void>;
    #begin!: () => void;
    #fail!: (error: KernelRunError) => void;

    private constructor(sandbox: Sandbox, language: GuestLanguage) {
        this.#sandbox = sandbox;
        this.#language = language;
        this.#ready = new Promise((resolve, reject) => {
            this.#begin = resolve;
            this.#fail = reject;
        });
        this.#ready.catch(() => {}); // it is told to who asks
    }

    static async start(sandbox: Sandbox, language: GuestLanguage): Promise<Guest> {
        const guest = new Guest(sandbox, language), argv = PROGRAMS[language];
        try {
            guest.#pid = (await sandbox.processes.start({ argv, open_stdin: true, log_bytes: LOG_BYTES, tag: "wasmagent" })).id;
        } catch (error) {
            if (!(error instanceof CoveError) || error.code !== "command_not_found") throw error;
            throw new KernelRunError(`the box has no ${argv[0]}, which runs ${language}: give a template (a root of the server) that has it`, { cause: error });
        }
        void guest.#follow();
        // By its input, for what it was started with the code can read.
        guest.#say(`\n${JSON.stringify({ mark: guest.#mark })}\n`).catch((error: unknown) => {
            guest.#over(new KernelRunError(error instanceof Error ? error.message : String(error), { cause: error }));
            void guest.end();
        });
        return guest;
    }

    get hasEnded(): boolean { return this.#ended !== undefined; }

    /**
     * What the code came to; rejects when it fails, and when the time is up, which ends the interpreter with its state. With NotAsked
     * where there was nobody to ask.
     */
    async ask(request: GuestRequest, timeoutMs: number): Promise<GuestAnswer> {
        await this.ready();
        const id = ++this.#last;
        this.#logs = [];
        this.#logged = 0;
        this.#isFull = false;
        this.#dropped = 0;
        const answer = new Promise<Frame>((resolve, reject) => { this.#waiting = { id, resolve, reject }; });
        answer.catch(() => {}); // it is waited for below, where nothing went wrong before
        let isLate = false;
        const timer = setTimeout(() => {
            isLate = true;
            void this.end();
        }, timeoutMs);
        try {
            await this.#say(`\n${JSON.stringify({ ...request, id })}\n`);
            return this.#read(await answer);
        } catch (error) {
            if (isLate) {
                throw new KernelRunError(`timed out: the run took more than ${timeoutMs} ms; allow more with timeoutMs and cpuMs`, { logs: this.#texts(), timedOut: true });
            }
            throw error;
        } finally {
            clearTimeout(timer);
            this.#waiting = undefined;
        }
    }

    // Where nobody knows whether it was heard, because the engine went away, it is said again: the interpreter takes each once. An
    // engine that has just come back calls an input closed until the box has told it of it.
    async #say(line: string): Promise<void> {
        let isHeard = false; // perhaps
        for (const patience = Date.now() + INPUT_MS; ;) {
            try {
                return await this.#sandbox.processes.stdin(this.#pid, line, { signal: this.#abort.signal });
            } catch (error) {
                const code = error instanceof CoveError ? error.code : "";
                if (!isHeard && (UNHEARD.includes(code) || (code === "stdin_closed" && this.#ended !== undefined))) {
                    throw new NotAsked(this, error);
                }
                if (code !== "lost" && (code !== "stdin_closed" || Date.now() > patience)) throw error;
                isHeard ||= code === "lost";
                await sleep(AGAIN_MS);
            }
        }
    }

    /** It has begun, and hears: the time of a run does not begin before that. */
    async ready(): Promise<void> {
        if (this.#ended !== undefined) throw this.#ended;
        if (this.#isReady) return;
        const timer = setTimeout(() => {
            this.#over(new KernelRunError(`the box's ${this.#language} did not start within ${START_MS} ms`));
            void this.end();
        }, START_MS);
        await this.#ready.finally(() => clearTimeout(timer));
    }

    async end(): Promise<void> {
        this.leave();
        this.#killed ??= this.#sandbox.processes.kill(this.#pid).catch(() => false); // with the box, where that is gone
        await this.#killed;
    }

    /** It is not spoken to any more, and its box ends it. */
    leave(): void {
        this.#over(new KernelRunError("the interpreter was ended"));
        this.#abort.abort();
    }

    #read(frame: Frame): GuestAnswer {
        const logs = this.#texts();
        if (frame.error !== undefined) {
            const { name, message } = frame.error;
            throw new KernelRunError(name === "CapabilityDenied" ? `${name}: ${message}` : message, { error: frame.error, logs });
        }
        if (frame.serialization !== undefined) throw new KernelRunError(`KernelSerializationError: ${frame.serialization}`, { logs });
        const output: unknown = frame.number !== undefined ? Number(frame.number) : frame.json === undefined ? undefined : JSON.parse(frame.json);
        return { output, logs, isFinalAnswer: frame.isFinal === true };
    }

    #texts(): string[] {
        return this.#dropped === 0 ? this.#logs : [...this.#logs, `[${this.#dropped} more entries did not fit into the log]`];
    }

    #log(text: string): void {
        this.#isFull ||= this.#logs.length >= LOGS_MAX || this.#logged + text.length > TEXT_MAX;
        if (this.#isFull) {
            this.#dropped++;
            return;
        }
        this.#logs.push(text);
        this.#logged += text.length;
    }

    // An interpreter that nobody follows any more is of no use, and may have much to do.
    async #follow(): Promise<void> {
        const streams = { stdout: new Lines(), stderr: new Lines() };
        try {
            for await (const part of this.#sandbox.processes.follow(this.#pid, { signal: this.#abort.signal })) {
                if (part.type === "data") for (const line of streams[part.stream].take(part.data)) this.#line(line, part.stream);
                if (part.type === "gap") {
                    streams[part.stream].gap();
                    this.#dropped++;
                }
                if (part.type !== "exit") continue;
                const { exit_code: code, signal, oom_killed: isMemory } = part.process;
                const how = isMemory ? "it used up the box's memory" : code !== null ? `with the exit code ${code}` : `by ${signal ?? "its box's end"}`;
                this.#over(new KernelRunError(`the code's process ended: ${how}`, { logs: this.#texts() }));
                return;
            }
            this.#over(new KernelRunError("the code's process cannot be followed any more"));
        } catch (error) {
            this.#over(new KernelRunError(error instanceof Error ? error.message : String(error), { cause: error }));
        }
        if (!this.#abort.signal.aborted) await this.end();
    }

    #line(line: string | undefined, stream: "stdout" | "stderr"): void {
        const frame = stream === "stdout" && line?.startsWith(this.#mark) ? frameOf(line.slice(this.#mark.length)) : undefined;
        if (frame !== undefined) this.#frame(frame);
        else if (line === undefined) this.#dropped++;
        else if (line !== "" && !line.startsWith(this.#mark)) this.#log(stream === "stderr" && this.#language === "python" ? `[stderr] ${line}` : line);
    }

    #frame(frame: Frame): void {
        if (frame.ready === true) {
            this.#isReady = true;
            this.#begin();
        } else if (frame.log !== undefined) this.#log(frame.log);
        else if (frame.id !== undefined && frame.id === this.#waiting?.id) this.#waiting.resolve(frame);
    }

    #over(error: KernelRunError): void {
        this.#ended ??= error;
        this.#fail(this.#ended);
        this.#waiting?.reject(this.#ended);
    }
}
