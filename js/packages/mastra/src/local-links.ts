// Links in a working directory that lead to files of a workspace's mounts, as LocalSandbox makes them. Nothing that
// somebody else put there is touched, and no link of the sandbox's is followed on the way: all happens below the
// directory that is given, wherever its path may lead meanwhile.
import { MountError } from "@mastra/core/workspace";
import { lstat, readdir, readlink, rmdir, symlink, unlink, type FileHandle } from "node:fs/promises";
import path from "node:path";
import { at, hasErrno, openBelow } from "./local-tree.js";

/** Makes the link in the open directory, whose path is `top`; false where it is there already. */
export async function linkInto(work: FileHandle, top: string, mountPath: string, target: string): Promise<boolean> {
    const name = path.basename(mountPath);
    const cannot = (why: string): never => {
        throw new MountError(`Cannot mount at ${path.join(top, mountPath)}: ${why}`, mountPath);
    };
    const parent = await openBelow(work, path.dirname(mountPath), true);
    if (parent === undefined) return cannot("a link or a file is on the way. Remove it, or use another path.");
    try {
        const place = at(parent, name);
        const there = await lstat(place).catch(() => undefined);
        if (there?.isSymbolicLink()) {
            if ((await readlink(place, "utf8").catch(() => "")) === target) return false;
            cannot("path is already occupied by a link that leads elsewhere. Remove it, or use another path.");
        } else if (there?.isDirectory()) {
            const inIt = await openBelow(parent, name);
            const isEmpty = inIt !== undefined && (await readdir(at(inIt))).length === 0;
            await inIt?.close();
            if (!isEmpty)
                cannot("directory exists and is not empty, and what is in it would be hidden. Empty it, or use another path.");
            await rmdir(place);
        } else if (there) {
            cannot("path is a regular file. Remove it, or use another path.");
        }
        await symlink(target, place);
        return true;
    } catch (error) {
        if (hasErrno(error, "EEXIST", "ENOTEMPTY", "ENOTDIR")) return cannot("something was put there just now.");
        throw error;
    } finally {
        await parent.close();
    }
}

export async function unlinkFrom(work: FileHandle, mountPath: string, target: string): Promise<void> {
    const parent = await openBelow(work, path.dirname(mountPath));
    try {
        if (!parent) return;
        const place = at(parent, path.basename(mountPath));
        if ((await readlink(place, "utf8").catch(() => "")) === target) await unlink(place).catch(() => {});
    } finally {
        await parent?.close();
    }
}
