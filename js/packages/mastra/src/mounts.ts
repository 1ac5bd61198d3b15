// Directories of this host that a sandbox sees: registered with the private engine, and given to the sandbox when it is
// made. Whoever may name host paths owns the host, so no other engine takes them.
import type { Cove, SandboxSpec, SandboxView } from "@cove/client";
import { MountError, type FilesystemMountConfig, type WorkspaceFilesystem } from "@mastra/core/workspace";
import { createHash } from "node:crypto";
import type { BigIntStats } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { resolve } from "node:path";
import { hasErrno, openPath, realPathOf } from "./local-tree.js";
import { tidyPath } from "./options.js";
import { holdsPrograms, OWN } from "./system-places.js";
import { willBeWritten, writtenBySandboxes } from "./written.js";

export interface HostMount {
    /** A directory of this host. */
    hostPath: string;
    /** Where it is in the sandbox, absolute. */
    target: string;
    readOnly?: boolean | undefined;
}

export type MountSpec = NonNullable<NonNullable<SandboxSpec["mounts"]>[number]>;

/** What LocalFilesystem says; others of that type say the same. */
function basePathOf(config: FilesystemMountConfig): string | undefined {
    const { basePath } = config as { basePath?: unknown };
    return config.type === "local" && typeof basePath === "string" ? basePath : undefined;
}

/** So many a sandbox can have. */
export const MOUNTS_MAX = 16;

/**
 * The name by which the engine knows a directory. It keeps hold of the directory itself: one that took its path since is
 * another one, by another name.
 */
export function directoryName(prefix: string, digits: number, of: readonly string[], found: BigIntStats, readOnly: boolean): string {
    const identity = JSON.stringify([...of, String(found.dev), String(found.ino), readOnly]);
    return prefix + createHash("sha256").update(identity).digest("hex").slice(0, digits);
}

/** Of the names by which the engine knows the directories of one sandbox. */
const PREFIX = "mastra-";

/** Why Mastra takes this for no path of a mount, if that is so. Its words are those that programs look for. */
function malformed(mountPath: string): string | undefined {
    const parts = mountPath.split("/").filter((part) => part !== "");
    if (!/^\/[A-Za-z0-9_.\-/]*$/.test(mountPath))
        return "Must be an absolute path of letters, digits, dashes, dots, underscores and slashes.";
    if (parts.length === 0) return 'Root path "/" is not allowed.';
    return parts.some((part) => part === "." || part === "..") ? 'Path segments cannot be "." or "..".' : undefined;
}

/** Why nothing can be mounted at this path, if that is so: the sandbox must start without it. */
export function checkMountPath(mountPath: string): string | undefined {
    const wrong = malformed(mountPath) ?? noPlaceFor(mountPath);
    return wrong && `Invalid mount path: ${mountPath}. ${wrong}`;
}

/** Of a path on this host, which may have any characters, at which the sandbox is to have the same directory. */
export function noPlaceFor(path: string): string | undefined {
    const first = path.split("/").find((part) => part !== "");
    if (first === undefined) return "It is the whole host.";
    if (OWN.includes(`/${first}`)) return `The sandbox has a /${first} of its own.`;
    if (holdsPrograms(tidyPath(path))) return "It would hide the sandbox's programs, and no command could run.";
    return Buffer.byteLength(path) > 255 ? "It is longer than 255 bytes." : undefined;
}

/** mount() and unmount() throw for what is no path, as with the other providers; of any other failure mount() tells. */
export function requireMountPath(mountPath: string): void {
    const wrong = malformed(mountPath);
    if (wrong !== undefined) throw new Error(`Invalid mount path: ${mountPath}. ${wrong}`);
}

/** Those of `added` that are to be mounted besides; the engine takes neither two at one place nor any number of them. */
export function withoutDoubles(
    there: readonly Pick<MountSpec, "name" | "target">[],
    added: readonly MountSpec[],
): MountSpec[] {
    const missing = added.filter((each) => {
        const same = there.find((other) => tidyPath(other.target) === each.target);
        if (same && same.name !== each.name)
            throw new MountError(`${each.target}: something else is mounted there already; use another path`, each.target);
        return !same;
    });
    if (there.length + missing.length > MOUNTS_MAX)
        throw new MountError(
            `${missing[0]!.target}: a sandbox can have ${MOUNTS_MAX} mounts, and there are no more; mount one directory that ` +
                "holds several of them",
            missing[0]!.target,
        );
    return missing;
}

