// A sandbox of cove for a Mastra workspace. Its id is the name of the engine's sandbox, so whoever starts with the same
// id gets the same one; what it is and what runs in it is the engine's to know, and this object can be lost.
import { Cove, type CoveError, type Sandbox, type SandboxSpec, type SandboxView } from "@cove/client";
import {
    MastraSandbox, MountError, SandboxNotReadyError,
    type CommandResult, type ExecuteCommandOptions, type MountManager, type MountResult, type OnMountHook,
    type ProviderStatus, type SandboxCloneOptions, type SandboxFileInput, type SandboxInfo, type SandboxStartOptions,
    type SandboxStartResult, type WorkspaceFilesystem, type WriteFilesOptions,
} from "@mastra/core/workspace";
import type { RequestContext } from "@mastra/core/request-context";
import { createHash, randomBytes } from "node:crypto";
import { posix } from "node:path";
import { commandLine, mergeEnv, neverRan, type Env } from "./command.js";
import { abortError, hadBegun, hasCode, heard, isAbort, isDead, isGone } from "./errors.js";
import { execute } from "./execute.js";
import { CoveFilesystem } from "./filesystem.js";
import { infoOf } from "./info.js";
import { defaultInstructions, instructionsOf } from "./instructions.js";
import { checkMountPath, hostMountOf, HostMounts, isMountOfOurs, requireMountPath, withoutDoubles, type HostMount, type MountSpec } from "./mounts.js";
import { CoveNetworking } from "./networking.js";
import {
    checkOptions, checkRetained, durationOf, isEngineName, lifecycleOf, NAMELESS, portsOf, tidyPath, type CoveSandboxOptions,
} from "./options.js";
import { CoveProcessManager, executeTag } from "./processes.js";
import { changeOf, differences, MADE_BY, specOf, STATE } from "./spec.js";
import { checkFiles, upload } from "./upload.js";

/** As the other providers have it; a command that nobody bounds would hold an agent for ever. */
const TIMEOUT_MS = 300_000;

/** How often a start is tried that others make void. */
const STARTS = 20;
/** How often the life of a sandbox that nobody can name again is lengthened while it is used. */
const RENEW_MS = 3_600_000;

/** The mounts of the sandbox that takes the place of one with these. */
type MountsOf = (there: readonly MountSpec[]) => Promise<MountSpec[]>;

/** Between find and connect or create the sandbox went away, or came: what find said holds no more. */
class Overtaken extends Error {}

function generateId(): string {
    return `cove-sandbox-${Date.now().toString(36)}-${randomBytes(4).toString("hex")}`;
}

export class CoveSandbox extends MastraSandbox<SandboxView> {
    readonly id: string;
    override readonly name: string;
    readonly provider: string = "cove";
    status: ProviderStatus = "pending";
    declare readonly processes: CoveProcessManager;
    declare readonly mounts: MountManager;
    override readonly networking: CoveNetworking;
    /** The native client: everything that the engine's API has. */
    readonly cove: Cove;
    readonly #options: Readonly<CoveSandboxOptions>;
    #engineName: string;
    readonly #timeout: number;
    #hostMounts: HostMounts;
    readonly #createdAt = new Date();
    #view: SandboxView | undefined;
    #native: Sandbox | undefined;
    #lastUsed: number | undefined;
    #renewed = 0;
    /** Rises with each start: an error of before it says nothing of the sandbox that there is now. */
    #generation = 0;
    /** The start that follows the end of a generation. */
    #revival: { of: number; started: Promise<void> } | undefined;
    /** Made by this object, which has done nothing in it yet: the revision that it had. */
    #untouched: number | undefined;
    /** It is made anew; whoever wants to do something in it waits. */
    #remaking: Promise<void> | undefined;
    #hasMountHook = false;
    /** Why a directory is not in the sandbox, by where it should be; told when the base class mounts it. */
    #mountErrors = new Map<string, Error>();
    /** Where a hook let this object mount a directory; it is in the sandbox that follows this one, too. */
    #mounted = new Set<string>();
    #home: Promise<string> | undefined;
    #filesystem: CoveFilesystem | undefined;

