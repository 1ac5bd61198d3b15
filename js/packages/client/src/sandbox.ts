// One sandbox, by its id. It holds no state: what it is is asked of the server.
import { CoveError } from "./error.js";
import { exec, type ExecOptions } from "./exec.js";
import { Files } from "./files.js";
import type { Link } from "./link.js";
import { Ports } from "./ports.js";
import { Processes } from "./processes.js";
import type {
    CallOptions, ExecResult, ExecSpec, MountSpec, NetworkTraffic, SandboxChange, SandboxView, Token, TokenSpec, Url, UrlSpec, Usage,
} from "./types.js";

export class Sandbox {
    readonly processes: Processes;
    readonly files: Files;
    readonly ports: Ports;
    readonly id: string;
    readonly #link: Link;
    readonly #path: string;

    /** @internal */
    constructor(link: Link, id: string) {
        this.id = id;
        this.#link = link;
        this.#path = `/v1/sandboxes/${encodeURIComponent(id)}`;
        this.processes = new Processes(link, `${this.#path}/processes`);
        this.files = new Files(link, this.#path);
        this.ports = new Ports(link, `${this.#path}/ports`);
    }

    async view(options: CallOptions = {}): Promise<SandboxView> {
        return this.#link.json("GET", this.#path, options);
    }

    /** Changes labels, lifecycle or network; with `revision` only if nobody changed it since. */
    async update(change: SandboxChange, options: CallOptions & { revision?: number } = {}): Promise<SandboxView> {
        const { revision, signal } = options;
        return this.#link.json("PATCH", this.#path, {
            json: change,
            signal,
            headers: revision === undefined ? undefined : { "If-Match": `"${revision}"` },
            repeat: revision === undefined,
        });
    }

    /** Starts one that is stopped, on its disk; one that runs is answered as it is. */
    async start(options: CallOptions = {}): Promise<SandboxView> {
        return this.#link.json("POST", `${this.#path}/start`, { ...options, repeat: true });
    }

    /** Ends its processes and keeps its disk. */
    async stop(options: CallOptions = {}): Promise<SandboxView> {
        return this.#link.json("POST", `${this.#path}/stop`, { ...options, repeat: true });
    }

    /** Ends it with all that is in it, its disk too; also if it is gone already. */
    async remove(options: CallOptions = {}): Promise<void> {
        try {
            await this.#link.call("DELETE", this.#path, options);
        } catch (error) {
            if (!(error instanceof CoveError && error.code === "sandbox_gone")) throw error;
        }
    }

    /**
     * Mounts a registered directory, also while it runs; it stays over stops and starts. To be written it needs a sandbox
     * that was created `mountable`, or that is stopped: CoveError `mount_refused` else.
     */
    async mount(mount: MountSpec, options: CallOptions = {}): Promise<SandboxView> {
        return this.#link.json("POST", `${this.#path}/mounts`, { ...options, json: mount, repeat: true });
    }

    /** Unmounts what is at this path. While anything in the sandbox uses it, that is CoveError `mount_busy`. */
    async unmount(target: string, options: CallOptions = {}): Promise<void> {
        await this.#link.call("DELETE", `${this.#path}/mounts`, { ...options, query: { target } });
    }

    async usage(options: CallOptions = {}): Promise<Usage> {
        return this.#link.json("GET", `${this.#path}/usage`, options);
    }

    /** Whom it may reach, and what came of what it tried. */
    async network(options: CallOptions & { limit?: number } = {}): Promise<NetworkTraffic> {
        const { limit, signal } = options;
        return this.#link.json("GET", `${this.#path}/network`, { query: { limit }, signal });
    }

    /** A token of this sandbox alone, for whoever should not have the key. */
    async token(spec: TokenSpec, options: CallOptions = {}): Promise<Token> {
        return this.#link.json("POST", `${this.#path}/tokens`, { json: spec, ...options });
    }

    /** A URL by which anybody reads or writes one file. */
    async signUrl(spec: UrlSpec, options: CallOptions = {}): Promise<Url> {
        return this.#link.json("POST", `${this.#path}/urls`, { json: spec, ...options });
    }

    /**
     * Runs a command and resolves when it has exited. A timeout, a signal and an exit code are results, too. A restart
     * of the engine costs time alone: the command runs on, and never twice.
     */
    exec(command: ExecSpec, options: ExecOptions = {}): Promise<ExecResult> {
        return exec(this.#link, this.processes, this.#path, command, options);
    }
}
