// Code Mode on kernels: the model's TypeScript program runs where it reaches nothing but the tools. One run takes any number of
// calls of tools, one after the other or at once, and each is answered into the same run. The kernel is in this process; or a
// cove server's, in a process of its own, where a `url` or a client is given.
import { Cove } from "@cove/client";
import { sanitizeToolId, type CodeModeToolResult, type CodeModeTransport } from "@mastra/core/tools";
import { inProcess, ofServer, type CodeKernel, type CodeOutcome, type CodeTool } from "./code-mode-kernels.js";
import { lowest, onlyKnown, positive } from "./wasmagent/check.js";

export interface CodeModeOptions {
    /** Milliseconds of CPU time that a program may use; by default all of its time. */
    cpuMs?: number;
    /** Bytes of memory: 128 MiB. */
    memoryLimitBytes?: number;
    /** Hosts that `fetch()` of a program may reach, by the rules of cove: none. */
    allowedHosts?: readonly string[];
    /** A cove server whose kernels are to be used; see `CoveOptions`. */
    url?: string;
    /** The key of that server. */
    apiKey?: string;
    /** A client that is there already, in place of `url`: `sandbox.cove` of a CoveSandbox. */
    cove?: Cove;
}

type RunOptions = Parameters<CodeModeTransport["run"]>[0];

const OPTIONS = ["cpuMs", "memoryLimitBytes", "allowedHosts", "url", "apiKey", "cove"];
const PROGRAM = "program.ts";
const DAY_MS = 86400000; // the most that a kernel can be given

// What the program returned is told apart from a program that ended itself. A function would vanish in JSON.
const RETURNED = "(value) => { if (typeof value !== 'function' && typeof value !== 'symbol') return { value }; " +
    "const error = new TypeError(`a ${typeof value} cannot be returned: return what JSON can hold`); error.name = 'SerializationError'; throw error; }";

// In front of the program's first line, so that its lines keep their numbers. What a call came to is a value also where it
// failed: so the failure's name reaches the program.
function sourceOf(program: string, names: readonly string[]): string {
    const stubs = names.map((name, i) => `globalThis[${JSON.stringify(`external_${name}`)}] = (input) => ask("t${i}", input);`).join(" ");
    return "((call) => { const ask = async (tool, input) => { const got = await call(tool, { input }); if (!got.error) return got.value; " +
        `const error = new Error(got.error.message); if (got.error.name) error.name = got.error.name; throw error; }; ${stubs} })(callTool); ` +
        `(async () => {${program}\n})().then(${RETURNED})`;
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
    return error instanceof Error ? { message: error.message, name: error.name } : { message: String(error) };
}

// What a hook of tracing throws is no failure of the program.
function quietly(hook: () => void): void {
    try {
        hook();
    } catch {
        // core's own transport does the same
    }
}

function toolOf(toolId: string, { dispatch, onExternalCall, onExternalResult }: RunOptions): CodeTool {
    return async (args) => {
        const { input } = args as { input?: unknown }, began = Date.now();
        quietly(() => onExternalCall?.(toolId, input));
        try {
            const value = await dispatch(toolId, input);
            JSON.stringify(value); // what it cannot hold is a failure of the tool, and the program is told
            quietly(() => onExternalResult?.(toolId, Date.now() - began));
            return { value };
        } catch (error) {
            quietly(() => onExternalResult?.(toolId, Date.now() - began, error));
            return { error: failureOf(error) };
        }
    };
}

function resultOf({ value, valueError, logs, logsDropped, error }: CodeOutcome, timeout: number, cpuMs: number): CodeModeToolResult {
    if (logsDropped > 0) logs.push(`[${logsDropped} more entries did not fit into the log]`);
    if (error !== null) {
        const isTimeout = error.kind === "wall" || (error.kind === "cpu" && cpuMs >= timeout);
        const told: NonNullable<CodeModeToolResult["error"]> = isTimeout
            ? { message: `Code Mode execution timed out after ${timeout}ms`, name: "TimeoutError" }
            : { message: error.message, name: error.name };
        if (error.line !== undefined && error.line !== null && error.name !== "SerializationError") told.line = error.line;
        return { success: false, logs, error: told };
    }
    if (valueError !== undefined) return { success: false, logs, error: { message: valueError, name: "SerializationError" } };
    if (typeof value !== "object" || value === null) return { success: false, logs, error: { message: "Program exited without returning a result", name: "NoResultError" } };
    return { success: true, result: (value as { value?: unknown }).value, logs };
}

/** `createCodeMode({ tools }, new CoveCodeModeTransport())`. No sandbox is needed. */
export class CoveCodeModeTransport implements CodeModeTransport {
    readonly requiresSandbox = false;
    readonly #options: CodeModeOptions;
    readonly #kernel: CodeKernel;

    constructor(options: CodeModeOptions = {}) {
        onlyKnown("CoveCodeModeTransport", options, OPTIONS);
        positive("cpuMs", options.cpuMs);
        positive("memoryLimitBytes", options.memoryLimitBytes);
        const { url, apiKey, cove } = options;
        if (cove !== undefined && (url !== undefined || apiKey !== undefined)) throw new TypeError("CoveCodeModeTransport: cove has its url and apiKey already: leave them out");
        if (apiKey !== undefined && url === undefined) throw new TypeError("CoveCodeModeTransport: apiKey is for a server: give its url");
        this.#options = { ...options };
        this.#kernel = cove !== undefined ? ofServer(cove) : url !== undefined ? ofServer(new Cove({ url, apiKey })) : inProcess;
    }

    async run(options: RunOptions): Promise<CodeModeToolResult> {
        const { program, toolIds, timeout, abortSignal } = options;
        const names = namesOf(toolIds), wallMs = Math.min(timeout, DAY_MS), cpuMs = lowest(wallMs, this.#options.cpuMs) ?? wallMs;
        try {
            const got = await this.#kernel({
                source: sourceOf(program, names),
                filename: PROGRAM,
                tools: Object.fromEntries(toolIds.map((id, i) => [`t${i}`, toolOf(id, options)])),
                wallMs,
                cpuMs,
                memoryLimitBytes: this.#options.memoryLimitBytes,
                allowedHosts: this.#options.allowedHosts ?? [],
                signal: abortSignal,
            });
            return resultOf(got, timeout, cpuMs);
        } catch (error) {
            if (abortSignal?.aborted !== true) throw error;
            return { success: false, logs: [], error: { message: "Code Mode execution was aborted", name: "AbortError" } };
        }
    }
}
