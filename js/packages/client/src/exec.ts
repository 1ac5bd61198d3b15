// exec: a command, and its result when it has exited.
//
// Mostly it is one request (POST exec), which the server answers when the command exits, and which takes the command
// with it when this program goes away. Where somebody listens to what it prints, it is started and followed instead.
// Over TCP a connection that breaks does not say that the program is gone, so there the command outlives it
// (`detach_on_disconnect`, unless the caller said something else, or it has no timeout that would end it), as one that is
// followed does; an abort kills it by tag.
// How a command survives a restart of the engine, and why it never runs twice: see begin.ts.
import { isUtf8 } from "node:buffer";
import { findTagged, isGone, isRepetition, isUnsure, newTag, tagOf, type Tag } from "./begin.js";
import { asBegun, CoveError } from "./error.js";
import { aborted, pause, unlessAborted, type Link, type LinkOptions } from "./link.js";
import { stdinBody, type Processes, type StreamName } from "./processes.js";
import { Retained } from "./retained.js";
import type { CallOptions, ExecResult, ExecSpec, Process } from "./types.js";

export interface ExecOptions extends CallOptions {
    /** What it prints, as it prints it. */
    onStdout?: ((bytes: Buffer) => void) | undefined;
    onStderr?: ((bytes: Buffer) => void) | undefined;
    stdin?: string | Uint8Array | undefined;
    /** How much of each stream the result has, the newest; `Infinity`: all, up to 256 MiB. Without it `output_limit`, or 1 MiB. */
    maxRetainedBytes?: number | undefined;
    /**
     * What `signal` does. `throw`: the command is killed with all that it started, and the call rejects with the code
     * `aborted`. `kill`: it is killed, and the call resolves to its result, with what it printed until then.
     */
    onAbort?: "throw" | "kill" | undefined;
    /** The command's `tag` is of no other process of the sandbox, so that it is found by it when a connection breaks. */
    uniqueTag?: boolean | undefined;
}

const RETAINED_BYTES = 1_048_576;
const TIMEOUT_MS = 300_000;
/** More than this comes as bytes, not as JSON. */
const ANSWER_BYTES = 1_048_576;
/** So much fits into a string, whatever it is, and into the memory of most. */
const RETAINED_MOST = 256 * 1_048_576;
const KILL_AGAIN_MS = 5;
const KILL_AGAIN_MOST_MS = 400;
const KILL_TRIED_MS = 60_000;
const REPEATED_MOST = 5;
const AGAIN_MS = 10;

interface Run {
    link: Link;
    processes: Processes;
    /** The routes exec and processes of the sandbox. */
    execPath: string;
    processesPath: string;
    spec: ExecSpec;
    options: ExecOptions;
    tag: Tag;
    retained: number;
    /** Over TCP: a connection may break while the engine lives. */
    isFar: boolean;
    /** The engine does not kill it when its connection breaks, and an abort is a kill by its tag. */
    isHeld: boolean;
    /** Of the requests; none where an abort is a kill, after which the result is still asked for. */
    signal: AbortSignal | undefined;
}

export async function exec(link: Link, processes: Processes, path: string, spec: ExecSpec, options: ExecOptions): Promise<ExecResult> {
    const { signal, onAbort, maxRetainedBytes, uniqueTag } = options;
    if (maxRetainedBytes !== undefined && !(maxRetainedBytes >= 0))
        throw new CoveError("bad_option", "maxRetainedBytes: it is a number of bytes, from 0, or Infinity");
    if (signal?.aborted) throw aborted(signal);
    const isFar = link.isFar() ?? (await link.connect(signal), link.isFar() === true);
    // What nothing would ever end must not be left behind.
    const isHeld = isFar && spec.detach_on_disconnect == null && spec.timeout_ms !== 0;
    const run: Run = {
        link,
        processes,
        execPath: `${path}/exec`,
        processesPath: `${path}/processes`,
        spec,
        options,
        tag: tagOf(spec.tag, uniqueTag),
        retained: Math.min(maxRetainedBytes ?? spec.output_limit ?? RETAINED_BYTES, RETAINED_MOST),
        isFar,
        isHeld,
        signal: onAbort === "kill" ? undefined : signal,
    };
    // A tag of the caller's may be that of other processes, too: then nothing is killed by it, but by the process' id.
    const needsId = !run.tag.isUnique && signal !== undefined;
    if (options.onStdout || options.onStderr || needsId) return followed(run);
    if (!isHeld || run.signal === undefined) return answered(run);
    // Whoever gave it up does not wait until it is killed.
    return unlessAborted(answered({ ...run, signal: undefined }), run.signal, () => undefined);
}

