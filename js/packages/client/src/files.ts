// The files of a sandbox, on its own disk; also of one that is stopped, where its disk is kept.
import type { Readable } from "node:stream";
import type { Cove } from "./cove.js";
import type { Body } from "./request.js";
import type {
    CallOptions, ChangeLine, Entry, FileCounts, FileErrorsBelow, FileOutcome, FindSpec, GrepSpec, Match,
} from "./types.js";

export interface FileOptions extends CallOptions {
    /** Who does it, by name or number in the sandbox; else the sandbox's user. */
    user?: string;
}
export interface ReadOptions extends FileOptions {
    offset?: number;
    length?: number;
}
export interface WriteOptions extends FileOptions {
    /** In octal (`"0644"`), or a number (`0o644`). A file that is replaced keeps its own without it. */
    mode?: string | number;
    /** UID or UID:GID. */
    owner?: string;
    /** Missing directories are made; true without it. */
    parents?: boolean;
    /** False: what is there already is `file_exists`, in one step with the writing; true without it. */
    overwrite?: boolean;
    /** Into the file that is there, from this byte on. */
    offset?: number;
    append?: boolean;
}
export interface Found<T> {
    items: T[];
    count: number;
    truncated: boolean;
    reason?: "limit" | "timeout";
    /** Parts that could not be read. */
    errors: { path?: string; error?: { code: string; detail: string } }[];
}
export type Removed = FileCounts & FileErrorsBelow;

export class Files {
    /** @internal */
    constructor(
        private readonly cove: Cove,
        private readonly path: string,
    ) {
        void this.cove;
        void this.path;
    }

    async read(_path: string, _options: ReadOptions = {}): Promise<Buffer> {
        throw new Error("not there yet");
    }
    /** The bytes as they come. One that breaks off ends with an error. */
    async readStream(_path: string, _options: ReadOptions = {}): Promise<Readable> {
        throw new Error("not there yet");
    }
    /** Writes a whole file, which has all of it or stays as it was. */
    async write(_path: string, _data: Body, _options: WriteOptions = {}): Promise<Entry> {
        throw new Error("not there yet");
    }
    /** Many files in one request; those before one that fails stay. */
    async writeMany(
        _files: readonly { path: string; data: string | Uint8Array }[],
        _options: Omit<WriteOptions, "offset" | "append" | "overwrite"> = {},
    ): Promise<FileOutcome[]> {
        throw new Error("not there yet");
    }
    async stat(_path: string, _options: FileOptions & { follow?: boolean } = {}): Promise<Entry> {
        throw new Error("not there yet");
    }
    async statMany(_paths: readonly string[], _options: FileOptions & { follow?: boolean } = {}): Promise<FileOutcome[]> {
        throw new Error("not there yet");
    }
    /** What a directory holds, down to `depth` (1 without it). */
    async list(
        _path: string,
        _options: FileOptions & { depth?: number; glob?: readonly string[]; hidden?: boolean } = {},
    ): Promise<Entry[]> {
        throw new Error("not there yet");
    }
    async mkdir(_path: string, _options: FileOptions & { parents?: boolean; mode?: string | number } = {}): Promise<Entry> {
        throw new Error("not there yet");
    }
    async move(_from: string, _to: string, _options: FileOptions & { replace?: boolean; parents?: boolean } = {}): Promise<Entry> {
        throw new Error("not there yet");
    }
    async copy(
        _from: string,
        _to: string,
        _options: FileOptions & { replace?: boolean; parents?: boolean; recursive?: boolean } = {},
    ): Promise<Entry & FileErrorsBelow> {
        throw new Error("not there yet");
    }
    async remove(_path: string, _options: FileOptions & { recursive?: boolean; missingOk?: boolean } = {}): Promise<Removed> {
        throw new Error("not there yet");
    }
    async chmod(_path: string, _mode: string | number, _options: FileOptions & { recursive?: boolean } = {}): Promise<Entry> {
        throw new Error("not there yet");
    }
    async chown(
        _path: string,
        _owner: string,
        _options: FileOptions & { recursive?: boolean; follow?: boolean } = {},
    ): Promise<Entry> {
        throw new Error("not there yet");
    }
    async symlink(_path: string, _target: string, _options: FileOptions = {}): Promise<Entry> {
        throw new Error("not there yet");
    }
    /** Files below a path (or several) by name, type and depth; `limit` is 1,000 without it. */
    async find(_path: string | readonly string[], _spec: FindSpec = {}, _options: CallOptions = {}): Promise<Found<Entry>> {
        throw new Error("not there yet");
    }
    /** Text in files below a path (or several), by a regular expression as Perl has them. */
    async grep(_path: string | readonly string[], _spec: GrepSpec, _options: CallOptions = {}): Promise<Found<Match>> {
        throw new Error("not there yet");
    }
    /** What changes there. Where the connection breaks, it goes on after the last one, or a `gap` says what is lost. */
    watch(_path: string, _options: FileOptions & { recursive?: boolean; cursor?: string } = {}): AsyncIterableIterator<ChangeLine> {
        throw new Error("not there yet");
    }
    /** Files and directories as a tar. */
    async readTar(_paths: readonly string[], _options: FileOptions & { follow?: boolean } = {}): Promise<Readable> {
        throw new Error("not there yet");
    }
    /** Unpacks a tar into a directory. */
    async writeTar(
        _path: string,
        _data: Body,
        _options: FileOptions & { parents?: boolean; strip?: number; owner?: string } = {},
    ): Promise<FileCounts> {
        throw new Error("not there yet");
    }
}
