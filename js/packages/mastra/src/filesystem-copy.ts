// Copies within the sandbox: a file as a write would replace it, and a directory into what is there already.
import { posix } from "node:path";
import type { Entry, Files } from "@cove/client";
import { FileExistsError } from "@mastra/core/workspace";
import { codeOf, fileError, notInPart } from "./filesystem-errors.js";
import { below, isEntry, realPath } from "./filesystem-paths.js";

/** The API goes no further down. */
const DEPTH_MAX = 4096;

export interface Destination {
    /** The absolute path, and what the caller wrote for it. */
    path: string;
    given: string;
    replace: boolean;
}

/** Of two paths the source is what may be missing, and the destination is what everything else is about. */
export async function blame<T>(given: string, operation: string, work: () => Promise<T>): Promise<T> {
    try {
        return await work();
    } catch (error) {
        throw codeOf(error) === "file_not_found" ? error : fileError(error, given, operation);
    }
}

/** A file onto a file: through a link at the destination, as a write goes, but where nothing may be replaced. */
export async function copyOne(files: Files, from: string, to: Destination): Promise<void> {
    const [old] = await files.statMany([to.path]);
    const isThrough = to.replace && isEntry(old) && old.type === "symlink";
    const target = isThrough ? (await realPath(files, to.path)).path : to.path;
    await blame(to.given, "copyFile", () => files.copy(from, target, { parents: true, replace: to.replace }));
}

/** What the destination has besides stays. Without `replace` it keeps its own files, too, and only gets others. */
export async function copyDirectory(files: Files, from: string, to: Destination): Promise<void> {
    const [old] = await files.statMany([to.path], { follow: true });
    if (!isEntry(old)) {
        const copied = await blame(to.given, "copyFile", () =>
            files.copy(from, to.path, { parents: true, recursive: true }),
        );
        notInPart(copied, "copyFile");
        return;
    }
    if (old.type !== "directory") throw new FileExistsError(to.given);
    const entries = await files.list(from, { depth: DEPTH_MAX });
    const placeOf = (entry: Entry): string => posix.join(to.path, below(from, entry.path));
    for (const entry of entries)
        try {
            if (entry.type === "directory") await files.mkdir(placeOf(entry), { parents: true });
            else await files.copy(entry.path, placeOf(entry), { replace: to.replace });
        } catch (error) {
            if (to.replace || codeOf(error) !== "file_exists" || entry.type === "directory")
                throw fileError(error, placeOf(entry), "copyFile");
        }
}
