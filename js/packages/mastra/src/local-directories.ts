// Which directories of this host a CoveLocalSandbox's box has, and how they are handed to the engine: it knows no
// paths, so each is registered by a name, and the box is made with the names.
import { CoveError, type Cove, type SandboxSpec } from "@cove/client";
import { MountError, type NativeSandboxConfig } from "@mastra/core/workspace";
import { existsSync, statSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import path from "node:path";
import { isWithin } from "./local-options.js";
import { hasErrno, openPath, UntrustedLink } from "./local-tree.js";
import { directoryName, MOUNTS_MAX } from "./mounts.js";
import { OWN, SYSTEM } from "./system-places.js";
import { willBeWritten, writtenBySandboxes } from "./written.js";

export type Mounts = NonNullable<SandboxSpec["mounts"]>;

export interface HostDirectory {
    path: string;
    readOnly: boolean;
}

/** What is in it of these, code may use as it is: what LocalSandbox has to be told, a box has anyway. */
const DEVICES = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"].map(
    (name) => `/dev/${name}`,
);
/** Files that it has, read-only, of its own or of the host. */
const ETC = ["group", "hostname", "hosts", "ld.so.cache", "localtime", "mtab", "nsswitch.conf", "os-release", "passwd", "protocols",
    "resolv.conf", "services"].map((name) => `/etc/${name}`);

/** Whether a box has it without a word, so that there is nothing to mount. */
function isInBox(wanted: string, readOnly: boolean): boolean {
    if (DEVICES.includes(wanted)) return true;
    return readOnly && (wanted === "/" || OWN.includes(wanted) || isWithin(wanted, "/proc") || ETC.includes(wanted));
}

/** Whether these rules ask for all that this host has to read. A box has its system directories alone. */
export function wantsWholeHost(rules: NativeSandboxConfig): boolean {
    return (rules.readOnlyPaths ?? []).some((given) => path.resolve(given) === "/");
}

// Not that of the mounts of a CoveSandbox, which are of one sandbox each and go with it.
const PREFIX = "cove-local-";
const TARGET_BYTES = 255;
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
    const addRule = (given: string, readOnly: boolean): void => {
        if (!isInBox(path.resolve(given), readOnly)) add(given, readOnly);
    };

    if (rules.allowSystemBinaries !== false) for (const directory of nodeDirectories()) add(directory, true);
    for (const given of rules.readOnlyPaths ?? []) addRule(given, true);
    add(workingDirectory, isIsolated && rules.readOnly === true);
    for (const given of rules.readWritePaths ?? []) addRule(given, false);

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

function refuse(wanted: string, why: string): never {
    throw new MountError(`CoveLocalSandbox: ${wanted} cannot be in the sandbox: ${why}`, wanted);
}

/** What can be said of them before there is an engine. */
export function checkDirectories(directories: readonly HostDirectory[]): void {
    if (directories.length > MOUNTS_MAX)
        throw new MountError(
            `CoveLocalSandbox: ${directories.length} directories are to be in the sandbox, and it can have ${MOUNTS_MAX}; name ` +
                "one that holds several of them in readOnlyPaths or readWritePaths",
            directories[MOUNTS_MAX]!.path,
        );
    for (const { path: wanted } of directories) {
        if (wanted === "/") refuse(wanted, "it is the whole host; name a directory below it");
        if (OWN.some((own) => isWithin(wanted, own)))
            refuse(wanted, "the sandbox has its own there; name another directory");
        if (Buffer.byteLength(wanted) > TARGET_BYTES)
            refuse(wanted, `its path is longer than ${TARGET_BYTES} bytes; use a shorter one`);
        const found = statSync(wanted, { throwIfNoEntry: false });
        if (found && !found.isDirectory())
            refuse(wanted, "it is a file; name the directory that it lies in, or copy it into the working directory");
    }
}

/** Who can write checkpoints could have them copied into the next sandbox. */
export function checkCheckpoints(wanted: string, directories: readonly HostDirectory[]): void {
    const around = directories.find((each) => !each.readOnly && isWithin(wanted, each.path));
    if (around)
        throw new MountError(
            `CoveLocalSandbox: checkpointsDirectory ${wanted} is in ${around.path}, to which the sandbox writes; name one outside`,
            wanted,
        );
}

/** Opens a directory of this host as far as its path can be trusted. */
export async function openTrusted(
    cove: Cove,
    wanted: string,
    own: readonly HostDirectory[],
    make = false,
): Promise<{ directory: FileHandle; made: boolean }> {
    const writable = own.filter((each) => !each.readOnly).map((each) => each.path);
    try {
        return await openPath(wanted, writtenBySandboxes(cove, writable), make);
    } catch (error) {
        if (error instanceof UntrustedLink) refuse(wanted, error.message);
        throw error;
    }
}

// ---- what the engine is told ----

interface Opened {
    name: string;
    wanted: HostDirectory;
    directory: FileHandle;
}

async function openOne(cove: Cove, wanted: HostDirectory, all: readonly HostDirectory[]): Promise<Opened> {
    const { directory } = await openTrusted(cove, wanted.path, all).catch((error: unknown) => {
        if (error instanceof MountError) throw error;
        const { message } = error as Error;
        return refuse(wanted.path, hasErrno(error, "ENOENT") ? "there is no such directory; make it, or leave it out" : message);
    });
    const found = await directory.stat({ bigint: true });
    if (!found.isDirectory()) {
        await directory.close();
        refuse(wanted.path, "it is a file; name the directory that it lies in");
    }
    if (!wanted.readOnly) await willBeWritten(directory);
    return { name: directoryName(PREFIX, 24, [wanted.path], found, wanted.readOnly), wanted, directory };
}

async function registerOne(cove: Cove, { name, wanted, directory }: Opened): Promise<void> {
    try {
        await cove.registerMount(name, directory.fd, { readOnly: wanted.readOnly });
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
    if (roots.length + mounts.length < NAMES_MAX) return false; // it was refused for another reason
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
    const tried = await Promise.allSettled(directories.map((wanted) => openOne(cove, wanted, directories)));
    const opened = tried.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    try {
        for (const each of tried) if (each.status === "rejected") throw each.reason;
        const known = new Set((await cove.roots()).mounts);
        const missing = opened.filter(({ name }) => again || !known.has(name));
        const register = async (): Promise<void> => {
            const done = await Promise.allSettled(missing.map((each) => registerOne(cove, each)));
            for (const each of done) if (each.status === "rejected") throw each.reason;
        };

        if (again) for (const { name } of opened) if (known.has(name)) await cove.unregisterMount(name).catch(() => {});
        try {
            await register();
        } catch (error) {
            const keep = opened.map(({ name }) => name);
            if (!(error instanceof CoveError) || !(await forgetOthers(cove, keep))) throw error;
            await register();
        }
        return opened.map(({ name, wanted }) => ({ name, target: wanted.path, read_only: wanted.readOnly }));
    } finally {
        for (const { directory } of opened) await directory.close();
    }
}

/** A name that is not there any more leads nowhere: what has the directory keeps it. */
export async function forgetDirectories(cove: Cove, mounts: Mounts): Promise<void> {
    for (const { name } of mounts) await cove.unregisterMount(name).catch(() => {});
}
