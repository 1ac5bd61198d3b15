// RemoteSandboxKernel, on a box of cove: code runs in the box's own Node or Python, with all that the box has. What it may reach of
// the network is the box's policy, kept by the engine; of the host there is nothing. The box is made by the first run and
// removed by reset() and by disposing; one that nobody uses any more ends by itself.
import { Cove, type CoveOptions, CoveError, type Sandbox, type SandboxSpec } from "@cove/client";
import { lowest, onlyKnown, positive } from "./check.js";
import { KernelRunError } from "./errors.js";
import { granted, type Granted } from "./manifest.js";
import { Guest, NotAsked, type GuestLanguage } from "./remote-guest.js";
import { KEEP_MS, Lease } from "./remote-lease.js";
import type { CapabilityManifest, KernelOptions, KernelResult, RunHints, WasmKernel } from "./types.js";

export interface RemoteSandboxOptions extends KernelOptions {
    /**
     * The key of the cove server; else `COVE_API_KEY` (of the server that `COVE_URL` names, where that is set), else
     * `E2B_API_KEY`. The engine of this host needs none, and is sent none.
     */
    apiKey?: string | undefined;
    /** The root of the box, by its name on the server: `"base"`, which is the default, is the host's own system. */
    template?: string | undefined;
    /** Milliseconds that a run or a command may take: 30,000. */
    timeoutMs?: number;
    /** The address of the cove server; else `COVE_URL`, else the engine of this host, which is started if need be. */
    url?: string | undefined;
    /** The same as `url`. */
    endpoint?: string | undefined;
}

/** What runCommand() gives. */
export interface CommandResult {
    stdout: string;
    stderr: string;
    exitCode: number;
}

const OPTIONS = ["engine", "actionLanguage", "capabilities", "timeoutMs", "maxMemoryBytes", "fuelLimit", "epochTickMs", "apiKey", "template", "url", "endpoint"];
const TIMEOUT_MS = 30000;
const TIMER_MAX = 2 ** 31 - 1;
const IDLE_MS = 600000; // with no interpreter in it, and nobody who asks
const GONE = ["sandbox_not_found", "sandbox_gone", "sandbox_stopped"];
const OUTPUT_MAX = 64 * 1024 * 1024;

function languageOf(language: string): GuestLanguage {
    switch (language.toLowerCase()) {
    case "js":
    case "javascript":
        return "javascript";
    case "py":
    case "python":
    case "pyodide":
        return "python";
    default:
        throw new TypeError(`the language "${language}" is not run by RemoteSandboxKernel, which runs javascript and python`);
    }
}

function policyOf(hosts: readonly string[]): NonNullable<SandboxSpec["network"]> {
    if (hosts.length === 0) return { mode: "none" };
    const named = hosts.filter((host) => host !== "*");
    return { mode: named.length === hosts.length ? "allow" : "public", allow: named };
}

// An engine on this machine needs no key and would refuse one that is not its own, such as that of E2B which a program still has.
function connectionOf({ url, endpoint, apiKey }: RemoteSandboxOptions): CoveOptions {
    const of: CoveOptions = {}, given = url ?? endpoint, address = given ?? process.env.COVE_URL;
    if (given !== undefined) of.url = given;
    // COVE_API_KEY is taken by the client, who knows whose it is.
    const key = apiKey ?? (process.env.COVE_API_KEY ? undefined : process.env.E2B_API_KEY);
    if (key && address && !address.startsWith("unix:")) of.apiKey = key;
    return of;
}

export class RemoteSandboxKernel implements WasmKernel {
    readonly #options: RemoteSandboxOptions;
    readonly #timeoutMs: number;
    readonly #language: GuestLanguage;
    readonly #cove: Cove;
    #sandbox: Sandbox | undefined;
    #lease: Lease | undefined; // of #sandbox
    #memoryBytes: number | undefined; // of #sandbox
    #policy = ""; // of #sandbox
    #guests = new Map<GuestLanguage, Guest>();
    #last: Promise<unknown> = Promise.resolve();
    #isDisposed = false;

    constructor(options: RemoteSandboxOptions = {}) {
        onlyKnown("RemoteSandboxKernel", options, OPTIONS);
        if (options.url !== undefined && options.endpoint !== undefined) throw new TypeError("RemoteSandboxKernel: url and endpoint are the same: give one");
        this.#options = { ...options };
        this.#timeoutMs = positive("timeoutMs", options.timeoutMs) ?? TIMEOUT_MS;
        this.#language = languageOf(options.actionLanguage ?? "javascript");
        positive("maxMemoryBytes", options.maxMemoryBytes);
        granted(options.capabilities, undefined);
        this.#cove = new Cove(connectionOf(options));
    }

