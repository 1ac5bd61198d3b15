// The search for text: the engine finds lines inside the sandbox, and JavaScript's own expression has the last word
// on each, so that what is found and where is what a search on this side would have found.
import type { Files, Found, Match } from "@cove/client";
import {
    FilesystemError, UnsupportedGrepPatternError, type FilesystemGrepMatch, type FilesystemGrepOptions,
    type FilesystemGrepResult,
} from "@mastra/core/workspace";
import { below, isEntry, statAll } from "./filesystem-paths.js";
import { perlPattern, Untranslatable } from "./filesystem-regex.js";

/** The API's bounds. */
const TIME_LIMIT_MS = 60_000;
const CONTEXT_MAX = 100;
const LIMIT_MAX = 1_000_000;
const LINKS_MAX = 10_000;
/** The engine tells the first 16 KiB of a line; the rest is read, up to what it searches as one line. */
const LINE_READ_FIRST = 65_536;
const LINE_READ_MAX = 16 * 1024 * 1024;
const LINES_AT_ONCE = 4;
/** So much of them altogether; of more the engine's word is taken, and the beginning of the line. */
const LINES_BYTES = 32 * 1024 * 1024;

export interface GrepRun {
    files: Files;
    /** The absolute path of what is searched. */
    top: string;
    /** Of the links that are met, those whose files may be read. */
    allowLinks(paths: string[]): Promise<string[]>;
    /** Whether callers may drop some of these results: then a limit would hide others that they want. */
    mayBeFiltered(results: readonly FilesystemGrepResult[]): Promise<boolean>;
    warn(message: string): void;
}

function expressions(options: FilesystemGrepOptions): { own: RegExp; perl: string } {
    try {
        const own = new RegExp(options.pattern, options.caseSensitive ? "" : "i");
        // JavaScript sees an empty line behind the last newline of a file, which to the engine is none.
        if (own.test("")) throw new Untranslatable("it matches nothing at all");
        return { own, perl: perlPattern(options.pattern, !options.caseSensitive) };
    } catch (error) {
        if (error instanceof Untranslatable || error instanceof SyntaxError)
            throw new UnsupportedGrepPatternError(options.pattern, error.message);
        throw error;
    }
}

/** Links to files are read as the files they lead to; the engine follows none that it meets. */
async function linkedFiles(run: GrepRun, includeHidden: boolean): Promise<string[]> {
    const { items, truncated } = await run.files.find(run.top, {
        type: "symlink", hidden: includeHidden, limit: LINKS_MAX, time_limit_ms: TIME_LIMIT_MS,
    });
    if (truncated) run.warn(`grep: below ${run.top} are more links than ${LINKS_MAX}; those that follow were not searched`);
    if (items.length === 0) return [];
    const paths = items.map((entry) => entry.path);
    const targets = await statAll(run.files, paths, true);
    return run.allowLinks(
        paths.filter((_, i) => {
            const target = targets[i];
            return isEntry(target) && target.type === "file";
        }),
    );
}

export async function grepBelow(run: GrepRun, options: FilesystemGrepOptions): Promise<FilesystemGrepResult[]> {
    const { own, perl } = expressions(options);
    const context = Math.max(0, Math.floor(options.contextLines ?? 0));
    if (context > CONTEXT_MAX) throw new UnsupportedGrepPatternError(options.pattern, `more than ${CONTEXT_MAX} lines around`);
    const limit = Math.min(options.maxTotalMatches ?? LIMIT_MAX, LIMIT_MAX);
    const perFile = options.maxCountPerFile;
    if (limit < 1 || (perFile !== undefined && perFile < 1)) return [];
    const spec = {
        pattern: perl,
        ignore_case: !options.caseSensitive,
        hidden: options.includeHidden,
        utf16: true,
        limit,
        time_limit_ms: TIME_LIMIT_MS,
        ...(context > 0 ? { before: context, after: context } : {}),
        ...(perFile === undefined ? {} : { per_file: Math.floor(perFile) }),
    };
    const [found, links] = await Promise.all([run.files.grep(run.top, spec), linkedFiles(run, options.includeHidden)]);
    const all = [found];
    if (links.length > 0) all.push(await run.files.grep(links, spec));

    const results: FilesystemGrepResult[] = [];
    let count = 0;
    let left = LINES_BYTES;
    for (const part of all) {
        left = await completeLines(run.files, part, left);
        const { kept, dropped } = collect(part, own, run.top, context);
        check(part, dropped, perFile, options.pattern, run);
        results.push(...kept);
        count += part.count;
    }
    const isCut = all.some((part) => part.truncated) || count > limit;
    // Only a search on this side, which leaves out what nobody wants before it counts, can find the rest.
    if (isCut && (await run.mayBeFiltered(results)))
        throw new UnsupportedGrepPatternError(
            options.pattern,
            `it matches more than ${limit} lines, some in files that are left out`,
        );
    results.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
    return isCut ? firstOf(results, limit) : results;
}

