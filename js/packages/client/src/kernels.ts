// Kernels: JavaScript and TypeScript that run in the server, pristine or with a state that stays.
import type { Link } from "./link.js";
import { openSession, type KernelSession } from "./session.js";
import type { CallOptions, KernelResult, KernelRunInSpec, KernelRunSpec, KernelSpec, KernelView } from "./types.js";

const PATH = "/v1/kernels";

export class Kernels {
    readonly #link: Link;

    /** @internal */
    constructor(link: Link) {
        this.#link = link;
    }

    /** Runs code in a pristine kernel. Code that throws, or meets a limit, is a result, too (`error`). */
    async run(spec: KernelRunSpec, options: CallOptions = {}): Promise<KernelResult> {
        // An engine that ends takes its kernels with it. What reached nobody does no harm a second time.
        return this.#link.json("POST", `${PATH}/run`, { json: spec, signal: options.signal, repeat: !spec.allowed_hosts?.length });
    }

    /** Makes a kernel that keeps its state from run to run, as long as the engine runs. */
    async create(spec: KernelSpec = {}, options: CallOptions = {}): Promise<Kernel> {
        return this.#made(await this.#link.json<KernelView>("POST", PATH, { json: spec, ...options, repeat: true }));
    }

    /** Makes one of a snapshot of this tenant's; what it may is said anew. */
    async restore(snapshot: Uint8Array, spec: KernelSpec = {}, options: CallOptions = {}): Promise<Kernel> {
        return this.#made(
            await this.#link.json<KernelView>("POST", `${PATH}/restore`, {
                body: snapshot,
                headers: { "Content-Type": "application/octet-stream", "Cove-Manifest": ascii(JSON.stringify(spec)) },
                signal: options.signal,
                repeat: true,
            }),
        );
    }

    async *list(options: CallOptions = {}): AsyncIterableIterator<KernelView> {
        let cursor: string | null | undefined;
        do {
            const page: { kernels: KernelView[]; next: string | null } = await this.#link.json("GET", PATH, {
                query: { cursor },
                signal: options.signal,
            });
            yield* page.kernels;
            cursor = page.next;
        } while (cursor);
    }

    /** The kernel of this id; asks nothing. */
    kernel(id: string): Kernel {
        return new Kernel(this.#link, id);
    }

    /** Runs whose code calls functions of this program, over one WebSocket. */
    async connect(options: CallOptions = {}): Promise<KernelSession> {
        return openSession(this.#link, `${PATH}/connect`, options.signal);
    }

    #made(view: KernelView): Kernel {
        return new Kernel(this.#link, view.id);
    }
}

export class Kernel {
    readonly id: string;
    readonly #link: Link;
    readonly #path: string;

    /** @internal */
    constructor(link: Link, id: string) {
        this.id = id;
        this.#link = link;
        this.#path = `${PATH}/${encodeURIComponent(id)}`;
    }

    async view(options: CallOptions = {}): Promise<KernelView> {
        return this.#link.json("GET", this.#path, options);
    }

    /** Runs code where the state of earlier runs is; one run at a time (`kernel_busy`). */
    async run(spec: KernelRunInSpec, options: CallOptions = {}): Promise<KernelResult> {
        return this.#link.json("POST", `${this.#path}/run`, { json: spec, ...options });
    }

    /** Puts it back to what it was when it was made. */
    async reset(options: CallOptions = {}): Promise<KernelView> {
        return this.#link.json("POST", `${this.#path}/reset`, options);
    }

    /** Makes a second one in the same state. */
    async fork(options: CallOptions = {}): Promise<Kernel> {
        return new Kernel(this.#link, (await this.#link.json<KernelView>("POST", `${this.#path}/fork`, options)).id);
    }

    /** Its state as bytes; not encrypted. */
    async snapshot(options: CallOptions = {}): Promise<Buffer> {
        return (await this.#link.call("POST", `${this.#path}/snapshot`, { ...options, repeat: true })).body;
    }

    async remove(options: CallOptions = {}): Promise<void> {
        await this.#link.call("DELETE", this.#path, options);
    }
}

/** JSON of ASCII alone, as a header has it. */
function ascii(json: string): string {
    return json.replace(/[^ -~]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