    constructor(options: CoveSandboxOptions = {}) {
        checkOptions("CoveSandbox", options);
        const { onStart, onStop, onDestroy, env, workingDirectory, name = "CoveSandbox" } = options;
        super({ name, onStart, onStop, onDestroy, env, workingDirectory, processes: new CoveProcessManager() });
        const { url, apiKey, engine, bin, retryMs, cove, ...own } = options;
        const isNameless = options.id === undefined && options.sandboxId === undefined;
        this.#options = isNameless ? { ...own, lifecycle: own.lifecycle ?? NAMELESS } : own;
        this.name = name;
        this.id = options.id ?? generateId();
        this.#engineName = isEngineName(this.id)
            ? this.id
            : `mastra-${createHash("sha256").update(this.id).digest("hex").slice(0, 40)}`;
        this.#timeout = durationOf("timeout", options.timeout, TIMEOUT_MS);
        this.cove = cove ?? new Cove({ url, apiKey, engine, bin, retryMs });
        this.#hostMounts = new HostMounts(this.cove, this.#engineName);
        this.networking = new CoveNetworking(this.cove, () => this.#look());
        const setOnMount = this.mounts.setOnMount.bind(this.mounts);
        this.mounts.setOnMount = (hook: OnMountHook | undefined) => {
            this.#hasMountHook = hook !== undefined;
            setOnMount(hook);
        };
    }

    /** The engine's sandbox itself, once it was started. */
    get native(): Sandbox {
        if (!this.#native) throw new SandboxNotReadyError(this.id);
        this.#untouched = undefined;
        return this.#native;
    }

    /** The files on its disk, for the `filesystem` of a workspace. */
    get filesystem(): CoveFilesystem {
        return (this.#filesystem ??= new CoveFilesystem({ sandbox: this }));
    }

    // ---- start, stop, destroy ----

    /**
     * What find() said may be overtaken by somebody else; then it is asked again. And starts are shared: one that another
     * caller gave up is begun again for those who did not.
     */
    override async _start(options?: SandboxStartOptions): Promise<SandboxStartResult | void> {
        for (let tries = 1; ; tries++)
            try {
                return await super._start(options);
            } catch (error) {
                const isOthers = isAbort(error) && !options?.abortSignal?.aborted;
                if (!(error instanceof Overtaken || isOthers) || tries === STARTS)
                    throw abortError(error, "start", options?.abortSignal);
            }
    }

    protected override async find({ abortSignal: signal }: SandboxStartOptions = {}): Promise<SandboxView | undefined> {
        const { sandboxId } = this.#options;
        if (sandboxId !== undefined)
            try {
                return await this.cove.get(sandboxId, { signal });
            } catch (error) {
                if (!isGone(error)) throw error;
            }
        return this.cove.find(this.#engineName, { signal });
    }

    /** By another name than its id, from before its next start on. */
    protected useName(name: string): void {
        this.#engineName = name;
        this.#hostMounts = new HostMounts(this.cove, name);
    }

    protected override async connect(found: SandboxView, { abortSignal: signal }: SandboxStartOptions = {}): Promise<void> {
        const native = this.cove.sandbox(found.id);
        if (found.labels[STATE] === "remade") {
            // Who was about to delete it may have ended before.
            await native.remove({ signal });
            throw new Overtaken(`sandbox ${this.#engineName} is made anew just now`);
        }
        try {
            let view = await this.adopt(found, signal);
            if (this.#native && this.#native.id !== view.id) this.#remount();
            // One that is being made has nothing yet that could be changed.
            if (view.state === "creating") view = await native.start({ signal });
            // From here on it may be in use: who made it is not to make it anew (see #remake).
            if (view.labels[STATE] === "new") view = await this.#mark(view, undefined, signal);
            const change = changeOf(this.#options, view);
            if (change !== undefined) view = await native.update(change, { signal });
            if (view.state !== "running") view = await native.start({ signal });
            const { ports } = view;
            for (const port of portsOf(this.#options.ports) ?? [])
                if (!ports.some((open) => open.port === port.port && open.public === (port.public ?? open.public)))
                    await native.ports.open(port.port, { public: port.public ?? undefined, signal });
            await this.#begin(view, signal);
        } catch (error) {
            throw isGone(error) ? new Overtaken(error.message, { cause: error }) : error;
        }
    }

    protected override async create({ abortSignal: signal }: SandboxStartOptions = {}): Promise<void> {
        this.#remount();
        await this.#make(await this.mountSpecs(signal), signal);
    }

    async #make(mounts: SandboxSpec["mounts"], signal?: AbortSignal): Promise<void> {
        const madeBy = randomBytes(8).toString("hex");
        const { sandbox, created } = await this.cove.create(this.#specWith(madeBy, mounts), { signal });
        // Without an answer it was asked for again, and then finds what it made itself.
        if (!created && sandbox.labels[MADE_BY] !== madeBy) throw new Overtaken(`sandbox ${this.#engineName} was made meanwhile`);
        await this.#begin(sandbox, signal);
        this.#untouched = sandbox.revision;
    }

    /** What was mounted in the one before is not in this one until it is mounted again, and its hook is asked again. */
    #remount(): void {
        for (const [path, entry] of this.mounts.entries) if (entry.state === "mounted") this.mounts.set(path, { state: "pending" });
    }

    /** Says in its labels what it is to other objects, if nobody changed it since it was looked at. */
    async #mark({ id, labels, revision }: SandboxView, state: string | undefined, signal?: AbortSignal): Promise<SandboxView> {
        const { [STATE]: _, ...others } = labels;
        const change = { labels: state === undefined ? others : { ...others, [STATE]: state } };
        try {
            return await this.cove.sandbox(id).update(change, { revision, signal });
        } catch (error) {
            if (!hasCode(error, "revision_conflict", "lost")) throw error;
            throw new Overtaken(`sandbox ${this.#engineName} was changed meanwhile`, { cause: error });
        }
    }

    /** To be thrown by adopt() when the sandbox that was found is there no more: it is looked for again. */
    protected overtaken(reason: string): Error {
        return new Overtaken(reason);
    }

    /**
     * Whether a sandbox that was found is what the options ask for. What can be changed is changed; all else was settled
     * when it was made, and to go on with another root or limit than was asked for would be to ignore the option.
     */
    protected async adopt(found: SandboxView, _signal: AbortSignal | undefined): Promise<SandboxView> {
        const differ = differences(this.#options, found);
        if (differ.length > 0)
            throw new Error(
                `sandbox "${this.#engineName}" is there already, with ` +
                    `${differ.join(", ")}; ` +
                    "leave that out, use another id, or destroy() it first (its disk goes with it)",
            );
        return found;
    }

    override async stop(): Promise<void> {
        await this.stopNative();
    }

    /** What the engine says of it then; undefined where there is none. */
    protected async stopNative(): Promise<SandboxView | undefined> {
        const native = this.#native ?? (await this.#found());
        try {
            if (!native) return undefined;
            this.#view = await native.stop();
            await this.processes.forgetEnded(native).catch(() => {}); // it is stopped all the same
            return this.#view;
        } catch (error) {
            if (!isGone(error)) throw error;
            return undefined;
        }
    }

    override async destroy(): Promise<void> {
        const native = this.#native ?? (await this.#found());
        try {
            await native?.remove();
        } catch (error) {
            if (!isGone(error)) throw error;
        }
        await this.#hostMounts.unregister(this.#view);
        this.mounts.clear();
    }

    /** @deprecated Use `status === "running"`. */
    async isReady(): Promise<boolean> {
        return this.status === "running";
    }

    /**
     * Does something with the engine's sandbox, which is started first if need be. If it was deleted or stopped
     * meanwhile, by whomever, it is made or started again, once, and the same is done there, unless it had begun. What
     * `signal` gives up is the waiting: once it is being done, that is for the action to hear.
     */
    async withNative<T>(action: (native: Sandbox) => Promise<T>, signal?: AbortSignal): Promise<T> {
        await this.#ready(signal);
        const generation = this.#generation;
        this.#lastUsed = Date.now();
        const { native } = this;
        this.#renew(native);
        try {
            return await action(native);
        } catch (error) {
            if (!isDead(error) || hadBegun(error) || !(await heard(this.#revive(generation), signal))) throw error;
            return await action(this.native);
        }
    }

    /**
     * It runs, and is not about to be made anew. When that fails it may have been stopped, for which those who only
     * waited cannot help: it is started for them. What is being stopped or destroyed stays so.
     */
    async #ready(signal: AbortSignal | undefined): Promise<void> {
        const isEnding = (): boolean => this.status === "stopping" || this.status === "destroying";
        while (this.#remaking || (this.status !== "running" && !isEnding()))
            if (this.#remaking) await heard(this.#remaking.catch(() => {}), signal);
            else await heard(this.ensureRunning(), signal);
    }

    /**
     * After an error of this generation: many may have it at once, and share the start. False where it must stay ended,
     * for it was stopped by this object, or it is start()'s own hook that asks.
     */
    async #revive(generation: number): Promise<boolean> {
        if (generation === this.#generation) {
            if (this.#revival?.of !== generation) {
                if (this.status !== "running" || this._startPromise) return false;
                this.status = "stopped";
                this.logger.warn("Sandbox ended meanwhile and is started again", { sandbox: this.id });
                this.#revival = { of: generation, started: this.ensureRunning() };
            }
            await this.#revival.started;
        }
        return this.status === "running";
    }

    /** Its lifetime begins anew. Nobody waits for that: the next use will do it, too. */
    #renew(native: Sandbox): void {
        const now = Date.now();
        if (this.#options.lifecycle !== NAMELESS || now - this.#renewed < RENEW_MS) return;
        this.#renewed = now;
        native.update({ lifecycle: lifecycleOf(NAMELESS)! }).catch(() => (this.#renewed = 0));
    }

    // ---- commands ----

    override async executeCommand(
        command: string,
        args?: string[],
        options: ExecuteCommandOptions = {},
    ): Promise<CommandResult> {
        const line = commandLine(command, args);
        checkRetained(options.maxRetainedBytes);
        const timeout = durationOf("timeout", options.timeout, this.#timeout);
        const signal = options.abortSignal;
        if (signal?.aborted) return neverRan(line);
        try {
            await this.#ready(signal);
            const given = await heard(this.commandSpec(line, { ...this.getEnv(), ...options.env }, options.cwd), signal);
            return await execute((action) => this.withNative(action, signal), given, timeout, options);
        } catch (error) {
            if (isAbort(error) && signal?.aborted && !hadBegun(error)) return neverRan(line);
            throw error;
        }
    }

    /** @internal What every command says. `env` has the overlay already; the provider's own lies below it. */
    async commandSpec(
        command: string,
        env: Env | undefined,
        cwd: string | undefined,
    ): Promise<{ command: string; env: Record<string, string> | undefined; cwd: string | undefined }> {
        const given = cwd ?? this.workingDirectory;
        return {
            command,
            env: mergeEnv(this.#options.env, env),
            cwd: given === undefined || given.startsWith("/") ? given : await this.resolvePath(given),
        };
    }

    /** Uploads files; a relative path goes below the working directory, or where commands start. */
    override async writeFiles(files: SandboxFileInput[], options: WriteFilesOptions = {}): Promise<void> {
        checkFiles(files, options);
        if (files.length > 0)
            await this.withNative((native) => upload(native, files, this.workingDirectory, options));
    }

    /** A path in the sandbox as an absolute one. */
    async resolvePath(path: string): Promise<string> {
        return path.startsWith("/") ? path : posix.resolve(this.workingDirectory ?? (await this.#homeOf()), path);
    }

    /** Where commands start that name no directory. */
    async #homeOf(): Promise<string> {
        this.#home ??= this.withNative((native) => native.exec({ argv: ["pwd", "-P"], tag: executeTag() }, { uniqueTag: true })).then(
            ({ stdout }) => stdout.replace(/\n$/, "") || "/",
        );
        this.#home.catch(() => (this.#home = undefined));
        return this.#home;
    }

    // ---- what it is ----

    /** From memory: a workspace asks before every call of a tool. */
    override async getInfo(): Promise<SandboxInfo> {
        const { id, name, provider, status, workingDirectory } = this;
        return infoOf({ id, name, provider, status, createdAt: this.#createdAt }, this.#view, this.mounts, {
            lastUsed: this.#lastUsed,
            workingDirectory,
        });
    }

    override getInstructions(options?: { requestContext?: RequestContext }): string {
        return instructionsOf(
            this.#options.instructions,
            () => defaultInstructions(this.#options, this.#view, this.workingDirectory),
            options?.requestContext,
        );
    }

    /** Another sandbox with the same options, over the same connection. It begins with its own start(). */
    clone(options: SandboxCloneOptions = {}): CoveSandbox {
        return new CoveSandbox(this.cloneOptions(options));
    }

    protected cloneOptions(given: SandboxCloneOptions): CoveSandboxOptions {
        const own = this.#options;
        const { idleTimeoutMinutes: minutes, actingUserId } = given;
        const lifecycle = own.lifecycle === NAMELESS ? undefined : own.lifecycle;
        return {
            ...own,
            cove: this.cove,
            id: given.id,
            sandboxId: given.sandboxId,
            env: given.env ?? own.env,
            workingDirectory: given.workingDirectory ?? own.workingDirectory,
            lifecycle: minutes === undefined ? lifecycle : { ...lifecycle, idle: minutes * 60_000 },
            labels: actingUserId === undefined ? own.labels : { ...own.labels, "mastra.acting-user": actingUserId },
        };
    }

    // ---- mounts ----

    /**
     * The `mounts` of a workspace are in the sandbox from the begin. One that comes later is mounted while it runs, where
     * the engine can: an engine of root, and for a directory that is written to a sandbox that is `mountable`. Else the
     * sandbox is made anew with it if nothing was done in it yet.
     */
    override async mount(filesystem: WorkspaceFilesystem, given: string): Promise<MountResult> {
        requireMountPath(given);
        const mountPath = tidyPath(given);
        const key = this.mounts.has(given) ? given : mountPath;
        if (this.status !== "running") {
            this.mounts.add({ [key]: filesystem });
            await this.ensureRunning();
            const entry = this.mounts.get(key);
            if (entry?.state !== "pending")
                return entry?.state === "mounted"
                    ? { success: true, mountPath }
                    : { success: false, mountPath, error: entry?.error ?? "it was not mounted" };
        }
        const config = filesystem.getMountConfig?.();
        const unsupported = this.#isUnsupported(filesystem, mountPath);
        let error = unsupported ?? checkMountPath(mountPath);
        if (error === undefined)
            try {
                await this.mountDirectory(hostMountOf(filesystem, mountPath)!);
            } catch (failed) {
                error = (failed as Error).message;
            }
        const state = error === undefined ? "mounted" : unsupported !== undefined && config ? "unsupported" : "error";
        this.mounts.set(key, { filesystem, state, error, ...(config && { config }) });
        return error === undefined ? { success: true, mountPath } : { success: false, mountPath, error };
    }

    #isUnsupported(filesystem: WorkspaceFilesystem, mountPath: string): string | undefined {
        const type = filesystem.getMountConfig?.()?.type;
        if (type === undefined) return `Filesystem "${filesystem.id}" does not provide a mount config`;
        return hostMountOf(filesystem, mountPath)
            ? undefined
            : `Unsupported mount type: ${type}. A cove sandbox mounts "local" filesystems.`;
    }

    /** Into the sandbox that runs. It throws where that cannot be. */
    protected async mountDirectory(wanted: HostMount): Promise<void> {
        const { target } = wanted;
        const failed = this.#mountErrors.get(target);
        if (failed) throw failed;
        const places = this.placesOf(wanted);
        const { view, hostMounts } = { view: this.#view, hostMounts: this.#hostMounts };
        const isThere = view && (await Promise.all(places.map((each) => hostMounts.has(view, each)))).every(Boolean);
        const refused = isThere ? undefined : await this.#mountNow(places);
        if (refused !== undefined)
            await this.#remakeInTurn(await this.#tooLate(wanted, refused), async (there) => {
                const added = await Promise.all(places.map((each) => this.#hostMounts.register(each)));
                return [...there, ...withoutDoubles(there, added)];
            });
        this.#mounted.add(target);
    }

    /** Into the sandbox as it is; or why the engine cannot. */
    async #mountNow(places: readonly HostMount[]): Promise<CoveError | undefined> {
        const native = this.#native;
        if (!native) throw new SandboxNotReadyError(this.id);
        const mounted: string[] = [];
        for (const place of places)
            try {
                this.#changed(native, await native.mount(await this.#hostMounts.register(place)));
                mounted.push(tidyPath(place.target));
            } catch (error) {
                await Promise.all(mounted.map((target) => native.unmount(target).catch(() => {})));
                if (!hasCode(error, "mount_refused", "route_not_found")) throw error;
                this.#changed(native, await native.view()); // it was noted, and taken out again
                return error as CoveError;
            }
        return undefined;
    }

    /** This object changed it. Whether anybody took it up meanwhile, its label says. */
    #changed(native: Sandbox, view: SandboxView): void {
        if (this.#native !== native) return;
        if (this.#untouched !== undefined) this.#untouched = view.revision;
        this.#view = view;
    }

    /**
     * Takes a directory out of the sandbox, while it runs where the engine can. Where it cannot, as with mount(), one that
     * nothing was done in is made anew; any other keeps the directory, and this throws. So does one that uses it.
     */
    override async unmount(given: string): Promise<void> {
        requireMountPath(given);
        const target = tidyPath(given);
        await this.unmountDirectory(target, [target]);
        this.forgetMount(target);
    }

    /** `places`: where it is. Throws where the sandbox has it and keeps it. */
    protected async unmountDirectory(target: string, places: readonly string[]): Promise<void> {
        const isThere = (mount: MountSpec): boolean => places.includes(tidyPath(mount.target)) && isMountOfOurs(mount);
        if (this.status === "destroyed" || !this.#view?.mounts.some(isThere)) return;
        const refused = await this.#unmountNow(target, this.#view.mounts.filter(isThere));
        if (refused === undefined) return;
        const why = (await this.#isFixed(refused)) ? "the engine is not root's, and takes none out" : refused.detail;
        const tooLate = new MountError(`${target}: ${this.unmountRemedy()}: ${why}`, target);
        await this.#remakeInTurn(tooLate, async (there) => there.filter((mount) => !isThere(mount)));
    }

    async #unmountNow(target: string, mounts: readonly MountSpec[]): Promise<CoveError | undefined> {
        const native = this.#native;
        if (!native) throw new SandboxNotReadyError(this.id);
        let failed: unknown;
        for (const mount of mounts)
            await native.unmount(mount.target).catch((error: unknown) => {
                if (!hasCode(error, "mount_not_found")) failed ??= error;
            });
        const view = await native.view(); // some may be gone
        this.#changed(native, view);
        // The directory that it was mounted on is empty, unless somebody else has it.
        for (const { target: place } of mounts)
            if (!view.mounts.some((mount) => mount.target === place)) await native.files.remove(place).catch(() => {});
        if (failed === undefined) return undefined;
        if (hasCode(failed, "mount_refused", "route_not_found")) return failed;
        if (!hasCode(failed, "mount_busy")) throw failed;
        throw Object.assign(new MountError(`${target}: ${failed.message}`, target), { cause: failed });
    }

    /** The sandbox that follows this one is made without it. */
    protected forgetMount(target: string): void {
        this.#mounted.delete(target);
        for (const path of [...this.mounts.entries.keys()]) if (tidyPath(path) === target) this.mounts.delete(path);
    }

    /** Whether the engine changes the mounts of no sandbox that is there: one of an ordinary user has no disks that it mounts. */
    async #isFixed(refused: CoveError): Promise<boolean> {
        return refused.code === "route_not_found" || (await this.cove.version()).disk === "watched";
    }

    async #tooLate({ target, readOnly }: HostMount, refused: CoveError): Promise<MountError> {
        const why = (await this.#isFixed(refused))
            ? `${this.mountRemedy()}: the engine is not root's, and mounts nothing while a sandbox is in use`
            : readOnly || this.#view?.mountable
              ? `it cannot be mounted in sandbox "${this.#engineName}" now: ${refused.detail}`
              : "make a sandbox with mountable: true: in any other one a directory that is written can only be mounted before it is used";
        return new MountError(`${target}: ${why}`, target);
    }

    /** How a sandbox has it whose engine mounts nothing later. */
    protected mountRemedy(): string {
        return "mount it before anything is done in the sandbox, in one with another id or after destroy()";
    }

    /** How it goes out of this one. */
    protected unmountRemedy(): string {
        return "destroy() the sandbox and start it without this mount (its disk goes with it)";
    }

    /** Where a directory that the workspace mounts is in the sandbox. */
    protected placesOf(mount: HostMount): readonly HostMount[] {
        return [mount];
    }

    async #remakeInTurn(tooLate: MountError, mountsOf: MountsOf): Promise<void> {
        const remade = this.#remake(tooLate, mountsOf, this.#remaking);
        this.#remaking = remade;
        try {
            await remade;
        } finally {
            if (this.#remaking === remade) this.#remaking = undefined;
        }
    }

    /**
     * A new sandbox that nothing was done in is as good as the next one. That nothing was done is this object's to know,
     * of itself; of others the engine says whether anything ran, and the revision whether anybody took it up, for each
     * that connects changes a label of a new one first. Without a name it is nobody else's.
     */
    async #remake(tooLate: MountError, mountsOf: MountsOf, before: Promise<void> | undefined): Promise<void> {
        await before?.catch(() => {});
        const [native, view] = [this.#native, this.#view];
        if (this.#untouched === undefined || !native || !view) throw tooLate;
        const mounts = await mountsOf(view.mounts);
        if ((await native.processes.list()).length > 0) throw tooLate;
        const madeBy = randomBytes(8).toString("hex");
        const spec = this.#specWith(madeBy, mounts);
        // Again, behind the last await: what this object has given out since may be in use.
        if (this.#untouched === undefined || view.labels[STATE] !== "new") throw tooLate;
        try {
            await this.#mark({ ...view, revision: this.#untouched }, "remade");
        } catch (error) {
            if (isGone(error) || (error instanceof Overtaken && (await native.view()).labels[STATE] !== "remade"))
                throw tooLate;
            if (!(error instanceof Overtaken)) throw error;
        }
        try {
            await native.remove();
            const { sandbox, created } = await this.cove.create(spec);
            if (!created && sandbox.labels[MADE_BY] !== madeBy) throw tooLate;
            await this.#begin(sandbox, undefined);
            this.#untouched = sandbox.revision;
        } catch (error) {
            if (this.status === "running")
                await this.#restore(view).catch(() => {
                    if (this.status === "running") this.status = "stopped"; // whoever uses it next looks for what is there now
                });
            throw error;
        }
    }

    /** A mount that failed is no reason to be without a sandbox: it is the one that is there now, or one as it was before. */
    async #restore(before: SandboxView): Promise<void> {
        for (let tries = 1; ; tries++)
            try {
                const found = await this.find();
                if (!found) return await this.#make(before.mounts);
                const isMarked = found.id === before.id && found.labels[STATE] === "remade";
                return await this.connect(isMarked ? await this.#mark(found, undefined) : found);
            } catch (error) {
                if (!(error instanceof Overtaken || isGone(error)) || tries === STARTS) throw error;
            }
    }

    /** The directories of this host that it is made with: those that the workspace mounts. */
    protected async mountSpecs(signal: AbortSignal | undefined): Promise<NonNullable<SandboxSpec["mounts"]>> {
        const specs: NonNullable<SandboxSpec["mounts"]> = [];
        const fixed = this.fixedMounts();
        this.#mountErrors.clear();
        for (const [path, entry] of this.mounts.entries) {
            if (checkMountPath(path) !== undefined) continue;
            const wanted = entry.state === "pending" ? hostMountOf(entry.filesystem, path) : undefined;
            // A hook may yet say that it is not to be mounted, and is asked when the sandbox runs.
            if (wanted === undefined || (this.#hasMountHook && !this.#mounted.has(wanted.target))) continue;
            try {
                const added = await Promise.all(this.placesOf(wanted).map((each) => this.#hostMounts.register(each, signal)));
                specs.push(...withoutDoubles([...fixed, ...specs], added));
            } catch (error) {
                this.#mountErrors.set(wanted.target, error as Error); // never fatal: it is told by the mount's state
            }
        }
        return [...fixed, ...specs];
    }

    /** Those that it has whatever a workspace mounts. */
    protected fixedMounts(): NonNullable<SandboxSpec["mounts"]> {
        return [];
    }

    // ---- the engine's side ----

    #specWith(madeBy: string, mounts: SandboxSpec["mounts"]): SandboxSpec {
        return { ...specOf(this.#options, { "mastra.id": this.id, [MADE_BY]: madeBy, [STATE]: "new" }, mounts), name: this.#engineName };
    }

    async #begin(view: SandboxView, signal: AbortSignal | undefined): Promise<void> {
        const native = this.cove.sandbox(view.id);
        if (this.#native?.id !== view.id) {
            this.processes.forgetAll();
            this.#home = undefined;
        }
        const directory = this.workingDirectory;
        if (directory !== undefined) await this.#makeDirectory(native, directory, view, signal);
        this.#view = view;
        this.#native = native;
        this.#renewed = Date.now();
        this.#generation++;
        this.#untouched = undefined;
    }

    /** Its user may not be able to make it; then root does, and gives it to the user. */
    async #makeDirectory(native: Sandbox, path: string, view: SandboxView, signal: AbortSignal | undefined): Promise<void> {
        if (view.mounts.some((mount) => tidyPath(mount.target) === tidyPath(path))) return;
        try {
            await native.files.mkdir(path, { parents: true, signal });
        } catch (error) {
            if (!hasCode(error, "file_forbidden") || view.user === null) throw error;
            await native.files.mkdir(path, { parents: true, user: "root", signal });
            await native.files.chown(path, view.user, { user: "root", signal });
        }
    }

    /** The sandbox of this id that another object may have made. */
    async #found(): Promise<Sandbox | undefined> {
        this.#view = await this.find();
        return this.#view && this.cove.sandbox(this.#view.id);
    }

    /** What the engine says of it now; it is not started for that. */
    async #look(): Promise<SandboxView | undefined> {
        if (this.#native)
            try {
                return (this.#view = await this.#native.view());
            } catch (error) {
                if (!isGone(error)) throw error;
            }
        return this.find();
    }
}
