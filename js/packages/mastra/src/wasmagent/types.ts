// The types that programs written for wasmagent name: what a kernel is, what it is given and what it gives. Their shapes are
// fixed by those programs; what cove does with each field is told in docs/from-wasmagent.md.

/** What code may reach. What is absent or empty is denied. */
export interface CapabilityManifest {
    /**
     * Hosts that `fetch()` may reach: `"example.com"`, `"*.example.com"` (every name below it, and not itself), `"*"` (all that is
     * public), each with `:PORT` if only that.
     */
    allowedHosts: string[];
    /** Files, or directories with all below them, that may be read. */
    allowedReadPaths: string[];
    /** Files, or directories with all below them, that may be written. Reading is not part of it. */
    allowedWritePaths: string[];
    /** Names of further capabilities, such as `"tool:web_search"`. Kernels have none of their own: see the docs. */
    extraCapabilities: string[];
    /** Paths that may be read and written: the same as in both lists. */
    allowedPaths?: string[];
    /** `__env__` of the code. */
    env?: Readonly<Record<string, string>>;
    /** Milliseconds of CPU time of one run. */
    cpuMs?: number;
    /** Bytes of memory. */
    memoryLimitBytes?: number;
}

/** What a run came to. */
export interface KernelResult {
    /** The value of the last expression, or the final answer. */
    output: unknown;
    /** An entry for each call of the console. */
    logs: string[];
    /** Whether the code assigned `__finalAnswer__` or `__final_answer__`. */
    isFinalAnswer: boolean;
    stdout?: string;
    stderr?: string;
    returnValue?: unknown;
    timedOut?: boolean;
    error?: KernelExecutionError;
}

/** What the code threw. */
export interface KernelExecutionError {
    name: string;
    message: string;
    stack?: string;
}

/** What a run is told beside its manifest. Kernels of other makers may pass over it. */
export interface RunHints {
    /** The language of the code, as its user calls it. */
    language?: string;
    /** Milliseconds that the run may take in all, what it waits for included. */
    wallMs?: number;
}

/** A kernel: what was declared in a run is there in the next one. */
export interface WasmKernel {
    /** Rejects when the code fails, with a message that holds what the code threw. */
    run(code: string, capabilities?: Partial<CapabilityManifest>, hints?: RunHints): Promise<KernelResult>;
    /** Forgets what was declared. */
    reset(): Promise<void>;
    snapshot?(): Promise<Uint8Array>;
    restore?(snapshot: Uint8Array): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** What every kernel is made with. */
export interface KernelOptions {
    /** Which engine a factory would choose; a kernel that is named by its class needs none. */
    engine?: string;
    /** The language of the code where a run says none: `"js"`, or `"pyodide"` for Python. */
    actionLanguage?: string;
    /** What every run may reach. What a run names itself holds instead, limits by the lower of both. */
    capabilities?: Partial<CapabilityManifest>;
    /** Milliseconds that a run may take. */
    timeoutMs?: number;
    /** Bytes of memory. */
    maxMemoryBytes?: number;
    /** Of kernels that count instructions; taken, and of no effect here. */
    fuelLimit?: number;
    /** Of kernels that count time in ticks; taken, and of no effect here. */
    epochTickMs?: number;
}
