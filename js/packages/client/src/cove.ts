// The server, as an object: finds it or starts it, and asks it.
import { randomUUID } from "node:crypto";
import { CoveError } from "./error.js";
import { Kernels } from "./kernels.js";
import { readLines } from "./lines.js";
import { Link, pause } from "./link.js";
import { addMount, listMounts, removeMount, type RegisteredMount } from "./mounts.js";
import type { CoveOptions } from "./options.js";
import type { RequestOptions } from "./request.js";
import { Sandbox } from "./sandbox.js";
import type { CallOptions, Event, EventLine, Roots, SandboxQuery, SandboxSpec, SandboxView, Version } from "./types.js";
import { Cut } from "./wire.js";

const ID = /^[a-z][a-z0-9]{19}$/;
const AGAIN_MS = 50;

export class Cove {
    readonly kernels: Kernels;
    readonly #link: Link;

    /** Asks nothing yet. What is not said here is taken from the environment: see CoveOptions. */
    constructor(options: CoveOptions = {}) {
        this.#link = new Link({ ...options });
        this.kernels = new Kernels(this.#link);
    }

    /** The server's address, `unix:/PATH` or a URL; known after connect(). */
    get address(): string | undefined {
        return this.#link.address;
    }

    /** Finds the server, or starts it, and sees that it answers. Every call does this when it is needed. */
    async connect(options: CallOptions = {}): Promise<void> {
        await this.#link.connect(options.signal);
    }

    /** Ends idle connections. The engine stays, as do its sandboxes; a later call connects again. */
    close(): void {
        this.#link.close();
    }

    /** Whether it is this user's own engine, on this host; known after connect(). */
    isPrivate(): boolean {
        return this.#link.isPrivate();
    }

    /** Anything that the API has. The answer is parsed where it is JSON, else a Buffer; undefined where it is empty. */
    async request<T = unknown>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
        const hasKey = Object.keys(options.headers ?? {}).some((name) => name.toLowerCase() === "idempotency-key");
        return this.#link.any(method, path, hasKey ? { repeat: true, ...options } : options);
    }

    async version(options: CallOptions = {}): Promise<Version> {
        return this.#link.json("GET", "/v1/version", options);
    }

    /** The names that were registered for `root` and `mounts`. */
    async roots(options: CallOptions = {}): Promise<Roots> {
        return this.#link.json("GET", "/v1/roots", options);
    }

    /** Makes a sandbox and starts it; with a name that is there already, answers that one, as it is. */
    async create(spec: SandboxSpec = {}, options: CallOptions = {}): Promise<{ sandbox: SandboxView; created: boolean }> {
        const { created, ...sandbox } = await this.#link.json<SandboxView & { created: boolean }>("POST", "/v1/sandboxes", {
            json: spec,
            signal: options.signal,
            // The server finds it again by its name or by this, also after a restart.
            headers: spec.name ? undefined : { "Idempotency-Key": randomUUID() },
            repeat: true,
        });
        return { sandbox, created };
    }

    async get(idOrName: string, options: CallOptions = {}): Promise<SandboxView> {
        if (!ID.test(idOrName)) return this.#look(`name:${idOrName}`, options);
        try {
            return await this.#look(idOrName, options);
        } catch (error) {
            // A name may look like an id.
            const named = error instanceof CoveError && error.code === "sandbox_not_found" && (await this.find(idOrName, options));
            if (named) return named;
            throw error;
        }
    }

    /** The sandbox of this name, if there is one. */
    async find(name: string, options: CallOptions = {}): Promise<SandboxView | undefined> {
        try {
            return await this.#look(`name:${name}`, options);
        } catch (error) {
            if (error instanceof CoveError && (error.code === "sandbox_not_found" || error.code === "sandbox_gone")) return undefined;
            throw error;
        }
    }

    async *list(query: SandboxQuery = {}, options: CallOptions = {}): AsyncIterableIterator<SandboxView> {
        let cursor: string | null | undefined;
        do {
            const page: { sandboxes: SandboxView[]; next: string | null } = await this.#link.json("GET", "/v1/sandboxes", {
                query: { ...query, cursor },
                signal: options.signal,
            });
            yield* page.sandboxes;
            cursor = page.next;
        } while (cursor);
    }

    /** The sandbox of this id; asks nothing. */
    sandbox(id: string): Sandbox {
        return new Sandbox(this.#link, id);
    }

    /**
     * What happens to sandboxes, as it happens, without end. Where the connection breaks, it goes on after the last one;
     * a `gap` says that some are not known any more, or may not be.
     */
    async *events(query: { from?: number } = {}, options: CallOptions = {}): AsyncIterableIterator<EventLine> {
        const { signal } = options;
        let from = query.from ?? 0;
        for (;;) {
            const answer = await this.#link.stream("GET", "/v1/events", { query: { from }, signal });
            try {
                for await (const lines of readLines<Event | EventLine | { type: "keepalive" }>(answer, signal))
                    for (const line of lines) {
                        if (line.type === "keepalive") continue;
                        if ("sequence" in line) from = line.sequence + 1;
                        yield line as EventLine;
                    }
            } catch (error) {
                if (!(error instanceof Cut)) throw error;
            }
            // Nothing was heard yet, so nobody knows what to go on with.
            if (from === 0) yield { type: "gap", from: 0 };
            await pause(AGAIN_MS, signal);
        }
    }

    /**
     * Registers a directory of this host for `mounts`, with this user's rights; where the name is registered for this
     * directory already, that is well. With a private engine alone, else `not_private`. `host` is its path, or the
     * descriptor by which it is open, which stays open until this is done.
     */
    async registerMount(
        name: string,
        host: string | number,
        options: CallOptions & { readOnly?: boolean } = {},
    ): Promise<void> {
        await addMount(this.#link, name, host, options);
    }

    /** Those that are registered, with their paths. Private engines only. */
    async registeredMounts(options: CallOptions = {}): Promise<RegisteredMount[]> {
        return listMounts(this.#link, options);
    }

    /** Sandboxes that have it keep it. */
    async unregisterMount(name: string, options: CallOptions = {}): Promise<void> {
        await removeMount(this.#link, name, options);
    }

    #look(id: string, options: CallOptions): Promise<SandboxView> {
        return this.#link.json("GET", `/v1/sandboxes/${encodeURIComponent(id)}`, options);
    }
}
