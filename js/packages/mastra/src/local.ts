// The drop-in for Mastra's LocalSandbox: a directory of this host to work in, and commands that run in a box of this
// user's own engine, which sees that directory and the host's system directories, and nothing else of the host.
import type { SandboxView } from "@cove/client";
import {
    IsolationUnavailableError, MountError,
    type IsolationBackend, type NativeSandboxConfig, type SandboxCloneOptions,
    type SandboxDetectionResult, type SandboxInfo, type SandboxStartOptions, type SandboxStartResult,
} from "@mastra/core/workspace";
import type { RequestContext } from "@mastra/core/request-context";
import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { Checkpoints } from "./local-checkpoints.js";
import { mergeEnv, type Env } from "./command.js";
import { detectIsolation } from "./local-detect.js";
import {
    checkCheckpoints, checkDirectories, forgetDirectories, insidePath, isInside, openTrusted, planDirectories,
    registerDirectories, wantsWholeHost, type HostDirectory, type Mounts,
} from "./local-directories.js";
import { linkInto, unlinkFrom } from "./local-links.js";
import { isOthers, owner, OWNER } from "./local-owner.js";
import { checkLocalOptions, commandDirectory, hostPath, type CoveLocalSandboxOptions } from "./local-options.js";
import { hasCode, isGone } from "./errors.js";
import { noPlaceFor, requireMountPath, type HostMount } from "./mounts.js";
import { instructionsOf } from "./instructions.js";
import { tidyPath } from "./options.js";
import { CoveSandbox } from "./sandbox.js";

/** A box that was given no id is removed when for so long nothing ran in it and nothing was asked of it. */
const IDLE_MS = 30 * 60_000;
/** What is stopped is not idle: it has this long. */
const STOPPED_MS = 24 * 3_600_000;
/** How often a start is tried whose directories' names are taken away meanwhile. */
const TRIES = 3;

/** What is settled when a box is made: with other rules it is another box. */
function settledBy(directories: readonly HostDirectory[], isIsolated: boolean, allowNetwork: boolean): string {
    const settled = JSON.stringify([directories, isIsolated, allowNetwork]);
    return createHash("sha256").update(settled).digest("hex").slice(0, 12);
}

/** Ids that objects of this program have which were given none. */
const taken = new Set<string>();

/** That of the directory and the rules, so that this program finds its box when it is run again; each object has its own. */
function takeId(settled: string, first = 1): { id: string; number: number } {
    const id = `cove-local-sandbox-${settled}`;
    for (let number = first; ; number++) {
        const wanted = number === 1 ? id : `${id}.${number}`;
        if (taken.has(wanted)) continue;
        taken.add(wanted);
        return { id: wanted, number };
    }
}

/** Undefined where nothing is. It is looked at before each command, for which this is quick enough. */
function inodeOf(directory: string): string | undefined {
    const found = statSync(directory, { bigint: true, throwIfNoEntry: false });
    return found && `${found.dev}:${found.ino}`;
}

export class CoveLocalSandbox extends CoveSandbox {
    override readonly id: string;
    override readonly provider: string = "cove-local";
    override readonly supportsCheckpoints = true;
    readonly isolation: IsolationBackend;
    readonly #given: CoveLocalSandboxOptions;
    readonly #rules: NativeSandboxConfig;
    readonly #directories: readonly HostDirectory[];
    readonly #checkpoints: Checkpoints;
    readonly #settled: string;
    /** Without an id: what its box is called, which is not its id where another program has that one. */
    #taken: { id: string; number: number } | undefined;
    #isReleased = false;
    /** In the working directory, by the paths of what is mounted: where they lead. */
    readonly #links = new Map<string, string>();
    #mounts: Mounts = [];
    /** What PATH of this program came to. */
    #path: { host: string | undefined; inside: string } | undefined;
    /** The engine knows a name no more that it should: all are registered again. */
    #isStale = false;
    /** The box has a directory that it should have no more: the next start makes it anew. */
    #isOutdated = false;
    /** Which directory it was that the box was made with. */
    #inode: string | undefined;
    /** Whether this start made the working directory, or one before it that failed. */
    #isNew = false;

