// Directories of this host that sandboxes are given by name. The engine opens no path that a client names: the program
// cove opens it, with this user's rights, and hands it over.
import { realpath } from "node:fs/promises";
import { CoveError } from "./error.js";
import type { Link } from "./link.js";
import { findProgram, programEnv, runProgram, type Ran } from "./program.js";
import type { CallOptions } from "./types.js";

interface Listed {
    state: string;
    path: string;
}

async function run(link: Link, args: readonly string[], signal: AbortSignal | undefined): Promise<Ran> {
    await link.connect(signal);
    if (!link.isPrivate())
        throw new CoveError("not_private", "directories of the host are registered with an engine of one's own alone", {
            remedy: 'use engine: "private", or have the operator of the server run cove mount add',
        });
    return runProgram(await findProgram(link.bin), ["mount", ...args], programEnv(link.address));
}

/** What is registered under this name; its list has the paths only for people, a line for each. */
async function registered(link: Link, name: string, signal: AbortSignal | undefined): Promise<Listed | undefined> {
    for (const line of (await run(link, ["ls"], signal)).stdout.split("\n")) {
        const [, found, state, path] = /^(\S+)\s+(\S+)\s+(.*)$/.exec(line) ?? [];
        if (found === name && state && path) return { state, path };
    }
    return undefined;
}

export async function addMount(
    link: Link,
    name: string,
    hostPath: string,
    options: CallOptions & { readOnly?: boolean },
): Promise<void> {
    const args = ["add", name, hostPath];
    if (options.readOnly) args.push("--read-only");
    let ran = await run(link, args, options.signal);
    if (ran.status === 0) return;
    const there = await registered(link, name, options.signal);
    const isSame = there !== undefined && there.path === (await realpath(hostPath).catch(() => hostPath));
    if (isSame && there.state === (options.readOnly ? "read-only" : "-")) return;
    // The directory was removed and made anew since.
    if (isSame && there.state === "missing") {
        await removeMount(link, name, options);
        ran = await run(link, args, options.signal);
        if (ran.status === 0) return;
    }
    throw new CoveError("mount_failed", `mount ${name}: ${ran.why}`);
}

export async function removeMount(link: Link, name: string, options: CallOptions): Promise<void> {
    const ran = await run(link, ["rm", name], options.signal);
    if (ran.status !== 0) throw new CoveError("mount_failed", `mount ${name}: ${ran.why}`);
}
