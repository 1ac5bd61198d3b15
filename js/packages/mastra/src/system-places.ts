// Places of a sandbox that are the system's, and not the code's to write: one list for all that ask.
import { isWithin } from "./filesystem-paths.js";

/** System directories of the host that a box has without a word, read-only. */
export const SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/** Directories of the box's own, in which nothing of the host can lie. */
export const OWN = ["/proc", "/sys", "/dev"];

/** Whether it is of the host where the sandbox has no root of its own, and of root where it has. */
export function isSystemPlace(at: string): boolean {
    return [...SYSTEM, ...OWN, "/etc"].some((place) => isWithin(at, place));
}

/** Whether programs are no longer found, or do not start, where something else is mounted there. */
export function holdsPrograms(at: string): boolean {
    return SYSTEM.some((place) => at === place || at === `/usr${place}`);
}