    constructor(options: CoveLocalSandboxOptions = {}) {
        checkLocalOptions(options);
        const { isolation = "none", nativeSandbox = {}, checkpointsDirectory } = options;
        const isIsolated = isolation !== "none";
        if (isIsolated && process.platform !== "linux")
            throw new IsolationUnavailableError(isolation, detectIsolation().message);
        const workingDirectory = hostPath(options.workingDirectory ?? ".sandbox");
        const allowNetwork = !isIsolated || nativeSandbox.allowNetwork === true;
        const directories = planDirectories(workingDirectory, isIsolated, nativeSandbox);
        checkDirectories(directories);
        const checkpoints = hostPath(checkpointsDirectory ?? path.join(path.dirname(workingDirectory), ".checkpoints"));
        if (options.checkpointName !== undefined || options.seedCheckpointName !== undefined)
            checkCheckpoints(checkpoints, directories);
        const settled = settledBy(directories, isIsolated, allowNetwork);
        const own = options.id === undefined ? takeId(settled) : undefined;
        const id = options.id ?? own!.id;
        super({
            onStart: options.onStart,
            onStop: options.onStop,
            onDestroy: options.onDestroy,
            id: options.id === undefined ? id : `${id}.${settled}`,
            name: "CoveLocalSandbox",
            engine: "private",
            privileges: "plain",
            network: allowNetwork ? "public" : "none",
            env: options.env as MastraEnv,
            workingDirectory,
            timeout: options.timeout,
            instructions: options.instructions,
            ...(own && { lifecycle: { idle: IDLE_MS, then: "kill" }, labels: { [OWNER]: owner() } }),
        });
        this.id = id;
        this.#taken = own;
        this.#settled = settled;
        this.isolation = isolation;
        this.#given = options;
        this.#rules = nativeSandbox;
        this.#directories = directories;
        this.#checkpoints = new Checkpoints(checkpoints, workingDirectory, (wanted, make) => this.#open(wanted, make));
        if (wantsWholeHost(nativeSandbox))
            this.logger.warn(
                "CoveLocalSandbox: readOnlyPaths: \"/\" leaves all as it is: a box sees the host's system directories; name the " +
                    "others that it should see, such as /opt",
            );
    }

    override get workingDirectory(): string {
        return super.workingDirectory!;
    }

    // ---- start, stop, destroy ----

    /** The directory is what is found or made: the box around it can be made anew at any time. */
    override async start(options: SandboxStartOptions = {}): Promise<SandboxStartResult> {
        await this.cove.connect({ signal: options.abortSignal });
        await this.#prepare();
        for (let tries = 1; ; tries++)
            try {
                await this.#startBox(options);
                break;
            } catch (error) {
                if (!hasCode(error, "unknown_mount") || tries === TRIES) throw error;
                this.#isStale = true;
            }
        const outcome = this.#isNew ? "created" : "connected";
        this.#isNew = false;
        return { outcome };
    }

