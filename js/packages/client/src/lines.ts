// Answers that are lines of JSON (NDJSON) without a known end.
import type { IncomingMessage } from "node:http";
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
