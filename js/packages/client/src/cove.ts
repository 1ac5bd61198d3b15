// The server, as an object: finds it or starts it, and asks it.
import { Kernels } from "./kernels.js";
import { checkKeys, type CoveOptions } from "./options.js";
import type { RequestOptions } from "./request.js";
import { Sandbox } from "./sandbox.js";
import type { CallOptions, EventLine, Roots, SandboxQuery, SandboxSpec, SandboxView, Version } from "./types.js";

export class Cove {
    readonly kernels: Kernels;

    constructor(options: CoveOptions = {}) {
        checkKeys("Cove", options, ["url", "apiKey", "engine", "bin", "retryMs"]);
        this.kernels = new Kernels(this);
    }

    /** The server's address, `unix:/PATH` or a URL; known after connect(). */
    get address(): string | undefined {
        return undefined;
    }

    /** Finds the server, or starts it. Every call does this when it is needed. */
    async connect(_options: CallOptions = {}): Promise<void> {
        throw new Error("not there yet");
    }

    /** Ends idle connections. The engine stays. */
    close(): void {}

    /** Whether it is this user's own engine, on this host; known after connect(). */
    isPrivate(): boolean {
        return false;
    }

    /** Anything that the API has. The answer is parsed where it is JSON, else a Buffer; undefined where it is empty. */
    async request<T = unknown>(_method: string, _path: string, _options: RequestOptions = {}): Promise<T> {
        throw new Error("not there yet");
    }

    async version(options: CallOptions = {}): Promise<Version> {
        return this.request("GET", "/v1/version", options);
    }

    /** The names that were registered for `root` and `mounts`. */
    async roots(options: CallOptions = {}): Promise<Roots> {
        return this.request("GET", "/v1/roots", options);
    }

    /** Makes a sandbox and starts it; with a name that is there already, answers that one, as it is. */
    async create(_spec: SandboxSpec = {}, _options: CallOptions = {}): Promise<{ sandbox: SandboxView; created: boolean }> {
        throw new Error("not there yet");
    }

    async get(_idOrName: string, _options: CallOptions = {}): Promise<SandboxView> {
        throw new Error("not there yet");
    }

    /** The sandbox of this name, if there is one. */
    async find(_name: string, _options: CallOptions = {}): Promise<SandboxView | undefined> {
        throw new Error("not there yet");
    }

    list(_query: SandboxQuery = {}, _options: CallOptions = {}): AsyncIterableIterator<SandboxView> {
        throw new Error("not there yet");
    }

    /** The sandbox of this id; asks nothing. */
    sandbox(id: string): Sandbox {
        return new Sandbox(this, id);
    }

    /** What happens to sandboxes, as it happens. Where the connection breaks, it goes on after the last one. */
    events(_query: { from?: number } = {}, _options: CallOptions = {}): AsyncIterableIterator<EventLine> {
        throw new Error("not there yet");
    }

    /** Registers a directory of this host for `mounts`; with a private engine alone, else `not_private`. */
    async registerMount(
        _name: string,
        _hostPath: string,
        _options: CallOptions & { readOnly?: boolean } = {},
    ): Promise<void> {
        throw new Error("not there yet");
    }

    async unregisterMount(_name: string, _options: CallOptions = {}): Promise<void> {
        throw new Error("not there yet");
    }
}
