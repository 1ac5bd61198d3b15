// The files of a sandbox, on its own disk; also of one that is stopped, where its disk is kept.
import { randomUUID } from "node:crypto";
import type { Readable } from "node:stream";
import { CoveError } from "./error.js";
import { givenBytes, readLines } from "./lines.js";
import { pause, type Link, type LinkOptions } from "./link.js";
import type { Body } from "./request.js";
import type {
    CallOptions, ChangeLine, Entry, FileCounts, FileErrorsBelow, FileOutcome, FindSpec, GrepSpec, Match, SearchEnd,
} from "./types.js";
import { Cut } from "./wire.js";

export interface FileOptions extends CallOptions {
    /** Who does it, by name or number in the sandbox; else the sandbox's user. */
    user?: string | undefined;
}
export interface ReadOptions extends FileOptions {
    offset?: number | undefined;
    length?: number | undefined;
}
export interface WriteOptions extends FileOptions {
    /** In octal (`"0644"`), or a number (`0o644`). A file that is replaced keeps its own without it. */
    mode?: string | number | undefined;
    /** UID or UID:GID. */
    owner?: string | undefined;
    /** Missing directories are made; true without it. */
    parents?: boolean | undefined;
    /** False: what is there already is `file_exists`, in one step with the writing; true without it. */
    overwrite?: boolean | undefined;
    /** Into the file that is there, from this byte on. */
    offset?: number | undefined;
    append?: boolean | undefined;
}
export interface Found<T> {
    items: T[];
    count: number;
    /** Whether there may be more, and what ended the search. */
    truncated: boolean;
    reason?: "limit" | "timeout" | undefined;
    /** Parts that could not be read. */
    errors: { path?: string; error?: { code?: string; detail?: string } }[];
}
export type Removed = FileCounts & FileErrorsBelow;

const OCTETS = { "Content-Type": "application/octet-stream" };
const PART = `Content-Disposition: form-data; name="file"; filename*=UTF-8''`;
const NDJSON = "application/x-ndjson";
const PAGE = 10_000;
const AGAIN_MS = 50;
const SETTLE_MS = 50;
const SETTLE_MOST_MS = 2_000;
/** Where not all has come: what is still on its way may take a while on a machine that has much to do. */
const MISSING_MS = 1_000;
const MISSING_MOST_MS = 30_000;
/** How much others may have appended beside it. */
const SETTLE_BYTES = 65_536;

type Change = CallOptions & { [field: string]: unknown };

function octal(mode: string | number | undefined): string | undefined {
    return typeof mode === "number" ? mode.toString(8).padStart(4, "0") : mode;
}

function isCode(error: unknown, code: string): boolean {
    return error instanceof CoveError && error.code === code;
}

export class Files {
    readonly #link: Link;
    readonly #sandbox: string;
    readonly #path: string;

    /** @internal */
    constructor(link: Link, sandboxPath: string) {
        this.#link = link;
        this.#sandbox = sandboxPath;
        this.#path = `${sandboxPath}/files`;
    }

