// A command as the contract has it (a shell line, arguments that are quoted, one environment), and how it ended.
import type { Process } from "@cove/client";
import type { CommandResult } from "@mastra/core/workspace";

export type Env = Readonly<Record<string, string | undefined>>;

const SAFE = /^[A-Za-z0-9._\-/=:@]+$/;
/** Numbers of Linux, where the sandbox is; those of the host of this program may be others. */
const SIGNALS: Readonly<Record<string, number>> = {
    SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGILL: 4, SIGTRAP: 5, SIGABRT: 6, SIGBUS: 7, SIGFPE: 8, SIGKILL: 9, SIGUSR1: 10,
    SIGSEGV: 11, SIGUSR2: 12, SIGPIPE: 13, SIGALRM: 14, SIGTERM: 15, SIGSTKFLT: 16, SIGCHLD: 17, SIGCONT: 18,
    SIGSTOP: 19, SIGTSTP: 20, SIGTTIN: 21, SIGTTOU: 22, SIGURG: 23, SIGXCPU: 24, SIGXFSZ: 25, SIGVTALRM: 26,
    SIGPROF: 27, SIGWINCH: 28, SIGPOLL: 29, SIGPWR: 30, SIGSYS: 31,
};
export const KILLED = 128 + 9;
export const TIMED_OUT = 124;

/** Only the arguments are quoted: the command itself is the shell's, also where there are some. */
export function commandLine(command: string, args: readonly string[] | undefined): string {
    let line = command;
    for (const arg of args ?? []) line += SAFE.test(arg) ? ` ${arg}` : ` '${arg.replaceAll("'", "'\\''")}'`;
    return line;
}

/** Later ones win; what is undefined in the last one that names it is not there at all. Nothing: undefined. */
export function mergeEnv(...layers: (Env | undefined)[]): Record<string, string> | undefined {
    let merged: Record<string, string | undefined> | undefined;
    for (const layer of layers)
        for (const name in layer) (merged ??= {})[name] = layer[name];
    for (const name in merged) if (merged[name] === undefined) delete merged[name];
    return merged as Record<string, string> | undefined;
}

export interface Ended {
    exitCode: number;
    killed: boolean;
    timedOut: boolean;
    /** What the agent would not know from the exit code alone; it is told behind standard error. */
    note?: string;
}

/** `timeoutMs` is 0 where it is not known: another program started it. */
export function endOf(process: Process, timeoutMs: number): Ended {
    const after = timeoutMs > 0 ? ` after ${timeoutMs}ms` : "";
    if (process.timed_out)
        return { exitCode: TIMED_OUT, killed: true, timedOut: true, note: `\nProcess timed out${after}` };
    if (process.state === "lost")
        return {
            exitCode: KILLED, killed: true, timedOut: false,
            note: `\nProcess killed: its sandbox ended (${process.reason ?? "stopped"})`,
        };
    const killed = process.signal !== null;
    const exitCode = process.exit_code ?? 128 + (SIGNALS[process.signal ?? ""] ?? 0);
    if (process.oom_killed)
        return { exitCode, killed, timedOut: false, note: "\nProcess killed: the sandbox was out of memory" };
    return { exitCode, killed, timedOut: false };
}

/** The result of a command that was given up before it began. */
export function neverRan(command: string): CommandResult {
    return {
        success: false, exitCode: KILLED, stdout: "", stderr: "", executionTimeMs: 0, killed: true, timedOut: false,
        stdoutTruncated: false, stderrTruncated: false, stdoutDroppedBytes: 0, stderrDroppedBytes: 0, command,
    };
}
