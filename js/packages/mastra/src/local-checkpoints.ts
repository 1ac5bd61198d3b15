// Checkpoints of a working directory: copies of it on this host, by name, as those of Mastra's LocalSandbox.
import { randomBytes } from "node:crypto";
import { cp, mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import path from "node:path";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const LOOKS = 4;
const PAUSE_MS = 25;

function isMissing(error: unknown): boolean {
    return (error as NodeJS.ErrnoException | null)?.code === "ENOENT";
}

export class Checkpoints {
    /** One after the other: two that are written at once would take each other's place. */
    #last: Promise<unknown> = Promise.resolve();

    constructor(
        readonly directory: string,
        readonly workingDirectory: string,
    ) {}

    /** Fills an empty working directory from the first of these that there is. */
    async seed(names: readonly (string | undefined)[]): Promise<void> {
        if ((await readdir(this.workingDirectory)).length > 0) return;
        for (const name of names)
            if (name !== undefined && (await this.#copyFrom(this.#place(name)))) return;
    }

    async write(name: string): Promise<void> {
        const written = this.#last.then(() => this.#write(this.#place(name)));
        this.#last = written.catch(() => {});
        return written;
    }

    #place(name: string): string {
        if (!NAME.test(name) || name.includes(".."))
            throw new Error(`Invalid checkpoint name: ${name}. It has letters, digits, ".", "_" and "-", and no "..".`);
        return path.join(this.directory, name);
    }

    /** Whoever reads finds the old one or the new one, but for the moment between two renames, in which he looks again. */
    async #copyFrom(place: string): Promise<boolean> {
        for (let look = 0; look < LOOKS; look++) {
            if (look > 0) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
            try {
                if (!(await stat(place)).isDirectory()) return false;
                await cp(place, this.workingDirectory, COPY);
                return true;
            } catch (error) {
                if (!isMissing(error)) throw error;
                // Replaced while it was read: what there is by now may be half of the old one.
                for (const entry of await readdir(this.workingDirectory))
                    await rm(path.join(this.workingDirectory, entry), { recursive: true, force: true });
            }
        }
        return false;
    }

    async #write(place: string): Promise<void> {
        const suffix = `${path.basename(place)}-${randomBytes(6).toString("hex")}`;
        const made = path.join(this.directory, `.tmp-${suffix}`);
        const old = path.join(this.directory, `.bak-${suffix}`);
        let moved = false;

        await mkdir(this.directory, { recursive: true });
        try {
            await cp(this.workingDirectory, made, COPY);
            moved = await rename(place, old).then(
                () => true,
                (error: unknown) => {
                    if (isMissing(error)) return false;
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

/** Links stay as they are: one that leads out of the directory must not bring in what it leads to. */
const COPY = { recursive: true, verbatimSymlinks: true, preserveTimestamps: true } as const;
