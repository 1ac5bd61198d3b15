// Looks at what a caller gives: an option that nobody knows is a mistake that would otherwise be told by nothing.

/** Throws a TypeError that names what is not known. */
export function onlyKnown(what: string, given: unknown, known: readonly string[]): void {
    if (given === undefined || given === null) return;
    if (typeof given !== "object") throw new TypeError(`${what}: an object is needed`);
    for (const name of Object.keys(given)) {
        if (!known.includes(name)) throw new TypeError(`${what}: "${name}" is not known; there are ${known.join(", ")}`);
    }
}

/** A number above 0, or undefined. */
export function positive(what: string, value: unknown): number | undefined {
    if (value === undefined || value === null) return undefined;
    if (typeof value !== "number" || !(value > 0)) throw new TypeError(`${what}: a number above 0 is needed`);
    return value;
}

/** The lowest of those that are there. */
export function lowest(...values: readonly (number | undefined)[]): number | undefined {
    const there = values.filter((value) => value !== undefined);
    return there.length === 0 ? undefined : Math.min(...there);
}
