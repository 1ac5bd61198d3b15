// Commands over a restart of the engine: how one that was asked for is found again.
//
// Commands outlive the engine: their box is the keeper's, and the next engine takes them over. What does not outlive it
// is the connection, and what the engine knew of an Idempotency-Key. So a request that runs a command and is cut must
// not simply be sent again: with the same key the next engine would run it a second time. What does outlive it is the
// tag, for a start is on record, with its tag, before the box is asked for the command. So each command gets a tag that
// nobody else has; when the connection breaks, the processes of the sandbox are looked through:
//
//   one has the tag       it is ours: it is waited for, and what it printed is in its log
//   none has it           the command was never begun, and is sent again
//   it is `not_in_box`    it was on record, but the box never heard of it: it is sent again, too
//
// The caller's own tag does the same where he says that it is of one command alone (`uniqueTag`). Without that word, of
// those that have it only one may have begun since; else nobody can say which was meant, and the call fails with `lost`.
//
// Over TCP a connection may also break while the engine lives (a proxy that finds it idle, a network that is gone). Then
// the request itself may still be on its way, and a look would find nothing too early: so there each request has an
// Idempotency-Key, too, with which this engine does it once. And the engine must not kill what its connection has lost:
// see exec.ts.
import { randomBytes } from "node:crypto";
import { CoveError } from "./error.js";
import type { Link, LinkOptions } from "./link.js";
import type { Process } from "./types.js";

/** What the record of a process that never ran says. */
const NEVER_RAN = "not_in_box";
/** Clocks of one host are one; of a remote server this much is forgiven. */
const CLOCK_MS = 5_000;

const prefix = `client:${randomBytes(9).toString("base64url")}:`;
let count = 0;

/** One that no other command has, of this program or another. */
export function newTag(): string {
    return prefix + (count++).toString(36);
}

export interface Tag {
    readonly text: string;
    /** Nobody else has it. */
    readonly isUnique: boolean;
    readonly sinceMs: number;
}

/** That of a command that is about to be begun. */
export function tagOf(given: string | null | undefined, isUnique: boolean | undefined): Tag {
    return { text: given ?? newTag(), isUnique: given == null || isUnique === true, sinceMs: Date.now() };
}

/** The process with this tag that was started since; undefined: there is none, and none will be. */
export async function findTagged(
    link: Link,
    path: string,
    tag: Tag,
    signal: AbortSignal | undefined,
    how: Pick<LinkOptions, "starts" | "holds"> = {},
): Promise<Process | undefined> {
    const { processes } = await link.json<{ processes: Process[] }>("GET", path, { signal, ...how });
    const tagged = processes.filter((each) => each.tag === tag.text && !(each.state === "lost" && each.reason === NEVER_RAN));
    if (tagged.length === 0 || tag.isUnique) return tagged[0];
    const fresh = tagged.filter((each) => each.started_at !== null && Date.parse(each.started_at) >= tag.sinceMs - CLOCK_MS);
    if (fresh.length === 1) return fresh[0];
    const what = `the connection broke while a command was started, and ${tagged.length} processes have its tag "${tag.text}"`;
    throw new CoveError("lost", what, {
        remedy: "look which one it is; a tag that each command has for itself is found again, where uniqueTag says so",
        begun: true,
    });
}

/** Whether it was cut, so that nobody knows whether the command was begun. */
export function isUnsure(error: unknown): boolean {
    return error instanceof CoveError && (error.code === "lost" || error.code === "draining" || error.code === "still_running");
}

/** What a repetition with the same Idempotency-Key may be answered of a first request that was cut. */
export function isRepetition(error: unknown): boolean {
    return error instanceof CoveError && (error.code === "idempotency_conflict" || error.code === "capacity");
}

/** The sandbox is no more, and so is all that ran in it. */
export function isGone(error: unknown): boolean {
    return error instanceof CoveError && (error.code === "sandbox_gone" || error.code === "sandbox_not_found");
}
