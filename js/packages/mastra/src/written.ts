// Where on this host sandboxes write. A link there may be their doing, and what it leads to is not what the user meant.
import type { Cove } from "@cove/client";
import { realpath, type FileHandle } from "node:fs/promises";
import { isWithin } from "./local-options.js";
import { realPathOf } from "./local-tree.js";

/** Where sandboxes of this program could write, also if they are gone: what they left there is still theirs. */
const written = new Set<string>();

/** Before a sandbox gets it. */
export async function willBeWritten(directory: FileHandle): Promise<void> {
    written.add(await realPathOf(directory));
}

/** Says of a directory whether a sandbox writes there: one of this program, or one that the engine was told of. */
export function writtenBySandboxes(cove: Cove, own: readonly string[] = []): (directory: string) => Promise<boolean> {
    let all: Promise<string[]> | undefined;
    const ask = async (): Promise<string[]> => {
        const real = await Promise.all(own.map((each) => realpath(each).catch(() => each)));
        const registered = (await cove.registeredMounts()).filter((each) => !each.readOnly).map((each) => each.path);
        return [...own, ...real, ...registered, ...written];
    };
    return async (directory) => (await (all ??= ask())).some((each) => isWithin(directory, each));
}
