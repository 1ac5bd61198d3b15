// Directories of this host in which code of a sandbox writes while we do. What is a directory at one moment can be a
// link at the next, to anywhere on this host; so nothing here is reached by a path: each directory is opened below the
// one before, a link never followed, and what is in it is named by the open directory.
import { constants, type BigIntStats } from "node:fs";
import {
    copyFile, lchown, lstat, lutimes, mkdir, open, readdir, readlink, rmdir, symlink, unlink, type FileHandle,
} from "node:fs/promises";

/** Node has no name for it; it is the same on all that cove runs on. */
const O_PATH = 0o10000000;
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;
const LINKS_MAX = 40;
/** Each level is a descriptor of this program. */
const DEPTH_MAX = 256;
const AT_ONCE = 16;

export function hasErrno(error: unknown, ...codes: string[]): boolean {
    return codes.includes((error as NodeJS.ErrnoException | null)?.code ?? "");
}

/** A path to it, or to what it has by that name, for as long as it is open. */
export function at(directory: FileHandle, name?: string | Buffer): Buffer {
    const self = Buffer.from(`/proc/self/fd/${directory.fd}`);
    return name === undefined ? self : Buffer.concat([self, Buffer.from("/"), Buffer.from(name)]);
}

export async function realPathOf(directory: FileHandle): Promise<string> {
    return readlink(at(directory), "utf8");
}

/** A link in a directory that somebody may write to whom nobody trusts. */
export class UntrustedLink extends Error {}

function partsOf(path: string): string[] {
    return path.split("/").filter((part) => part !== "" && part !== ".");
}

async function makeAt(directory: FileHandle, name: string): Promise<boolean> {
    return mkdir(at(directory, name)).then(
        () => true,
        (error: unknown) => {
            if (hasErrno(error, "EEXIST")) return false;
            throw error;
        },
    );
}

/**
 * Opens what an absolute path leads to. Links are followed but those in a directory of which `isWritten` says that code
 * of a sandbox writes there. `make`: directories that are missing are made.
 */
export async function openPath(
    path: string,
    isWritten: (directory: string) => Promise<boolean>,
    make = false,
): Promise<{ directory: FileHandle; made: boolean }> {
    const root = (): Promise<FileHandle> => open("/", O_PATH | constants.O_DIRECTORY);
    const left = partsOf(path);
    let directory = await root();
    let links = 0;
    let made = false;

    try {
        for (let name = left.shift(); name !== undefined; name = left.shift()) {
            const step = (): Promise<FileHandle> => open(at(directory, name), O_PATH | constants.O_NOFOLLOW);
            let next;
            try {
                next = await step();
            } catch (error) {
                if (!make || !hasErrno(error, "ENOENT")) throw error;
                made = await makeAt(directory, name);
                next = await step();
            }
            if (!(await next.stat()).isSymbolicLink()) {
                await directory.close();
                directory = next;
                continue;
            }
            await next.close();
            const place = await realPathOf(directory);
            if (await isWritten(place))
                throw new UntrustedLink(
                    `${place}/${name} is a link in a directory that a sandbox writes to, and may lead anywhere; name what it ` +
                        "should lead to, or put a directory in its place",
                );
            if (++links > LINKS_MAX) throw Object.assign(new Error(`${path}: too many links`), { code: "ELOOP" });
            const target = await readlink(at(directory, name), "utf8");
            left.unshift(...partsOf(target));
            if (!target.startsWith("/")) continue;
            await directory.close();
            directory = await root();
        }
        return { directory, made };
    } catch (error) {
        await directory.close().catch(() => {});
        throw error;
    }
}

/** Opens a directory below another one, with no link on the way; `undefined` where there is none. */
export async function openBelow(top: FileHandle, path: string, make = false): Promise<FileHandle | undefined> {
    let directory = await open(at(top), constants.O_RDONLY | constants.O_DIRECTORY);
    try {
        for (const name of partsOf(path)) {
            if (make) await makeAt(directory, name);
            const next = await open(at(directory, name), DIRECTORY);
            await directory.close();
            directory = next;
        }
        return directory;
    } catch (error) {
        await directory.close().catch(() => {});
        if (hasErrno(error, "ENOENT", "ELOOP", "ENOTDIR")) return undefined;
        throw error;
    }
}

// ---- copies ----

/** Who the copies are to belong to, where that is not who makes them anyway. */
interface Owner {
    uid: number;
    gid: number;
}

