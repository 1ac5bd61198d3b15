// What a Cove is made with, and the check that nothing is said that nobody heeds.
import { CoveError } from "./error.js";

export interface CoveOptions {
    /**
     * The server: `http://HOST:PORT`, `https://HOST[:PORT]` or `unix:/PATH`. Without it `COVE_URL`; else the engine of
     * this machine, and where there is none an engine of this user's own, which is started when it does not run. On a
     * system that is not Linux: the server of a container on this machine.
     */
    url?: string | undefined;
    /**
     * The server's key; without it `COVE_API_KEY`, which is for the server of `COVE_URL`, or of `url` where that is not set. A unix
     * socket of one's own needs none.
     */
    apiKey?: string | undefined;
    /** `private`: always this user's own engine, whatever else runs here or is in `COVE_URL`. */
    engine?: "any" | "private" | undefined;
    /** The cove program, to start an engine; without it `COVE_BIN`, that of the installed package, or that on PATH. */
    bin?: string | undefined;
    /** How long a call goes on trying to reach an engine that is away (it restarts), in ms; 15,000 without it. */
    retryMs?: number | undefined;
}

/** An option that is misspelt would be silently ignored, so it is refused. */
export function checkKeys(what: string, given: object | undefined, known: readonly string[]): void {
    for (const key in given ?? {})
        if (!known.includes(key))
            throw new CoveError("bad_option", `${what}: there is no option "${key}"`, {
                remedy: `it takes ${known.join(", ")}`,
            });
}
