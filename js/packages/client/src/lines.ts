// Answers that are read as they come: lines of JSON (NDJSON), and bytes for whoever asked.
import type { IncomingMessage } from "node:http";
import { PassThrough, type Readable } from "node:stream";
import { CoveError } from "./error.js";
import { aborted } from "./link.js";
import { Aborted, Cut } from "./wire.js";

/** A keepalive comes every 15 s; who hears nothing for so long has lost the connection without being told. */
const SILENT_MS = 60_000;

/** The lines, as many at once as came. It ends with the answer, and throws a Cut where that broke off. */
export async function* readLines<T>(answer: IncomingMessage, signal: AbortSignal | undefined): AsyncGenerator<T[], void, void> {
    let rest = "";
    answer.setEncoding("utf8");
    answer.setTimeout(SILENT_MS, () => answer.destroy(new Error("silent")));
    try {
        for await (const part of answer as AsyncIterable<string>) {
            const end = part.lastIndexOf("\n");
            if (end < 0) {
                rest += part;
                continue;
            }
            const whole = rest + part.slice(0, end);
            rest = part.slice(end + 1);
            const lines: T[] = [];
            for (const line of whole.split("\n")) if (line !== "") lines.push(JSON.parse(line) as T);
            yield lines;
        }
    } catch (error) {
        if (signal?.aborted || error instanceof Aborted) throw aborted(signal);
        throw error instanceof SyntaxError ? error : new Cut(true, error);
    } finally {
        answer.destroy();
    }
}

/**
 * The bytes of an answer. One that breaks off fails with the code `lost`, so that nobody takes a part for the whole;
 * and whoever stops reading ends the connection, which an answer of node:http does not do by itself.
 */
export function givenBytes(answer: IncomingMessage, signal: AbortSignal | undefined): Readable {
    const bytes = new PassThrough({ highWaterMark: 256 * 1024 });
    answer.on("error", (cause) =>
        bytes.destroy(
            signal?.aborted
                ? aborted(signal)
                : new CoveError("lost", "the connection broke before all of the answer had come", { cause }),
        ),
    );
    bytes.on("close", () => answer.destroy());
    return answer.pipe(bytes);
}
