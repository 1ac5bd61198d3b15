// QuickJSKernel, on the kernels of @cove/node: within this process and off its main thread. One kernel's runs go one after the
// other. What a run may reach is fixed when a kernel of @cove/node is made, so a run that may reach something else than the one
// before goes on in a new kernel, which has the state of the old one.
import { access } from "node:fs/promises";
import type * as Node from "@cove/node";
import { loadKernels } from "../kernels.js";
import { lowest, onlyKnown, positive } from "./check.js";
import { KernelRunError } from "./errors.js";
import { granted, type Granted } from "./manifest.js";
import { PRELUDE, variablesOf } from "./prelude.js";
import type { CapabilityManifest, KernelOptions, KernelResult, RunHints, WasmKernel } from "./types.js";

export interface QuickJSKernelOptions extends KernelOptions {
    /** Of runtimes at the edge; taken, and of no effect here. */
    variant?: unknown;
    /** Of runtimes at the edge; taken, and of no effect here. */
    variantLoader?: unknown;
    /** 32 bytes that sign snapshots. Without them a snapshot can be restored in this process alone. */
    snapshotKey?: Uint8Array;
}

const OPTIONS = ["engine", "actionLanguage", "capabilities", "timeoutMs", "maxMemoryBytes", "fuelLimit", "epochTickMs", "variant", "variantLoader", "snapshotKey"];
const TIMEOUT_MS = 5000;
const DAY_MS = 86400000; // the most that a kernel of @cove/node can be given
const PRELUDE_FILE = "cove:wasmagent";
const NO_VARIABLES = "{}";

function isTypeScript(language: string | undefined): boolean {
    switch (language?.toLowerCase()) {
    case undefined:
    case "js":
    case "javascript":
        return false;
    case "ts":
    case "typescript":
        return true;
    default:
        throw new TypeError(`the language "${language}" is not run by QuickJSKernel, which runs javascript and typescript`);
    }
}

function textsOf(result: Node.RunResult): string[] {
    const texts = result.logs.map((entry) => entry.text);
    if (result.logsDropped) texts.push(`[${result.logsDropped} more entries did not fit into the log]`);
    return texts;
}

/** What a run of @cove/node came to, as a kernel of wasmagent says it. */
function resultOf(result: Node.RunResult): KernelResult {
    const logs = textsOf(result), { error } = result;
    if (error !== null) {
        const isTime = error.kind === "cpu" || error.kind === "wall";
        const text = isTime ? `timed out: ${error.message}` : error.name === "CapabilityDenied" ? `${error.name}: ${error.message}` : error.message;
        throw new KernelRunError(text, { error: { name: error.name, message: error.message, stack: error.stack }, logs, timedOut: result.timedOut });
    }
    if (result.valueError !== undefined) throw new KernelRunError(result.valueError, { logs });
    if (result.exitCode !== 0) throw new KernelRunError(`the code ended itself with the exit code ${result.exitCode}`, { logs });
    // JSON has no NaN and no infinities; the number's text does.
    const output: unknown = result.type === "number" ? Number(result.output) : result.value;
    return { output, logs, isFinalAnswer: result.isFinal };
}

export class QuickJSKernel implements WasmKernel {
    readonly #options: QuickJSKernelOptions;
    readonly #timeoutMs: number;
    readonly #isTypeScript: boolean;
    #kernel: Node.Kernel | undefined;
    #reach = ""; // what #kernel was made to reach
    #env: string | undefined; // the variables that it has, where that is known
    #last: Promise<unknown> = Promise.resolve();
    #isDisposed = false;

    constructor(options: QuickJSKernelOptions = {}) {
        onlyKnown("QuickJSKernel", options, OPTIONS);
        this.#options = { ...options };
        this.#timeoutMs = positive("timeoutMs", options.timeoutMs) ?? TIMEOUT_MS;
        this.#isTypeScript = isTypeScript(options.actionLanguage);
        positive("maxMemoryBytes", options.maxMemoryBytes);
        granted(options.capabilities, undefined);
    }

