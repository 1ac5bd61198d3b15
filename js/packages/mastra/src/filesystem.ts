// The files of a Mastra workspace on the sandbox's own disk: what commands write is here, and what is written here
// commands see, at the same paths. Every call goes over the connection that the sandbox has.
import { posix } from "node:path";
import type { Entry, Files, Sandbox } from "@cove/client";
import type { RequestContext } from "@mastra/core/request-context";
import {
    FileNotFoundError, FilesystemError, FilesystemNotReadyError, IsDirectoryError, MastraFilesystem, NotDirectoryError, PermissionError,
    StaleFileError, WorkspaceReadOnlyError, type CopyOptions, type FileContent, type FileEntry, type FileStat,
    type FilesystemGrepOptions, type FilesystemGrepResult, type FilesystemInfo, type InstructionsOption, type ListOptions,
    type MastraFilesystemOptions, type ProviderStatus, type ReadOptions, type RemoveOptions, type WalkEntry,
    type WalkOptions, type WriteOptions,
} from "@mastra/core/workspace";
import { blame, copyDirectory, copyOne } from "./filesystem-copy.js";
import { codeOf, fileError, notInPart } from "./filesystem-errors.js";
import { grepBelow } from "./filesystem-grep.js";
import { readDirectory, walkDirectory } from "./filesystem-list.js";
import { SNIFFED_BYTES, typeOfBytes, typeOfName } from "./filesystem-mime.js";
import { isEntry, isWithin, realPath, relativeTo, statAll } from "./filesystem-paths.js";
import { instructionsOf } from "./instructions.js";
import { checkKeys, type OrUndefined } from "./options.js";
import type { CoveSandbox } from "./sandbox.js";
import { isSystemPlace } from "./system-places.js";

export interface CoveFilesystemOptions extends OrUndefined<MastraFilesystemOptions> {
    /** The sandbox whose disk it is. It is started when a file is asked for. */
    sandbox: CoveSandbox;
    id?: string | undefined;
    /** What relative paths begin at; made when it is missing. Without it where the sandbox's commands start. */
    basePath?: string | undefined;
    /** Nothing is written by it; commands still may. */
    readOnly?: boolean | undefined;
    /**
     * Paths that lead out of `basePath`, also by links, are refused. The sandbox is what keeps an agent in, and its
     * commands see all of it: so false without it, and absolute paths are those of commands.
     */
    contained?: boolean | undefined;
    /** What the agent is told of it. */
    instructions?: InstructionsOption | undefined;
}

const KNOWN = new Set([
    "sandbox", "id", "basePath", "readOnly", "contained", "instructions", "onInit", "onDestroy", "textExtensions",
]);

const READ_FIRST = 16 * 1024 * 1024;
/** About what a text can be in JavaScript. */
const READ_MAX = 500 * 1024 * 1024;

/** What exists() may be told of what is not there, or not for it. */
const NOT_THERE = new Set(["file_not_found", "not_a_directory", "file_forbidden", "name_too_long"]);

export class CoveFilesystem extends MastraFilesystem {
    readonly id: string;
    override readonly name = "CoveFilesystem";
    readonly provider = "cove";
    readonly displayName = "Cove sandbox";
    readonly icon = "hard-drive";
    readonly readOnly?: boolean;
    /**
     * Known from the begin, or never: what read an agent's files is remembered under it, and must not change when the
     * sandbox starts. Where nothing was said, `getInfo()` has it once the sandbox runs.
     */
    readonly basePath?: string;
    readonly contained: boolean;
    readonly sandbox: CoveSandbox;
    status: ProviderStatus = "pending";
    readonly #given: string | undefined;
    readonly #instructions: InstructionsOption | undefined;
    #base: string | undefined;
    #home: string | undefined;
    /** In which the base is known to be there: another object each time that the sandbox was started. */
    #prepared: Sandbox | undefined;
    #preparing: { native: Sandbox; done: Promise<void> } | undefined;