    async run(code: string, capabilities?: Partial<CapabilityManifest>, hints?: RunHints): Promise<KernelResult> {
        onlyKnown("hints", hints, ["language", "wallMs"]);
        const may = granted(this.#options.capabilities, capabilities);
        const language = hints?.language === undefined ? this.#language : languageOf(hints.language);
        const timeoutMs = lowest(this.#timeoutMs, may.cpuMs, positive("wallMs", hints?.wallMs), TIMER_MAX) ?? TIMEOUT_MS;
        return this.#turn("run", () => this.#renewed(async () => {
            await this.#reach(may);
            await this.#lease?.renew(timeoutMs);
            const guest = await this.#guest(language);
            await guest.ready(); // which takes its time, and none of the run's
            const answer = guest.ask({ code, env: may.env, hosts: may.hosts, reads: may.reads, writes: may.writes }, timeoutMs);
            return this.#lease === undefined ? answer : this.#lease.during(timeoutMs, answer);
        }));
    }

    /** Runs a line for the box's shell. It sees what code sees; its end is a result, whatever its exit code. */
    async runCommand(command: string): Promise<CommandResult> {
        const may = granted(this.#options.capabilities, undefined);
        return this.#turn("runCommand", async () => {
            const timeoutMs = Math.min(this.#timeoutMs, TIMER_MAX);
            const done = await this.#renewed(async () => {
                const sandbox = this.#sandbox ?? await this.#create(may);
                await this.#lease?.renew(timeoutMs);
                return sandbox.exec({ command, timeout_ms: Math.ceil(timeoutMs) }, { maxRetainedBytes: OUTPUT_MAX });
            });
            if (done.process.timed_out) throw new KernelRunError(`timed out: the command took more than ${timeoutMs} ms; allow more with timeoutMs`, { timedOut: true });
            const stderr = done.stderr + missing("stdout", done.stdout_dropped_bytes) + missing("stderr", done.stderr_dropped_bytes);
            return { stdout: done.stdout, stderr, exitCode: done.process.exit_code ?? 128 };
        });
    }

    /** Removes the box. The next run has a new one. */
    async reset(): Promise<void> {
        return this.#turn("reset", () => this.#remove());
    }

    async [Symbol.asyncDispose](): Promise<void> {
        this.#isDisposed = true;
        try {
            await this.#remove();
        } finally {
            await this.#last;
            await this.#remove().finally(() => this.#cove.close()); // what was being made meanwhile
        }
    }

    // What is asked of a kernel is done in order; what failed before changes nothing for what follows.
    #turn<T>(what: string, work: () => Promise<T>): Promise<T> {
        const turn = this.#last.then(async () => {
            if (this.#isDisposed) throw new KernelRunError(`${what}() of a RemoteSandboxKernel that was disposed of`);
            try {
                return await work();
            } catch (error) {
                throw error instanceof KernelRunError ? error : new KernelRunError(error instanceof Error ? error.message : String(error), { cause: error });
            }
        });
        this.#last = turn.catch(() => {});
        return turn;
    }

    // A box or an interpreter that is gone is replaced, once: what was in it is lost either way. Nobody may have heard of its end when
    // it is asked again; then what was asked did not run.
    async #renewed<T>(work: () => Promise<T>): Promise<T> {
        try {
            return await work();
        } catch (error) {
            const notAsked = error instanceof NotAsked ? error : undefined;
            if (isGone(notAsked === undefined ? error : notAsked.cause)) this.#forget();
            else if (notAsked !== undefined) this.#replace(notAsked.guest);
            else throw error;
            return work();
        }
    }

    // The others live, with their state.
    #replace(asked: Guest): void {
        for (const [language, guest] of this.#guests) if (guest === asked) this.#guests.delete(language);
        void asked.end();
    }

    #forget(): void {
        for (const guest of this.#guests.values()) guest.leave();
        this.#guests.clear();
        this.#sandbox = undefined;
        this.#lease = undefined;
    }

    async #remove(): Promise<void> {
        const sandbox = this.#sandbox, lease = this.#lease;
        this.#forget();
        try {
            await lease?.end();
            await sandbox?.remove();
        } catch (error) {
            if (!isGone(error)) throw error; // that is what was wanted
        }
    }

    async #create(may: Granted): Promise<Sandbox> {
        const memory = lowest(this.#options.maxMemoryBytes, may.memoryBytes), network = policyOf(may.hosts), { template } = this.#options;
        const spec: SandboxSpec = {
            disk_kind: "ephemeral",
            network,
            labels: { "cove.for": "wasmagent" },
            lifecycle: { idle_ms: IDLE_MS, lifetime_ms: KEEP_MS, then: "kill" },
            ...(template === undefined || template === "base" ? {} : { root: template }),
            ...(memory === undefined ? {} : { resources: { memory_bytes: Math.floor(memory) } }),
        };
        const { sandbox } = await this.#cove.create(spec);
        this.#sandbox = this.#cove.sandbox(sandbox.id);
        this.#lease = new Lease(this.#sandbox);
        this.#memoryBytes = sandbox.resources.memory_bytes ?? undefined;
        this.#policy = JSON.stringify(network);
        return this.#sandbox;
    }

    // The box may reach what this run may. Its memory is fixed when it is made: less than that cannot be had later.
    async #reach(may: Granted): Promise<void> {
        if (this.#sandbox === undefined) {
            await this.#create(may);
            return;
        }
        if (may.memoryBytes !== undefined && (this.#memoryBytes === undefined || may.memoryBytes < this.#memoryBytes)) {
            throw new KernelRunError(`a memoryLimitBytes of ${may.memoryBytes} is less than the box was made with: give it to the kernel, or reset() before the run`);
        }
        const network = policyOf(may.hosts), policy = JSON.stringify(network);
        if (policy === this.#policy) return;
        await this.#sandbox.update({ network });
        this.#policy = policy;
    }

    async #guest(language: GuestLanguage): Promise<Guest> {
        const there = this.#guests.get(language);
        if (there !== undefined && !there.hasEnded) return there;
        const guest = await Guest.start(this.#sandbox ?? await this.#create(granted(this.#options.capabilities, undefined)), language);
        if (this.#isDisposed) {
            await guest.end();
            throw new KernelRunError("the RemoteSandboxKernel was disposed of");
        }
        this.#guests.set(language, guest);
        return guest;
    }
}

function missing(stream: string, bytes: number): string {
    return bytes === 0 ? "" : `\n[the first ${bytes} bytes of ${stream} are not here: the last ${OUTPUT_MAX} are]\n`;
}

// The box was removed, by its lifecycle or by somebody else.
function isGone(error: unknown): boolean {
    return error instanceof CoveError && GONE.includes(error.code);
}
