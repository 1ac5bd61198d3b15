// structuredClone: values of the language, with cycles, and ArrayBuffers that may be handed over.
// Anything else (functions, symbols, proxies, what hides its state) is a DataCloneError.
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { own_kind, is_promise } = native;
    const { Map, Set, MapGet, MapSet, MapHas, MapForEach, SetAdd, SetForEach, ObjKeys, ObjGetOwnPropertyDescriptor, Array, Object,
        DateGetTime, Date, RegExp, ReSource, ReFlags, ReflectConstruct, TaSymbolToStringTag, TaBuffer, TaByteOffset, TaLength, ViewBuffer, ViewByteOffset, ViewByteLength,
        BufSlice, BufTransfer, BufByteLength, DataView, DOMException, Error, TypeError, RangeError, SyntaxError, EvalError,
        ReferenceError, URIError, String, ObjDefineProperty, hide, listOf, append, SymToString, NumValueOf, StrValueOf,
        BoolValueOf, BigValueOf, FnToString, StrSlice, ArrIncludes } = P;

    const ERRORS = { __proto__: null, Error, TypeError, RangeError, SyntaxError, EvalError, ReferenceError, URIError };
    const CLASSES = { __proto__: null };
    const names = ["Uint8Array", "Uint8ClampedArray", "Int8Array", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
        "Float16Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array"];
    for (let i = 0; i < names.length; i++) CLASSES[names[i]] = globalThis[names[i]];

    function refuse(what) {
        return new DOMException(`${what} could not be cloned.`, "DataCloneError");
    }

    function define(target, key, value) {
        ObjDefineProperty(target, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
    }

    function clone(value, seen) {
        if (typeof value === "symbol") throw refuse(SymToString(value));
        if (typeof value === "function") throw refuse(FnToString(value));
        if (typeof value !== "object" || value === null) return value;
        if (MapHas(seen, value)) return MapGet(seen, value);
        const kind = own_kind(value);
        let out;
        switch (kind) {
        case "Date":
            out = new Date(DateGetTime(value));
            break;
        case "RegExp":
            out = new RegExp(ReSource(value), ReFlags(value));
            break;
        case "Number": out = Object(NumValueOf(value)); break;
        case "String": out = Object(StrValueOf(value)); break;
        case "Boolean": out = Object(BoolValueOf(value)); break;
        case "BigInt": out = Object(BigValueOf(value)); break;
        case "ArrayBuffer":
            out = BufSlice(value, 0);
            break;
        case "DataView":
            out = new DataView(clone(ViewBuffer(value), seen), ViewByteOffset(value), ViewByteLength(value));
            break;
        case "Map":
            return cloneMap(value, seen);
        case "Set":
            return cloneSet(value, seen);
        case "Error":
            return cloneError(value, seen);
        case "Array":
            out = [];
            out.length = value.length;
            return cloneKeys(value, out, seen);
        case "Object": case "Arguments":
            if (share.cloneBlob !== undefined && share.isBlob(value)) return share.cloneBlob(value);
            return cloneKeys(value, {}, seen);
        default:
            if (CLASSES[kind] !== undefined) {
                out = new CLASSES[kind](clone(TaBuffer(value), seen), TaByteOffset(value), TaLength(value));
                break;
            }
            throw refuse(kind === "Promise" ? "#<Promise>" : `#<${kind === "Proxy" ? "Object" : kind}>`);
        }
        MapSet(seen, value, out);
        return out;
    }

    function cloneKeys(value, out, seen) {
        MapSet(seen, value, out);
        const keys = ObjKeys(value);
        for (let i = 0; i < keys.length; i++) define(out, keys[i], clone(value[keys[i]], seen));
        return out;
    }

    function cloneMap(value, seen) {
        const out = new Map(), keys = [], values = [];
        MapSet(seen, value, out);
        MapForEach(value, (item, key) => {
            append(keys, key);
            append(values, item);
        });
        for (let i = 0; i < keys.length; i++) MapSet(out, clone(keys[i], seen), clone(values[i], seen));
        return out;
    }

    function cloneSet(value, seen) {
        const out = new Set(), values = [];
        MapSet(seen, value, out);
        SetForEach(value, (item) => append(values, item));
        for (let i = 0; i < values.length; i++) SetAdd(out, clone(values[i], seen));
        return out;
    }

    function cloneError(value, seen) {
        const Base = ERRORS[String(value.name)] || Error;
        const message = ObjGetOwnPropertyDescriptor(value, "message");
        const out = message !== undefined && "value" in message ? new Base(String(message.value)) : new Base();
        MapSet(seen, value, out);
        const { stack } = value;
        if (typeof stack === "string") hide(out, "stack", stack);
        const cause = ObjGetOwnPropertyDescriptor(value, "cause");
        if (cause !== undefined && "value" in cause) hide(out, "cause", clone(cause.value, seen));
        return out;
    }

    function structuredClone(value, options) {
        if (arguments.length === 0) {
            throw share.codeError(TypeError, "ERR_MISSING_ARGS", 'The "value" argument must be specified');
        }
        const seen = new Map();
        const transfer = options && options.transfer ? listOf(options.transfer) : [];
        for (let i = 0; i < transfer.length; i++) {
            if (own_kind(transfer[i]) !== "ArrayBuffer") {
                throw new DOMException("Found invalid object in transferList", "DataCloneError");
            }
            if (MapHas(seen, transfer[i])) throw new DOMException("Transfer list contains duplicate ArrayBuffer", "DataCloneError");
            // Only when all the rest could be cloned is anything taken away.
            MapSet(seen, transfer[i], BufSlice(transfer[i], 0));
        }
        const out = clone(value, seen);
        for (let i = 0; i < transfer.length; i++) BufTransfer(transfer[i]);
        return out;
    }
    P.ObjDefineProperty(globalThis, "structuredClone", { __proto__: null, value: structuredClone, writable: true, enumerable: true, configurable: true });
    share.structuredClone = structuredClone;
})
