// Whose a box without an id is. Nobody can name it, so it belongs to the program that uses it, which is written on it;
// when that program is over, the next one of the same directory takes it up.
import { randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";

/** The label that says it. */
export const OWNER = "mastra.owner";

const OVER = ["Z", "X", "x"];

/** When a process began, by the clock of this boot: with it, a pid is of one process alone. Undefined where there is none. */
function startOf(pid: number | "self"): string | undefined {
    let text: string;
    try {
        text = readFileSync(`/proc/${pid}/stat`, "latin1");
    } catch {
        return undefined;
    }
    // Its name is in parentheses and may have any of them in it; what follows begins with the third field.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return OVER.includes(fields[0]!) ? undefined : fields[19];
}

/** Pids mean something in one boot of one host, and there in one namespace. */
function world(): { boot: string; pids: string } | undefined {
    try {
        return {
            boot: readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim(),
            pids: readlinkSync("/proc/self/ns/pid").replace(/\D+/g, ""),
        };
    } catch {
        return undefined;
    }
}

let own: string | undefined;

/** Us: this program, and in it this copy of the package, for another one knows nothing of our objects. */
export function owner(): string {
    if (own === undefined) {
        const here = world();
        own = [here?.boot ?? "", here?.pids ?? "", process.pid, startOf("self") ?? "", randomBytes(6).toString("hex")].join(":");
    }
    return own;
}

/** Whether it may be in use by another one. What cannot be known is held to be so; a box that nobody uses goes by itself. */
export function isOthers(label: string | undefined): boolean {
    if (label === undefined || label === owner()) return false;
    const [boot, pids, pid, start] = label.split(":");
    const here = world();
    if (here === undefined || boot === "" || pid === undefined || start === undefined || start === "") return true;
    if (boot !== here.boot) return false;
    return pids !== here.pids || startOf(Number(pid)) === start;
}
