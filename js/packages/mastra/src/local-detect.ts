// Whether commands can be isolated here: asked of cove itself, which makes a box and says what it has, not guessed from
// a program's being there.
import type { SandboxDetectionResult } from "@mastra/core/workspace";
import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

interface Doctor {
    level: string;
    limits: string | null;
    checks: { title: string; state: string; cause: string | null; remedy: string | null }[];
    exit_status: number;
}

const LIMIT_MS = 20_000;

function isProgram(file: string): boolean {
    try {
        accessSync(file, constants.X_OK);
        return path.isAbsolute(file);
    } catch {
        return false;
    }
}

/** As the client finds it, but at once: whoever asks for the isolation waits for no promise. */
function findProgram(): string | undefined {
    const named = process.env["COVE_BIN"];
    if (named) return path.resolve(named);
    for (const from of [process.argv[1], path.join(process.cwd(), "index.js")])
        try {
            const { cove } = createRequire(path.resolve(from ?? ""))(`@cove/linux-${process.arch}`) as { cove?: string };
            if (cove !== undefined && isProgram(cove)) return cove;
        } catch {
            // It is not installed there.
        }
    const directories = (process.env["PATH"] ?? "").split(path.delimiter);
    return directories.map((directory) => path.join(directory, "cove")).find(isProgram);
}

/** doctor says the same by its status; what it prints is there also when a box cannot be made. */
function askDoctor(program: string): Doctor {
    let text: string;
    try {
        const env = { PATH: process.env["PATH"], HOME: process.env["HOME"], XDG_CACHE_HOME: process.env["XDG_CACHE_HOME"] };
        const stdio: ["ignore", "pipe", "ignore"] = ["ignore", "pipe", "ignore"];
        text = execFileSync(program, ["doctor", "--json"], { encoding: "utf8", env, stdio, timeout: LIMIT_MS });
    } catch (error) {
        const { stdout } = error as { stdout?: unknown };
        if (typeof stdout !== "string" || stdout === "") throw error;
        text = stdout;
    }
    return JSON.parse(text) as Doctor;
}

/**
 * What `isolation` can be here. On Linux it is "bwrap": under its rules, kept by cove. `available` is what came of
 * making a box.
 */
export function detectIsolation(): SandboxDetectionResult {
    if (process.platform !== "linux")
        return {
            backend: process.platform === "darwin" ? "seatbelt" : "none",
            available: false,
            message: `cove isolates commands on Linux, and this is ${process.platform}; run this program on a Linux host`,
        };
    const no = (message: string): SandboxDetectionResult => ({ backend: "bwrap", available: false, message });
    const program = findProgram();
    if (program === undefined)
        return no(`the program cove is not there; install @cove/linux-${process.arch}, or set COVE_BIN to its path`);
    let doctor: Doctor;
    try {
        doctor = askDoctor(program);
    } catch (error) {
        return no(`${program} doctor does not say what can be done here: ${(error as Error).message}`);
    }
    if (doctor.exit_status === 0)
        return {
            backend: "bwrap",
            available: true,
            message:
                `cove isolates commands here: a box of level ${doctor.level} was made, with limits by ` +
                (doctor.limits ?? "nothing"),
        };
    const failed = doctor.checks.find((check) => check.state === "no");
    const why = failed && [failed.title, failed.cause, failed.remedy].filter((text) => text !== null).join("; ");
    return no(`no box can be made here: ${why ?? `its level would be ${doctor.level}`} (cove doctor tells all of it)`);
}
