// What Mastra's editor knows of CoveSandbox: a name, a form, and how a stored configuration becomes a sandbox.
// `new MastraEditor({ sandboxes: { [coveSandboxProvider.id]: coveSandboxProvider } })`. Who may store a configuration is not who runs
// the program: so it names no server but those that the program knows, and no key goes anywhere else.
import type { SandboxProvider } from "@mastra/core/editor";
import type { CoveSandboxOptions } from "./options.js";
import { CoveSandbox } from "./sandbox.js";
import { onlyKnown } from "./wasmagent/check.js";

export interface CoveSandboxProviderOptions {
    /**
     * The servers that a stored configuration may name beside that of `COVE_URL`, each with its key:
     * `{ "https://cove.example.com": process.env.OTHER_KEY }`. One that has none here gets that of `COVE_API_KEY`.
     */
    servers?: Readonly<Record<string, string | undefined>>;
}

/** The options of a CoveSandbox that can be written down. A key is not: it is the program's. */
export type CoveSandboxConfig = Pick<CoveSandboxOptions,
    | "id" | "name" | "sandboxId" | "url" | "engine" | "tier" | "root" | "resources" | "network" | "lifecycle" | "user" | "privileges" | "ephemeral"
    | "hostname" | "mountable" | "labels" | "ports" | "env" | "workingDirectory" | "timeout"> & { instructions?: string };

const text = (description: string): object => ({ type: "string", description });
const size = (description: string): object => ({ type: ["number", "string"], description: `${description} Bytes, or such as "512M" or "2G".` });
const whole = (description: string): object => ({ type: "integer", minimum: 0, description });
const texts = (description: string): object => ({ type: "object", additionalProperties: { type: "string" }, description });
const rules = (description: string): object => ({ type: "array", items: { type: "string" }, description });
const group = (description: string, properties: object): object => ({ type: "object", description, additionalProperties: false, properties });

const FIELDS: Record<keyof CoveSandboxConfig, object> = {
    id: text("Who asks again with the same id gets the same sandbox, with its disk. Without it each has one of its own."),
    name: text("What it is called."),
    sandboxId: text("A sandbox of the engine that is to be used if it is there, by its id or name."),
    url: text("The cove server, one that the program knows: that of its COVE_URL, or one that its operator listed. Without it COVE_URL, else the engine of this machine."),
    engine: { type: "string", enum: ["any", "private"], description: "private: always this user's own engine." },
    root: text("A root that the operator registered. Without it a root of its own, with the host's system directories, read-only."),
    resources: group("Limits; what is not said is the server's default.", {
        memory: size("Memory."),
        cpus: { type: "number", exclusiveMinimum: 0, description: "Processors; 1.5 is one and a half." },
        disk: size("Its disk."),
        pids: { type: "integer", minimum: 1, description: "Processes and threads." },
    }),
    network: {
        description: "Whom it may reach. Without it what the server's operator chose.",
        anyOf: [
            { type: "string", enum: ["none", "public"] },
            group("A policy.", {
                mode: { type: "string", enum: ["none", "allow", "public"] },
                allow: rules("NAME[:PORT], *.NAME, an address or a CIDR."),
                deny: rules("As allow; goes before it."),
                connections: whole("At once."),
                lookupsPerSecond: whole("Names that it may ask for in a second."),
                bytesPerSecond: whole("Both ways together."),
                bytes: whole("In its life, both ways together."),
            }),
        ],
    },
    lifecycle: group("When it ends by itself.", {
        idle: whole("Milliseconds in which no command ran and nothing was asked; 0 is never."),
        lifetime: whole("Milliseconds after the start."),
        then: { type: "string", enum: ["stop", "kill"], description: "stop keeps its disk; kill deletes it." },
    }),
    user: text("Who its commands are: NAME, UID, NAME:GROUP or UID:GID."),
    tier: { type: "string", enum: ["box"], description: "What kind of sandbox: a box runs programs." },
    privileges: { type: "string", enum: ["system", "plain"], description: "system: root inside, as apt and sudo expect. plain: nobody gains anything." },
    ephemeral: { type: "boolean", description: "What is written is kept in memory, and lost when it stops." },
    hostname: text("Its name for itself."),
    mountable: { type: "boolean", description: "Directories that commands write to may be mounted while it runs; no set-id file can be made in it." },
    labels: texts("Anything that is to be found again."),
    ports: {
        type: "array",
        description: "Ports that are open from the begin.",
        items: { anyOf: [{ type: "integer" }, { ...group("A port.", { port: { type: "integer" }, public: { type: "boolean" } }), required: ["port"] }] },
    },
    env: texts("Variables of every command."),
    workingDirectory: text("Where commands begin: an absolute path in the sandbox."),
    timeout: whole("Milliseconds that a command may take that says nothing else: 300000. 0 is for ever."),
    instructions: text("What the agent is told of it, in place of the text that comes with it."),
};

// What is the same server, however it is written; undefined for what is none.
function serverOf(url: string | undefined): string | undefined {
    if (url === undefined || url === "") return undefined;
    if (url.startsWith("unix:")) return url;
    try {
        const { protocol, origin } = new URL(url);
        return protocol === "http:" || protocol === "https:" ? origin : undefined;
    } catch {
        return undefined;
    }
}

function sandboxOf(config: CoveSandboxConfig, servers: ReadonlyMap<string, string | undefined>): CoveSandbox {
    // What a stored configuration holds, it holds of the form: a key or a program's path is not in that.
    onlyKnown("coveSandboxProvider", config, Object.keys(FIELDS));
    if (config.url === undefined || config.url === null || config.url === "") {
        const { url, ...rest } = config;
        return new CoveSandbox(rest);
    }
    const server = typeof config.url === "string" ? serverOf(config.url) : undefined;
    if (server !== undefined && (servers.has(server) || server === serverOf(process.env["COVE_URL"]))) {
        return new CoveSandbox({ ...config, apiKey: servers.get(server) || process.env["COVE_API_KEY"] });
    }
    throw new TypeError("coveSandboxProvider: url: the stored configuration names a server that this program does not know, and its key goes to no such; " +
        "set COVE_URL to it, or list it with its key in createCoveSandboxProvider({ servers })");
}

/** The descriptor, for servers of more than one address. */
export function createCoveSandboxProvider(options: CoveSandboxProviderOptions = {}): SandboxProvider<CoveSandboxConfig> {
    onlyKnown("createCoveSandboxProvider()", options, ["servers"]);
    const servers = new Map<string, string | undefined>();
    for (const [url, apiKey] of Object.entries(options.servers ?? {})) {
        const server = serverOf(url);
        if (server === undefined) throw new TypeError(`createCoveSandboxProvider(): servers: one is no address of a server; it is http://HOST:PORT, https://HOST or unix:/PATH`);
        servers.set(server, apiKey);
    }
    return {
        id: "cove",
        name: "Cove",
        description: "A sandbox of cove, on this machine or on a cove server",
        configSchema: { type: "object", additionalProperties: false, properties: FIELDS },
        createSandbox: (config) => sandboxOf(config, servers),
    };
}

export const coveSandboxProvider: SandboxProvider<CoveSandboxConfig> = createCoveSandboxProvider();
