// Where a server that runs in the sandbox is reached from this program.
import type { Cove, Port, SandboxView } from "@cove/client";
import type { SandboxNetworking } from "@mastra/core/workspace";
import { hasCode, isDead } from "./errors.js";

/** Whether the loopback of the server's host is that of this program. */
function isHere(address: string): boolean {
    if (address.startsWith("unix:")) return true;
    const { hostname } = new URL(address);
    return hostname === "localhost" || hostname === "[::1]" || hostname.startsWith("127.");
}

/** A port's name of its own is served by the same listener as the API. */
function hostUrl(address: string, host: string): string {
    const api = new URL(address);
    api.host = host;
    return api.origin;
}

export class CoveNetworking implements SandboxNetworking {
    constructor(
        private readonly cove: Cove,
        /** Looks for the sandbox, and starts nothing. */
        private readonly find: () => Promise<SandboxView | undefined>,
    ) {}

    /**
     * The URL of a port, which is opened to the loopback of the server's host. Null where the sandbox does not run, and
     * where this program could not reach the port: on another host only a server with a domain for ports has URLs.
     */
    async getPortUrl(port: number): Promise<string | null> {
        if (!Number.isInteger(port) || port < 1 || port > 65535)
            throw new RangeError(`port ${String(port)} is none; ports are 1 to 65535`);
        const view = await this.find();
        if (view?.state !== "running") return null;
        const address = this.cove.address;
        if (address === undefined) return null;
        try {
            const { ports } = this.cove.sandbox(view.id);
            if (isHere(address)) return (await ports.open(port)).url;
            const found: Port | undefined = (await ports.list()).find((each) => each.port === port);
            return found?.host ? hostUrl(address, found.host) : null;
        } catch (error) {
            if (isDead(error) || hasCode(error, "port_not_found")) return null;
            throw error;
        }
    }
}
