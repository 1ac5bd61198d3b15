// One line to a workspace whose commands and files are of one sandbox.
import { Workspace, type WorkspaceConfig } from "@mastra/core/workspace";
import { CoveFilesystem, type CoveFilesystemOptions } from "./filesystem.js";
import { checkKeys, type CoveSandboxOptions } from "./options.js";
import { CoveSandbox } from "./sandbox.js";

export interface CoveWorkspaceOptions
    extends Omit<WorkspaceConfig<CoveFilesystem, CoveSandbox>, "sandbox" | "filesystem" | "mounts" | "onMount"> {
    /** The sandbox, or what it is made with; with nothing at all it is one of the engine of this machine. */
    sandbox?: CoveSandbox | CoveSandboxOptions | undefined;
    /** How its files are seen. */
    filesystem?: Omit<CoveFilesystemOptions, "sandbox"> | undefined;
}

/** What is said in the wrong place would be silently ignored. */
const PLACES: readonly (readonly [where: string, options: readonly string[]])[] = [
    [
        "sandbox",
        [
            "url", "apiKey", "engine", "bin", "retryMs", "cove", "sandboxId", "tier", "root", "resources", "network", "lifecycle",
            "user", "privileges", "ephemeral", "hostname", "mountable", "labels", "ports", "timeout", "env", "workingDirectory",
        ],
    ],
    ["filesystem", ["basePath", "readOnly", "contained", "textExtensions"]],
];

/** All that there is. The compiler says so when Mastra has more. */
const KNOWN = new Set(
    Object.keys({
        sandbox: true, filesystem: true, id: true, name: true, instructions: true, sandboxCacheKey: true, browser: true,
        vectorStore: true, embedder: true, bm25: true, searchIndexName: true, autoIndexPaths: true, skills: true,
        skillSource: true, checkSkillFileMtime: true, lsp: true, tools: true, autoSync: true, operationTimeout: true,
    } satisfies Record<keyof CoveWorkspaceOptions, true>),
);

export function createCoveWorkspace(options: CoveWorkspaceOptions = {}): Workspace<CoveFilesystem, CoveSandbox> {
    const { sandbox: given, filesystem: how, ...rest } = options;
    for (const [where, names] of PLACES)
        for (const name of names)
            if (name in rest)
                throw new TypeError(`createCoveWorkspace: "${name}" is of the ${where}; write it as { ${where}: { ${name} } }`);
    if (typeof given === "function")
        throw new TypeError(
            "createCoveWorkspace: sandbox is a sandbox or its options; to choose one per request make a Workspace itself",
        );
    if ("mounts" in rest)
        throw new TypeError(
            "createCoveWorkspace: a workspace has either mounts or the sandbox's own files; make a Workspace itself for mounts",
        );
    if (rest.lsp)
        throw new TypeError(
            "createCoveWorkspace: lsp looks for language servers, and reads files, on this machine, and a server in the sandbox " +
                "ends, for it does not see this program's process; leave it out, and let commands check the code",
        );
    checkKeys("createCoveWorkspace", options, KNOWN);
    const sandbox = given instanceof CoveSandbox ? given : new CoveSandbox(given);
    return new Workspace({ ...rest, sandbox, filesystem: new CoveFilesystem({ ...how, sandbox }) });
}
