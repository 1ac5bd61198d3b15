import { Cove } from "@cove/client";
import { mkdtempSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
export async function startEngine() {
    const dir = mkdtempSync(join(tmpdir(), "cove-js-"));
    const env = { COVE_BIN: process.env.COVE_BIN ?? new URL("../../../../build/cove", import.meta.url).pathname };
    for (const k of ["RUNTIME_DIR", "DATA_HOME", "CONFIG_HOME"]) { env[`XDG_${k}`] = join(dir, k); mkdirSync(join(dir, k), { mode: 0o700 }); }
    Object.assign(process.env, env);
    delete process.env.COVE_URL;
    const cove = new Cove({ engine: "private" });
    await cove.connect();
    const pids = (name) => readdirSync("/proc").filter((p) => /^\d+$/.test(p)).filter((p) => {
        try { return readFileSync(`/proc/${p}/comm`, "utf8").trim().startsWith(name) && readFileSync(`/proc/${p}/environ`, "utf8").includes(env.XDG_RUNTIME_DIR); } catch { return false; }
    }).map(Number);
    return {
        cove, env, dir, pids,
        async kill() { for (const p of pids("cove-engine")) process.kill(p, "SIGKILL"); },
        async end() {
            cove.close();
            for (const p of pids("cove-keeper")) process.kill(p, "SIGTERM");
            while (pids("cove").length > 0) await sleep(50);
            rmSync(dir, { recursive: true, force: true });
        },
    };
}
