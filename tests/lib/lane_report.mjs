// A reporter of Node's test runner, for scripts/test.py: a line of JSON for each test that ended, with its file.
import path from "node:path";

export default async function* lines(events) {
    for await (const { type, data } of events) {
        if ((type !== "test:pass" && type !== "test:fail") || data.details?.type === "suite") continue;
        const failed = type === "test:fail" || (data.skip !== undefined && data.skip !== false);
        const why = data.details?.error?.cause ?? data.details?.error;
        yield `${JSON.stringify({
            event: "end",
            id: `${path.relative(process.cwd(), data.file ?? "")}::${data.name}`,
            outcome: failed ? "failed" : "passed",
            why: failed ? String(why?.stack ?? why ?? "it was skipped") : "",
            seconds: (data.details?.duration_ms ?? 0) / 1000,
        })}\n`;
    }
}
