// The processes of a CoveSandbox. The engine knows them, not this object: so they are listed and taken up again by
// whoever asks for the sandbox, also after this program was started anew.
import type { Process, Sandbox } from "@cove/client";
import {
    SandboxProcessManager, type ProcessHandle, type ProcessInfo, type SpawnProcessOptions,
} from "@mastra/core/workspace";
import { randomBytes } from "node:crypto";
import { endOf } from "./command.js";
import { hasCode, heard, isAbort, startError } from "./errors.js";
import { CoveProcessHandle, NeverRanHandle } from "./handle.js";
import { durationOf } from "./options.js";
import type { CoveSandbox } from "./sandbox.js";

/**
 * What executeCommand() runs is nobody's background process, and is told apart by its tag. It is of this command alone,
 * which the client is told: by it the client finds out what became of the command when an engine was restarted under it.
 */
const EXECUTE = "mastra:execute:";
const program = randomBytes(9).toString("base64url");
let executed = 0;

export function executeTag(): string {
    return `${EXECUTE}${program}:${++executed}`;
}

export class CoveProcessManager extends SandboxProcessManager<CoveSandbox> {
    /** What had ended when this object's stop() was done: it is asked for by get() alone. */
    #beforeStop = new Set<string>();
    #attaching = new Map<string, Promise<ProcessHandle | undefined>>();
    #neverRan = 0;

    /**
     * It outlives this program, unless `abortSignal` (which the base class looks after) or `timeout` ends it. One whose
     * signal has fired already is not started: what it would do before it is killed cannot be undone.
     */
    override async spawn(command: string, options: SpawnProcessOptions = {}): Promise<ProcessHandle> {
        const timeout = durationOf("timeout", options.timeout, 0);
        if (options.abortSignal?.aborted) return new NeverRanHandle(`aborted-${++this.#neverRan}`);
        let processes;
        let started;
        try {
            const spec = await heard(this.sandbox.commandSpec(command, options.env, options.cwd), options.abortSignal);
            [processes, started] = await this.sandbox.withNative(async (native) => [
                native.processes,
                await native.processes.start({ ...spec, timeout_ms: timeout, open_stdin: options.stdinMode !== "ignore" }),
            ] as const, options.abortSignal);
        } catch (error) {
            // The start itself hears no signal: who waits for what it needs does.
            if (isAbort(error) && options.abortSignal?.aborted) return new NeverRanHandle(`aborted-${++this.#neverRan}`);
            throw startError(error);
        }
        return this.#track(new CoveProcessHandle(processes, started, { ...options, timeout }));
    }

    override async list(): Promise<ProcessInfo[]> {
        const processes = await this.sandbox.withNative((native) => native.processes.list());
        return processes
            .filter(({ id, tag }) => !tag?.startsWith(EXECUTE) && !this._dismissed.has(id) && !this.#beforeStop.has(id))
            .map((process) => this.#info(process));
    }

    override async get(pid: string): Promise<ProcessHandle | undefined> {
        const tracked = this._tracked.get(pid);
        if (tracked instanceof CoveProcessHandle) await tracked.begun();
        if (tracked) return tracked;
        let attaching = this.#attaching.get(pid);
        if (!attaching) {
            attaching = this.#attach(pid).finally(() => this.#attaching.delete(pid));
            this.#attaching.set(pid, attaching);
        }
        return attaching;
    }

    /** The sandbox was made anew, and counts its processes from 1 again: what was known is of none of these. */
    forgetAll(): void {
        this._tracked.clear();
        this._dismissed.clear();
        this.#beforeStop.clear();
    }

    /** The sandbox was stopped: list() begins anew, as with the other providers. */
    async forgetEnded(stopped: Sandbox): Promise<void> {
        for (const { id } of await stopped.processes.list()) this.#beforeStop.add(id);
    }

    async #attach(pid: string): Promise<ProcessHandle | undefined> {
        try {
            return this.#track(
                await this.sandbox.withNative(async (native) =>
                    CoveProcessHandle.attach(native.processes, await native.processes.get(pid)),
                ),
            );
        } catch (error) {
            if (hasCode(error, "process_not_found", "bad_request")) return undefined;
            throw error;
        }
    }

    #track(handle: CoveProcessHandle): CoveProcessHandle {
        this._tracked.set(handle.pid, handle);
        // One that can no longer be followed is taken up afresh by the next get().
        handle.wait().catch(() => {
            if (this._tracked.get(handle.pid) === handle) this._tracked.delete(handle.pid);
        });
        return handle;
    }

    #info(process: Process): ProcessInfo {
        const command = this._tracked.get(process.id)?.command ?? process.command;
        // One that is `lost` and has no end is still looked for, by an engine that has just begun.
        const running = process.ended_at === null;
        return {
            pid: process.id,
            running,
            ...(command === null ? {} : { command }),
            ...(running ? {} : { exitCode: endOf(process, 0).exitCode }),
        };
    }
}
