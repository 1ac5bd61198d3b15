// What of a sandbox is the system's, and not the code's to write: one list for all that ask.
import { isWithin } from "./filesystem-paths.js";

/** What a box has of the host without a word: its system directories, read-only. */
export const SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/** What the box has of its own, in which nothing of the host can lie. */
export const OWN = ["/proc", "/sys", "/dev"];

/** Whether it is of the host where the sandbox has no root of its own, and of root where it has. */
export function isSystemPlace(at: string): boolean {
    return [...SYSTEM, ...OWN, "/etc"].some((place) => isWithin(at, place));
}

/** Whether programs are no longer found, or do not start, where something else is mounted there. */
export function holdsPrograms(at: string): boolean {
    return SYSTEM.some((place) => at === place || at === `/usr${place}`);
}