// ---- one request ----

async function answered(run: Run): Promise<ExecResult> {
    const { stdin } = run.options;
    const given = run.options.signal;
    const { signal } = run;
    const body = {
        ...run.spec,
        ...(stdin === undefined ? undefined : stdinBody(stdin)),
        ...(run.isHeld ? { detach_on_disconnect: true } : undefined),
        tag: run.tag.text,
        output_limit: Math.min(run.retained, ANSWER_BYTES),
    };
    const headers = run.isFar ? { "Idempotency-Key": newTag() } : undefined;
    const kills = given !== undefined && signal === undefined;
    let isOver = false;
    const kill = (): void => void killTagged(run, () => isOver);
    if (kills) given.addEventListener("abort", kill, { once: true });
    if (kills && given.aborted) kill();
    // Whether it runs, or may run.
    let isBegun = false;
    try {
        for (let sent = 1; ; sent++) {
            let isCut = false;
            try {
                const answer = await run.link.json<ExecResult>("POST", run.execPath, { json: body, headers, signal, runs: true });
                isBegun = true;
                return await completed(run, answer);
            } catch (error) {
                if (!isUnsure(error) && !(sent > 1 && sent < REPEATED_MOST && isRepetition(error))) throw error;
                isCut = (error as CoveError).code === "lost";
            }
            // See begin.ts.
            isBegun = true;
            const found = await findTagged(run.link, run.processesPath, run.tag, signal);
            if (found) {
                if (stdin !== undefined && found.ended_at === null) await run.processes.mendStdin(found.id, stdin, false, signal);
                const process = await run.processes.wait(found.id, { signal });
                if (isCut && run.isFar && !run.isHeld && !given?.aborted) refuseOurEnd(run, process);
                return await result(run, process);
            }
            isBegun = false;
            if (kills && given.aborted) throw aborted(given);
            await pause(AGAIN_MS, signal);
        }
    } catch (error) {
        throw isBegun ? asBegun(error) : error;
    } finally {
        isOver = true;
        if (kills) given.removeEventListener("abort", kill);
        if (signal?.aborted && !run.spec.detach_on_disconnect) void dropTagged(run);
    }
}

/** Where a command ends with its connection, a kill may be the connection's, and is no result of the command. */
function refuseOurEnd(run: Run, process: Process): void {
    if (process.signal !== "SIGKILL" || process.timed_out || process.oom_killed || run.spec.detach_on_disconnect) return;
    throw new CoveError("lost", `the connection broke, and the server may have killed process ${process.id} for it`, {
        remedy: "give it a timeout_ms and no detach_on_disconnect of false, so that it outlives its connection",
    });
}

/**
 * The connection's end has killed it, mostly; not where the engine had ended just then. Nobody waits for this, and no
 * engine is started for it: where there is none, there is nothing to kill.
 */
async function dropTagged(run: Run): Promise<void> {
    try {
        const process = await findTagged(run.link, run.processesPath, run.tag, undefined, { starts: false });
        if (process && process.ended_at === null)
            await run.link.call("DELETE", `${run.processesPath}/${process.id}`, { starts: false, repeat: false });
    } catch {
        // As was said.
    }
}

/** Its id is known to nobody before it ends, but it has our tag. */
async function killTagged(run: Run, isOver: () => boolean): Promise<void> {
    await killUntil(isOver, async (how) => {
        const process = await findTagged(run.link, run.processesPath, run.tag, undefined, how);
        if (process) await run.processes.killWith(process.id, how);
        return process !== undefined;
    });
}

