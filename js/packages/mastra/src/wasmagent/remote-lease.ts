// How long a box lives when nobody speaks to it any more: the limits of runs are kept by this process, and the box of one that was
// killed must not compute without end. Between runs a box lives long, for its state is wanted again; while one goes on, little
// longer than that may take.
import type { Sandbox } from "@cove/client";

/** Of a box that nobody uses. An idle one ends before that. */
export const KEEP_MS = 80 * 60 * 1000;

const LEFT_MS = 70 * 60 * 1000; // with less than that it is renewed
const SHORT_MS = 200; // a run that takes no longer costs no request
const SLACK_LEAST_MS = 15000, SLACK_MOST_MS = 30000;

export class Lease {
    readonly #sandbox: Sandbox;
    readonly #abort = new AbortController();
    #until = Date.now() + KEEP_MS; // at the least
    #last: Promise<unknown> = Promise.resolve();

    constructor(sandbox: Sandbox) {
        this.#sandbox = sandbox;
    }

    /** Before a run, which may take so long. */
    async renew(timeoutMs: number): Promise<void> {
        await this.#last;
        if (this.#until - Date.now() < LEFT_MS + timeoutMs) await this.#set(timeoutMs + KEEP_MS);
    }

    /** What the run that has just begun comes to. Nobody waits for what is said of the box meanwhile. */
    async during<T>(timeoutMs: number, run: Promise<T>): Promise<T> {
        const began = Date.now();
        let isShort = false;
        const timer = setTimeout(() => {
            isShort = true;
            const slackMs = Math.min(Math.max(timeoutMs, SLACK_LEAST_MS), SLACK_MOST_MS);
            this.#last = this.#last.then(() => this.#set(timeoutMs - (Date.now() - began) + slackMs)).catch(() => {});
        }, SHORT_MS);
        try {
            return await run;
        } finally {
            clearTimeout(timer);
            // Where that fails the next renew() does it, or finds no box.
            if (isShort) this.#last = this.#last.then(() => this.#set(KEEP_MS)).catch(() => {});
        }
    }

    async end(): Promise<void> {
        this.#abort.abort();
        await this.#last;
    }

    async #set(ms: number): Promise<void> {
        const lifetimeMs = Math.max(1, Math.ceil(ms)), until = Date.now() + lifetimeMs;
        this.#until = Math.min(this.#until, until); // until it is known to be later
        await this.#sandbox.update({ lifecycle: { lifetime_ms: lifetimeMs } }, { signal: this.#abort.signal });
        this.#until = until;
    }
}
