// From the options of a CoveSandbox to the engine's sandbox: how one is made, and whether one that is there is the same.
import type { SandboxChange, SandboxSpec, SandboxView } from "@cove/client";
import { lifecycleOf, networkOf, portsOf, resourcesOf, type CoveSandboxOptions } from "./options.js";

/** Which start() made a sandbox: a repeated create cannot tell otherwise whether it was there or is its own. */
export const MADE_BY = "mastra.made-by";

/** `new`: only who made it knows it. `remade`: it is about to be deleted, and another one made. */
export const STATE = "mastra.state";

export function specOf(
    options: CoveSandboxOptions,
    labels: { readonly [name: string]: string },
    mounts: SandboxSpec["mounts"],
): SandboxSpec {
    return {
        labels: { ...options.labels, ...labels },
        root: options.root,
        privileges: options.privileges,
        disk_kind: options.ephemeral === undefined ? undefined : options.ephemeral ? "ephemeral" : "persistent",
        user: options.user,
        hostname: options.hostname,
        mountable: options.mountable,
        resources: resourcesOf(options.resources),
        network: networkOf(options.network),
        lifecycle: lifecycleOf(options.lifecycle),
        ports: portsOf(options.ports),
        mounts: mounts && mounts.length > 0 ? mounts : undefined,
    };
}

/** What was settled when it was made, and is other than the options say; a clause for each. */
export function differences(options: CoveSandboxOptions, found: SandboxView): string[] {
    const resources = resourcesOf(options.resources);
    const all: [what: string, asked: unknown, is: unknown][] = [
        ["root", options.root, found.root],
        ["privileges", options.privileges, found.privileges],
        ["ephemeral", options.ephemeral, found.disk_kind === "ephemeral"],
        ["user", options.user, found.user],
        ["hostname", options.hostname, found.hostname],
        ["mountable", options.mountable, found.mountable],
        ["resources.memory", resources?.memory_bytes, found.resources.memory_bytes],
        ["resources.cpus", resources?.cpus, found.resources.cpus],
        ["resources.pids", resources?.pids, found.resources.pids],
        ["resources.disk", resources?.disk_bytes, found.resources.disk_bytes],
    ];
    return all
        .filter(([, asked, is]) => asked !== undefined && asked !== is)
        .map(([what, asked, is]) => `${what} ${String(is)} where ${String(asked)} is asked for`);
}

function isOther(asked: object, is: object): boolean {
    return Object.entries(asked).some(
        ([key, value]) => value !== undefined && JSON.stringify(value) !== JSON.stringify((is as Record<string, unknown>)[key]),
    );
}

/** What the options say otherwise than the sandbox has it, of what can be changed. A lifetime begins with a start. */
export function changeOf(options: CoveSandboxOptions, view: SandboxView): SandboxChange | undefined {
    const network = networkOf(options.network);
    const lifecycle = lifecycleOf(options.lifecycle);
    const change: SandboxChange = {};
    // A change has all labels; those that others gave it stay.
    if (isOther(options.labels ?? {}, view.labels)) change.labels = { ...view.labels, ...options.labels };
    if (network && isOther(network, view.network)) change.network = network;
    if (lifecycle && isOther(lifecycle, view.lifecycle)) change.lifecycle = lifecycle;
    return Object.keys(change).length > 0 ? change : undefined;
}