    async #prepare(): Promise<void> {
        const { checkpointName, seedCheckpointName } = this.#given;
        const work = await this.#open(this.workingDirectory, true);
        const found = await work.stat({ bigint: true });
        await work.close();
        this.#inode = `${found.dev}:${found.ino}`;
        if (checkpointName !== undefined || seedCheckpointName !== undefined)
            await this.#checkpoints.seed([checkpointName, seedCheckpointName]);
    }

    /** A directory of this host, as far as its path can be trusted. */
    async #open(wanted: string, make: boolean): Promise<FileHandle> {
        const { directory, made } = await openTrusted(this.cove, wanted, this.#directories, make);
        this.#isNew ||= made && wanted === this.workingDirectory;
        return directory;
    }

    async #startBox(options: SandboxStartOptions): Promise<void> {
        this.#mounts = await registerDirectories(this.cove, this.#directories, this.#isStale);
        this.#isStale = false;
        const found = await this.find(options);
        const wanted = await this.mountSpecs(options.abortSignal); // behind it: what is registered goes by the box's name
        // A box keeps what it was made with: where another directory is now at one of the paths, or another one is to be
        // mounted, there has to be another box. What counts lies in the directories.
        const fits = wanted.every(({ name, target }) =>
            found?.mounts.some((mount) => mount.name === name && mount.target === target),
        );
        if (found && fits && !this.#isOutdated) {
            const isToEnd = this.#taken !== undefined && found.lifecycle.deadline !== null;
            return this.connect(isToEnd ? await this.#goOn(found) : found, options);
        }
        if (found) await this.cove.sandbox(found.id).remove();
        await this.create(options);
        this.#isOutdated = false;
    }

    /**
     * A box without an id is ours once our name is on it. Where that of a program is which still runs, it is that one's,
     * and ours is the next.
     */
    protected override async find(options: SandboxStartOptions = {}): Promise<SandboxView | undefined> {
        for (;;) {
            const asked = this.#taken;
            const found = await super.find(options);
            if (this.#taken !== asked) continue; // another call went on to the next
            if (!found || !this.#taken || found.labels[OWNER] === owner()) return found;
            if (isOthers(found.labels[OWNER])) {
                const next = takeId(this.#settled, this.#taken.number + 1);
                taken.delete(this.#taken.id);
                this.#taken = next;
                this.useName(next.id);
                continue;
            }
            const claimed = await this.#claim(found, options.abortSignal);
            if (claimed) return claimed;
        }
    }

    /** Undefined where somebody was faster, or it went away. */
    async #claim(found: SandboxView, signal: AbortSignal | undefined): Promise<SandboxView | undefined> {
        const native = this.cove.sandbox(found.id);
        try {
            // One that is being made has nothing yet that could be changed.
            const { labels, revision } = found.state === "creating" ? await native.start({ signal }) : found;
            if (labels[OWNER] !== found.labels[OWNER]) return undefined;
            return await native.update({ labels: { ...labels, [OWNER]: owner() } }, { revision, signal });
        } catch (error) {
            if (isGone(error) || hasCode(error, "revision_conflict", "lost")) return undefined;
            throw error;
        }
    }

    override async stop(): Promise<void> {
        let view = await this.stopNative();
        await this.#unlinkAll();
        if (!this.#taken) return;
        // With its revision: who started it meanwhile wants no end of it.
        for (let tries = 1; view?.state === "stopped" && tries <= TRIES; tries++) {
            const native = this.cove.sandbox(view.id);
            const end = { lifetime_ms: STOPPED_MS, idle_ms: IDLE_MS, then: "kill" as const };
            try {
                await native.update({ lifecycle: end }, { revision: view.revision });
                return;
            } catch (error) {
                if (isGone(error)) return;
                if (!hasCode(error, "revision_conflict", "lost")) throw error;
            }
            view = await native.view().catch((error: unknown) => {
                if (isGone(error)) return undefined;
                throw error;
            });
        }
    }

    /** What was stopped had an end, and has none when it is used again. */
    async #goOn({ id }: SandboxView): Promise<SandboxView> {
        const lifecycle = { deadline: null, idle_ms: IDLE_MS, then: "kill" as const };
        try {
            return await this.cove.sandbox(id).update({ lifecycle });
        } catch (error) {
            throw isGone(error) ? this.overtaken(error.message) : error;
        }
    }

    /** Of one that was never started there is nothing to destroy, and destroy() is not called. */
    override async _destroy(): Promise<void> {
        await super._destroy();
        this.#release();
    }

    /** Its name is for the next object of this program. */
    #release(): void {
        if (this.#taken && !this.#isReleased) taken.delete(this.#taken.id);
        this.#isReleased = true;
    }

    override async destroy(): Promise<void> {
        await super.destroy();
        await this.#unlinkAll();
        this.#release();
        // Those that are the same for all sandboxes stay.
        await forgetDirectories(this.cove, this.#mounts.filter(({ read_only }) => !read_only));
        this.#mounts = [];
    }

    protected override fixedMounts(): Mounts {
        return this.#mounts;
    }

    /** What the link in the working directory leads to has to be there, too. */
    protected override placesOf(mount: HostMount): readonly HostMount[] {
        const itself = path.resolve(mount.hostPath);
        if (itself === mount.target || this.#directories.some((directory) => directory.path === itself)) return [mount];
        const wrong = noPlaceFor(itself);
        if (wrong !== undefined)
            throw new MountError(`${mount.target}: the sandbox cannot have ${itself}. ${wrong} Name another directory.`, mount.target);
        return [mount, { ...mount, target: itself }];
    }

    // ---- commands ----

    override async commandSpec(
        command: string,
        env: Env | undefined,
        cwd: string | undefined,
    ): Promise<{ command: string; env: Record<string, string> | undefined; cwd: string | undefined }> {
        if (this.status === "running" && !this._startPromise && inodeOf(this.workingDirectory) !== this.#inode) {
            // Somebody removed the directory, and may have made another: the box has the one that is gone.
            this.status = "stopped";
            await this.ensureRunning();
        }
        const host = process.env["PATH"];
        if (this.#path?.host !== host)
            this.#path = { host, inside: insidePath(host, this.#directories, this.#rules.allowSystemBinaries !== false) };
        const merged = mergeEnv({ PATH: this.#path!.inside }, this.#given.env, env);
        // Who hands on the host's environment means a home: the box has one of its own, for that one is not inside.
        if (merged?.["HOME"] === homedir() && !isInside(homedir(), this.#directories)) delete merged["HOME"];
        return {
            command,
            env: merged,
            cwd: commandDirectory(this.workingDirectory, cwd),
        };
    }

    // ---- checkpoints ----

    /** Keeps the working directory as the checkpoint `checkpointName`; without that name it does nothing. */
    override async snapshot(): Promise<void> {
        if (this.#given.checkpointName !== undefined) await this.#checkpoints.write(this.#given.checkpointName);
    }

    // ---- mounts ----

    /**
     * Files of this host: in the box they are at `mountPath`, and a link in the working directory leads to them, as with
     * LocalSandbox, for commands and for whoever looks at the directory from outside.
     */
    protected override async mountDirectory(wanted: HostMount): Promise<void> {
        const leadsTo = path.resolve(wanted.hostPath);
        const made = await this.#inWork((work) => linkInto(work, this.workingDirectory, wanted.target, leadsTo));
        this.#links.set(wanted.target, leadsTo);
        try {
            await super.mountDirectory(wanted);
        } catch (error) {
            if (made) await this.#unlink(wanted.target);
            throw error;
        }
    }

    /**
     * The link goes at once, as with LocalSandbox. Where commands can still reach the directory by another path, which is
     * until the box is made anew, the next start makes it anew; under rules that is said.
     */
    override async unmount(given: string): Promise<void> {
        requireMountPath(given);
        const target = tidyPath(given);
        const leadsTo = await this.#unlink(target);
        const isOthers = leadsTo === undefined || [...this.#links.values()].includes(leadsTo);
        try {
            await this.unmountDirectory(target, isOthers ? [target] : [target, leadsTo]);
        } catch (error) {
            if (!(error instanceof MountError)) throw error;
            this.#isOutdated = true;
            if (this.isolation !== "none") throw error;
        } finally {
            this.forgetMount(target);
        }
    }

    protected override unmountRemedy(): string {
        return "with stop() and the next start it is out of the box (its link is gone already)";
    }

    protected override mountRemedy(): string {
        return "stop() the sandbox first: the next start makes a box with it";
    }

    async #inWork<T>(what: (work: FileHandle) => Promise<T>): Promise<T> {
        const work = await this.#open(this.workingDirectory, true);
        return what(work).finally(() => work.close());
    }

    /** Gives where the link led. */
    async #unlink(target: string): Promise<string | undefined> {
        const leadsTo = this.#links.get(target);
        this.#links.delete(target);
        if (leadsTo !== undefined) await this.#inWork((work) => unlinkFrom(work, target, leadsTo));
        return leadsTo;
    }

    /** All of them. What was mounted by a link waits for the next start, which makes it anew. */
    async #unlinkAll(): Promise<void> {
        if (this.#links.size === 0) return;
        const links = [...this.#links];
        this.#links.clear();
        const work = await this.#open(this.workingDirectory, false).catch(() => undefined);
        if (work) for (const [target, leadsTo] of links) await unlinkFrom(work, target, leadsTo);
        await work?.close();
        for (const [at, { state }] of this.mounts.entries)
            if (state === "mounted" && links.some(([target]) => target === tidyPath(at))) this.mounts.set(at, { state: "pending" });
    }

    // ---- what it is ----

    /**
     * Another one with the same options. A box of its own it has by `id` or `workingDirectory`, or as another object without
     * an id. `sandboxId`, `idleTimeoutMinutes` and `actingUserId` say nothing here, as with LocalSandbox: the directory is
     * what is found, the end is settled by the id, and there is one user.
     */
    override clone(options: SandboxCloneOptions = {}): CoveLocalSandbox {
        const { checkpointName, seedCheckpointName } = options;
        const { onStart: _start, onStop: _stop, onDestroy: _destroy, ...given } = this.#given;
        return new CoveLocalSandbox({
            ...given,
            id: options.id,
            workingDirectory: options.workingDirectory ?? this.workingDirectory,
            env: options.env ?? given.env,
            checkpointName: checkpointName ?? given.checkpointName,
            seedCheckpointName: seedCheckpointName ?? given.seedCheckpointName,
            checkpointsDirectory: this.#checkpoints.directory,
        });
    }

    override async getInfo(): Promise<SandboxInfo> {
        const info = await super.getInfo();
        const { allowNetwork = false, readOnlyPaths = [], readWritePaths = [] } = this.#rules;
        return {
            ...info,
            metadata: {
                ...info.metadata,
                platform: process.platform,
                nodeVersion: process.version,
                isolation: this.isolation,
                ...(this.isolation !== "none" && { isolationConfig: { allowNetwork, readOnlyPaths, readWritePaths } }),
            },
        };
    }

    override getInstructions(options?: { requestContext?: RequestContext }): string {
        return instructionsOf(this.#given.instructions, () => this.#instructions(), options?.requestContext);
    }

    #instructions(): string {
        const network = this.isolation === "none" || this.#rules.allowNetwork === true;
        return [
            `Commands run in an isolated Linux box on this machine. Working directory: "${this.workingDirectory}",`,
            "the machine's own. Other paths are the box's: new directories at /, /tmp and the home directory stay between commands, and the system directories are read-only.",
            network ? "The public internet can be reached." : "There is no network.",
        ].join(" ");
    }

    /** What `isolation` can be here, found out by making a box. */
    static detectIsolation(): SandboxDetectionResult {
        return detectIsolation();
    }
}

type MastraEnv = NonNullable<ConstructorParameters<typeof CoveSandbox>[0]>["env"];
