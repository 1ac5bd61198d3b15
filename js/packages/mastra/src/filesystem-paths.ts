// Paths of the sandbox: what a caller writes as an absolute path, and where that really leads.
import { posix } from "node:path";
import type { Entry, FileOutcome, Files } from "@cove/client";

const LINKS_MAX = 40;
const STAT_MAX = 10_000;

/** Whether `path` is `root` or below it, as it is written. */
export function isWithin(path: string, root: string): boolean {
    return path === root || path.startsWith(root === "/" ? root : `${root}/`);
}

/** As the agent should write it: relative to the base where it is below, else absolute. */
export function relativeTo(base: string, path: string): string {
    return isWithin(path, base) ? posix.relative(base, path) : path;
}

/** What is below `top` in a path of an answer that begins with it. */
export function below(top: string, path: string): string {
    if (path === top) return "";
    return path.slice(top === "/" ? 1 : top.length + 1);
}

export function isEntry(outcome: FileOutcome | undefined): outcome is Entry {
    return outcome !== undefined && "type" in outcome;
}

/** More paths than one request takes. */
export async function statAll(files: Files, paths: readonly string[], follow: boolean): Promise<FileOutcome[]> {
    const all: FileOutcome[] = [];
    for (let from = 0; from < paths.length; from += STAT_MAX)
        all.push(...(await files.statMany(paths.slice(from, from + STAT_MAX), { follow })));
    return all;
}

/**
 * Where an absolute path leads when all links in it are followed; of what is not there, as far as it is. One request
 * asks for all parts of a path, so that one without links takes one.
 */
export async function realPath(files: Files, path: string): Promise<{ path: string; exists: boolean }> {
    let real: string[] = [];
    let rest = path.split("/");
    let links = 0;
    while (rest.length > 0) {
        rest = rest.filter((part) => part !== "" && part !== ".");
        if (rest[0] === "..") {
            real.pop();
            rest.shift();
            continue;
        }
        const up = rest.indexOf("..");
        const run = up < 0 ? rest : rest.slice(0, up);
        if (run.length === 0) break;
        const found = await files.statMany(run.map((_, i) => `/${[...real, ...run.slice(0, i + 1)].join("/")}`));
        const at = found.findIndex((entry) => !isEntry(entry) || entry.type === "symlink");
        if (at < 0) {
            real.push(...run);
            rest = rest.slice(run.length);
            continue;
        }
        real.push(...run.slice(0, at));
        const entry = found[at];
        if (!isEntry(entry) || entry.target === undefined || ++links > LINKS_MAX)
            return { path: posix.resolve("/", ...real, ...rest.slice(at)), exists: false };
        if (entry.target.startsWith("/")) real = [];
        rest = [...entry.target.split("/"), ...rest.slice(at + 1)];
    }
    return { path: `/${real.join("/")}`, exists: true };
}
