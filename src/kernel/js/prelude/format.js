// util.format and the console's way of joining its arguments: %s %d %i %f %j %o %O %c, the rest
// separated by spaces.
(function (host, native, share) {
    "use strict";

    const { P, inspect } = share;
    const { StrSlice, StrCharCodeAt, StrIncludes, ObjHasOwnProperty, ObjGetPrototypeOf, ObjIs, BigToString,
        JsonStringify, Number, parseFloat, parseInt, String, SymFor, ObjGetOwnPropertyDescriptor, Date, Error } = P;

    function numeric(value) {
        return ObjIs(value, -0) ? "-0" : String(value);
    }

    // Whether the value's own class says how it reads; what the language gives does not count.
    function hasOwnText(value) {
        if (native.own_kind(value) === "Proxy") return false;
        const method = value[Symbol.toPrimitive];
        if (typeof method === "function" && native.own_kind(value) !== "Date") return true;
        if (typeof value.toString !== "function") return false;
        if (ObjHasOwnProperty(value, "toString")) return true;
        let at = value;
        do {
            at = ObjGetPrototypeOf(at);
        } while (at !== null && !ObjHasOwnProperty(at, "toString"));
        if (at === null) return false;
        const found = ObjGetOwnPropertyDescriptor(at, "constructor");
        return found !== undefined && typeof found.value === "function" && !builtins(found.value);
    }

    const { WeakSetHas, WeakSetAdd } = P;
    const known = new P.WeakSet();
    const names = P.ReflectOwnKeys(globalThis);
    for (let i = 0; i < names.length; i++) {
        const found = ObjGetOwnPropertyDescriptor(globalThis, names[i]);
        if (typeof found.value === "function") WeakSetAdd(known, found.value);
    }
    const builtins = (constructor) => WeakSetHas(known, constructor);

    function asString(value, options) {
        switch (typeof value) {
        case "number": return numeric(value);
        case "bigint": return BigToString(value) + "n";
        case "object":
            if (value !== null && hasOwnText(value)) return String(value);
            return inspect(value, { ...options, depth: 0, colors: false, compact: 3 });
        case "function":
            return hasOwnText(value) || native.own_kind(value) !== "Proxy" ? String(value) : inspect(value);
        default: return String(value);
        }
    }

    function asJson(value) {
        try {
            return JsonStringify(value);
        } catch (error) {
            if (error instanceof P.TypeError && StrIncludes(String(error.message), "circular")) return "[Circular]";
            throw error;
        }
    }

    function asNumber(value, kind) {
        if (typeof value === "symbol") return "NaN";
        if (kind === 102) return numeric(parseFloat(value));
        if (typeof value === "bigint") return BigToString(value) + "n";
        if (typeof value === "object") return kind === 100 ? numeric(Number(value)) : "NaN";
        return numeric(kind === 100 ? Number(value) : parseInt(value));
    }

    // The text of one place, or undefined for a letter that means nothing.
    function filled(letter, value, options) {
        switch (letter) {
        case 115: return asString(value, options);
        case 106: return asJson(value);
        case 100: case 105: case 102: return asNumber(value, letter);
        case 79: return inspect(value, options);
        case 111: return inspect(value, { ...options, showHidden: true, showProxy: true, depth: 4 });
        case 99: return "";
        default: return undefined;
        }
    }

    function formatWithOptions(options, args) {
        const first = args[0];
        let next = 0, out = "", separator = "";
        if (typeof first === "string") {
            if (args.length === 1) return first;
            let from = 0;
            for (let i = 0; i < first.length - 1; i++) {
                if (StrCharCodeAt(first, i) !== 37) continue;
                const letter = StrCharCodeAt(first, ++i);
                if (letter === 37) {
                    out += StrSlice(first, from, i);
                    from = i + 1;
                } else if (next + 1 !== args.length) {
                    const text = filled(letter, args[next + 1], options);
                    if (text === undefined) continue;
                    next++;
                    out += StrSlice(first, from, i - 1) + text;
                    from = i + 1;
                }
            }
            if (from !== 0 || next !== 0) {
                next++;
                separator = " ";
                if (from < first.length) out += StrSlice(first, from);
            }
        }
        while (next < args.length) {
            const value = args[next++];
            out += separator + (typeof value === "string" ? value : inspect(value, options));
            separator = " ";
        }
        return out;
    }

    share.formatWithOptions = formatWithOptions;
})
