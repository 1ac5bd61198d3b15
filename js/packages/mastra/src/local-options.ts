// What a CoveLocalSandbox is made with: the options of Mastra's LocalSandbox, checked, and what they come to.
import {
    IsolationUnavailableError, SandboxUnsupportedFeatureError,
    type InstructionsOption, type IsolationBackend, type MastraSandboxOptions, type NativeSandboxConfig,
} from "@mastra/core/workspace";
import { homedir } from "node:os";
import path from "node:path";
import { checkKeys, type OrUndefined } from "./options.js";

export interface CoveLocalSandboxOptions extends OrUndefined<Omit<MastraSandboxOptions, "processes" | "env" | "workingDirectory">> {
    /**
     * Who asks again with the same id, directory and rules gets the same box, until destroy(). Without it that is so for
     * who runs this program again, and a box in which for half an hour nothing ran is removed; what is in the directory stays.
     */
    id?: string | undefined;
    /** A directory of this host, bound at its own absolute path; `<cwd>/.sandbox` without it. It is made if need be. */
    workingDirectory?: string | undefined;
    /**
     * Beside PATH all that commands have of this program's environment. HOME that is this user's own home, which is not
     * inside, is left out: the box has a home of its own.
     */
    env?: NodeJS.ProcessEnv | undefined;
    /** How long a command may take that says nothing else, in ms: 300,000 without it, 0 is for ever. */
    timeout?: number | undefined;
    /** `none`: a box with a public network. `bwrap` and `seatbelt`: a box under the rules of `nativeSandbox`. */
    isolation?: IsolationBackend | undefined;
    nativeSandbox?: NativeSandboxConfig | undefined;
    /** What the agent is told of it. */
    instructions?: InstructionsOption | undefined;
    /** The checkpoint that an empty directory is filled from at a start, and that snapshot() writes. */
    checkpointName?: string | undefined;
    /** The one that it is filled from where there is no `checkpointName` yet. */
    seedCheckpointName?: string | undefined;
    /** Where checkpoints lie; `.checkpoints` beside the working directory without it. */
    checkpointsDirectory?: string | undefined;
}

const KNOWN = new Set([
    "onStart", "onStop", "onDestroy", "id", "workingDirectory", "env", "timeout", "isolation", "nativeSandbox",
    "instructions", "checkpointName", "seedCheckpointName", "checkpointsDirectory",
]);
const KNOWN_RULES = new Set([
    "allowNetwork", "readOnlyPaths", "readWritePaths", "allowSystemBinaries", "seatbeltProfilePath", "bwrapArgs",
    "readOnly",
]);
const WHAT = "CoveLocalSandbox";

/** `~` is who runs this program's home. */
export function hostPath(given: string): string {
    const isHome = given === "~" || given.startsWith("~/");
    return path.resolve(isHome ? path.join(homedir(), given.slice(1)) : given);
}

/** What those that write rules for another program had would be left out silently, so it is refused. */
export function checkLocalOptions(options: CoveLocalSandboxOptions): void {
    const { isolation = "none", nativeSandbox = {} } = options;

    checkKeys(WHAT, options, KNOWN);
    checkKeys(`${WHAT}: nativeSandbox`, nativeSandbox, KNOWN_RULES);
    if (!["none", "bwrap", "seatbelt"].includes(isolation))
        throw new IsolationUnavailableError(isolation, 'it is "none", "bwrap" or "seatbelt"');
    for (const [name, set] of [
        ["bwrapArgs", (nativeSandbox.bwrapArgs?.length ?? 0) > 0],
        ["seatbeltProfilePath", nativeSandbox.seatbeltProfilePath !== undefined],
    ] as const)
        if (set)
            throw new SandboxUnsupportedFeatureError(
                `${WHAT}: nativeSandbox.${name} is written for another program, and cove would not heed it; say what is ` +
                    "allowed by readOnlyPaths, readWritePaths, readOnly and allowNetwork",
                { feature: name },
            );
}

/**
 * Where a command runs. A relative path is below the working directory, unless it leads there from where this program
 * runs: who has "./work" as the working directory may say "./work/src".
 */
export function commandDirectory(workingDirectory: string, cwd: string | undefined): string {
    if (cwd === undefined || cwd === "") return workingDirectory;
    if (path.isAbsolute(cwd)) return cwd;
    const fromHere = path.resolve(cwd);
    return isWithin(fromHere, workingDirectory) ? fromHere : path.resolve(workingDirectory, cwd);
}

export function isWithin(inner: string, outer: string): boolean {
    return inner === outer || inner.startsWith(outer.endsWith("/") ? outer : `${outer}/`);
}
