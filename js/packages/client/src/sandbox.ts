// One sandbox, by its id. It holds no state: what it is is asked of the server.
import type { Cove } from "./cove.js";
import { Files } from "./files.js";
import { Ports } from "./ports.js";
import { Processes } from "./processes.js";
import type {
    CallOptions, ExecResult, ExecSpec, NetworkTraffic, SandboxChange, SandboxView, Token, TokenSpec, Url, UrlSpec, Usage,
} from "./types.js";

export interface ExecOptions extends CallOptions {
    /** What it prints, as it prints it. */
    onStdout?: ((bytes: Buffer) => void) | undefined;
    onStderr?: ((bytes: Buffer) => void) | undefined;
    stdin?: string | Uint8Array | undefined;
    /** How much of each stream the result has, the newest; `Infinity`: all. 1 MiB without it. */
    maxRetainedBytes?: number | undefined;
    /**
     * What `signal` does. `throw`: the command is killed with all that it started, and the call rejects with the code
     * `aborted`. `kill`: it is killed, and the call resolves to its result, with what it printed until then.
     */
    onAbort?: "throw" | "kill" | undefined;
}

export class Sandbox {
    readonly processes: Processes;
    readonly files: Files;
    readonly ports: Ports;
    private readonly path: string;

    /** @internal */
    constructor(
        private readonly cove: Cove,
        readonly id: string,
    ) {
        this.path = `/v1/sandboxes/${encodeURIComponent(id)}`;
        this.processes = new Processes(cove, `${this.path}/processes`);
        this.files = new Files(cove, this.path);
        this.ports = new Ports(cove, `${this.path}/ports`);
    }

    async view(options: CallOptions = {}): Promise<SandboxView> {
        return this.cove.request("GET", this.path, options);
    }

    /** Changes labels, lifecycle or network; with `revision` only if nobody changed it since. */
    async update(change: SandboxChange, options: CallOptions & { revision?: number } = {}): Promise<SandboxView> {
        const { revision, signal } = options;
        return this.cove.request("PATCH", this.path, {
            json: change,
            signal,
            headers: revision === undefined ? undefined : { "If-Match": `"${revision}"` },
            repeat: revision === undefined,
        });
    }

    /** Starts one that is stopped, on its disk; one that runs is answered as it is. */
    async start(options: CallOptions = {}): Promise<SandboxView> {
        return this.cove.request("POST", `${this.path}/start`, { ...options, repeat: true });
    }

    /** Ends its processes and keeps its disk. */
    async stop(options: CallOptions = {}): Promise<SandboxView> {
        return this.cove.request("POST", `${this.path}/stop`, { ...options, repeat: true });
    }

    /** Ends it with all that is in it, its disk too; also if it is gone already. */
    async remove(options: CallOptions = {}): Promise<void> {
        await this.cove.request("DELETE", this.path, options);
    }

    async usage(options: CallOptions = {}): Promise<Usage> {
        return this.cove.request("GET", `${this.path}/usage`, options);
    }

    /** Whom it may reach, and what came of what it tried. */
    async network(options: CallOptions & { limit?: number } = {}): Promise<NetworkTraffic> {
        const { limit, signal } = options;
        return this.cove.request("GET", `${this.path}/network`, { query: { limit }, signal });
    }

    /** A token of this sandbox alone, for whoever should not have the key. */
    async token(spec: TokenSpec, options: CallOptions = {}): Promise<Token> {
        return this.cove.request("POST", `${this.path}/tokens`, { json: spec, ...options });
    }

    /** A URL by which anybody reads or writes one file. */
    async signUrl(spec: UrlSpec, options: CallOptions = {}): Promise<Url> {
        return this.cove.request("POST", `${this.path}/urls`, { json: spec, ...options });
    }

    /** Runs a command and resolves when it has exited. A timeout, a signal and an exit code are results, too. */
    async exec(_command: ExecSpec, _options: ExecOptions = {}): Promise<ExecResult> {
        throw new Error("not there yet");
    }
}
