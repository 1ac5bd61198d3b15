// Whether commands can be isolated here: asked of cove itself, which makes a box and says what it has, not guessed from
// a program's being there.
import { CoveError, findProgram } from "@cove/client";
import type { SandboxDetectionResult } from "@mastra/core/workspace";
import { execFileSync } from "node:child_process";

interface Doctor {
    level: string;
    limits: string | null;
    checks: { title: string; state: string; cause: string | null; remedy: string | null }[];
    exit_status: number;
}

/** This program does nothing else meanwhile; on a host under load a box takes its time. */
const LIMIT_MS = 30_000;
/** By program. What could be done once need not be tried again. */
const found = new Map<string, Doctor>();

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
    let program = "cove";
    let doctor: Doctor;
    try {
        program = findProgram();
        doctor = found.get(program) ?? askDoctor(program);
    } catch (error) {
        const { message } = error as Error;
        return no(error instanceof CoveError ? message : `${program} doctor does not say what can be done here: ${message}`);
    }
    if (doctor.exit_status === 0) found.set(program, doctor);
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
