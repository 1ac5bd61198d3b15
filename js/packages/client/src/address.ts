// Where a server is: what `url` and COVE_URL say, and the two sockets that are looked for without them.
import { lstatSync, statSync } from "node:fs";
import * as net from "node:net";
import { CoveError } from "./error.js";

export type Address =
    | { kind: "unix"; path: string }
    | { kind: "tcp"; tls: boolean; host: string; port: number; header: string };

export const SYSTEM_SOCKET = "/run/cove/cove.sock";

/** Where the server of a container on this machine listens, and where its key lies in the user's home. */
export const CONTAINER = { kind: "tcp", tls: false, host: "127.0.0.1", port: 7070, header: "127.0.0.1:7070" } as const;
export const CONTAINER_KEY = ".cove/operator.key";

/** The line that starts one; docs/container.md says what each word is for, and `cove doctor` says the same line. */
export const CONTAINER_LINE =
    'docker run -d --pull never --name cove --privileged -p 127.0.0.1:7070:7070 -v cove:/var/lib/cove -v "$HOME/.cove:/run/cove-key" cove';

// What was given is not repeated in the message: somebody may have put a key into it.
function bad(what: string): CoveError {
    return new CoveError("bad_option", `${what}: it is no address of a server`, {
        remedy:
            "it is http://HOST:PORT, https://HOST[:PORT] or unix:/PATH, without a user and a path; " +
            "the key goes to apiKey or COVE_API_KEY",
    });
}

/** `what` is the name of the setting, for the message. */
export function parseAddress(text: string, what: string): Address {
    if (text.startsWith("unix:")) {
        const path = text.slice("unix:".length);
        if (!path.startsWith("/") || path.includes("\0")) throw bad(what);
        return { kind: "unix", path };
    }
    let url: URL;
    try {
        url = new URL(text);
    } catch {
        throw bad(what);
    }
    const isTls = url.protocol === "https:";
    if (!isTls && url.protocol !== "http:") throw bad(what);
    if (url.username || url.password || (url.pathname !== "/" && url.pathname !== "") || url.search || url.hash)
        throw bad(what);
    return {
        kind: "tcp",
        tls: isTls,
        host: url.hostname.replace(/^\[|\]$/g, ""),
        port: url.port ? Number(url.port) : isTls ? 443 : 80,
        header: url.host,
    };
}

export function addressText(address: Address): string {
    return address.kind === "unix" ? `unix:${address.path}` : `${address.tls ? "https" : "http"}://${address.header}`;
}

/** Whether a key that is sent there goes over a network that others may read. */
export function isOpen(address: Address): boolean {
    return address.kind === "tcp" && !address.tls && !/^(localhost|127\.\d+\.\d+\.\d+|::1)$/.test(address.host);
}

/** Whether the system's server takes this user for a stranger: it is another user's, and asks for a key. As cove has it. */
export function isOthersSystem(): boolean {
    const uid = process.geteuid?.() ?? 0;
    try {
        return uid !== 0 && statSync(SYSTEM_SOCKET).uid !== uid;
    } catch {
        return false;
    }
}

/** The socket of this user's own engine, whether it is there or not; as cove's own commands find it. */
export function privateSocket(): string {
    const uid = process.geteuid?.() ?? 0;
    const runtime = process.env["XDG_RUNTIME_DIR"];
    // It may be left over from another user's environment (su, sudo).
    if (runtime?.startsWith("/")) {
        try {
            const at = lstatSync(runtime);
            if (at.isDirectory() && at.uid === uid) return `${runtime}/cove/cove.sock`;
        } catch {
            // It is not there, as is usual in containers.
        }
    }
    return `/tmp/cove-${uid}/cove.sock`;
}

/** Whoever could put a socket into its directory would get what is said to the engine. */
export function isSafe(socket: string): boolean {
    try {
        const at = lstatSync(socket.slice(0, socket.lastIndexOf("/")));
        return at.isDirectory() && at.uid === (process.geteuid?.() ?? 0) && (at.mode & 0o077) === 0;
    } catch {
        return false;
    }
}

/** Whether somebody listens there, who lets this user in. */
export function answers(at: string | { host: string; port: number }): Promise<boolean> {
    return new Promise((resolve) => {
        const probe = net.connect(typeof at === "string" ? { path: at } : at);
        probe.once("connect", () => {
            probe.destroy();
            resolve(true);
        });
        probe.once("error", (error: NodeJS.ErrnoException) => {
            // Its queue is full, so somebody is there.
            resolve(error.code === "EAGAIN");
        });
    });
}
