// What a CoveSandbox is made with, checked, and as the engine's API has it.
import type { Cove, CoveOptions, SandboxSpec } from "@cove/client";
import type { InstructionsOption, MastraSandboxOptions } from "@mastra/core/workspace";

export interface CoveResources {
    /** Bytes, or a text such as `"512M"` or `"2G"` (of 1024). */
    memory?: number | string | undefined;
    /** 1.5 is one and a half. */
    cpus?: number | undefined;
    /** Of its persistent disk; as `memory`. */
    disk?: number | string | undefined;
    pids?: number | undefined;
}

export interface CoveNetworkPolicy {
    /** `none`: nothing. `allow`: what `allow` names. `public`: the public internet, and what `allow` names besides. */
    mode?: "none" | "allow" | "public" | undefined;
    /** `NAME[:PORT]`, `*.NAME`, an address or a CIDR. */
    allow?: readonly string[] | undefined;
    /** As `allow`; goes before it. */
    deny?: readonly string[] | undefined;
    /** At once. */
    connections?: number | undefined;
    lookupsPerSecond?: number | undefined;
    bytesPerSecond?: number | undefined;
    /** In its life. */
    bytes?: number | undefined;
}

export interface CoveLifecycle {
    /** It ends when for so many ms no command ran and nothing was asked of it; 0 is never. */
    idle?: number | undefined;
    /** It ends so many ms after the start; 0 is never. */
    lifetime?: number | undefined;
    /** How it ends: `stop` (without it) keeps its disk and it starts again when it is needed; `kill` deletes it. */
    then?: "stop" | "kill" | undefined;
}

export interface CovePort {
    port: number;
    /** Whether its host name needs no key, where the server has a domain for ports. */
    public?: boolean | undefined;
}

/** An option that is undefined is one that is not there, also where `exactOptionalPropertyTypes` tells the two apart. */
export type OrUndefined<T> = { [K in keyof T]: T[K] | undefined };

export interface CoveSandboxOptions extends OrUndefined<Omit<MastraSandboxOptions, "processes">>, CoveOptions {
    /**
     * Who asks again with the same id gets the same sandbox, with its disk, also from another program. It is the name
     * of the engine's sandbox. Without it each object has a sandbox of its own, which lives until destroy(), or until
     * nothing was done in it for seven days, where `lifecycle` says nothing else.
     */
    id?: string | undefined;
    /** What it is called in Mastra. */
    name?: string | undefined;
    /** A sandbox of the engine, by its id or name, that is to be used if it is there. */
    sandboxId?: string | undefined;
    /** A client that is there already, instead of `url`, `apiKey`, `engine` and `bin`. */
    cove?: Cove | undefined;
    /** What kind of sandbox: one that runs programs is a box. Kernels run code alone: see CoveCodeModeTransport. */
    tier?: "box" | undefined;
    /** A root that the operator registered; without it a root of its own, with the system directories of the host, read-only. */
    root?: string | undefined;
    resources?: CoveResources | undefined;
    /** Without it as the server's operator has it: `public` as shipped. Write `none` for code that you do not trust. */
    network?: "none" | "public" | CoveNetworkPolicy | undefined;
    lifecycle?: CoveLifecycle | undefined;
    /** Who its commands are: NAME, UID, NAME:GROUP or UID:GID of the sandbox's own /etc/passwd. */
    user?: string | undefined;
    /** `system`: root inside, as apt and sudo expect. `plain`: nobody gains anything. */
    privileges?: "system" | "plain" | undefined;
    /** What is written is kept in memory: faster, and lost when it stops. */
    ephemeral?: boolean | undefined;
    hostname?: string | undefined;
    /** Directories that commands write to may be mounted while it runs. So no set-id file can be made in it. */
    mountable?: boolean | undefined;
    labels?: { readonly [name: string]: string } | undefined;
    /** Ports that are open from the begin. */
    ports?: readonly (number | CovePort)[] | undefined;
    /** How long a command may take that says nothing else, in ms: 300,000 without it, 0 is for ever. */
    timeout?: number | undefined;
    /** What the agent is told of it. */
    instructions?: InstructionsOption | undefined;
}