/** Of lines that were told in part the whole, for only on that can the expression be tried. Answers what is left of `most` bytes. */
async function completeLines(files: Files, found: Found<Match>, most: number): Promise<number> {
    const cut = found.items.filter((item) => item.type === "match" && item.is_cut).reverse();
    let left = most;
    const next = async (): Promise<void> => {
        for (let item = cut.pop(); item !== undefined && left > 0; item = cut.pop())
            for (let length = LINE_READ_FIRST; length <= Math.min(left, LINE_READ_MAX); length *= 2) {
                const bytes = await files.read(item.path, { offset: item.offset, length });
                const end = bytes.indexOf(10);
                if (end < 0 && bytes.length === length) continue;
                item.text = bytes.subarray(0, end < 0 ? bytes.length : end).toString();
                item.is_cut = false;
                left -= item.text.length;
                break;
            }
    };
    await Promise.all(Array.from({ length: LINES_AT_ONCE }, next));
    return left;
}

/** What makes an answer less than what was asked for. */
function check(
    part: Found<Match>,
    dropped: Map<string, number>,
    perFile: number | undefined,
    pattern: string,
    run: GrepRun,
): void {
    if (part.reason === "timeout")
        throw new FilesystemError(
            `the search of ${run.top} took longer than ${TIME_LIMIT_MS / 1000} s; search a smaller directory`,
            "ETIMEDOUT",
            run.top,
        );
    for (const { path, error } of part.errors) {
        if (error?.code === "too_many_files") throw new UnsupportedGrepPatternError(pattern, error.detail);
        run.warn(`grep: ${path ?? run.top} was not searched: ${error?.detail ?? "it cannot be read"}`);
    }
    // A line that the engine found and that does not match took the place of one that does.
    if (dropped.size > 0 && (part.truncated || (perFile !== undefined && [...dropped.values()].some((n) => n >= perFile))))
        throw new UnsupportedGrepPatternError(pattern, "Perl's engine finds more lines with it");
}

function firstOf(results: FilesystemGrepResult[], limit: number): FilesystemGrepResult[] {
    const first: FilesystemGrepResult[] = [];
    let left = limit;
    for (const { path, matches } of results) {
        if (left === 0) break;
        first.push({ path, matches: matches.slice(0, left) });
        left -= Math.min(left, matches.length);
    }
    return first;
}

/** The lines of the answer by file, each match with the lines around it. `dropped`: of files with lines that do not
 * match after all, how many the engine had counted. */
function collect(
    found: Found<Match>,
    own: RegExp,
    top: string,
    context: number,
): { kept: FilesystemGrepResult[]; dropped: Map<string, number> } {
    const byPath = new Map<string, Match[]>();
    for (const item of found.items) {
        const items = byPath.get(item.path);
        if (items === undefined) byPath.set(item.path, [item]);
        else items.push(item);
    }
    const kept: FilesystemGrepResult[] = [];
    const dropped = new Map<string, number>();
    for (const [path, items] of byPath) {
        const lines = new Map(items.map((item) => [item.line ?? 0, item.text]));
        const matches: FilesystemGrepMatch[] = [];
        const told = items.filter((item) => item.type === "match");
        for (const item of told) {
            const column = columnOf(item, own);
            if (column === undefined) continue;
            const line = item.line ?? 0;
            matches.push({
                line,
                column,
                text: item.text,
                ...(context > 0 ? { before: around(lines, line, -1, context), after: around(lines, line, 1, context) } : {}),
            });
        }
        if (matches.length < told.length) dropped.set(path, told.length);
        if (matches.length > 0) kept.push({ path: below(top, path) || path.slice(path.lastIndexOf("/") + 1), matches });
    }
    return { kept, dropped };
}

/** Of a line that is too long to be read the engine alone knows. */
function columnOf(item: Match, own: RegExp): number | undefined {
    if (item.is_cut) return item.column_utf16 ?? 0;
    return own.exec(item.text)?.index;
}

function around(lines: ReadonlyMap<number, string>, line: number, step: 1 | -1, count: number): string[] {
    const found: string[] = [];
    for (let at = line + step; found.length < count; at += step) {
        const text = lines.get(at);
        if (text === undefined) break;
        found.push(text);
    }
    return step < 0 ? found.reverse() : found;
}
