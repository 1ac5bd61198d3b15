// What the engine's errors mean to a Mastra sandbox. Only codes are looked at, never texts.
import { CoveError } from "@cove/client";
import { SandboxAbortError, SandboxExecutionError } from "@mastra/core/workspace";

/** The sandbox was deleted: there is nothing to start, another one has to be made. */
const GONE = new Set(["sandbox_gone", "sandbox_not_found"]);
/** Its box has ended, and what is on its disk is still there. */
const STOPPED = new Set(["sandbox_stopped"]);
/** The command never ran, and for a reason that lies in what was asked for. */
const NOT_STARTED = new Map([
    ["bad_cwd", 126],
    ["user_not_found", 126],
    ["not_executable", 126],
    ["command_not_found", 127],
    ["start_failed", 126],
    ["too_many_processes", 126],
]);

export function hasCode(error: unknown, ...codes: string[]): error is CoveError {
    return error instanceof CoveError && codes.includes(error.code);
}

export function isGone(error: unknown): error is CoveError {
    return error instanceof CoveError && GONE.has(error.code);
}

/** Whether the sandbox is no more, or no longer runs, so that what was asked for was not even begun. */
export function isDead(error: unknown): error is CoveError {
    return error instanceof CoveError && (GONE.has(error.code) || STOPPED.has(error.code));
}

/** Whether the command was begun before this: then it must not be asked for again. */
export function hadBegun(error: unknown): boolean {
    return (error as { begun?: boolean } | undefined)?.begun === true;
}

/** Given up, by the client or by what waited for it. */
export function isAbort(error: unknown): boolean {
    return hasCode(error, "aborted") || error instanceof SandboxAbortError;
}

/** What is waited for no longer when the signal fires: then this rejects with the code `aborted`. */
export function heard<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    if (!signal) return work;
    return new Promise<T>((resolve, reject) => {
        const abort = (): void => reject(new CoveError("aborted", "the call was given up before it began"));
        const done = (): void => signal.removeEventListener("abort", abort);
        work.then(resolve, reject).then(done);
        if (signal.aborted) abort();
        else signal.addEventListener("abort", abort, { once: true });
    });
}

/** The error of a command that could not be started, as the contract has it; any other as it is. */
export function startError(error: unknown): unknown {
    const status = error instanceof CoveError ? NOT_STARTED.get(error.code) : undefined;
    if (status === undefined) return error;
    const { message } = error as CoveError;
    return Object.assign(new SandboxExecutionError(message, status, "", ""), { cause: error });
}

/** What was given up because a signal said so is an abort; any other error stays what it is. */
export function abortError(error: unknown, operation: string, signal: AbortSignal | undefined): unknown {
    if (hasCode(error, "aborted") && signal?.aborted) return new SandboxAbortError(operation, signal.reason);
    return error;
}