/** Of a sandbox that nobody can name again: when for so long nothing was done in it, it goes, also if it has been stopped. */
export const NAMELESS: CoveLifecycle = Object.freeze({ lifetime: 7 * 24 * 3_600_000, then: "kill" });

const KNOWN = new Set([
    "onStart", "onStop", "onDestroy", "env", "workingDirectory",
    "url", "apiKey", "engine", "bin", "retryMs", "cove",
    "id", "name", "sandboxId", "tier", "root", "resources", "network", "lifecycle", "user", "privileges", "ephemeral",
    "hostname", "mountable", "labels", "ports", "timeout", "instructions",
]);
const CONNECTION = ["url", "apiKey", "engine", "bin", "retryMs"] as const;
const NAME_BYTES = 256;
const CONTROL = /[\x00-\x1f\x7f]/;

/** What is misspelt would be silently ignored, so it is refused. */
export function checkKeys(what: string, given: object | undefined, known: ReadonlySet<string>): void {
    for (const key in given ?? {})
        if (!known.has(key))
            throw new TypeError(`${what}: there is no option "${key}"; it takes ${[...known].join(", ")}`);
}

export function checkOptions(what: string, options: CoveSandboxOptions): void {
    checkKeys(what, options, KNOWN);
    checkKeys(`${what}: resources`, options.resources, new Set(["memory", "cpus", "disk", "pids"]));
    checkKeys(`${what}: lifecycle`, options.lifecycle, new Set(["idle", "lifetime", "then"]));
    if (options.tier !== undefined && options.tier !== "box")
        throw new TypeError(
            `${what}: tier "${String(options.tier)}" is none that runs programs; it is "box", and kernels are for createCodeMode() by CoveCodeModeTransport`,
        );
    if (typeof options.network === "object")
        checkKeys(
            `${what}: network`,
            options.network,
            new Set(["mode", "allow", "deny", "connections", "lookupsPerSecond", "bytesPerSecond", "bytes"]),
        );
    else if (options.network !== undefined && options.network !== "none" && options.network !== "public")
        throw new TypeError(`${what}: network is "none", "public" or a policy such as { allow: ["example.com:443"] }`);
    // What is no number is found out here, not by the server, to which NaN would be a bound that nobody wrote.
    resourcesOf(options.resources);
    networkOf(options.network);
    lifecycleOf(options.lifecycle);
    portsOf(options.ports);
    if (options.cove !== undefined)
        for (const key of CONNECTION)
            if (options[key] !== undefined)
                throw new TypeError(`${what}: "${key}" is said by the client that "cove" gives; leave one of them out`);
    if (options.id !== undefined && (typeof options.id !== "string" || options.id === ""))
        throw new TypeError(`${what}: id is a text that is not empty`);
    if (options.workingDirectory !== undefined && !options.workingDirectory.startsWith("/"))
        throw new TypeError(`${what}: workingDirectory "${options.workingDirectory}" is a path in the sandbox and must be absolute`);
}

/** A bound is a number above 0: of NaN and Infinity JSON makes null, which is to have none. */
function boundOf(what: string, given: number | undefined, isWhole = true): number | undefined {
    if (given === undefined || given === null) return undefined;
    if (typeof given !== "number" || !Number.isFinite(given) || given <= 0 || (isWhole && !Number.isSafeInteger(given)))
        throw new RangeError(`${what}: ${String(given)} is no ${isWhole ? "whole " : ""}number above 0; for the server's own leave it out`);
    return given;
}

