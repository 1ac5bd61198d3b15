// Directories of this host that sandboxes are given by name. The engine opens no path that a client names: the program
// cove opens it, with this user's rights, and hands it over.
import { realpath } from "node:fs/promises";
import { CoveError } from "./error.js";
import type { Link } from "./link.js";
import { findProgram, HANDED_OVER, programEnv, runProgram, type Ran } from "./program.js";
import type { CallOptions } from "./types.js";

export interface RegisteredMount {
    name: string;
    /** No sandbox can write to it. */
    readOnly: boolean;
    /** Where it was: what is registered is the directory itself. */
    path: string;
    /** The directory is not there any more. */
    isMissing: boolean;
}

async function run(
    link: Link,
    args: readonly string[],
    signal: AbortSignal | undefined,
    handedOver?: number,
): Promise<Ran> {
    await link.connect(signal);
    if (!link.isPrivate())
        throw new CoveError("not_private", "directories of the host are registered with an engine of one's own alone", {
            remedy: 'use engine: "private", or have the operator of the server run cove mount add',
        });
    return runProgram(findProgram(link.bin), ["mount", ...args], programEnv(link.address), handedOver);
}

/** All that are registered; the list of the program has the paths for people, a line for each. */
export async function listMounts(link: Link, options: CallOptions): Promise<RegisteredMount[]> {
    const ran = await run(link, ["ls"], options.signal);
    if (ran.status !== 0) throw new CoveError("mount_failed", `mount ls: ${ran.why}`);
    return ran.stdout.split("\n").flatMap((line): RegisteredMount[] => {
        // Between state and path stands whose it is; an engine of one's own has one tenant.
        const [, name, state, path] = /^(\S+)\s+(missing|read-only|-)\s+(?:[^/\s]\S*\s+)?(\/.*)$/.exec(line) ?? [];
        return name && path ? [{ name, path, readOnly: state === "read-only", isMissing: state === "missing" }] : [];
    });
}

export async function addMount(
    link: Link,
    name: string,
    host: string | number,
    options: CallOptions & { readOnly?: boolean },
): Promise<void> {
    // An open directory is inherited: what this program has open another one may not be allowed to look at.
    const handedOver = typeof host === "number" ? host : undefined;
    const own = typeof host === "number" ? `/proc/self/fd/${host}` : host;
    const args = ["add", name, typeof host === "number" ? HANDED_OVER : host];
    if (options.readOnly) args.push("--read-only");
    let ran = await run(link, args, options.signal, handedOver);
    if (ran.status === 0) return;
    const there = (await listMounts(link, options)).find((each) => each.name === name);
    const isSame = there !== undefined && there.path === (await realpath(own).catch(() => own));
    if (isSame && !there.isMissing && there.readOnly === (options.readOnly === true)) return;
    // The directory was removed and made anew since.
    if (isSame && there.isMissing) {
        await removeMount(link, name, options);
        ran = await run(link, args, options.signal, handedOver);
        if (ran.status === 0) return;
    }
    throw new CoveError("mount_failed", `mount ${name}: ${ran.why}`);
}

export async function removeMount(link: Link, name: string, options: CallOptions): Promise<void> {
    const ran = await run(link, ["rm", name], options.signal);
    if (ran.status !== 0) throw new CoveError("mount_failed", `mount ${name}: ${ran.why}`);
}
