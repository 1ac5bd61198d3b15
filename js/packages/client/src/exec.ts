// exec: a command, and its result when it has exited.
//
// Mostly it is one request (POST exec), which the server answers when the command exits, and which takes the command
// with it when this program goes away. Where somebody listens to what it prints, it is started and followed instead.
// How a command survives a restart of the engine, and why it never runs twice: see begin.ts.
import { constants, isUtf8 } from "node:buffer";
import { findTagged, isUnsure, newTag } from "./begin.js";
import { CoveError } from "./error.js";
import { aborted, pause, type Link } from "./link.js";
import { stdinBody, type Processes, type StreamName } from "./processes.js";
import { Retained } from "./retained.js";
import type { CallOptions, ExecResult, ExecSpec, Process } from "./types.js";

export interface ExecOptions extends CallOptions {
    /** What it prints, as it prints it. */
    onStdout?: ((bytes: Buffer) => void) | undefined;
    onStderr?: ((bytes: Buffer) => void) | undefined;
    stdin?: string | Uint8Array | undefined;
    /** How much of each stream the result has, the newest; `Infinity`: all. Without it `output_limit`, or 1 MiB. */
    maxRetainedBytes?: number | undefined;
    /**
     * What `signal` does. `throw`: the command is killed with all that it started, and the call rejects with the code
     * `aborted`. `kill`: it is killed, and the call resolves to its result, with what it printed until then.
     */
    onAbort?: "throw" | "kill" | undefined;
}

const RETAINED_BYTES = 1_048_576;
const TIMEOUT_MS = 300_000;
/** More than this comes as bytes, not as JSON. */
const ANSWER_BYTES = 1_048_576;
const KILL_AGAIN_MS = 5;
const AGAIN_MS = 10;

interface Run {
    link: Link;
    processes: Processes;
    /** The routes exec and processes of the sandbox. */
    execPath: string;
    processesPath: string;
    spec: ExecSpec;
    options: ExecOptions;
    tag: string;
    retained: number;
    sinceMs: number;
}

export async function exec(link: Link, processes: Processes, path: string, spec: ExecSpec, options: ExecOptions): Promise<ExecResult> {
    const { signal, maxRetainedBytes } = options;
    if (maxRetainedBytes !== undefined && !(maxRetainedBytes >= 0))
        throw new CoveError("bad_option", "maxRetainedBytes: it is a number of bytes, from 0, or Infinity");
    if (signal?.aborted) throw aborted(signal);
    const run: Run = {
        link,
        processes,
        execPath: `${path}/exec`,
        processesPath: `${path}/processes`,
        spec,
        options,
        tag: spec.tag ?? newTag(),
        retained: maxRetainedBytes ?? spec.output_limit ?? RETAINED_BYTES,
        sinceMs: Date.now(),
    };
    // A tag of the caller's may be that of other processes, too: then nothing is killed by it, but by the process' id.
    const needsId = spec.tag != null && signal !== undefined;
    return options.onStdout || options.onStderr || needsId ? followed(run) : answered(run);
}

// ---- one request ----

async function answered(run: Run): Promise<ExecResult> {
    const { signal, onAbort, stdin } = run.options;
    const body = {
        ...run.spec,
        ...(stdin === undefined ? undefined : stdinBody(stdin)),
        tag: run.tag,
        output_limit: Math.min(run.retained, ANSWER_BYTES),
    };
    const kills = signal !== undefined && onAbort === "kill";
    const inner = kills ? undefined : signal;
    let isOver = false;
    const kill = (): void => void killTagged(run, () => isOver);
    if (kills) signal.addEventListener("abort", kill, { once: true });
    try {
        for (;;) {
            try {
                const request = { json: body, signal: inner, runs: true };
                return await completed(run, await run.link.json<ExecResult>("POST", run.execPath, request));
            } catch (error) {
                if (!isUnsure(error)) throw error;
            }
            // See begin.ts.
            const process = await findTagged(run.link, run.processesPath, run.tag, run.sinceMs, inner);
            if (process) {
                if (stdin !== undefined && process.ended_at === null) await run.processes.mendStdin(process.id, stdin, false, inner);
                return await result(run, await run.processes.wait(process.id, { signal: inner }));
            }
            if (kills && signal.aborted) throw aborted(signal);
            await pause(AGAIN_MS, inner);
        }
    } finally {
        isOver = true;
        if (kills) signal.removeEventListener("abort", kill);
        if (!kills && signal?.aborted && !run.spec.detach_on_disconnect) void dropTagged(run);
    }
}