    constructor(options: CoveFilesystemOptions) {
        checkKeys("CoveFilesystem", options, KNOWN);
        if (options.sandbox === undefined)
            throw new TypeError("CoveFilesystem: it needs the sandbox whose files it has: { sandbox }");
        super({ ...options, name: "CoveFilesystem" });
        this.sandbox = options.sandbox;
        this.id = options.id ?? `cove-fs-${this.sandbox.id}`;
        if (options.readOnly !== undefined) this.readOnly = options.readOnly;
        this.contained = options.contained ?? false;
        this.#instructions = options.instructions;
        this.#given = options.basePath ?? this.sandbox.workingDirectory;
        if (this.#given?.startsWith("/")) this.basePath = this.#base = posix.resolve(this.#given);
    }

    override async init(): Promise<void> {
        await this.sandbox.withNative((native) => this.#prepare(native));
    }

    /** The disk is the sandbox's, and ends with it. */
    override async destroy(): Promise<void> {}

    getInfo(): FilesystemInfo<{ basePath: string | undefined; contained: boolean; sandbox: string }> {
        return {
            id: this.id,
            name: this.name,
            provider: this.provider,
            status: this.status,
            ...(this.error === undefined ? {} : { error: this.error }),
            ...(this.readOnly === undefined ? {} : { readOnly: this.readOnly }),
            icon: this.icon,
            metadata: { basePath: this.#base, contained: this.contained, sandbox: this.sandbox.id },
        };
    }

    getInstructions(opts?: { requestContext?: RequestContext }): string {
        return instructionsOf(this.#instructions, () => this.#defaultInstructions(), opts?.requestContext);
    }

    #defaultInstructions(): string {
        const base = this.#base === undefined ? "the directory where commands start" : `"${this.#base}"`;
        return [
            "File tools work on the disk of the sandbox: files that commands write are there, and commands see what file " +
                "tools write.",
            `Relative paths resolve from ${base}.`,
            this.contained ? "File access is restricted to this directory." : "Absolute paths are those that commands see.",
            ...(this.readOnly ? ["File tools cannot write; commands can."] : []),
        ].join(" ");
    }

    resolveAbsolutePath(path: string): string | undefined {
        if (this.#base === undefined || (this.#home === undefined && isHome(path))) return undefined;
        const absolute = this.#resolve(path);
        return this.contained && !isWithin(absolute, this.#base) ? undefined : absolute;
    }

    // ---- reading ----

    async readFile(path: string, options?: ReadOptions): Promise<string | Buffer> {
        const bytes = await this.#on(path, "readFile", (files, at) => readWhole(files, at, path));
        return options?.encoding === undefined ? bytes : bytes.toString(options.encoding);
    }

    async exists(path: string): Promise<boolean> {
        return this.#on(path, "exists", async (files, at) => {
            try {
                await files.stat(at, { follow: true });
                return true;
            } catch (error) {
                if (NOT_THERE.has(codeOf(error) ?? "")) return false;
                throw error;
            }
        });
    }

    async stat(path: string): Promise<FileStat> {
        return this.#on(path, "stat", async (files, at) => {
            const entry = await files.stat(at, { follow: true });
            const isDirectory = entry.type === "directory";
            const modifiedAt = new Date(entry.modified_at);
            const changedAt = new Date(entry.changed_at ?? entry.modified_at);
            return {
                name: posix.basename(at),
                path: relativeTo(this.#base!, at),
                type: isDirectory ? "directory" : "file",
                size: isDirectory ? 0 : entry.size,
                // Disks of sandboxes keep no time of birth; the oldest that is known comes closest.
                createdAt: changedAt < modifiedAt ? changedAt : modifiedAt,
                modifiedAt,
                ...(entry.type === "file" ? { mimeType: await mimeType(files, at, entry) } : {}),
            };
        });
    }

    async realpath(path: string): Promise<string> {
        return this.#on(path, "realpath", async (files, at) => {
            const real = await realPath(files, at);
            if (!real.exists) throw new FileNotFoundError(path);
            return relativeTo((await realPath(files, this.#base!)).path, real.path);
        });
    }

    async readdir(path: string, options?: ListOptions): Promise<FileEntry[]> {
        return this.#list(path, "readdir", (files, at) => readDirectory(files, at, options));
    }

    async walk(path: string, options?: WalkOptions): Promise<WalkEntry[]> {
        return this.#list(path, "walk", (files, at) => walkDirectory(files, at, options));
    }

    async grep(options: FilesystemGrepOptions): Promise<FilesystemGrepResult[]> {
        return this.#on(options.path, "grep", (files, top) =>
            grepBelow(
                {
                    files,
                    top,
                    allowLinks: async (paths) => {
                        if (!this.contained) return paths;
                        const allowed = await Promise.all(paths.map((link) => this.#isContained(files, link)));
                        return paths.filter((_, i) => allowed[i]);
                    },
                    mayBeFiltered: async (results) =>
                        results.some(({ path }) => !this.isTextFile(path) || path.split("/").includes(".git")) ||
                        this.exists(".gitignore"),
                    warn: (message) => this.logger.warn(message),
                },
                options,
            ),
        );
    }

    // ---- writing ----

    async writeFile(path: string, content: FileContent, options?: WriteOptions): Promise<void> {
        await this.#write(path, "writeFile", async (files, at) => {
            if (options?.expectedMtime !== undefined) await notStale(files, at, path, options.expectedMtime);
            try {
                await files.write(at, content, {
                    parents: options?.recursive !== false,
                    overwrite: options?.overwrite !== false,
                });
            } catch (error) {
                // Of a file that may be made, what is missing is the directory that it would be in.
                const isAbove = ["file_not_found", "not_a_directory"].includes(codeOf(error) ?? "");
                throw isAbove ? fileError(error, posix.dirname(path), "writeFile", true) : error;
            }
        });
    }

    async appendFile(path: string, content: FileContent): Promise<void> {
        await this.#write(path, "appendFile", (files, at) => files.write(at, content, { append: true }));
    }

    async deleteFile(path: string, options?: RemoveOptions): Promise<void> {
        await this.#write(path, "deleteFile", async (files, at) => {
            try {
                const { entry, isDirectory } = await look(files, at);
                if (isDirectory) throw new IsDirectoryError(path);
                await files.remove(entry.path);
            } catch (error) {
                if (!(options?.force && codeOf(error) === "file_not_found")) throw error;
            }
        });
    }

