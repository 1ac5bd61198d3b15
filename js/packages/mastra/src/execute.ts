// executeCommand: one request to the engine where nobody listens, and the result as the base class would give it.
import type { ExecResult, ExecSpec, Sandbox } from "@cove/client";
import type { CommandResult, ExecuteCommandOptions } from "@mastra/core/workspace";
import { StringDecoder } from "node:string_decoder";
import { endOf } from "./command.js";
import { hasCode, startError } from "./errors.js";
import { executeTag } from "./processes.js";
import { shellFor } from "./shell.js";

type Listener = ((text: string) => void) | undefined;

/**
 * Characters may come in parts, and what listens is given whole ones. A listener that throws is not called again, and
 * the command goes on: it would be left behind if its result were not waited for.
 */
class Told {
    readonly #decoder = new StringDecoder("utf8");
    #error: { thrown: unknown } | undefined;
    readonly take: ((bytes: Buffer) => void) | undefined;

    constructor(private readonly listener: Listener) {
        this.take = listener && ((bytes) => this.#tell(this.#decoder.write(bytes)));
    }

    end(more: string): void {
        this.#tell(this.#decoder.end() + more);
        if (this.#error) throw this.#error.thrown;
    }

    #tell(text: string): void {
        if (text === "" || this.#error) return;
        try {
            this.listener?.(text);
        } catch (thrown) {
            this.#error = { thrown };
        }
    }
}

export interface Command {
    command: string;
    env: Record<string, string> | undefined;
    cwd: string | undefined;
}

/** `run` gives the sandbox, and maybe another one if the first is no more. */
export async function execute(
    run: <T>(action: (native: Sandbox) => Promise<T>) => Promise<T>,
    given: Command,
    timeoutMs: number,
    { abortSignal, onStdout, onStderr, maxRetainedBytes = Infinity }: ExecuteCommandOptions,
): Promise<CommandResult> {
    const started = Date.now();
    const stdout = new Told(onStdout);
    const stderr = new Told(onStderr);
    const ask = (spec: ExecSpec): Promise<ExecResult> =>
        run((native) =>
            native.exec(spec, {
                signal: abortSignal,
                onAbort: "kill",
                uniqueTag: true,
                maxRetainedBytes,
                onStdout: stdout.take,
                onStderr: stderr.take,
            }),
        );
    const rest = { env: given.env, cwd: given.cwd, timeout_ms: timeoutMs };
    let result;
    try {
        const shell = shellFor(given.command, given.env);
        try {
            result = await ask({ ...shell, ...rest, tag: executeTag() });
        } catch (error) {
            // The root has no /bin/sh; the engine knows what it has instead.
            if (shell.argv === undefined || !hasCode(error, "command_not_found", "not_executable")) throw error;
            result = await ask({ command: given.command, ...rest, tag: executeTag() });
        }
    } catch (error) {
        throw startError(error);
    }
    const { exitCode, killed, timedOut, note = "" } = endOf(result.process, timeoutMs);
    stdout.end("");
    stderr.end(note);
    return {
        success: exitCode === 0,
        exitCode,
        stdout: result.stdout,
        stderr: maxRetainedBytes === 0 ? "" : result.stderr + note,
        executionTimeMs: Date.now() - started,
        killed,
        timedOut,
        stdoutTruncated: result.stdout_dropped_bytes > 0,
        stderrTruncated: result.stderr_dropped_bytes > 0,
        stdoutDroppedBytes: result.stdout_dropped_bytes,
        stderrDroppedBytes: result.stderr_dropped_bytes,
        command: given.command,
    };
}