    async read(path: string, options: ReadOptions = {}): Promise<Buffer> {
        const { signal, ...query } = options;
        return (await this.#link.call("GET", this.#path, { query: { path, ...query }, signal, waits: true })).body;
    }

    /** The bytes as they come. One that breaks off ends with an error. */
    async readStream(path: string, options: ReadOptions = {}): Promise<Readable> {
        const { signal, ...query } = options;
        return givenBytes(await this.#link.stream("GET", this.#path, { query: { path, ...query }, signal, waits: true }), signal);
    }

    /**
     * Writes a whole file, which has all of it or stays as it was; with `offset` or `append`, into the one that is
     * there. A stream is sent as it comes, and so only once.
     */
    async write(path: string, data: Body, options: WriteOptions = {}): Promise<Entry> {
        const { signal, mode, overwrite, append, ...rest } = options;
        const query = { path, ...rest, mode: octal(mode), append: append || undefined, new: overwrite === false || undefined };
        const send = (repeat: boolean): Promise<Entry> =>
            this.#link.json("PUT", this.#path, { query, body: data, headers: OCTETS, signal, waits: true, repeat });
        if (append && overwrite !== false && (typeof data === "string" || data instanceof Uint8Array))
            return this.#append(path, data, options);
        if (overwrite !== false || append) return send(!append);
        try {
            return await send(false);
        } catch (error) {
            if (!isCode(error, "lost") || !(typeof data === "string" || data instanceof Uint8Array)) throw error;
        }
        try {
            return await send(true);
        } catch (error) {
            // Is it there because the first time had come through after all?
            if (!isCode(error, "file_exists")) throw error;
            const there = await this.read(path, { user: options.user, signal });
            if (!there.equals(typeof data === "string" ? Buffer.from(data) : data)) throw error;
            return this.stat(path, { user: options.user, signal });
        }
    }

    /** What is appended comes once: where it was cut, what follows the old end says how much of it is there. */
    async #append(path: string, data: string | Uint8Array, options: WriteOptions): Promise<Entry> {
        const { signal, user, mode, overwrite: _, ...rest } = options;
        const query = { path, ...rest, user, mode: octal(mode) };
        const bytes = typeof data === "string" ? Buffer.from(data) : Buffer.from(data.buffer, data.byteOffset, data.byteLength);
        for (let at = 0; ; ) {
            const end = await this.#size(path, user, signal);
            const left = bytes.subarray(at);
            try {
                const request = { query, body: left, headers: OCTETS, signal, waits: true, repeat: false };
                return await this.#link.json<Entry>("PUT", this.#path, request);
            } catch (error) {
                if (!isCode(error, "lost") || end === undefined) throw error;
                const tail = await this.#settled(path, end, left.length, user, signal);
                // Others may have appended, too, before it or after it: then it is there as a whole, or nobody knows.
                if (tail === undefined) throw error;
                if (tail.includes(left)) return this.stat(path, { user, signal, follow: true });
                if (!left.subarray(0, tail.length).equals(tail)) throw error;
                at += tail.length;
            }
        }
    }

    /** Undefined: it may not be looked at. */
    async #size(path: string, user: string | undefined, signal: AbortSignal | undefined): Promise<number | undefined> {
        try {
            return (await this.stat(path, { user, signal, follow: true })).size;
        } catch (error) {
            if (isCode(error, "file_not_found")) return 0;
            if (isCode(error, "file_forbidden")) return undefined;
            throw error;
        }
    }

