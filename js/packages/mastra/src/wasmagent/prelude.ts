// What runs in a kernel before the first code of its user: `fetch` then words its denials as wasmagent's README promises. It only
// words them. What may be reached is decided outside of the kernel, and code that changes this changes its own texts alone.

/** Read by the guest, in a kernel that is still pristine. */
export const PRELUDE = `(() => {
    "use strict";
    const ask = globalThis.fetch, { URL, Error, String, RegExp, Object } = globalThis;
    const apply = Reflect.apply, exec = RegExp.prototype.exec, startsWith = String.prototype.startsWith, { defineProperty } = Object;
    const DENIED = /^the host '([^']*)'(?: \\(port \\d+\\))? is denied(?:: |, and )([^]*)$/;

    // Of a redirect it is not the host that was asked for that is denied, but the one that it leads to.
    function hostOf(input, denied) {
        try {
            const url = new URL(typeof input === "object" && input !== null && input.url !== undefined ? input.url : String(input));
            return denied === undefined || url.hostname === denied ? url.host : denied;
        } catch {
            return denied === undefined ? String(input) : denied;
        }
    }

    function denial(cause, input) {
        const said = apply(exec, DENIED, [cause.message]);
        const why = said === null ? cause.message : said[2];
        const isPlain = apply(startsWith, why, ["allow it with allowedHosts"]);
        const error = new Error('network access denied \\u2014 host "' + hostOf(input, said === null ? undefined : said[1]) +
            '" not in allowedHosts' + (isPlain ? "" : ": " + why), { cause });
        defineProperty(error, "name", { value: "CapabilityDenied", writable: true, configurable: true });
        defineProperty(error, "code", { value: cause.code, writable: true, configurable: true });
        return error;
    }

    const fetch = { async fetch(input, init) {
        try {
            return await ask(input, init);
        } catch (error) {
            throw typeof error === "object" && error !== null && (error.code === "EACCES" || error.code === "denied") ? denial(error, input) : error;
        }
    } }.fetch;
    defineProperty(globalThis, "fetch", { value: fetch, writable: true, enumerable: true, configurable: true });
})()`;

/** Gives the code its variables; they stay until others are given. */
export function variablesOf(env: Readonly<Record<string, string>>): string {
    const json = JSON.stringify(JSON.stringify(env));
    return `((env, own) => {
        process.env = env;
        Object.defineProperty(globalThis, "__env__", { value: own, writable: false, enumerable: false, configurable: true });
    })(JSON.parse(${json}), ${Object.keys(env).length === 0 ? "undefined" : `Object.freeze(JSON.parse(${json}))`})`;
}
