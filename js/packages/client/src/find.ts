// Which server: the one that is named, else this machine's, else this user's own, which is started if need be. Where
// there is no Linux: the one that is named, else that of a container on this machine.
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import {
    addressText, answers, CONTAINER, CONTAINER_KEY, CONTAINER_LINE, isOpen, isOthersSystem, isSafe, parseAddress, privateSocket,
    SYSTEM_SOCKET, type Address,
} from "./address.js";
import { CoveError } from "./error.js";
import type { CoveOptions } from "./options.js";
import { findProgram, programEnv, runProgram } from "./program.js";

/** `named` and `system` are waited for when they are away; a `private` one is started anew. */
export interface Place {
    kind: "named" | "system" | "private";
    address: Address;
    /** The key is sent there. */
    apiKey?: string | undefined;
    /** Where it is being started: rejects with what went wrong, or resolves. */
    started?: Promise<unknown> | undefined;
}

const LOOK_MS = 2;

let hasWarned = false;

/** Whether the environment's key is that of this server: it is of the one that COVE_URL names, where that is set. */
function isOfEnvironment(address: Address): boolean {
    const text = process.env["COVE_URL"];
    return !text || addressText(parseAddress(text, "COVE_URL")) === addressText(address);
}

function keyOf(options: CoveOptions, address?: Address): string | undefined {
    const key = options.apiKey || (address && isOfEnvironment(address) ? process.env["COVE_API_KEY"] : undefined) || undefined;
    return key === undefined ? undefined : checkKey(key, options.apiKey ? "apiKey" : "COVE_API_KEY");
}

/** `what` is where it is from, for the message. */
function checkKey(key: string, what: string): string {
    if (!/^[!-~]{1,512}$/.test(key))
        throw new CoveError("bad_option", `${what}: it holds a character that no key has, or is too long`, {
            remedy: "copy it again",
        });
    return key;
}

function named(text: string, what: string, options: CoveOptions): Place {
    const address = parseAddress(text, what);
    const apiKey = keyOf(options, address);
    if (apiKey && isOpen(address) && !hasWarned) {
        hasWarned = true;
        process.emitWarning(`the key goes to ${addressText(address)} unencrypted; use https, or a tunnel`, "CoveWarning");
    }
    const isOwn = address.kind === "unix" && process.platform === "linux" && address.path === privateSocket();
    return { kind: isOwn ? "private" : "named", address, apiKey };
}

/** Fast where something runs: two sockets are tried, and no process is started. */
export async function findPlace(options: CoveOptions): Promise<Place> {
    const isAny = options.engine !== "private";
    if (isAny && options.url) return named(options.url, "url", options);
    if (isAny && process.env["COVE_URL"]) return named(process.env["COVE_URL"], "COVE_URL", options);
    if (process.platform !== "linux") return findContainer(options);
    if (options.bin) findProgram(options.bin); // an engine that runs needs none, and the next start would
    const system: Address = { kind: "unix", path: SYSTEM_SOCKET };
    const isOthers = isAny && isOthersSystem();
    const apiKey = keyOf(options, isOthers ? system : undefined);
    if (isAny && (apiKey || !isOthers) && (await answers(SYSTEM_SOCKET))) return { kind: "system", address: system, apiKey };
    if (options.apiKey)
        throw new CoveError("bad_option", "apiKey: it is that of a server, and none is named", {
            remedy: "give url or COVE_URL, too; one's own engine needs no key",
        });
    return findPrivate(options);
}

/** The container shares this file with its host, so that only who may read it uses its server. */
function containerKey(): string {
    const file = path.join(homedir(), CONTAINER_KEY);
    try {
        return checkKey(readFileSync(file, "utf8").trim(), file);
    } catch (cause) {
        if (cause instanceof CoveError) throw cause;
        throw new CoveError("no_key", `a server answers at ${addressText(CONTAINER)}, and its key is not in ${file}`, {
            remedy: `start its container with -v "$HOME/.cove:/run/cove-key", or give apiKey or COVE_API_KEY`,
            cause,
        });
    }
}

async function findContainer(options: CoveOptions): Promise<Place> {
    if (options.engine !== "private" && (await answers(CONTAINER)))
        return { kind: "named", address: CONTAINER, apiKey: keyOf(options, CONTAINER) ?? containerKey() };
    throw new CoveError("unsupported_platform", `cove runs its sandboxes on Linux, and this is ${process.platform}`, {
        remedy:
            `start a server in a container, which is then found by itself: ${CONTAINER_LINE} (docs/container.md says where ` +
            "the image is from); or give url and apiKey of a server on a Linux host",
    });
}

let hasWarnedOfRuntime = false;

/** That the engine of before is not found is to be understood; in a container without that directory all goes well. */
function warnOfRuntimeDirectory(socket: string): void {
    const runtime = process.env["XDG_RUNTIME_DIR"];
    if (!runtime || socket.startsWith(`${runtime}/`) || hasWarnedOfRuntime) return;
    hasWarnedOfRuntime = true;
    process.emitWarning(
        `XDG_RUNTIME_DIR: ${runtime} is no directory of this user's, and the engine is that of ${socket}; ` +
            "make the directory, or unset the variable",
        "CoveWarning",
    );
}

/** This user's own engine, started if it does not run. */
export async function findPrivate(options: CoveOptions): Promise<Place> {
    const socket = privateSocket();
    warnOfRuntimeDirectory(socket);
    if (isSafe(socket) && (await answers(socket))) return { kind: "private", address: { kind: "unix", path: socket } };
    const file = findProgram(options.bin);
    const started = runProgram(file, ["server", "--private"], programEnv()).then(({ status, stdout, said }) => {
        const line = stdout.trim();
        if (status === 0 && line.startsWith("unix:/")) return line;
        if (status !== 0 && said !== "") throw new CoveError("no_cove", said);
        throw new CoveError("no_cove", `${file} started no engine: it ended with status ${status} and said ${line === "" ? "nothing" : "no address"}`, {
            remedy: `if it is not the program cove, set ${options.bin ? "bin" : "COVE_BIN"} to the path of that`,
        });
    });
    // Its socket is there before the program is sure that all is well, and what is asked there waits for the engine.
    const line = await Promise.race([listens(socket, started), started]);
    return { kind: "private", address: parseAddress(line, `${file} server`), started };
}

/** Its address, as soon as somebody listens there; never, if the program ends before that. */
async function listens(socket: string, running: Promise<unknown>): Promise<string> {
    let isOver = false;
    const over = (): void => void (isOver = true);
    running.then(over, over);
    while (!isOver) {
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
        if (!isOver && isSafe(socket) && (await answers(socket))) return addressText({ kind: "unix", path: socket });
    }
    return new Promise(() => undefined);
}
