// One line to a workspace whose commands and files are of one sandbox.
import { Workspace, type WorkspaceConfig } from "@mastra/core/workspace";
import { CoveFilesystem, type CoveFilesystemOptions } from "./filesystem.js";
import type { CoveSandboxOptions } from "./options.js";
import { CoveSandbox } from "./sandbox.js";

export interface CoveWorkspaceOptions
    extends Omit<WorkspaceConfig<CoveFilesystem, CoveSandbox>, "sandbox" | "filesystem" | "mounts" | "onMount"> {
    /** The sandbox, or what it is made with; with nothing at all it is one of the engine of this machine. */
    sandbox?: CoveSandbox | CoveSandboxOptions | undefined;
    /** How its files are seen. */
    filesystem?: Omit<CoveFilesystemOptions, "sandbox"> | undefined;
}

export function createCoveWorkspace(options: CoveWorkspaceOptions = {}): Workspace<CoveFilesystem, CoveSandbox> {
    const { sandbox: given, filesystem: how, ...rest } = options;
    const sandbox = given instanceof CoveSandbox ? given : new CoveSandbox(given);
    return new Workspace({ ...rest, sandbox, filesystem: new CoveFilesystem({ ...how, sandbox }) });
}
