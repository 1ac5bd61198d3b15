// Links in a working directory that lead to files of a workspace's mounts, as LocalSandbox makes them. Nothing that
// somebody else put there is touched.
import { lstat, mkdir, readdir, readlink, rmdir, symlink, unlink } from "node:fs/promises";
import path from "node:path";

async function leadsTo(link: string, target: string): Promise<boolean> {
    const read = await readlink(link).catch(() => undefined);
    return read !== undefined && path.resolve(path.dirname(link), read) === path.resolve(target);
}

/** Makes the link, or finds it; says why it cannot be made. */
export async function linkInto(link: string, target: string): Promise<string | undefined> {
    const there = await lstat(link).catch(() => undefined);
    if (there?.isSymbolicLink())
        return (await leadsTo(link, target))
            ? undefined
            : `Cannot mount at ${link}: a link that leads elsewhere is there. Remove it, or use another path.`;
    if (there?.isDirectory()) {
        if ((await readdir(link)).length > 0)
            return (
                `Cannot mount at ${link}: the directory is not empty, and what is in it would be hidden. ` +
                "Empty it, or use another path."
            );
        await rmdir(link);
    } else if (there) {
        return `Cannot mount at ${link}: a file is there. Remove it, or use another path.`;
    }
    await mkdir(path.dirname(link), { recursive: true });
    await symlink(path.resolve(target), link);
    return undefined;
}

export async function unlinkFrom(link: string, target: string): Promise<void> {
    if (await leadsTo(link, target)) await unlink(link).catch(() => {});
}
