// What directories hold, as Mastra has it: one level, all levels, or all of it at once.
import { posix } from "node:path";
import type { Entry, Files } from "@cove/client";
import { NotDirectoryError, type FileEntry, type ListOptions, type WalkEntry, type WalkOptions } from "@mastra/core/workspace";
import { below, isEntry, statAll } from "./filesystem-paths.js";

/** The API goes no further down. */
const DEPTH_MAX = 4096;
/** How far LocalFilesystem goes down that is told no depth. */
const LEVELS = 100;

/** Of links it is looked up what they lead to; what leads nowhere is a file. */
async function withTargets(files: Files, entries: readonly Entry[]): Promise<(entry: Entry) => FileEntry> {
    const links = entries.filter((entry) => entry.type === "symlink").map((entry) => entry.path);
    const outcomes = links.length === 0 ? [] : await statAll(files, links, true);
    const toDirectories = new Set(
        links.filter((_, i) => {
            const outcome = outcomes[i];
            return isEntry(outcome) && outcome.type === "directory";
        }),
    );
    return (entry) => {
        if (entry.type === "directory") return { name: entry.name, type: "directory" };
        if (entry.type !== "symlink") return { name: entry.name, type: "file", size: entry.size };
        return {
            name: entry.name,
            type: toDirectories.has(entry.path) ? "directory" : "file",
            isSymlink: true,
            ...(entry.target === undefined ? {} : { symlinkTarget: entry.target }),
        };
    };
}

/** The API lists a file as itself. */
async function listDirectory(files: Files, path: string, options: { depth: number; hidden?: boolean }): Promise<Entry[]> {
    const entries = await files.list(path, options);
    if (entries[0]?.path === path) throw new NotDirectoryError(path);
    return entries;
}

/**
 * Links to directories are told and not entered: what is behind one is listed by its own path, and a link to a
 * directory above it would be listed without end. The extension is that of files; directories and links stay.
 */
export async function readDirectory(files: Files, path: string, options: ListOptions = {}): Promise<FileEntry[]> {
    const levels = options.recursive ? (options.maxDepth ?? LEVELS) + 1 : 1;
    const entries = await listDirectory(files, path, { depth: Math.min(Math.max(levels, 1), DEPTH_MAX) });
    const wanted = options.extension === undefined ? undefined : [options.extension].flat();
    const kept = entries.filter((entry) => {
        if (wanted === undefined || entry.type !== "file") return true;
        const extension = posix.extname(entry.name);
        return wanted.some((one) => one === extension || one === extension.slice(1));
    });
    const asFileEntry = await withTargets(files, kept);
    return kept.map((entry) => ({ ...asFileEntry(entry), name: below(path, entry.path) }));
}

export async function walkDirectory(files: Files, path: string, options: WalkOptions = {}): Promise<WalkEntry[]> {
    const depth = options.maxDepth === undefined ? DEPTH_MAX : Math.min(options.maxDepth, DEPTH_MAX);
    const entries = await listDirectory(files, path, { depth: Math.max(depth, 1), hidden: options.includeHidden ?? false });
    if (depth < 1) return [];
    const asFileEntry = await withTargets(files, entries);
    return entries.map((entry) => ({ ...asFileEntry(entry), path: below(path, entry.path) }));
}
