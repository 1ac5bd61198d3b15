// A reporter of Node's test runner, for scripts/test.py: a line of JSON for each test that ended, with its file. Node's
// own limit of time counts for a whole file and is longer; here each test has the one in COVE_TEST_LIMIT_S.
import path from "node:path";

const limit = Number(process.env.COVE_TEST_LIMIT_S ?? 120);
const running = new Map(); // the tests of a file that have begun

export default async function* lines(events) {
    for await (const { type, data } of events) {
        const file = path.relative(process.cwd(), data.file ?? "");
        const here = running.get(file) ?? new Set();
        if (type === "test:dequeue") running.set(file, here.add(data.name));
        if (type !== "test:pass" && type !== "test:fail") continue;
        here.delete(data.name);
        // A group of tests that fails by itself, or a file that cannot be loaded: nobody knows which tests did not run.
        const isWhole = data.details?.type === "suite" || path.resolve(data.name) === data.file;
        if (isWhole && type === "test:pass") continue;
        if (isWhole && data.details?.error?.failureType === "subtestsFailed") continue;
        const seconds = (data.details?.duration_ms ?? 0) / 1000;
        const error = data.details?.error?.cause ?? data.details?.error;
        let why = "";
        if (type === "test:fail") why = `${error?.stack ?? error}\n${here.size ? `it waited for: ${[...here].join(", ")}` : ""}`;
        else if (data.skip !== undefined && data.skip !== false) why = "it was skipped";
        else if (seconds > limit) why = `it took ${seconds} s, more than its limit of ${limit} s`;
        yield `${JSON.stringify({ event: "end", id: `${file}::${data.name}`, outcome: why ? "failed" : "passed", why, seconds, wall: isWhole })}\n`;
    }
}
