// Code Mode on kernels: the model's TypeScript program runs within this process, where it reaches nothing but the tools. One run
// takes any number of calls of tools, one after the other or at once, and each is answered into the same run.
import type * as Node from "@cove/node";
import { sanitizeToolId, type CodeModeToolResult, type CodeModeTransport } from "@mastra/core/tools";
import { loadKernels } from "./kernels.js";
import { lowest, onlyKnown, positive } from "./wasmagent/check.js";

export interface CodeModeOptions {
    /** Milliseconds of CPU time that a program may use; by default all of its time. */
    cpuMs?: number;
    /** Bytes of memory: 128 MiB. */
    memoryLimitBytes?: number;
    /** Hosts that `fetch()` of a program may reach, by the rules of cove: none. */
    allowedHosts?: readonly string[];
}

type RunOptions = Parameters<CodeModeTransport["run"]>[0];

const OPTIONS = ["cpuMs", "memoryLimitBytes", "allowedHosts"];
const PROGRAM = "program.ts";
const DAY_MS = 86400000;

/** What a call of a tool came to; also its failure is a value, so that its name reaches the program. */
type Outcome = { value: unknown } | { error: { message: string; name?: string } };

/** A function that the program can call for each tool, in front of the program's first line: its lines keep their numbers. */
function sourceOf(program: string, names: readonly string[]): string {
    const stubs = names.map((name, i) => `globalThis[${JSON.stringify(`external_${name}`)}] = (input) => ask("t${i}", input);`).join(" ");
    return `((call) => { const ask = async (tool, input) => { const got = await call(tool, { input }); if (!got.error) return got.value; ` +
        `const error = new Error(got.error.message); if (got.error.name) error.name = got.error.name; throw error; }; ${stubs} })(callTool); ` +
        `(async () => {${program}\n})()`;
}

function namesOf(toolIds: readonly string[]): string[] {
    const names = toolIds.map((id) => sanitizeToolId(id));
    names.forEach((name, i) => {
        const first = names.indexOf(name);
        if (first !== i) throw new Error(`the tools "${toolIds[first]}" and "${toolIds[i]}" are both external_${name} for the program: rename one`);
    });
    return names;
}

function failureOf(error: unknown): { message: string; name?: string } {
    if (error instanceof Error) return { message: error.message, name: error.name };
    return { message: String(error) };
}

// What a hook of tracing throws is no failure of the program.
function quietly(hook: () => void): void {
    try {
        hook();
    } catch {
        // as core's own transport
    }
}

function toolOf(toolId: string, { dispatch, onExternalCall, onExternalResult }: RunOptions): Node.Tool {
    return async ({ input }: { input?: unknown }): Promise<Outcome> => {
        const began = Date.now();
        quietly(() => onExternalCall?.(toolId, input));
        try {
            const value = await dispatch(toolId, input);
            // What JSON cannot hold fails here, where the program is told of it.
            JSON.stringify(value);
            quietly(() => onExternalResult?.(toolId, Date.now() - began));
            return { value };
        } catch (error) {
            quietly(() => onExternalResult?.(toolId, Date.now() - began, error));
            return { error: failureOf(error) };
        }
    };
}

function resultOf(result: Node.RunResult, timeout: number, cpuMs: number): CodeModeToolResult {
    const logs = result.logs.map((entry) => entry.text), { error } = result;
    if (result.logsDropped) logs.push(`[${result.logsDropped} more entries did not fit into the log]`);
    if (error !== null) {
        const isTimeout = error.kind === "wall" || (error.kind === "cpu" && cpuMs >= timeout);
        const told: NonNullable<CodeModeToolResult["error"]> = isTimeout
            ? { message: `Code Mode execution timed out after ${timeout}ms`, name: "TimeoutError" }
            : { message: error.message, name: error.name };
        if (error.line !== undefined) told.line = error.line;
        return { success: false, logs, error: told };
    }
    if (result.valueError !== undefined) return { success: false, logs, error: { message: result.valueError, name: "SerializationError" } };
    if (result.type === undefined) return { success: false, logs, error: { message: "Program exited without returning a result", name: "NoResultError" } };
    return { success: true, result: result.value as unknown, logs };
}

/** `createCodeMode({ tools }, new CoveCodeModeTransport())`. No sandbox is needed. */
export class CoveCodeModeTransport implements CodeModeTransport {
    readonly requiresSandbox = false;
    readonly #options: CodeModeOptions;

    constructor(options: CodeModeOptions = {}) {
        onlyKnown("CoveCodeModeTransport", options, OPTIONS);
        positive("cpuMs", options.cpuMs);
        positive("memoryLimitBytes", options.memoryLimitBytes);
        this.#options = { ...options };
    }

    async run(options: RunOptions): Promise<CodeModeToolResult> {
        const { program, toolIds, timeout, abortSignal } = options, { memoryLimitBytes, allowedHosts } = this.#options;
        const source = sourceOf(program, namesOf(toolIds));
        const wallMs = Math.min(timeout, DAY_MS), cpuMs = lowest(wallMs, this.#options.cpuMs) ?? wallMs;
        const { run } = await loadKernels();
        try {
            return resultOf(await run(source, {
                language: "ts",
                filename: PROGRAM,
                wallMs,
                cpuMs,
                tools: Object.fromEntries(toolIds.map((id, i) => [`t${i}`, toolOf(id, options)])),
                ...(memoryLimitBytes === undefined ? {} : { memoryLimitBytes }),
                ...(allowedHosts === undefined ? {} : { allowedHosts }),
                ...(abortSignal === undefined ? {} : { signal: abortSignal }),
            }), timeout, cpuMs);
        } catch (error) {
            if (abortSignal?.aborted !== true) throw error;
            return { success: false, logs: [], error: { message: "Code Mode execution was aborted", name: "AbortError" } };
        }
    }
}