    async mkdir(path: string, options?: { recursive?: boolean }): Promise<void> {
        await this.#write(path, "mkdir", async (files, at) => {
            try {
                await files.mkdir(at, { parents: options?.recursive ?? true });
            } catch (error) {
                const code = codeOf(error);
                if (code === "file_not_found") throw fileError(error, posix.dirname(path), "mkdir", true);
                // A directory that is there is what was asked for, also where only one may be made.
                if (code !== "file_exists" || !(await look(files, at)).isDirectory) throw error;
            }
        });
    }

    async rmdir(path: string, options?: RemoveOptions): Promise<void> {
        await this.#write(
            path,
            "rmdir",
            async (files, at) => {
                try {
                    const { entry, isDirectory } = await look(files, at);
                    // Of a link to a directory the link goes, with what is in it only where that was allowed to go.
                    if (!isDirectory || (entry.type === "symlink" && !options?.recursive)) throw new NotDirectoryError(path);
                    notInPart(await files.remove(at, { recursive: options?.recursive ?? false }), "rmdir");
                } catch (error) {
                    if (!(options?.force && codeOf(error) === "file_not_found")) throw error;
                }
            },
            true,
        );
    }

    async copyFile(src: string, dest: string, options?: CopyOptions): Promise<void> {
        await this.#write(src, "copyFile", async (files, from, native) => {
            const to = await this.#locate(native, dest, "copyFile");
            const { entry, isDirectory } = await look(files, from);
            if (isDirectory && !options?.recursive) throw new IsDirectoryError(src);
            const source = entry.type === "symlink" ? (await realPath(files, from)).path : from;
            const copy = isDirectory ? copyDirectory : copyOne;
            await copy(files, source, { path: to, given: dest, replace: options?.overwrite !== false });
        });
    }

    async moveFile(src: string, dest: string, options?: CopyOptions): Promise<void> {
        await this.#write(src, "moveFile", async (files, from, native) => {
            const to = await this.#locate(native, dest, "moveFile");
            await blame(dest, "moveFile", () =>
                files.move(from, to, { parents: true, replace: options?.overwrite !== false }),
            );
        });
    }

    // ---- what all have in common ----

    /** Does it to the path, in a sandbox that runs; what the server says of it is one of core's errors. */
    async #on<T>(
        path: string,
        operation: string,
        work: (files: Files, at: string, native: Sandbox) => Promise<T>,
        isDirectory = false,
    ): Promise<T> {
        this.logger.debug(operation, { path });
        // Its disk is gone with it: to look for it would be an error in the log, and of the sandbox.
        if (this.sandbox.status === "destroyed")
            throw Object.assign(new FilesystemNotReadyError(this.id), {
                message: `Filesystem "${this.id}" is not ready: its sandbox was destroyed, and its disk with it; use those of another sandbox`,
            });
        await this.ensureReady();
        try {
            return await this.sandbox.withNative(async (native) => {
                await this.#prepare(native);
                return work(native.files, await this.#locate(native, path, operation), native);
            });
        } catch (error) {
            throw fileError(error, path, operation, isDirectory);
        }
    }

    async #write(
        path: string,
        operation: string,
        work: (files: Files, at: string, native: Sandbox) => Promise<unknown>,
        isDirectory = false,
    ): Promise<void> {
        if (this.readOnly) throw new WorkspaceReadOnlyError(operation);
        const hinted: typeof work = async (files, at, native) => {
            try {
                return await work(files, at, native);
            } catch (error) {
                const isElsewhere = posix.isAbsolute(path) && !isWithin(at, this.#base!);
                if (codeOf(error) !== "file_forbidden" || !isElsewhere) throw error;
                const instead = isSystemPlace(at) ? "system directories are read-only" : undefined;
                const why = `${operation} (the sandbox's user cannot write there; ${await this.#hint(files, path, instead)})`;
                throw Object.assign(new PermissionError(path, why), { cause: error });
            }
        };
        await this.#on(path, operation, hinted, isDirectory);
    }

    /** What to write in place of an absolute path. A certain one is named only if something of it is there. */
    async #hint(files: Files, path: string, otherwise = 'use a path relative to the workspace root, without a leading "/"'): Promise<string> {
        const relative = path.replace(/^\/+/, "");
        const first = relative.split("/", 1)[0]!;
        const isName = first !== "" && first !== "." && first !== "..";
        const [found] = isName ? await files.statMany([posix.join(this.#base!, first)]) : [];
        return isEntry(found) ? `use a relative path like "${relative}"` : otherwise;
    }

    #list<T>(path: string, operation: string, list: (files: Files, at: string) => Promise<T[]>): Promise<T[]> {
        return this.#on(path, operation, list, true);
    }

    /** Once after each start, which may be that of a new disk: where relative paths begin, and that it is there. */
    async #prepare(native: Sandbox): Promise<void> {
        if (this.#prepared === native) return;
        if (this.#preparing?.native !== native) this.#preparing = { native, done: this.#prepareNow(native) };
        const preparing = this.#preparing;
        try {
            await preparing.done;
        } finally {
            if (this.#preparing === preparing) this.#preparing = undefined;
        }
    }

    async #prepareNow(native: Sandbox): Promise<void> {
        const given = this.#given ?? ".";
        if (isHome(given)) this.#home ??= await homeOf(native);
        this.#base = isHome(given) ? this.#resolve(given) : await this.sandbox.resolvePath(given);
        if (!this.readOnly && this.#given !== undefined) await native.files.mkdir(this.#base, { parents: true });
        this.#prepared = native;
    }

    #resolve(path: string): string {
        if (this.#home !== undefined && isHome(path)) return posix.resolve(this.#home, `.${path.slice(1)}`);
        return posix.resolve(this.#base ?? "/", path);
    }

    /** The absolute path, if it may be asked for. */
    async #locate(native: Sandbox, path: string, operation: string): Promise<string> {
        if (/\0|\p{Surrogate}/u.test(path))
            throw new FilesystemError(
                `${JSON.stringify(path)}: no path has a byte 0 or half a character; write it without`,
                "EINVAL",
                path,
            );
        if (isHome(path)) this.#home ??= await homeOf(native);
        const at = this.#resolve(path);
        if (!this.contained || (await this.#isContained(native.files, at))) return at;
        const hint = posix.isAbsolute(path) ? `; ${await this.#hint(native.files, path)}` : "";
        throw new PermissionError(path, `${operation} (path is outside the workspace${hint})`);
    }

    /** Where it really leads, so that no link leads out; of what is to be made, where that would be. */
    async #isContained(files: Files, at: string): Promise<boolean> {
        const [real, base] = await Promise.all([realPath(files, at), realPath(files, this.#base!)]);
        return isWithin(real.path, base.path);
    }
}

const isHome = (path: string): boolean => path === "~" || path.startsWith("~/");

async function homeOf(native: Sandbox): Promise<string> {
    const { stdout } = await native.exec({ command: 'printf %s "$HOME"' });
    return stdout.startsWith("/") ? stdout : "/";
}

/**
 * A file may be said to be larger than any memory: so a large one is asked for its size first, and only the beginning
 * of a file is asked for without.
 */
async function readWhole(files: Files, at: string, path: string): Promise<Buffer> {
    const first = await files.read(at, { length: READ_FIRST });
    if (first.length < READ_FIRST) return first;
    const { size } = await files.stat(at, { follow: true });
    const whole = size > READ_MAX ? undefined : await files.read(at, { length: READ_MAX + 1 });
    if (whole === undefined || whole.length > READ_MAX)
        throw new FilesystemError(
            `${path}: it is larger than the ${READ_MAX / 1024 ** 2} MiB that can be read at once; let a command read it in parts`,
            "EFBIG",
            path,
        );
    return whole;
}

async function mimeType(files: Files, at: string, entry: Entry): Promise<string> {
    const byName = typeOfName(posix.basename(at));
    if (byName !== undefined) return byName;
    if (entry.size === 0) return "text/plain";
    try {
        return typeOfBytes(await files.read(at, { length: SNIFFED_BYTES }));
    } catch (error) {
        // It may be looked at and not read, or went meanwhile.
        if (codeOf(error) !== undefined) return "application/octet-stream";
        throw error;
    }
}

/** The entry itself, and whether it is, or leads to, a directory. */
async function look(files: Files, at: string): Promise<{ entry: Entry; isDirectory: boolean }> {
    const entry = await files.stat(at);
    if (entry.type !== "symlink") return { entry, isDirectory: entry.type === "directory" };
    const [target] = await statAll(files, [at], true);
    return { entry, isDirectory: isEntry(target) && target.type === "directory" };
}

/** There is no condition in the API: what writes between this look and the write is not seen, as in LocalFilesystem. */
async function notStale(files: Files, at: string, path: string, expected: Date): Promise<void> {
    const [now] = await files.statMany([at], { follow: true });
    if (!isEntry(now)) return;
    const actual = new Date(now.modified_at);
    if (actual.getTime() !== expected.getTime()) throw new StaleFileError(path, expected, actual);
}
