// What a run may reach, of what its kernel and the run itself say: the run's lists hold instead of the kernel's, its variables
// over the kernel's, and of two limits the lower one.
import { resolve } from "node:path";
import { lowest, onlyKnown, positive } from "./check.js";
import type { CapabilityManifest } from "./types.js";

/** A manifest that was looked through: no field is missing but limits. */
export interface Granted {
    readonly hosts: readonly string[];
    readonly reads: readonly string[];
    readonly writes: readonly string[];
    readonly env: Readonly<Record<string, string>>;
    readonly cpuMs: number | undefined;
    readonly memoryBytes: number | undefined;
}

const FIELDS = ["allowedHosts", "allowedReadPaths", "allowedWritePaths", "extraCapabilities", "allowedPaths", "env", "cpuMs", "memoryLimitBytes"];

function texts(name: string, value: unknown): string[] | undefined {
    if (value === undefined || value === null) return undefined;
    if (!Array.isArray(value) || !value.every((text) => typeof text === "string")) throw new TypeError(`${name}: an array of strings is needed`);
    return [...value];
}

function variables(value: unknown): Record<string, string> {
    if (value === undefined || value === null) return {};
    if (typeof value !== "object") throw new TypeError("env: an object of strings is needed");
    const out: Record<string, string> = Object.create(null);
    for (const [name, text] of Object.entries(value as Record<string, unknown>)) {
        if (text === undefined) continue;
        if (typeof text !== "string") throw new TypeError(`env.${name}: a string is needed`);
        out[name] = text;
    }
    return out;
}

interface Parsed {
    hosts?: string[] | undefined;
    reads?: string[] | undefined;
    writes?: string[] | undefined;
    env: Record<string, string>;
    cpuMs: number | undefined;
    memoryBytes: number | undefined;
}

function parsed(manifest: Partial<CapabilityManifest> | undefined): Parsed {
    onlyKnown("capabilities", manifest, FIELDS);
    const given = manifest ?? {};
    const both = texts("allowedPaths", given.allowedPaths);
    const reads = texts("allowedReadPaths", given.allowedReadPaths), writes = texts("allowedWritePaths", given.allowedWritePaths);
    texts("extraCapabilities", given.extraCapabilities);
    return {
        hosts: texts("allowedHosts", given.allowedHosts),
        reads: reads !== undefined || both !== undefined ? [...(reads ?? []), ...(both ?? [])] : undefined,
        writes: writes !== undefined || both !== undefined ? [...(writes ?? []), ...(both ?? [])] : undefined,
        env: variables(given.env),
        cpuMs: positive("cpuMs", given.cpuMs),
        memoryBytes: positive("memoryLimitBytes", given.memoryLimitBytes),
    };
}

/** Throws a TypeError that names the field where one is wrong. */
export function granted(ofKernel: Partial<CapabilityManifest> | undefined, ofRun: Partial<CapabilityManifest> | undefined): Granted {
    const kernel = parsed(ofKernel), run = parsed(ofRun);
    return {
        hosts: run.hosts ?? kernel.hosts ?? [],
        reads: (run.reads ?? kernel.reads ?? []).map((path) => resolve(path)),
        writes: (run.writes ?? kernel.writes ?? []).map((path) => resolve(path)),
        env: { ...kernel.env, ...run.env },
        cpuMs: lowest(kernel.cpuMs, run.cpuMs),
        memoryBytes: lowest(kernel.memoryBytes, run.memoryBytes),
    };
}
