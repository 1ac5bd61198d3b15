// Many files into the sandbox at once, each with its mode.
import type { Sandbox } from "@cove/client";
import {
    SandboxAbortError, SandboxError, validateSandboxFileMode, type SandboxFileInput, type WriteFilesOptions,
} from "@mastra/core/workspace";
import { posix } from "node:path";
import { abortError } from "./errors.js";

const OPERATION = "writeFiles";

/** All of them, before the first one is sent: half of a set that could never be whole helps nobody. */
export function checkFiles(files: readonly SandboxFileInput[], { abortSignal }: WriteFilesOptions): void {
    for (const file of files) {
        if (typeof file.path !== "string" || file.path === "" || file.path.includes("\0"))
            throw new SandboxError(`writeFiles: ${JSON.stringify(file.path)} is no path`, "INVALID_ARGUMENT");
        if (file.mode !== undefined) validateSandboxFileMode(file.mode);
    }
    if (abortSignal?.aborted) throw new SandboxAbortError(OPERATION, abortSignal.reason);
}

/** One request for those that follow each other with the same mode, so that of two with one path the later one stays. */
function batches(files: readonly SandboxFileInput[]): SandboxFileInput[][] {
    const all: SandboxFileInput[][] = [];
    let paths = new Set<string>();
    for (const file of files) {
        const last = all.at(-1);
        if (last && last[0]?.mode === file.mode && !paths.has(file.path)) {
            last.push(file);
        } else {
            all.push([file]);
            paths = new Set();
        }
        paths.add(file.path);
    }
    return all;
}

export async function upload(
    native: Sandbox,
    files: readonly SandboxFileInput[],
    directory: string | undefined,
    { abortSignal }: WriteFilesOptions,
): Promise<void> {
    try {
        for (const batch of batches(files)) {
            if (abortSignal?.aborted) throw new SandboxAbortError(OPERATION, abortSignal.reason);
            const outcomes = await native.files.writeMany(
                batch.map(({ path, content }) => ({ path: directory === undefined ? path : posix.resolve(directory, path), data: content })),
                { mode: batch[0]?.mode, signal: abortSignal },
            );
            for (const outcome of outcomes)
                if ("error" in outcome)
                    throw new SandboxError(`writeFiles: ${outcome.path}: ${outcome.error.detail}`, "EXECUTION_FAILED", {
                        path: outcome.path,
                        code: outcome.error.code,
                    });
        }
    } catch (error) {
        throw abortError(error, OPERATION, abortSignal);
    }
}
