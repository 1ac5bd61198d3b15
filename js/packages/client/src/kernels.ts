// Kernels: JavaScript and TypeScript that run in the server, pristine or with a state that stays.
import type { Cove } from "./cove.js";
import type { CallOptions, KernelResult, KernelRunInSpec, KernelRunSpec, KernelSpec, KernelView } from "./types.js";

/** A function of this program that the code of a kernel calls, as `await tools.name(args)`. */
export type Tool = (args: unknown) => unknown;
export type Tools = { readonly [name: string]: Tool };

export class Kernels {
    /** @internal */
    constructor(private readonly cove: Cove) {
        void this.cove;
    }

    /** Runs code in a pristine kernel. Code that throws, or meets a limit, is a result, too (`error`). */
    async run(_spec: KernelRunSpec, _options: CallOptions = {}): Promise<KernelResult> {
        throw new Error("not there yet");
    }
    /** Makes a kernel that keeps its state from run to run. */
    async create(_spec: KernelSpec = {}, _options: CallOptions = {}): Promise<Kernel> {
        throw new Error("not there yet");
    }
    async restore(_snapshot: Uint8Array, _spec: KernelSpec = {}, _options: CallOptions = {}): Promise<Kernel> {
        throw new Error("not there yet");
    }
    list(_options: CallOptions = {}): AsyncIterableIterator<KernelView> {
        throw new Error("not there yet");
    }
    /** The kernel of this id; asks nothing. */
    kernel(id: string): Kernel {
        return new Kernel(this.cove, id);
    }
    /** Runs whose code calls functions of this program, over one WebSocket. */
    async connect(_options: CallOptions = {}): Promise<KernelSession> {
        throw new Error("not there yet");
    }
}

export class Kernel {
    /** @internal */
    constructor(
        private readonly cove: Cove,
        readonly id: string,
    ) {
        void this.cove;
    }
    async view(_options: CallOptions = {}): Promise<KernelView> {
        throw new Error("not there yet");
    }
    async run(_spec: KernelRunInSpec, _options: CallOptions = {}): Promise<KernelResult> {
        throw new Error("not there yet");
    }
    async reset(_options: CallOptions = {}): Promise<KernelView> {
        throw new Error("not there yet");
    }
    async fork(_options: CallOptions = {}): Promise<Kernel> {
        throw new Error("not there yet");
    }
    async snapshot(_options: CallOptions = {}): Promise<Buffer> {
        throw new Error("not there yet");
    }
    async remove(_options: CallOptions = {}): Promise<void> {
        throw new Error("not there yet");
    }
}

/** One WebSocket, with up to 64 runs at once. */
export interface KernelSession {
    /** A run in a pristine kernel. */
    run(spec: KernelRunSpec, tools: Tools, options?: CallOptions): Promise<KernelResult>;
    /** A run in a kernel that stays; its tools are those that it was made with. */
    runIn(id: string, spec: KernelRunInSpec, tools: Tools, options?: CallOptions): Promise<KernelResult>;
    /** Ends the connection; what still runs is stopped. */
    close(): void;
}
