// createMastraSandbox: a kernel behind one function that gives text and an exit code, and never rejects.
import { lowest, onlyKnown, positive } from "./check.js";
import type { CapabilityManifest, RunHints, WasmKernel } from "./types.js";

export interface MastraSandboxOptions {
    kernel: WasmKernel;
    /** What every call may reach. */
    capabilities?: Partial<CapabilityManifest>;
}

export interface MastraSandboxExecuteOptions {
    /** The language of the code. What the kernel does not speak fails. */
    language?: string;
    /** Milliseconds that this call may take. It tightens the kernel's limits and never widens them. */
    timeout?: number;
    /** Variables of this call, over those of the capabilities. */
    env?: Record<string, string>;
}

export interface MastraSandboxExecuteResult {
    /** The value: text as it is, anything else as JSON, nothing for undefined. */
    output: string;
    /** What was printed; or why it failed. */
    stderr: string;
    /** 0, or 1 for any failure. */
    exitCode: number;
}

export interface MastraSandboxProvider {
    execute(code: string, options?: MastraSandboxExecuteOptions): Promise<MastraSandboxExecuteResult>;
}

function textOf(value: unknown): string {
    if (value === undefined) return "";
    return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

async function execute(options: MastraSandboxOptions, code: string, call: MastraSandboxExecuteOptions): Promise<MastraSandboxExecuteResult> {
    onlyKnown("execute()", call, ["language", "timeout", "env"]);
    const timeout = positive("timeout", call.timeout), of = options.capabilities ?? {};
    const manifest: Partial<CapabilityManifest> = { ...of };
    const cpuMs = lowest(of.cpuMs, timeout);
    if (cpuMs !== undefined) manifest.cpuMs = cpuMs;
    if (call.env !== undefined) manifest.env = { ...of.env, ...call.env };
    const hints: RunHints = {};
    if (call.language !== undefined) hints.language = call.language;
    if (timeout !== undefined) hints.wallMs = timeout;
    const result = await options.kernel.run(code, manifest, hints);
    return { output: textOf(result.output), stderr: result.logs.join("\n"), exitCode: 0 };
}

/** A sandbox of a kernel. Its calls resolve, whatever the code does. */
export function createMastraSandbox(options: MastraSandboxOptions): MastraSandboxProvider {
    onlyKnown("createMastraSandbox()", options, ["kernel", "capabilities"]);
    if (typeof options?.kernel?.run !== "function") throw new TypeError("createMastraSandbox(): a kernel is needed, such as new QuickJSKernel()");
    return {
        async execute(code, call) {
            try {
                return await execute(options, code, call ?? {});
            } catch (error) {
                return { output: "", stderr: error instanceof Error ? error.message : String(error), exitCode: 1 };
            }
        },
    };
}
