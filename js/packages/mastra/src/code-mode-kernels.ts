// Where a program of Code Mode runs: in a kernel of this process, or in one of a cove server, whose tools are asked for over one
// WebSocket. Both give the same.
import { CoveError, type Cove, type KernelResult } from "@cove/client";
import type * as Node from "@cove/node";
import { loadKernels } from "./kernels.js";

export type CodeTool = (args: unknown) => Promise<unknown>;

export interface CodeRun {
    source: string;
    filename: string;
    tools: Readonly<Record<string, CodeTool>>;
    wallMs: number;
    cpuMs: number;
    memoryLimitBytes: number | undefined;
    allowedHosts: readonly string[];
    signal: AbortSignal | undefined;
}

/** Of a run's result what Code Mode tells. */
export interface CodeOutcome {
    /** Nothing where the program ended itself. */
    value: unknown;
    valueError: string | undefined;
    logs: string[];
    logsDropped: number;
    error: { kind: string; name: string; message: string; line?: number } | null;
}

/** Rejects when the signal is aborted. */
export type CodeKernel = (run: CodeRun) => Promise<CodeOutcome>;

export const inProcess: CodeKernel = async ({ source, filename, tools, wallMs, cpuMs, memoryLimitBytes, allowedHosts, signal }) => {
    const { run } = await loadKernels();
    const options: Node.OnceOptions = { language: "ts", filename, tools, wallMs, cpuMs, allowedHosts };
    if (memoryLimitBytes !== undefined) options.memoryLimitBytes = memoryLimitBytes;
    if (signal !== undefined) options.signal = signal;
    const got = await run(source, options);
    return {
        value: got.value as unknown,
        valueError: got.valueError,
        logs: got.logs.map((entry) => entry.text),
        logsDropped: got.logsDropped ?? 0,
        error: got.error,
    };
};

export function ofServer(cove: Cove): CodeKernel {
    return async ({ source, filename, tools, wallMs, cpuMs, memoryLimitBytes, allowedHosts, signal }) => {
        const session = await cove.kernels.connect({ signal });
        try {
            const got: KernelResult = await session.run({
                language: "ts", code: source, filename,
                wall_ms: Math.ceil(wallMs), cpu_ms: Math.ceil(cpuMs), allowed_hosts: [...allowedHosts],
                ...(memoryLimitBytes === undefined ? {} : { memory_limit_bytes: Math.floor(memoryLimitBytes) }),
            }, tools, { signal });
            if (got.error?.kind === "stopped") throw new CoveError("aborted", "the run was stopped");
            return {
                value: got.value,
                        valueError: got.value_error,
                logs: got.logs.map((entry) => entry.text),
                logsDropped: got.logs_dropped ?? 0,
                error: got.error,
            };
        } finally {
            session.close();
        }
    };
}
