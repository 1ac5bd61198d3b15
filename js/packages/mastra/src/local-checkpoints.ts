// Checkpoints of a working directory: copies of it on this host, by name, as those of Mastra's LocalSandbox. What runs
// in the sandbox may change the directory while it is copied, so it is never reached by a path (local-tree.ts).
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, readdir, rename, rm, stat, type FileHandle } from "node:fs/promises";
import { at, copyTree, emptyTree, hasErrno, likeDirectory } from "./local-tree.js";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const LOOKS = 4;
const PAUSE_MS = 25;
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

function checkName(name: string): string {
    if (!NAME.test(name) || name.includes(".."))
        throw new Error(`Invalid checkpoint name: ${name}. It has letters, digits, ".", "_" and "-", and no "..".`);
    return name;
}

export class Checkpoints {
    /** One after the other: two that are written at once would take each other's place. */
    #last: Promise<unknown> = Promise.resolve();

    /** `openAt` opens a directory of this host by its path, as far as that can be trusted; `make`: makes it, too. */
    constructor(
        readonly directory: string,
        readonly workingDirectory: string,
        private readonly openAt: (path: string, make: boolean) => Promise<FileHandle>,
    ) {}

    /** Fills an empty working directory from the first of these that there is. */
    async seed(names: readonly (string | undefined)[]): Promise<void> {
        const wanted = names.filter((name) => name !== undefined).map(checkName);
        await this.#with(this.workingDirectory, false, async (work) => {
            if ((await readdir(at(work))).length > 0) return;
            await this.#with(this.directory, false, async (all) => {
                for (const name of wanted) if (await this.#copyFrom(all, name, work)) return;
            });
        });
    }

    async write(name: string): Promise<void> {
        const written = this.#last.then(() =>
            this.#with(this.workingDirectory, false, (work) =>
                this.#with(this.directory, true, (all) => this.#write(all, checkName(name), work)),
            ),
        );
        this.#last = written.catch(() => {});
        return written;
    }

    /** Where there is no such directory, there are no checkpoints, or there is nothing to keep. */
    async #with(path: string, make: boolean, what: (directory: FileHandle) => Promise<void>): Promise<void> {
        let place;
        try {
            place = await this.openAt(path, make);
        } catch (error) {
            if (path === this.directory && hasErrno(error, "ENOENT")) return;
            throw error;
        }
        try {
            // That one may be open for its path alone.
            const directory = await open(at(place), constants.O_RDONLY | constants.O_DIRECTORY);
            try {
                await what(directory);
            } finally {
                await directory.close();
            }
        } finally {
            await place.close();
        }
    }

    /** Whoever reads finds the old one or the new one, but for the moment between two renames, in which he looks again. */
    async #copyFrom(all: FileHandle, name: string, work: FileHandle): Promise<boolean> {
        for (let look = 0; look < LOOKS; look++) {
            if (look > 0) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
            const checkpoint = await open(at(all, name), DIRECTORY).catch((error: unknown) => {
                if (hasErrno(error, "ENOENT", "ENOTDIR", "ELOOP")) return undefined;
                throw error;
            });
            if (checkpoint === undefined) continue;
            try {
                await copyTree(checkpoint, work);
                const [copied, there] = [await checkpoint.stat(), await stat(at(all, name)).catch(() => undefined)];
                if (copied.ino === there?.ino && copied.dev === there.dev) return true;
            } finally {
                await checkpoint.close();
            }
            // Replaced while it was read: what there is by now may be half of the old one.
            await emptyTree(work);
        }
        return false;
    }

    async #write(all: FileHandle, name: string, work: FileHandle): Promise<void> {
        const suffix = `${name}-${randomBytes(6).toString("hex")}`;
        const [made, old, place] = [at(all, `.tmp-${suffix}`), at(all, `.bak-${suffix}`), at(all, name)];
        let moved = false;

        try {
            await mkdir(made, 0o700);
            const copy = await open(made, DIRECTORY);
            try {
                await copyTree(work, copy);
                await likeDirectory(work, copy);
            } finally {
                await copy.close();
            }
            moved = await rename(place, old).then(
                () => true,
                (error: unknown) => {
                    if (hasErrno(error, "ENOENT")) return false;
                    throw error;
                },
            );
            await rename(made, place);
        } catch (error) {
            await rm(made, { recursive: true, force: true });
            if (moved) await rename(old, place).catch(() => {});
            throw error;
        }
        if (moved) await rm(old, { recursive: true, force: true });
    }
}