/** Undefined where it went away, or became something else, since it was seen. */
async function unlessGone<T>(found: Promise<T>): Promise<T | undefined> {
    return found.catch((error: unknown) => {
        if (hasErrno(error, "ENOENT", "ELOOP", "ENOTDIR", "ENXIO")) return undefined;
        throw error;
    });
}

/**
 * Copies what a directory holds into another one: files, directories, and links as they are. What is neither (a FIFO, a
 * socket) is left out, and so is what vanishes meanwhile. Root gives the copies to the owner of the directory.
 */
export async function copyTree(from: FileHandle, to: FileHandle): Promise<void> {
    const { uid, gid } = await to.stat();
    const isOwn = process.geteuid?.() !== 0 || (uid === 0 && gid === 0);
    await copyLevel(from, to, isOwn ? undefined : { uid, gid }, 0);
}

/** Each once: in a directory that changes while it is listed, a name may come twice. */
async function namesIn(directory: FileHandle): Promise<Buffer[]> {
    const names = await readdir(at(directory), { encoding: "buffer" });
    return [...new Map(names.map((name) => [name.toString("latin1"), name])).values()];
}

async function copyLevel(from: FileHandle, to: FileHandle, owner: Owner | undefined, depth: number): Promise<void> {
    if (depth > DEPTH_MAX) throw new Error(`the directory is more than ${DEPTH_MAX} levels deep and is not copied`);
    const names = await namesIn(from);
    for (let i = 0; i < names.length; i += AT_ONCE) {
        const some = names.slice(i, i + AT_ONCE);
        const found = await Promise.all(some.map((name) => unlessGone(lstat(at(from, name), { bigint: true }))));
        const copied = await Promise.allSettled(
            some.map((name, j) => (found[j]?.isDirectory() ? undefined : copyEntry(from, to, name, found[j], owner))),
        );
        for (const each of copied) if (each.status === "rejected") throw each.reason;
        // One after the other: with them go their descriptors.
        for (const [j, name] of some.entries()) if (found[j]?.isDirectory()) await copyDirectory(from, to, name, owner, depth);
    }
}

async function copyDirectory(from: FileHandle, to: FileHandle, name: Buffer, owner: Owner | undefined, depth: number): Promise<void> {
    const source = await unlessGone(open(at(from, name), DIRECTORY));
    if (source === undefined) return;
    let copy;
    try {
        await mkdir(at(to, name), 0o700);
        copy = await open(at(to, name), DIRECTORY);
        await copyLevel(source, copy, owner, depth + 1);
        if (owner) await copy.chown(owner.uid, owner.gid);
        await likeDirectory(source, copy);
    } finally {
        await source.close();
        await copy?.close();
    }
}

/** Mode and times; after what is in it, which changes them. */
export async function likeDirectory(source: FileHandle, copy: FileHandle): Promise<void> {
    const { mode, atime, mtime } = await source.stat();
    await copy.chmod(mode & 0o7777);
    await copy.utimes(atime, mtime);
}

async function copyEntry(
    from: FileHandle,
    to: FileHandle,
    name: Buffer,
    found: BigIntStats | undefined,
    owner: Owner | undefined,
): Promise<void> {
    const copy = at(to, name);
    if (found?.isSymbolicLink()) {
        const target = await readlink(at(from, name), { encoding: "buffer" }).catch((error: unknown) => {
            if (hasErrno(error, "ENOENT", "EINVAL")) return undefined;
            throw error;
        });
        if (target === undefined) return;
        await symlink(target, copy);
        if (owner) await lchown(copy, owner.uid, owner.gid);
        await lutimes(copy, found.atime, found.mtime);
    } else if (found?.isFile()) {
        const source = await unlessGone(open(at(from, name), FILE));
        try {
            const now = await source?.stat();
            if (!source || !now?.isFile()) return;
            // A link that somebody puts there meanwhile is not followed: it would be there.
            await copyFile(at(source), copy, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
            if (owner) await lchown(copy, owner.uid, owner.gid);
            await lutimes(copy, now.atime, now.mtime);
        } finally {
            await source?.close();
        }
    }
}

/** Removes all that a directory holds. */
export async function emptyTree(directory: FileHandle): Promise<void> {
    for (const name of await readdir(at(directory), { encoding: "buffer" }))
        try {
            await unlink(at(directory, name));
        } catch (error) {
            if (hasErrno(error, "ENOENT")) continue;
            if (!hasErrno(error, "EISDIR", "EPERM")) throw error;
            const below = await open(at(directory, name), DIRECTORY);
            try {
                await emptyTree(below);
            } finally {
                await below.close();
            }
            await rmdir(at(directory, name));
        }
}
