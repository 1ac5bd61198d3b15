// The ports of a sandbox: what listens in it, and where this host or a client reaches it.
import type { Link } from "./link.js";
import type { CallOptions, Port } from "./types.js";

export class Ports {
    readonly #link: Link;
    readonly #path: string;

    /** @internal */
    constructor(link: Link, path: string) {
        this.#link = link;
        this.#path = path;
    }

    /** Those that are open, and those that something listens on. */
    async list(options: CallOptions = {}): Promise<Port[]> {
        return (await this.#link.json<{ ports: Port[] }>("GET", this.#path, options)).ports;
    }

    /** Opens it to the server's host; `url` of what is answered is where. */
    async open(port: number, options: CallOptions & { public?: boolean | undefined } = {}): Promise<Port> {
        const { signal, public: isPublic } = options;
        return this.#link.json("POST", this.#path, { json: { port, public: isPublic }, signal, repeat: true });
    }

    async close(port: number, options: CallOptions = {}): Promise<void> {
        await this.#link.call("DELETE", `${this.#path}/${port}`, options);
    }

    /** Where the server's host reaches it; null where it is not open, or the sandbox does not run. */
    async url(port: number, options: CallOptions = {}): Promise<string | null> {
        return (await this.list(options)).find((each) => each.port === port && each.open)?.url ?? null;
    }
}
