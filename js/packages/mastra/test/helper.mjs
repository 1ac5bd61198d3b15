// An engine for the tests of a file, and sandboxes in it that go when it goes.
import { symlinkSync } from "node:fs";
import path from "node:path";
import { CoveSandbox } from "@cove/mastra";
import { startEngine, until } from "../../client/test/engine.mjs";

export async function makeEngine() {
    const engine = await startEngine();
    // The same socket by another path: to the client it is a server like any other.
    const link = path.join(engine.dir, "other.sock");
    symlinkSync(engine.socket, link);
    const { limits, ids } = await engine.cove.version();
    const sandboxes = [];
    const own = (sandbox) => (sandboxes.push(sandbox), sandbox);
    return Object.assign(engine, {
        link,
        /** Whether whatever a command started is found and killed, also what left its session. */
        hasCgroups: limits === "cgroup",
        /** Whether there is more than one user in a sandbox. */
        hasUsers: ids !== "single",
        until: (look) => until(String(look), look),
        own,
        sandbox: (options) => own(new CoveSandbox({ cove: engine.cove, ...options })),
        // What is still followed would look for an engine, and start one.
        end: ((end) => async () => {
            await Promise.all(sandboxes.map((sandbox) => sandbox._destroy().catch(() => {})));
            await end();
        })(engine.end),
    });
}
