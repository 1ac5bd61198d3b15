/// <reference types="node" />

/** What code may reach. What is absent is denied; each denial names the option that would allow it. */
export interface Grants {
    /**
     * Hosts that `fetch()` may reach: `"example.com"`, `"*.example.com"`, an address or a CIDR, each with `:PORT` if only that;
     * `"*"` is all of the public internet. Private addresses only by a CIDR, or by `"NAME private=yes"`.
     */
    allowedHosts?: readonly string[];
    /** Absolute paths that may be read: a file, or a directory with all below it. */
    allowedReadPaths?: readonly string[];
    /** Absolute paths that may be written. Reading is not part of it. */
    allowedWritePaths?: readonly string[];
    /** `process.env` of the code, and its `__env__`. */
    env?: Readonly<Record<string, string | undefined>>;
    /** `process.argv` after the program and the script. */
    argv?: readonly string[];
    /** Milliseconds of CPU time of one run: 5000. */
    cpuMs?: number;
    /** Milliseconds of one run: 30000. */
    wallMs?: number;
    /** Bytes of memory, up to 4 GiB: 128 MiB. */
    memoryLimitBytes?: number;
    /** Functions that the code may call: `await tools.name(args)`. */
    tools?: Tools;
}

export interface ToolContext {
    /** Aborted when the run that called is over. */
    readonly signal: AbortSignal;
}

/**
 * Called on the main thread, any number at a time. What it gives has to be JSON; what it throws is thrown in the code, with its
 * message and its `code`. It cannot use the kernel whose run waits for it: that is rejected with the code "kernel_busy".
 */
export type Tool = (args: any, context: ToolContext) => unknown;
export type Tools = Readonly<Record<string, Tool>>;

export interface KernelOptions extends Grants {
    /** 32 bytes that sign snapshots. By default they are random, of this process: nothing else can restore them. */
    snapshotKey?: Uint8Array;
}

export type Language = "js" | "ts" | "javascript" | "typescript";

export interface SourceOptions {
    /** By default what the filename says, or JavaScript. */
    language?: Language;
    /** In stacks. */
    filename?: string;
    /** An ES module; by default what the filename says (`.mjs`, `.mts`). */
    module?: boolean;
}

export interface RunOptions extends SourceOptions {
    /** Tighter than the kernel's. */
    cpuMs?: number;
    /** Tighter than the kernel's. */
    wallMs?: number;
    /** Stops the run, which is rejected with the signal's reason. */
    signal?: AbortSignal;
}

export interface OnceOptions extends Grants, SourceOptions {
    /** Stops the run, which is rejected with the signal's reason. */
    signal?: AbortSignal;
}

export type LogLevel = "log" | "info" | "warn" | "error" | "debug";

export interface LogEntry {
    level: LogLevel;
    text: string;
}

export type EndKind = "error" | "deadlock" | "cpu" | "wall" | "memory" | "stack" | "trap";

/** What ended a run that has no value. */
export interface RunError {
    /** `"error"`: the code threw it. The others: a limit, a promise that nothing can settle, or a failure of the engine. */
    kind: EndKind;
    name: string;
    message: string;
    stack: string;
    line?: number;
    column?: number;
    code?: string;
}

export interface RunResult<Value = any> {
    /** The last expression's value, for people. */
    output: string;
    /** The same as JSON has it; undefined where JSON cannot hold it: see `valueError`. */
    value: Value;
    /** What it is: "number", "object", "array", ... */
    type: string;
    /** Why JSON cannot hold the value. */
    valueError?: string;
    logs: LogEntry[];
    /** How many entries of the log did not fit. */
    logsDropped?: number;
    /** What was printed as a warning or an error. */
    stderr: string;
    /** Of `process.exit()`, else 0; 1 after an error, 124 after a limit of time. */
    exitCode: number;
    error: RunError | null;
    cpuMs: number;
    wallMs: number;
    timedOut: boolean;
    oomKilled: boolean;
    /** The value was given by `__finalAnswer__`. */
    isFinal: boolean;
    /** What was declared before is gone: the next run begins anew. */
    stateLost: boolean;
    /** Of the kernel, afterwards. */
    memoryBytes: number;
}

/** A mistake of the caller's, or a failure of the machine: never what the code did, which is a result. */
export class KernelError extends Error {
    constructor(code: string, message: string);
    readonly code: string;
}

/** A kernel whose state is kept from run to run. What it is asked for is done in order. */
export class Kernel {
    private constructor();
    run<Value = any>(code: string, options?: RunOptions): Promise<RunResult<Value>>;
    /** Back to what it was when it was new. */
    reset(): Promise<void>;
    /** Its state as bytes, signed. */
    snapshot(): Promise<Uint8Array>;
    /** A second one in the same state. */
    fork(): Promise<Kernel>;
    /** Stops what is under way, which is rejected, and gives its memory back. */
    dispose(): void;
    readonly disposed: boolean;
    [Symbol.dispose](): void;
    [Symbol.asyncDispose](): Promise<void>;
}

export function createKernel(options?: KernelOptions): Promise<Kernel>;

/** Rejected with the code "bad_snapshot" where the bytes were changed, or signed by another key. */
export function restoreKernel(bytes: Uint8Array, options?: KernelOptions): Promise<Kernel>;

/** One run in a pristine kernel. */
export function run<Value = any>(code: string, options?: OnceOptions): Promise<RunResult<Value>>;