/** Bytes of "512M"; a number is bytes already. */
export function bytesOf(what: string, size: number | string | undefined): number | undefined {
    if (typeof size !== "string") {
        const bytes = boundOf(what, size, false);
        return bytes && Math.round(bytes);
    }
    const parts = /^(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?$/i.exec(size);
    if (parts === null) throw new TypeError(`${what}: "${size}" is no size; write bytes, or such as "512M" or "2G"`);
    return Math.round(Number(parts[1]) * 1024 ** " KMGT".indexOf((parts[2] || " ").toUpperCase()));
}

/**
 * A time in ms as the API has it: whole, and 0 is for ever. A text in it would be an error of the engine that names a
 * field which the caller never wrote.
 */
export function durationOf(what: string, ms: number | undefined, otherwise: number): number {
    if (ms === undefined || ms === null) return otherwise;
    if (typeof ms !== "number" || Number.isNaN(ms) || ms < 0)
        throw new RangeError(`${what}: ${String(ms)} is no time in milliseconds; 0 is for ever`);
    return ms === Infinity ? 0 : Math.ceil(ms);
}

/** The rule of the base class, and its words: it checks spawn() alone. */
export function checkRetained(bytes: number | undefined): void {
    if (bytes !== undefined && bytes !== Infinity && (!Number.isInteger(bytes) || bytes < 0))
        throw new RangeError("maxRetainedBytes must be a non-negative integer or Infinity");
}

/** Whether the engine takes it as a sandbox's name. */
export function isEngineName(id: string): boolean {
    return Buffer.byteLength(id) <= NAME_BYTES && !CONTROL.test(id) && !id.startsWith("cove:");
}

/** An absolute path of the sandbox without the slashes that mean nothing. */
export function tidyPath(path: string): string {
    return `/${path.split("/").filter((part) => part !== "" && part !== ".").join("/")}`;
}

export function networkOf(network: CoveSandboxOptions["network"]): SandboxSpec["network"] {
    if (network === undefined) return undefined;
    if (typeof network === "string") return { mode: network };
    return {
        mode: network.mode,
        allow: listOf("network.allow", network.allow),
        deny: listOf("network.deny", network.deny),
        connections: boundOf("network.connections", network.connections),
        lookups_per_second: boundOf("network.lookupsPerSecond", network.lookupsPerSecond),
        bytes_per_second: boundOf("network.bytesPerSecond", network.bytesPerSecond),
        bytes: boundOf("network.bytes", network.bytes),
    };
}

/** The engine deletes what was idle unless it is told otherwise; an agent would rather find its files again. */
export function lifecycleOf(lifecycle: CoveLifecycle | undefined): SandboxSpec["lifecycle"] {
    if (lifecycle === undefined) return undefined;
    const { idle, lifetime, then = "stop" } = lifecycle;
    const spec: SandboxSpec["lifecycle"] = { then };
    if (idle !== undefined) spec.idle_ms = durationOf("lifecycle.idle", idle, 0);
    const ms = lifetime === undefined ? undefined : durationOf("lifecycle.lifetime", lifetime, 0);
    if (ms === 0) spec.deadline = null;
    else if (ms !== undefined) spec.lifetime_ms = ms;
    return spec;
}

export function resourcesOf(resources: CoveResources | undefined): SandboxSpec["resources"] {
    if (resources === undefined) return undefined;
    const cpus = boundOf("resources.cpus", resources.cpus, false);
    return {
        memory_bytes: bytesOf("resources.memory", resources.memory),
        cpus: cpus && Math.round(cpus * 1000) / 1000, // as the engine has them, to compare
        pids: boundOf("resources.pids", resources.pids),
        disk_bytes: bytesOf("resources.disk", resources.disk),
    };
}

export function portsOf(ports: CoveSandboxOptions["ports"]): SandboxSpec["ports"] {
    return listOf("ports", ports)?.map((given) => {
        const spec = typeof given === "object" && given !== null ? { port: given.port, public: given.public } : { port: given };
        if (!Number.isInteger(spec.port) || spec.port < 1 || spec.port > 65535)
            throw new RangeError(`ports: ${JSON.stringify(spec.port) ?? "undefined"} is none; ports are numbers from 1 to 65535`);
        return spec;
    });
}

/** A text has a length and can be spread, too. */
function listOf<T>(what: string, given: readonly T[] | undefined): T[] | undefined {
    if (given === undefined || given === null) return undefined;
    if (!Array.isArray(given)) throw new TypeError(`${what}: ${JSON.stringify(given)} is no list; write [${JSON.stringify(given)}]`);
    return [...(given as readonly T[])];
}
