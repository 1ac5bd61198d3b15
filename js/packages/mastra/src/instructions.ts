// What the agent is told of its sandbox: only what changes what it does.
import type { SandboxView } from "@cove/client";
import type { InstructionsOption } from "@mastra/core/workspace";
import type { RequestContext } from "@mastra/core/request-context";
import type { CoveSandboxOptions } from "./options.js";

/** An override as the other providers have it: a text replaces, a function is given the text and answers another. */
export function instructionsOf(
    override: InstructionsOption | undefined,
    make: () => string,
    requestContext: RequestContext | undefined,
): string {
    if (typeof override === "string") return override;
    const defaultInstructions = make();
    return override === undefined ? defaultInstructions : override({ defaultInstructions, requestContext });
}

function networkSentence(options: CoveSandboxOptions, view: SandboxView | undefined): string | undefined {
    const network = view?.network ?? (typeof options.network === "string" ? { mode: options.network, allow: [] } : options.network);
    const allow = network?.allow ?? [];
    if (network?.mode === "none") return "There is no network.";
    if (network?.mode === "public") return "The public internet can be reached, private networks cannot.";
    if (allow.length > 0) return `Of the network only this can be reached: ${allow.slice(0, 20).join(", ")}${allow.length > 20 ? ", ..." : ""}.`;
    return undefined;
}

export function defaultInstructions(
    options: CoveSandboxOptions,
    view: SandboxView | undefined,
    workingDirectory: string | undefined,
): string {
    const sentences = [
        "Commands run in an isolated Linux sandbox with a disk of its own.",
        workingDirectory === undefined
            ? "They start in the home directory."
            : `Working directory: "${workingDirectory}".`,
        (view?.root ?? options.root ?? "host") === "host"
            ? "System directories are read-only; the home directory, /tmp and new directories at / can be written to."
            : undefined,
        "Files stay between commands, also those in /tmp; a background process runs on until it ends or is killed.",
        networkSentence(options, view),
    ];
    return sentences.filter((sentence) => sentence !== undefined).join(" ");
}
