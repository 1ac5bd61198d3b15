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
    return Object.assign(engine, {
        link,
        until: (look) => until(String(look), look),
        own: (sandbox) => sandbox,
        sandbox: (options) => new CoveSandbox({ cove: engine.cove, ...options }),
    });
}
