// An engine for the tests of a file, and sandboxes in it that go when it goes.
import { CoveSandbox } from "@cove/mastra";
import { startEngine } from "./engine.mjs";

const LONG_MS = 30_000;

/** Until what it answers is true, or holds; how long that takes is the machine's affair. */
export async function until(condition) {
    for (const end = Date.now() + LONG_MS; ; ) {
        const is = await condition();
        if (is) return is;
        if (Date.now() > end) throw new Error(`it never came about: ${condition}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
}

export async function makeEngine() {
    const engine = await startEngine();
    return Object.assign(engine, {
        until,
        own: (sandbox) => sandbox,
        sandbox: (options) => new CoveSandbox({ cove: engine.cove, ...options }),
    });
}