    /** What is behind the old end, when what was on its way to the file is written; undefined: it never stands still. */
    async #settled(
        path: string,
        from: number,
        length: number,
        user: string | undefined,
        signal: AbortSignal | undefined,
    ): Promise<Buffer | undefined> {
        const began = performance.now();
        for (let last = -1, since = began; ; ) {
            const size = (await this.#size(path, user, signal)) ?? 0;
            const now = performance.now();
            if (size !== last) since = now;
            last = size;
            const hasAll = size >= from + length;
            // A file that others keep writing to never stands still.
            if (now - since >= (hasAll ? SETTLE_MS : MISSING_MS) || (hasAll && now - began > SETTLE_MOST_MS)) {
                if (size <= from) return Buffer.alloc(0);
                return this.read(path, { user, signal, offset: from, length: length + SETTLE_BYTES });
            }
            if (now - began > MISSING_MOST_MS) return undefined;
            await pause(SETTLE_MS, signal);
        }
    }

    /** Many files in one request; each is whole or not there, and those before one that fails stay. */
    async writeMany(
        files: readonly { path: string; data: string | Uint8Array }[],
        options: Omit<WriteOptions, "offset" | "append" | "overwrite"> = {},
    ): Promise<FileOutcome[]> {
        const { signal, mode, ...rest } = options;
        if (files.length === 0) return [];
        const boundary = randomUUID();
        const parts: Uint8Array[] = [];
        for (const { path, data } of files) {
            parts.push(
                Buffer.from(`--${boundary}\r\n${PART}${encodeURIComponent(path)}\r\n\r\n`),
                typeof data === "string" ? Buffer.from(data) : data,
                Buffer.from("\r\n"),
            );
        }
        parts.push(Buffer.from(`--${boundary}--\r\n`));
        const answer = await this.#link.json<{ files: FileOutcome[] }>("POST", this.#path, {
            query: { ...rest, mode: octal(mode) },
            body: Buffer.concat(parts),
            headers: { "Content-Type": `multipart/form-data; boundary=${boundary}` },
            signal,
            waits: true,
            repeat: true,
        });
        return answer.files;
    }

    /** What it is; of a link the link itself, unless it is followed. */
    async stat(path: string, options: FileOptions & { follow?: boolean | undefined } = {}): Promise<Entry> {
        const { signal, ...query } = options;
        return this.#link.json("GET", `${this.#path}/stat`, { query: { path, ...query }, signal, waits: true });
    }

    /** What many are, each an entry or why not. */
    async statMany(
        paths: readonly string[],
        options: FileOptions & { follow?: boolean | undefined } = {},
    ): Promise<FileOutcome[]> {
        if (paths.length === 0) return [];
        return (await this.#post<{ entries: FileOutcome[] }>("stat", { paths, ...options }, true)).entries;
    }

    /** What a directory holds, down to `depth` (1 without it). */
    async list(
        path: string,
        options: FileOptions & { depth?: number | undefined; glob?: readonly string[] | undefined; hidden?: boolean | undefined } = {},
    ): Promise<Entry[]> {
        const { signal, ...query } = options;
        const entries: Entry[] = [];
        let cursor: string | null | undefined;
        do {
            const page: { entries: Entry[]; next: string | null } = await this.#link.json("GET", `${this.#path}/list`, {
                query: { path, ...query, limit: PAGE, cursor },
                signal,
                waits: true,
            });
            if (!cursor && !page.next) return page.entries;
            for (const entry of page.entries) entries.push(entry);
            cursor = page.next;
        } while (cursor);
        return entries;
    }

    async mkdir(
        path: string,
        options: FileOptions & { parents?: boolean | undefined; mode?: string | number | undefined } = {},
    ): Promise<Entry> {
        const body = { path, ...options, mode: octal(options.mode) };
        return this.#change("mkdir", body, async (error) => {
            const there = isCode(error, "file_exists") && (await this.stat(path, { user: options.user, signal: options.signal }));
            return there && there.type === "directory" ? there : undefined;
        });
    }

    async move(
        from: string,
        to: string,
        options: FileOptions & { replace?: boolean | undefined; parents?: boolean | undefined } = {},
    ): Promise<Entry> {
        return this.#change("move", { from, to, ...options }, async (error) =>
            isCode(error, "file_not_found") ? this.stat(to, { user: options.user, signal: options.signal }) : undefined,
        );
    }

    async copy(
        from: string,
        to: string,
        options: FileOptions & { replace?: boolean | undefined; parents?: boolean | undefined; recursive?: boolean | undefined } = {},
    ): Promise<Entry & FileErrorsBelow> {
        // It gets its name when all of it is there, so a second time changes nothing where it may replace.
        if (options.replace) return this.#post("copy", { from, to, ...options }, true);
        const { user, signal } = options;
        const look = (path: string): Promise<Entry | undefined> => this.stat(path, { user, signal }).catch(() => undefined);
        const before = await look(to);
        return this.#change("copy", { from, to, ...options }, async (error) => {
            if (before || !isCode(error, "file_exists")) return undefined;
            const [old, made] = await Promise.all([look(from), look(to)]);
            if (!old || !made || old.type !== made.type || (old.type === "file" && old.size !== made.size)) return undefined;
            return made;
        });
    }

    /** How much went. What is not there is `file_not_found`, unless `missingOk`. */
    async remove(
        path: string,
        options: FileOptions & { recursive?: boolean | undefined; missingOk?: boolean | undefined } = {},
    ): Promise<Removed> {
        const { missingOk, ...rest } = options;
        return this.#change("remove", { path, ...rest, missing_ok: missingOk }, async (error) =>
            isCode(error, "file_not_found") ? { count: 0, bytes: 0 } : undefined,
        );
    }

    async chmod(path: string, mode: string | number, options: FileOptions & { recursive?: boolean | undefined } = {}): Promise<Entry> {
        return this.#post("chmod", { path, mode: octal(mode), ...options }, true);
    }

    async chown(
        path: string,
        owner: string,
        options: FileOptions & { recursive?: boolean | undefined; follow?: boolean | undefined } = {},
    ): Promise<Entry> {
        return this.#post("chown", { path, owner, ...options }, true);
    }

    async symlink(path: string, target: string, options: FileOptions = {}): Promise<Entry> {
        return this.#change("symlink", { path, target, ...options }, async (error) => {
            const there = isCode(error, "file_exists") && (await this.stat(path, { user: options.user, signal: options.signal }));
            return there && there.target === target ? there : undefined;
        });
    }

    /** Files below a path (or several) by name, type and depth; `limit` is 1,000 without it. */
    async find(path: string | readonly string[], spec: FindSpec = {}, options: CallOptions = {}): Promise<Found<Entry>> {
        return this.#search("find", path, spec, options);
    }

    /** Text in files below a path (or several), by a regular expression as Perl has them; `limit` is 1,000 without it. */
    async grep(path: string | readonly string[], spec: GrepSpec, options: CallOptions = {}): Promise<Found<Match>> {
        return this.#search("grep", path, spec, options);
    }

    /**
     * What changes there, as it changes; the first is `watching`. Where the connection breaks, it goes on after the last
     * one, and a `gap` says what is lost.
     */
    async *watch(
        path: string,
        options: FileOptions & { recursive?: boolean | undefined; cursor?: string | undefined } = {},
    ): AsyncIterableIterator<ChangeLine> {
        const { signal, ...query } = options;
        let cursor = options.cursor;
        let isFirst = true;
        for (;;) {
            const answer = await this.#link.stream("GET", `${this.#path}/watch`, {
                query: { path, ...query, cursor },
                signal,
                waits: true,
            });
            try {
                for await (const lines of readLines<ChangeLine>(answer, signal))
                    for (const line of lines) {
                        if (line.cursor) cursor = line.cursor;
                        if (line.type === "keepalive" || (line.type === "watching" && !isFirst)) continue;
                        if (line.type === "failed") throw failed(line);
                        isFirst = false;
                        yield line;
                    }
            } catch (error) {
                if (!(error instanceof Cut)) throw error;
            }
            await pause(AGAIN_MS, signal);
        }
    }

    /** Files and directories as a tar. One that breaks off ends with an error. */
    async readTar(paths: readonly string[], options: FileOptions & { follow?: boolean | undefined } = {}): Promise<Readable> {
        const { signal, ...query } = options;
        const request = { query: { path: paths, ...query }, signal, waits: true };
        return givenBytes(await this.#link.stream("GET", `${this.#sandbox}/tar`, request), signal);
    }

    /** Unpacks a tar into a directory. */
    async writeTar(
        path: string,
        data: Body,
        options: FileOptions & { parents?: boolean | undefined; strip?: number | undefined; owner?: string | undefined } = {},
    ): Promise<FileCounts> {
        const { signal, ...query } = options;
        return this.#link.json("PUT", `${this.#sandbox}/tar`, {
            query: { path, ...query },
            body: data,
            headers: { "Content-Type": "application/x-tar" },
            signal,
            waits: true,
        });
    }

    // ---- inside ----

    #post<T>(verb: string, body: Change, repeat: boolean): Promise<T> {
        const { signal, ...json } = body;
        return this.#link.json("POST", `${this.#path}/${verb}`, { json, signal, waits: true, repeat });
    }

    /**
     * A change that a second time fails where the first one had come through. `wasDone` sees that failure and answers
     * what the first one would have; undefined: it is a failure.
     */
    async #change<T>(verb: string, body: Change, wasDone?: (error: unknown) => Promise<unknown>): Promise<T> {
        try {
            return await this.#post(verb, body, false);
        } catch (error) {
            if (!wasDone || !isCode(error, "lost")) throw error;
        }
        try {
            return await this.#post(verb, body, true);
        } catch (error) {
            const done = await wasDone(error).catch(() => undefined);
            if (done === undefined || done === false) throw error;
            return done as T;
        }
    }

    async #search<T>(verb: string, path: string | readonly string[], spec: object, options: CallOptions): Promise<Found<T>> {
        const json = typeof path === "string" ? { path, ...spec } : { paths: path, ...spec };
        const request: LinkOptions = { json, accept: NDJSON, signal: options.signal, waits: true, repeat: true };
        // A search changes nothing: one that was cut begins anew, a few times.
        for (let tries = 0; ; tries++) {
            const found: Found<T> = { items: [], count: 0, truncated: false, errors: [] };
            const answer = await this.#link.stream("POST", `${this.#path}/${verb}`, request);
            try {
                for await (const lines of readLines<(T & { type: string }) | SearchEnd>(answer, options.signal))
                    for (const line of lines) {
                        if (line.type === "keepalive") continue;
                        if (line.type === "failed") throw failed(line as SearchEnd);
                        if (line.type === "error") found.errors.push(line as Found<T>["errors"][number]);
                        else if (line.type === "done") {
                            const { count, truncated, reason } = line as SearchEnd;
                            return { ...found, count: count ?? found.items.length, truncated: truncated ?? false, reason };
                        } else found.items.push(line as T);
                    }
                throw new Cut(true, new Error("it has no end"));
            } catch (error) {
                if (!(error instanceof Cut)) throw error;
                if (tries >= 5) throw new CoveError("lost", `files/${verb}: the answer broke off`, { cause: error });
            }
            await pause(AGAIN_MS, options.signal);
        }
    }
}

function failed(line: { error?: unknown; path?: string | undefined }): CoveError {
    const { code, status, detail, title } = (line.error ?? {}) as { code?: string; status?: number; detail?: string; title?: string };
    return new CoveError(code ?? "file_failed", detail ?? title ?? "it failed", status === undefined ? {} : { status });
}
