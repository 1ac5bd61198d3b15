// The program cove: where it is, and one run of it. Only a private engine needs it: to be started, and for mounts.
import { spawn } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { createRequire } from "node:module";
import * as path from "node:path";
import { CoveError } from "./error.js";
import { here } from "./here.js";

/** Why a file cannot be executed; undefined where it can. */
function whyNot(file: string): { cause: string; isMissing: boolean } | undefined {
    const found = statSync(file, { throwIfNoEntry: false });
    if (!found) return { cause: "it is not there", isMissing: true };
    if (!found.isFile()) return { cause: "it is no file", isMissing: true };
    try {
        accessSync(file, constants.X_OK);
        return undefined;
    } catch {
        return { cause: "it is there, and this user may not execute it", isMissing: false };
    }
}

/** That of the package for this platform, if it is installed where this package finds it; never from where one works. */
function packaged(): string | undefined {
    try {
        const { cove: file } = createRequire(here)(`@cove/linux-${process.arch}`) as { cove?: unknown };
        return typeof file === "string" ? file : undefined;
    } catch {
        return undefined;
    }
}

function* onPath(): Generator<string> {
    for (const directory of (process.env["PATH"] ?? "").split(path.delimiter))
        if (path.isAbsolute(directory)) yield path.join(directory, "cove");
}

/** The path itself may be one that cannot be looked at. */
function whyNotIfKnown(file: string): ReturnType<typeof whyNot> {
    try {
        return whyNot(file);
    } catch (error) {
        return { cause: `it cannot be looked at (${(error as NodeJS.ErrnoException).code})`, isMissing: true };
    }
}

/** `bin`, else COVE_BIN, else that of the package, else that on PATH. One that is named and not there is an error. */
export function findProgram(bin?: string): string {
    for (const [what, named] of [["bin", bin], ["COVE_BIN", process.env["COVE_BIN"]]] as const) {
        if (!named) continue;
        const not = whyNotIfKnown(named);
        if (not === undefined) return named;
        throw new CoveError("no_cove", `${what}: ${named} cannot be executed: ${not.cause}`, {
            remedy: not.isMissing ? "set it to the path of the program cove" : `chmod +x ${named}, or set it to another cove`,
        });
    }
    const own = packaged();
    for (const file of own === undefined ? onPath() : [own, ...onPath()]) {
        const not = whyNotIfKnown(file);
        if (not === undefined) return file;
        if (not.isMissing) continue;
        throw new CoveError("no_cove", `${file} would start an engine, and cannot be executed: ${not.cause}`, {
            remedy: `chmod +x ${file}, or set COVE_BIN to another cove`,
        });
    }
    throw new CoveError("no_cove", "no engine runs here, and the program cove that would start one is not there", {
        remedy: `install @cove/linux-${process.arch} or cove, set COVE_BIN to its path, or give url and apiKey of a server`,
    });
}

export interface Ran {
    status: number | null;
    stdout: string;
    /** What it said last, without its name before it; empty if it said nothing. */
    said: string;
    /** The same, or how it ended. */
    why: string;
}

const SAID_MOST = 64 * 1024;

/** What a descriptor that was handed over to it is called there. It closes all behind the third, and reads no input. */
export const HANDED_OVER = "/proc/self/fd/0";

/** Runs it to its end. It gets no key: none of what is run here needs one. */
export function runProgram(
    file: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv,
    handedOver?: number,
): Promise<Ran> {
    return new Promise((resolve, reject) => {
        const child = spawn(file, args, { env, stdio: [handedOver ?? "ignore", "pipe", "pipe"] });
        let stdout = "";
        let stderr = "";
        child.stdout!.setEncoding("utf8").on("data", (text: string) => (stdout = (stdout + text).slice(-SAID_MOST)));
        child.stderr!.setEncoding("utf8").on("data", (text: string) => (stderr = (stderr + text).slice(-SAID_MOST)));
        child.once("error", (cause) =>
            reject(
                new CoveError("no_cove", `${file} cannot be executed (${(cause as NodeJS.ErrnoException).code})`, {
                    remedy: "set COVE_BIN to the path of the program cove",
                    cause,
                }),
            ),
        );
        child.once("close", (status) => {
            const said = (stderr.trimEnd().split("\n").pop() ?? "").replace(/^cove: /, "");
            resolve({ status, stdout, said, why: said || `it ended with status ${status}` });
        });
    });
}

const PASSED = /^(PATH|HOME|USER|LOGNAME|TMPDIR|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|XDG_\w+|COVE_\w+)$/;
const NOT_PASSED = /^COVE_URL$|KEY|TOKEN|SECRET|PASS/;

/**
 * The environment for it, with the address that it is to use, if any. An engine that is started so lives on with it, and
 * what this program knows is none of its business: so what it needs is named, and no key is.
 */
export function programEnv(address?: string): NodeJS.ProcessEnv {
    const env: NodeJS.ProcessEnv = {};
    for (const name in process.env) if (PASSED.test(name) && !NOT_PASSED.test(name)) env[name] = process.env[name];
    if (address !== undefined) env["COVE_URL"] = address;
    return env;
}
