// Which directories of this host a CoveLocalSandbox's box has, and how they are handed to the engine: it knows no
// paths, so each is registered by a name, and the box is made with the names.
import { CoveError, type Cove, type SandboxSpec } from "@cove/client";
import { MountError, type NativeSandboxConfig } from "@mastra/core/workspace";
import { createHash } from "node:crypto";
import { stat } from "node:fs/promises";
import { existsSync } from "node:fs";
import path from "node:path";
import { isWithin } from "./local-options.js";

export type Mounts = NonNullable<SandboxSpec["mounts"]>;

export interface HostDirectory {
    path: string;
    readOnly: boolean;
}

/** What a box has of the host without a word: its system directories, read-only. */
const SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/** What the box has of its own, in which nothing of the host can lie. */
const OWN = ["/proc", "/sys", "/dev"];
// Not that of the mounts of a CoveSandbox, which are of one sandbox each and go with it.
const PREFIX = "cove-local-";
const TARGET_BYTES = 255;
/** So many a sandbox can have. */
const MOUNTS_MAX = 16;
/** So many roots and mounts an engine knows. */
const NAMES_MAX = 128;

/** The program's own, and npm's, to which the links beside it lead where node was not installed by the system. */
function nodeDirectories(): string[] {
    const programs = path.dirname(process.execPath);
    const modules = path.resolve(programs, "../lib/node_modules");
    return existsSync(path.join(modules, "npm")) ? [programs, modules] : [programs];
}

/** In the order in which they are mounted: what lies within another one comes behind it, and counts there. */
export function planDirectories(
    workingDirectory: string,
    isIsolated: boolean,
    rules: NativeSandboxConfig,
): HostDirectory[] {
    const planned = new Map<string, HostDirectory>();
    const add = (given: string, readOnly: boolean): void => {
        planned.set(path.resolve(given), { path: path.resolve(given), readOnly });
    };

    if (rules.allowSystemBinaries !== false) for (const directory of nodeDirectories()) add(directory, true);
    for (const given of rules.readOnlyPaths ?? []) add(given, true);
    add(workingDirectory, isIsolated && rules.readOnly === true);
    for (const given of rules.readWritePaths ?? []) add(given, false);

    const all = [...planned.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
    return all.filter((one) => !one.readOnly || !isVisible(one.path, all.filter((other) => other !== one)));
}

/** Whether a read-only mount would show nothing that is not there already, in the same way. */
function isVisible(wanted: string, others: readonly HostDirectory[]): boolean {
    const around = others.filter((other) => isWithin(wanted, other.path)).at(-1);
    return around ? around.readOnly : SYSTEM.some((system) => isWithin(wanted, system));
}

/** Whether what lies there on this host is inside, too. */
export function isInside(given: string, directories: readonly HostDirectory[]): boolean {
    const wanted = path.resolve(given);
    return [...SYSTEM, ...directories.map((directory) => directory.path)].some((each) => isWithin(wanted, each));
}

/** PATH of this program as far as it leads anywhere inside, with node's directory and the system's. */
export function insidePath(host: string | undefined, directories: readonly HostDirectory[], node: boolean): string {
    const entries = (host ?? "").split(":").filter(
        (entry) => entry !== "" && (!path.isAbsolute(entry) || isInside(entry, directories)),
    );

    if (node) entries.push(path.dirname(process.execPath));
    entries.push("/usr/local/bin", "/usr/bin", "/bin");
    return [...new Set(entries)].join(":");
}

async function check(directory: HostDirectory): Promise<string> {
    const wanted = directory.path;
    const refuse = (why: string): never => {
        throw new MountError(`CoveLocalSandbox: ${wanted} cannot be in the sandbox: ${why}`, wanted);
    };

    if (wanted === "/") refuse("it is the whole host; name a directory below it");
    if (OWN.some((own) => isWithin(wanted, own))) refuse("the sandbox has its own there; name another directory");
    if (Buffer.byteLength(wanted) > TARGET_BYTES)
        refuse(`its path is longer than ${TARGET_BYTES} bytes; use a shorter one`);
    const found = await stat(wanted, { bigint: true }).catch((error: NodeJS.ErrnoException) =>
        refuse(error.code === "ENOENT" ? "there is no such directory; make it, or leave it out" : error.message),
    );
    if (!found.isDirectory()) refuse("it is a file; name the directory that it lies in");
    // Another directory at this path is another one: the engine knows each by its inode.
    const key = JSON.stringify([wanted, String(found.dev), String(found.ino), directory.readOnly]);
    return PREFIX + createHash("sha256").update(key).digest("hex").slice(0, 24);
}

async function registerOne(cove: Cove, name: string, directory: HostDirectory): Promise<void> {
    try {
        await cove.registerMount(name, directory.path, { readOnly: directory.readOnly });
    } catch (error) {
        // Another sandbox of this directory did it meanwhile: the name says which directory it is.
        if ((await cove.roots()).mounts.includes(name)) return;
        throw error;
    }
}

/**
 * Makes room, where there is none: takes back the names that we gave and this sandbox does not need. Those of sandboxes
 * that were never destroyed are among them, and one that starts registers its own again.
 */
async function forgetOthers(cove: Cove, keep: readonly string[]): Promise<boolean> {
    const { roots, mounts } = await cove.roots();
    if (roots.length + mounts.length < NAMES_MAX - MOUNTS_MAX) return false;
    for (const name of mounts)
        if (name.startsWith(PREFIX) && !keep.includes(name)) await cove.unregisterMount(name).catch(() => {});
    return true;
}

/** Registers the directories, and gives what the box is to be made with. `again`: whatever is known of them is wrong. */
export async function registerDirectories(
    cove: Cove,
    directories: readonly HostDirectory[],
    again = false,
): Promise<Mounts> {
    if (directories.length > MOUNTS_MAX)
        throw new MountError(
            `CoveLocalSandbox: ${directories.length} directories are to be in the sandbox, and it can have ${MOUNTS_MAX}; name ` +
                "one that holds several of them in readOnlyPaths or readWritePaths",
            directories[MOUNTS_MAX]!.path,
        );
    const names = await Promise.all(directories.map(check));
    const known = new Set((await cove.roots()).mounts);
    const missing = directories.map((_, i) => i).filter((i) => again || !known.has(names[i]!));
    const register = async (): Promise<void> => {
        await Promise.all(missing.map((i) => registerOne(cove, names[i]!, directories[i]!)));
    };

    if (again) for (const name of names) if (known.has(name)) await cove.unregisterMount(name).catch(() => {});
    try {
        await register();
    } catch (error) {
        if (!(error instanceof CoveError) || !(await forgetOthers(cove, names))) throw error;
        await register();
    }
    return directories.map((directory, i) => ({
        name: names[i]!,
        target: directory.path,
        read_only: directory.readOnly,
    }));
}

/** A name that is not there any more leads nowhere: what has the directory keeps it. */
export async function forgetDirectories(cove: Cove, mounts: Mounts): Promise<void> {
    for (const { name } of mounts) await cove.unregisterMount(name).catch(() => {});
}