/**
 * Until it is done or has nothing to do any more: a request that fails is no reason to let the command run. But from the
 * second try on it is none to start an engine, with which nothing would run, or to keep a program that has nothing else to do.
 */
async function killUntil(isOver: () => boolean, kill: (how: Pick<LinkOptions, "starts" | "holds">) => Promise<boolean>): Promise<void> {
    const end = performance.now() + KILL_TRIED_MS;
    let how: Pick<LinkOptions, "starts" | "holds"> = {};
    for (let wait = KILL_AGAIN_MS; !isOver() && performance.now() < end; wait = Math.min(wait * 2, KILL_AGAIN_MOST_MS)) {
        try {
            if (await kill(how)) return;
        } catch (error) {
            // The call itself says what is wrong.
            if (isGone(error)) return;
        }
        how = { starts: false, holds: false };
        await pause(wait, undefined, false);
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
    const offset = Math.max(from, bytes - run.retained);
    if (offset >= bytes) return { data: Buffer.alloc(0), from: bytes };
    const output = await run.processes.output(process.id, { stream, offset, limit: bytes - offset, signal: run.signal });
    return { data: output.data, from: output.from };
}

// ---- started, and followed ----

async function followed(run: Run): Promise<ExecResult> {
    const { onStdout, onStderr, stdin, uniqueTag } = run.options;
    const given = run.options.signal;
    const { signal } = run;
    const { output_limit: _, detach_on_disconnect: __, ...spec } = run.spec;
    const process = await run.processes.start(
        { ...spec, timeout_ms: spec.timeout_ms ?? TIMEOUT_MS, stdin, tag: run.tag.text },
        { signal, uniqueTag: uniqueTag === true || run.spec.tag == null },
    );
    const kept = { stdout: new Retained(run.retained), stderr: new Retained(run.retained) };
    let isOver = false;
    const end = (): Promise<void> => killUntil(() => isOver, async (how) => (await run.processes.killWith(process.id, how), true));
    const kill = (): void => void end();
    if (given?.aborted) kill();
    else given?.addEventListener("abort", kill, { once: true });
    let isHeard = true;
    try {
        for await (const batch of run.processes.followBatches(process.id, { signal }))
            for (const each of batch)
                if (each.type === "data") {
                    kept[each.stream].add(each.data, each.to);
                    isHeard = false;
                    (each.stream === "stdout" ? onStdout : onStderr)?.(each.data);
                    isHeard = true;
                } else if (each.type === "gap") kept[each.stream].gap(each.to);
                else {
                    isOver = true;
                    return make(each.process, kept.stdout.take(), kept.stderr.take());
                }
        throw new CoveError("bad_answer", `the server did not tell how process ${process.id} ended`);
    } catch (error) {
        // Whoever listens has thrown: nobody is there for what else it prints, or for its end.
        if (!isHeard) await run.processes.kill(process.id).catch(() => undefined);
        // An abort is over when the kill has come through.
        else if (!(signal?.aborted ?? false)) isOver = true;
        throw asBegun(error);
    } finally {
        given?.removeEventListener("abort", kill);
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
    const made: ExecResult = {
        process,
        stdout: stdout.data.toString("utf8", out),
        stderr: stderr.data.toString("utf8", err),
        stdout_dropped_bytes: stdout.from + out,
        stderr_dropped_bytes: stderr.from + err,
    };
    addBase64(made, "stdout_base64", stdout.data.subarray(out));
    addBase64(made, "stderr_base64", stderr.data.subarray(err));
    return made;
}

/** Of what is no UTF-8, and made when somebody asks for it: it is as much again, and a third more. */
function addBase64(result: ExecResult, name: "stdout_base64" | "stderr_base64", data: Buffer): void {
    if (isUtf8(data)) return;
    let text: string | undefined;
    Object.defineProperty(result, name, { enumerable: true, configurable: true, get: () => (text ??= data.toString("base64")) });
}