/**
 * The connection's end has killed it, mostly; not where the engine had ended just then. Nobody waits for this, and no
 * engine is started for it: where there is none, there is nothing to kill.
 */
async function dropTagged(run: Run): Promise<void> {
    try {
        const process = await findTagged(run.link, run.processesPath, run.tag, run.sinceMs, undefined, false);
        if (process && process.ended_at === null)
            await run.link.call("DELETE", `${run.processesPath}/${process.id}`, { starts: false, repeat: false });
    } catch {
        // As was said.
    }
}

/** Its id is known to nobody before it ends, but it has our tag. */
async function killTagged(run: Run, isOver: () => boolean): Promise<void> {
    while (!isOver()) {
        try {
            const process = await findTagged(run.link, run.processesPath, run.tag, run.sinceMs, undefined);
            if (process) {
                await run.processes.kill(process.id);
                return;
            }
            await pause(KILL_AGAIN_MS, undefined);
        } catch {
            // The call itself says what is wrong.
            return;
        }
    }
}

/** More than an answer has is read from the log. */
async function completed(run: Run, answer: ExecResult): Promise<ExecResult> {
    if ((answer.stdout_dropped_bytes === 0 && answer.stderr_dropped_bytes === 0) || run.retained <= ANSWER_BYTES) return answer;
    return result(run, answer.process);
}

async function result(run: Run, process: Process): Promise<ExecResult> {
    const [stdout, stderr] = await Promise.all([read(run, process, "stdout"), read(run, process, "stderr")]);
    return make(process, stdout, stderr);
}

async function read(run: Run, process: Process, stream: StreamName): Promise<{ data: Buffer; from: number }> {
    const { bytes, from } = process[stream];
    const offset = Math.max(from, bytes - Math.min(run.retained, constants.MAX_STRING_LENGTH));
    if (offset >= bytes) return { data: Buffer.alloc(0), from: bytes };
    const output = await run.processes.output(process.id, { stream, offset, limit: bytes - offset, signal: run.options.signal });
    return { data: output.data, from: output.from };
}

// ---- started, and followed ----

async function followed(run: Run): Promise<ExecResult> {
    const { signal, onAbort, onStdout, onStderr, stdin } = run.options;
    const { output_limit: _, detach_on_disconnect: __, ...spec } = run.spec;
    const given = onAbort === "kill" ? undefined : signal;
    const process = await run.processes.start(
        { ...spec, timeout_ms: spec.timeout_ms ?? TIMEOUT_MS, stdin, tag: run.tag },
        { signal: given },
    );
    const kept = { stdout: new Retained(run.retained), stderr: new Retained(run.retained) };
    const kill = (): void => void run.processes.kill(process.id).catch(() => undefined);
    if (signal?.aborted) kill();
    else signal?.addEventListener("abort", kill, { once: true });
    try {
        for await (const batch of run.processes.followBatches(process.id, { signal: given }))
            for (const each of batch)
                if (each.type === "data") {
                    kept[each.stream].add(each.data, each.to);
                    (each.stream === "stdout" ? onStdout : onStderr)?.(each.data);
                } else if (each.type === "gap") kept[each.stream].gap(each.to);
                else return make(each.process, kept.stdout.take(), kept.stderr.take());
        throw new CoveError("bad_answer", `the server did not tell how process ${process.id} ended`);
    } finally {
        signal?.removeEventListener("abort", kill);
    }
}

// ---- the result ----

/** A beginning that was cut off may be within a character. */
function skip(data: Buffer, from: number): number {
    let inside = 0;
    if (from > 0) while (inside < 3 && inside < data.length && ((data[inside] as number) & 0xc0) === 0x80) inside++;
    return inside;
}

function make(process: Process, stdout: { data: Buffer; from: number }, stderr: { data: Buffer; from: number }): ExecResult {
    const out = skip(stdout.data, stdout.from);
    const err = skip(stderr.data, stderr.from);
    const outData = stdout.data.subarray(out);
    const errData = stderr.data.subarray(err);
    return {
        process,
        stdout: outData.toString("utf8"),
        ...(isUtf8(outData) ? undefined : { stdout_base64: outData.toString("base64") }),
        stderr: errData.toString("utf8"),
        ...(isUtf8(errData) ? undefined : { stderr_base64: errData.toString("base64") }),
        stdout_dropped_bytes: stdout.from + out,
        stderr_dropped_bytes: stderr.from + err,
    };
}