/** Where a mount that the sandbox has is, if it is one of these. */
export function isMountOfOurs(mount: Pick<MountSpec, "name">): boolean {
    return mount.name.startsWith(PREFIX);
}

/** The directory of a filesystem that is one of this host; undefined for all others. */
export function hostMountOf(filesystem: WorkspaceFilesystem, target: string): HostMount | undefined {
    const config = filesystem.getMountConfig?.();
    const hostPath = config && basePathOf(config);
    return hostPath === undefined ? undefined : { hostPath, target: tidyPath(target), readOnly: filesystem.readOnly };
}

export class HostMounts {
    #registered = new Set<string>();

    /** `owner` is the sandbox's name: a registration is of one sandbox, so that it can go with it. */
    constructor(
        private readonly cove: Cove,
        private readonly owner: string,
    ) {}

    /** Registers a directory, once, and answers what the sandbox is to be made with. */
    async register(mount: HostMount, signal?: AbortSignal): Promise<MountSpec> {
        const target = tidyPath(mount.target);
        await this.cove.connect({ signal });
        if (!this.cove.isPrivate())
            throw new MountError(
                `${target}: a directory of this host can only be mounted with a private engine, and this sandbox is ` +
                    `on ${this.cove.address ?? "another server"}; use engine: "private" without url`,
                target,
            );
        const { name, directory } = await this.#open(mount, target);
        try {
            if (!(await this.cove.roots({ signal })).mounts.includes(name))
                await this.cove.registerMount(name, directory.fd, { readOnly: mount.readOnly === true, signal });
        } catch (error) {
            // Another object of the same sandbox may have been faster.
            if (!(await this.cove.roots({ signal })).mounts.includes(name)) throw error;
        } finally {
            await directory.close();
        }
        this.#registered.add(name);
        return { name, target, read_only: mount.readOnly === true };
    }

    /** Whether a sandbox has this directory at its place. */
    async has(view: SandboxView, mount: HostMount): Promise<boolean> {
        const { name, directory } = await this.#open(mount, tidyPath(mount.target));
        await directory.close();
        return view.mounts.some((each) => each.name === name && each.target === tidyPath(mount.target));
    }

    /** When the sandbox is gone. Another object may have done it; what cannot be removed does no harm. */
    async unregister(view: SandboxView | undefined): Promise<void> {
        for (const each of view?.mounts ?? []) if (isMountOfOurs(each)) this.#registered.add(each.name);
        const names = [...this.#registered];
        this.#registered.clear();
        await Promise.all(names.map((name) => this.cove.unregisterMount(name).catch(() => {})));
    }

    /** The very directory that is handed over: its path may lead elsewhere at the next moment. */
    async #open(mount: HostMount, target: string): Promise<{ name: string; directory: FileHandle }> {
        const cannot = (why: string, cause?: unknown): MountError =>
            Object.assign(new MountError(`${mount.hostPath}: it cannot be mounted at ${target}: ${why}`, target), { cause });
        const { directory } = await openPath(resolve(mount.hostPath), writtenBySandboxes(this.cove)).catch((error: unknown) => {
            // The path that a system call names is a step on the way there.
            const why = (error as Error).message.replace(/, \w+ '.*'$/, "");
            throw cannot(hasErrno(error, "ENOENT") ? "there is no such directory" : why, error);
        });
        try {
            const found = await directory.stat({ bigint: true });
            if (!found.isDirectory()) throw cannot("it is no directory");
            if (!mount.readOnly) await willBeWritten(directory);
            const of = [this.owner, target, await realPathOf(directory)];
            return { name: directoryName(PREFIX, 32, of, found, mount.readOnly === true), directory };
        } catch (error) {
            await directory.close();
            throw error;
        }
    }
}
