// An engine of this test's own: private, in directories that nobody else has, started by the client itself. One for
// each process, for where it lies is said by the environment.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Cove } from "../dist/esm/index.js";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../../..");
const PATIENCE_MS = 60_000;

/** Waits until `look` gives something that is true, and gives that. */
export async function until(what, look) {
    for (const end = Date.now() + PATIENCE_MS; ; ) {
        const seen = await look();
        if (seen) return seen;
        if (Date.now() > end) throw new Error(`it took too long: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
}

/** From below those that the kernel gives to whoever asks for none: nobody takes it until it is listened at. */
export async function freePort() {
    const end = Math.max(parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10), 16384);
    for (let tries = 0; tries < 1000; tries++) {
        // Those who run tests beside us have other ones: for certain, where one of us is root.
        const first = Math.floor(end / 2) + (process.pid % 32) * 2 + (process.getuid() === 0 ? 0 : 1);
        const port = first + 64 * Math.floor((Math.random() * (end - first)) / 64);
        const probe = createServer();
        const isFree = await new Promise((resolve) => {
            probe.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
        });
        if (isFree) return port;
    }
    throw new Error("no port is free");
}

function processes() {
    return readdirSync("/proc")
        .filter((name) => /^\d+$/.test(name))
        .map((name) => {
            try {
                const stat = readFileSync(`/proc/${name}/stat`, "utf8");
                return {
                    pid: Number(name),
                    parent: Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]),
                    words: readFileSync(`/proc/${name}/cmdline`, "utf8").split("\0"),
                    program: stat.slice(stat.indexOf("(") + 1, stat.lastIndexOf(")")),
                };
            } catch {
                return undefined; // it has just ended
            }
        })
        .filter(Boolean);
}

function isThere(pid) {
    try {
        process.kill(pid, 0);
        // One that nobody has waited for yet has ended all the same.
        return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
    } catch {
        return false;
    }
}

/**
 * `cove` is connected, `env` is what was added to the environment, `dir` is removed at the end. `pid()` is that of the
 * engine, `keeper()` that of the process that makes its boxes. `kill()` kills the engine, which its keeper starts again;
 * `upgrade()` has it replaced in good order; `killAll()` kills the keeper, too, with all sandboxes. `end()` ends it in
 * good order, and is to be called.
 */
export async function startEngine(options = {}) {
    const dir = mkdtempSync(path.join(tmpdir(), "cove-test-"));
    const env = {
        XDG_RUNTIME_DIR: path.join(dir, "run"),
        XDG_DATA_HOME: path.join(dir, "data"),
        XDG_CONFIG_HOME: path.join(dir, "config"),
        COVE_BIN: process.env.COVE_BIN || path.join(ROOT, "build/cove"),
    };
    for (const name of ["run", "data", "config"]) mkdirSync(path.join(dir, name), { mode: 0o700 });
    Object.assign(process.env, env);
    delete process.env.COVE_URL;
    delete process.env.COVE_API_KEY;
    const socket = path.join(env.XDG_RUNTIME_DIR, "cove/cove.sock");
    const { connect = true, ...rest } = options;
    const cove = new Cove({ engine: "private", ...rest });

    const keepers = () => processes().filter((each) => each.words.includes(socket) && each.program === "cove-keeper");
    // Its janitor has the same words; the keeper is the one that is nobody's child of them.
    const keeper = () => {
        const all = keepers();
        return all.find((each) => !all.some((other) => other.pid === each.parent))?.pid;
    };
    const pid = () => {
        const parent = keeper();
        return processes().find((each) => each.parent === parent && each.program === "cove-engine")?.pid;
    };
    const gone = (number) => until(`process ${number} ends`, () => !isThere(number));

    async function end() {
        cove.close();
        const last = keeper();
        if (last !== undefined) {
            process.kill(last, "SIGTERM");
            await gone(last);
        }
        await until("nothing of the engine runs", () => keepers().length === 0);
        rmSync(dir, { recursive: true, force: true });
    }

    try {
        if (connect) await cove.connect();
    } catch (error) {
        await end();
        throw error;
    }
    return {
        cove,
        env,
        dir,
        socket,
        pid,
        keeper,
        async kill() {
            const number = await until("the engine runs", pid);
            process.kill(number, "SIGKILL");
            await gone(number);
        },
        async upgrade() {
            const number = await until("the engine runs", pid);
            process.kill(keeper(), "SIGHUP");
            await gone(number);
        },
        async killAll() {
            const number = keeper();
            // Those that are there now, of which the engine ends after its keeper, and answers until then: who is connected
            // may have the next ones started at once.
            const all = [...keepers().map((each) => each.pid), pid()].filter((each) => each !== undefined);
            process.kill(number, "SIGKILL");
            for (const each of all) await gone(each);
        },
        end,
    };
}
