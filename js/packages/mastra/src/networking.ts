// Where a server that runs in the sandbox is reached from this program.
import type { Cove, Port, SandboxView } from "@cove/client";
import type { SandboxNetworking } from "@mastra/core/workspace";
import { setTimeout as sleep } from "node:timers/promises";
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

/** How long a server that was just started has to begin to listen. */
const WAIT_MS = 5_000;
const LOOK_MS = 50;

export class CoveNetworking implements SandboxNetworking {
    constructor(
        private readonly cove: Cove,
        /** Looks for the sandbox, and starts nothing. */
        private readonly find: () => Promise<SandboxView | undefined>,
    ) {}

    /**
     * The URL of a port, which is opened to the loopback of the server's host. Null where the sandbox does not run, and
     * where this program could not reach the port: on another host only a server with a domain for ports has URLs.
     *
     * Waits up to `waitMs` (5,000; 0: not at all) until something listens there, so that a server that was just started
     * is reached at once. Where nothing does by then the URL is that of a port that refuses, until something listens.
     */
    async getPortUrl(port: number, { waitMs = WAIT_MS }: { waitMs?: number | undefined } = {}): Promise<string | null> {
        if (!Number.isInteger(port) || port < 1 || port > 65535)
            throw new RangeError(`port ${String(port)} is none; ports are 1 to 65535`);
        if (typeof waitMs !== "number" || !(waitMs >= 0)) throw new RangeError(`waitMs: ${String(waitMs)} is no time in milliseconds`);
        const view = await this.find();
        if (view?.state !== "running") return null;
        const address = this.cove.address;
        if (address === undefined) return null;
        const { ports } = this.cove.sandbox(view.id);
        const look = async (): Promise<Port | undefined> => (await ports.list()).find((each) => each.port === port);
        try {
            let found = isHere(address) ? await ports.open(port) : await look();
            const url = isHere(address) ? found?.url : found?.host && hostUrl(address, found.host);
            for (const end = Date.now() + waitMs; url && found && !found.listening && Date.now() < end; found = await look())
                await sleep(LOOK_MS);
            return (found && url) || null;
        } catch (error) {
            if (isDead(error) || hasCode(error, "port_not_found")) return null;
            throw error;
        }
    }
}