    async run(code: string, capabilities?: Partial<CapabilityManifest>, hints?: RunHints): Promise<KernelResult> {
        onlyKnown("hints", hints, ["language", "wallMs"]);
        const may = granted(this.#options.capabilities, capabilities);
        const language = hints?.language === undefined ? this.#isTypeScript : isTypeScript(hints.language);
        const wallMs = Math.min(lowest(this.#timeoutMs, positive("wallMs", hints?.wallMs)) ?? TIMEOUT_MS, DAY_MS);
        const cpuMs = lowest(wallMs, may.cpuMs) ?? wallMs;
        return this.#turn("run", async () => {
            const kernel = await this.#prepared(may);
            const result = await kernel.run(code, { language: language ? "ts" : "js", filename: "agent-step.js", cpuMs, wallMs });
            if (result.stateLost) this.#drop();
            return resultOf(result);
        });
    }

    async reset(): Promise<void> {
        return this.#turn("reset", async () => this.#drop());
    }

    /** The state as bytes, for restore() of any QuickJSKernel with the same key. */
    async snapshot(): Promise<Uint8Array> {
        const may = granted(this.#options.capabilities, undefined);
        return this.#turn("snapshot", async () => (this.#kernel ?? await this.#prepared(may)).snapshot());
    }

    async restore(snapshot: Uint8Array): Promise<void> {
        const may = granted(this.#options.capabilities, undefined);
        return this.#turn("restore", async () => {
            const { restoreKernel } = await loadKernels();
            const now = await thereNow(may);
            this.#take(await restoreKernel(snapshot, this.#grants(now)), now);
            this.#env = undefined; // those of the snapshot are in it: they are given anew
        });
    }

    /** Ends what is under way, which rejects, and gives the memory back. */
    async [Symbol.asyncDispose](): Promise<void> {
        this.#isDisposed = true;
        this.#drop();
    }

    // What is asked of a kernel is done in order; what failed before changes nothing for what follows.
    #turn<T>(what: string, work: () => Promise<T>): Promise<T> {
        const turn = this.#last.then(async () => {
            if (this.#isDisposed) throw new KernelRunError(`${what}() of a QuickJSKernel that was disposed of`);
            try {
                return await work();
            } catch (error) {
                throw error instanceof KernelRunError ? error : new KernelRunError(error instanceof Error ? error.message : String(error), { cause: error });
            }
        });
        this.#last = turn.catch(() => {});
        return turn;
    }

    #drop(): void {
        this.#kernel?.dispose();
        this.#kernel = undefined;
        this.#env = undefined;
    }

    // One that was disposed of meanwhile takes no new kernel, which nobody would give back.
    #take(kernel: Node.Kernel, may: Granted): void {
        this.#drop();
        if (this.#isDisposed) {
            kernel.dispose();
            throw new KernelRunError("the QuickJSKernel was disposed of");
        }
        this.#kernel = kernel;
        this.#reach = reachOf(may, this.#memory(may));
    }

    #memory(may: Granted): number | undefined {
        return lowest(this.#options.maxMemoryBytes, may.memoryBytes);
    }

    #grants(may: Granted): Node.KernelOptions {
        const memoryLimitBytes = this.#memory(may), { snapshotKey } = this.#options;
        return {
            allowedHosts: may.hosts,
            allowedReadPaths: may.reads,
            allowedWritePaths: may.writes,
            cpuMs: DAY_MS, // each run says its own
            wallMs: DAY_MS,
            ...(memoryLimitBytes === undefined ? {} : { memoryLimitBytes }),
            ...(snapshotKey === undefined ? {} : { snapshotKey }),
        };
    }

    // The kernel that may reach this, with the state as it is and with these variables.
    async #prepared(wanted: Granted): Promise<Node.Kernel> {
        const may = await thereNow(wanted);
        if (this.#kernel === undefined) {
            const { createKernel } = await loadKernels();
            this.#take(await createKernel(this.#grants(may)), may);
            await this.#own(PRELUDE);
            this.#env = NO_VARIABLES;
        } else if (this.#reach !== reachOf(may, this.#memory(may))) {
            const { restoreKernel } = await loadKernels(), env = this.#env;
            this.#take(await restoreKernel(await this.#kernel.snapshot(), this.#grants(may)), may);
            this.#env = env;
        }
        const env = JSON.stringify(may.env);
        if (env !== this.#env) {
            await this.#own(variablesOf(may.env));
            this.#env = env;
        }
        if (this.#kernel === undefined) throw new KernelRunError("the QuickJSKernel was disposed of");
        return this.#kernel;
    }

    // Code of ours. It ends at once, but for one thing: a kernel whose user took it apart.
    async #own(code: string): Promise<void> {
        const result = await this.#kernel?.run(code, { filename: PRELUDE_FILE, wallMs: TIMEOUT_MS, cpuMs: TIMEOUT_MS });
        if (result !== undefined && result.error !== null) throw new KernelRunError(`the kernel cannot be prepared: ${result.error.message}; reset() makes it new`);
    }
}

// What is not there cannot be granted for reading. It is looked for before each run, so that it is granted once it is there.
async function thereNow(may: Granted): Promise<Granted> {
    if (may.reads.length === 0) return may;
    const isThere = await Promise.all(may.reads.map((path) => access(path).then(() => true, () => false)));
    return { ...may, reads: may.reads.filter((_, i) => isThere[i]) };
}

function reachOf(may: Granted, memoryBytes: number | undefined): string {
    return JSON.stringify([may.hosts, may.reads, may.writes, memoryBytes ?? null]);
}
