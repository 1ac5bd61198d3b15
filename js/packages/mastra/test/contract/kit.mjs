// What the cases of the contract are written with: conditions that are waited for, ways to say what came of a
// call, and a program that shows from inside whether it still lives.
import { setTimeout as pause } from 'node:timers/promises';

/** What a case gives where a sandbox has no such feature. */
export class Unsupported extends Error {
    constructor(feature) {
        super(`unsupported: ${feature}`);
        this.name = 'Unsupported';
    }
}

/** The member that a case is about; without it what is seen is "unsupported". */
export function need(object, member) {
    const value = object?.[member];
    if (value === undefined || value === null) throw new Unsupported(member);
    return typeof value === 'function' ? value.bind(object) : value;
}

/** Waits until `check` gives something true, and gives it; after the limit whatever it gave last. */
export async function until(check, limit = 60_000) {
    const end = Date.now() + limit;
    for (;;) {
        const value = await check();
        if (value || Date.now() >= end) return value;
        await pause(20);
    }
}

/** What a promise came to within the limit: its value, or "still waiting". */
export async function within(limit, promise) {
    const timer = new AbortController();
    try {
        return await Promise.race([
            promise,
            pause(limit, 'still waiting', { signal: timer.signal }).catch(() => 'still waiting'),
        ]);
    } finally {
        timer.abort();
    }
}

/** What a call is refused with: the class and the code of its error, or "no error". */
export async function refusal(call) {
    try {
        await call();
    } catch (error) {
        return error.code === undefined ? error.name : `${error.name} ${error.code}`;
    }
    return 'no error';
}

/** The same where any error will do. */
export async function refused(call) {
    return (await refusal(call)) === 'no error' ? 'no error' : 'an error';
}

/** Standard output of a command that has to succeed. */
export async function out(sandbox, command, args, options) {
    const result = await sandbox.executeCommand(command, args, options);
    if (!result.success) throw new Error(`${command}: ${result.exitCode}: ${result.stderr}`);
    return result.stdout;
}

/** A line of shell that goes on in a session of its own until `name`.stop is there, and writes to `name`.beat. */
export function beating(name) {
    const loop = `while [ ! -e ${name}.stop ]; do echo >>${name}.beat; sleep 0.05; done`;
    return `setsid sh -c '${loop}' </dev/null >/dev/null 2>&1`;
}

async function beats(sandbox, name) {
    return Number((await sandbox.executeCommand(`wc -c <${name}.beat || echo 0`)).stdout);
}

/** Waits for the first beat. */
export async function begun(sandbox, name) {
    return (await until(() => beats(sandbox, name))) > 0;
}

/** Whether it still beats; it is ended in any case. */
export async function life(sandbox, name) {
    const before = await beats(sandbox, name);
    const lives = await until(async () => (await beats(sandbox, name)) > before, 700);
    await sandbox.executeCommand(`touch ${name}.stop`);
    return lives ? 'alive' : 'dead';
}
