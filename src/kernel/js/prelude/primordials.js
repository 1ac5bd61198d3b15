// The builtins that the prelude itself needs later, taken before any user code runs: user code may
// replace Array.prototype.push, and must neither break the prelude by it nor get at anything. So
// prelude code calls ArrPush(list, x) and not list.push(x), walks lists by index and not by
// for...of or spread, and makes records without a prototype. What is put on `share` here and
// elsewhere is the prelude's own and must never be given to user code.
(function (host, native, share) {
    "use strict";

    const { uncurry } = native;
    const P = { __proto__: null };
    share.P = P;
    share.host = host;
    share.native = native;
    share.builtins = { __proto__: null }; // what require("fs") and import "node:fs" give, by name

    const defineProperty = Object.defineProperty;
    const getDescriptor = Object.getOwnPropertyDescriptor;
    const ownKeys = Reflect.ownKeys;
    const bind = uncurry(Function.prototype.bind);
    const TypedArray = Object.getPrototypeOf(Uint8Array);

    function title(key) {
        if (typeof key === "symbol") {
            const text = key.description.replace("Symbol.", "");
            return "Symbol" + text[0].toUpperCase() + text.slice(1);
        }
        return key[0].toUpperCase() + key.slice(1);
    }

    // Array.prototype.push becomes ArrPush, Object.keys ObjKeys, the getter of Map's size MapSize.
    function take(prefix, holder, isPrototype, owner) {
        const keys = ownKeys(holder);
        for (let i = 0; i < keys.length; i++) {
            const key = keys[i];
            if (key === "prototype" || (isPrototype && key === "constructor")) continue;
            const found = getDescriptor(holder, key);
            const name = prefix + title(key);
            if (typeof found.get === "function") {
                P[name] = isPrototype ? uncurry(found.get) : bind(found.get, holder);
            } else if (typeof found.value === "function") {
                P[name] = isPrototype ? uncurry(found.value)
                    : owner ? bind(found.value, owner) : found.value;
            } else {
                P[name] = found.value;
            }
        }
    }

    const classes = {
        __proto__: null,
        Obj: Object, Fn: Function, Arr: Array, Str: String, Num: Number, Bool: Boolean, Sym: Symbol,
        Big: BigInt, Date: Date, Re: RegExp, Map: Map, Set: Set, WeakMap: WeakMap, WeakSet: WeakSet,
        WeakRef: WeakRef, Promise: Promise, Buf: ArrayBuffer, View: DataView, Ta: TypedArray,
        U8: Uint8Array, Err: Error, Proxy: Proxy,
    };
    for (const prefix of ownKeys(classes)) {
        const owner = classes[prefix];
        take(prefix, owner, false, owner);
        if (owner.prototype) take(prefix, owner.prototype, true);
    }
    take("Math", Math, false);
    take("Json", JSON, false);
    take("Reflect", Reflect, false);
    // These are called with the class of the caller's choice as `this`.
    P.TaFrom = uncurry(TypedArray.from);

    const globals = [
        "Object", "Function", "Array", "String", "Number", "Boolean", "Symbol", "BigInt", "Date",
        "RegExp", "Map", "Set", "WeakMap", "WeakSet", "WeakRef", "Promise", "ArrayBuffer",
        "SharedArrayBuffer", "DataView", "Uint8Array", "Uint8ClampedArray", "Int8Array", "Int16Array",
        "Uint16Array", "Int32Array", "Uint32Array", "Float32Array", "Float64Array",
        "BigInt64Array", "BigUint64Array", "Error", "TypeError", "RangeError", "SyntaxError",
        "ReferenceError", "EvalError", "URIError", "AggregateError", "Proxy", "DOMException",
        "FinalizationRegistry", "parseInt", "parseFloat", "isNaN", "isFinite", "encodeURIComponent",
        "decodeURIComponent", "encodeURI", "decodeURI", "queueMicrotask", "globalThis",
    ];
    for (let i = 0; i < globals.length; i++) {
        P[globals[i]] = globalThis[globals[i]];
    }
    P.TypedArray = TypedArray;
    P.AsyncIteratorPrototype = Object.getPrototypeOf(
        Object.getPrototypeOf(async function* () {}).prototype);
    P.IteratorPrototype = Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]()));
    P.ArrayIteratorNext = uncurry([][Symbol.iterator]().next);

    const { ArrIsArray, ReExec, StrSlice, ReflectApply, PromiseThen, ObjDefineProperty } = P;
    const { Promise: PromiseClass } = P;

    // A regular expression used by the prelude: exec only, because everything else asks the
    // prototype again.
    P.matches = (regexp, text) => ReExec(regexp, text) !== null;

    // text with each match of a global expression replaced by what `by(match)` gives.
    P.replaceAll = (regexp, text, by) => {
        let out = "", at = 0, found;
        regexp.lastIndex = 0;
        while ((found = ReExec(regexp, text)) !== null) {
            out += StrSlice(text, at, found.index) + by(found);
            at = found.index + found[0].length;
            if (found[0] === "") regexp.lastIndex++;
        }
        return out + StrSlice(text, at);
    };

    // The items of anything iterable, as an array of our own.
    P.listOf = (items) => {
        const out = [];
        if (ArrIsArray(items)) {
            for (let i = 0; i < items.length; i++) P.append(out, items[i]);
        } else {
            for (const item of items) P.append(out, item);
        }
        return out;
    };

    // Own elements are defined, not assigned: a setter on Array.prototype sees nothing.
    const slot = { __proto__: null, value: undefined, writable: true, enumerable: true,
        configurable: true };
    P.append = (list, value) => {
        slot.value = value;
        defineProperty(list, list.length, slot);
        slot.value = undefined;
    };

    // A promise with its two functions, made by no replaceable builtin.
    P.deferred = () => {
        let resolve, reject;
        const promise = new PromiseClass((yes, no) => {
            resolve = yes;
            reject = no;
        });
        return { __proto__: null, promise, resolve, reject };
    };
    P.when = (promise, yes, no) => PromiseThen(promise, yes, no);

    // Puts a value where builtins lie: there, but not enumerable.
    P.hide = (target, key, value) => ObjDefineProperty(target, key,
        { __proto__: null, value, writable: true, enumerable: false, configurable: true });
    P.getter = (target, key, get, set, enumerable) => ObjDefineProperty(target, key,
        { __proto__: null, get, set, enumerable: enumerable === true, configurable: true });
    share.define = (name, value) => P.hide(globalThis, name, value);

    // Methods of a class of the web are enumerable, and the class names itself.
    P.webClass = (constructor, name) => {
        const keys = ownKeys(constructor.prototype);
        for (let i = 0; i < keys.length; i++) {
            if (keys[i] === "constructor" || typeof keys[i] === "symbol") continue;
            const found = getDescriptor(constructor.prototype, keys[i]);
            found.enumerable = true;
            defineProperty(constructor.prototype, keys[i], found);
        }
        defineProperty(constructor.prototype, Symbol.toStringTag,
            { __proto__: null, value: name, configurable: true });
        share.define(name, constructor);
    };

    P.apply = ReflectApply;

    // Bytes of any view or buffer, as a Uint8Array over the same memory; undefined for anything
    // else.
    const { own_kind } = native;
    const { TaBuffer, TaByteOffset, TaByteLength, ViewBuffer, ViewByteOffset, ViewByteLength,
        Uint8Array: U8 } = P;
    P.isView = (value) => {
        if (typeof value !== "object" || value === null) return false;
        return P.TaSymbolToStringTag(value) !== undefined || own_kind(value) === "DataView";
    };
    P.isBuffer = (value) => {
        const kind = own_kind(value);
        return kind === "ArrayBuffer" || kind === "SharedArrayBuffer";
    };
    P.bytesOf = (value) => {
        if (typeof value !== "object" || value === null) return undefined;
        if (P.TaSymbolToStringTag(value) !== undefined) {
            return new U8(TaBuffer(value), TaByteOffset(value), TaByteLength(value));
        }
        const kind = own_kind(value);
        if (kind === "DataView") {
            return new U8(ViewBuffer(value), ViewByteOffset(value), ViewByteLength(value));
        }
        if (kind === "ArrayBuffer" || kind === "SharedArrayBuffer") return new U8(value);
        return undefined;
    };

    // The state of the run, one object for every run, so that a short one writes to few places of the
    // memory. isTouched: it did something but compute (printed, or left something pending). Most do not,
    // and then nothing needs to be looked at or tidied up.
    share.pulse = {
        __proto__: null, done: true, isTouched: false, isSettled: false, isFailed: false, isExited: false, value: undefined,
        error: undefined, exitCode: 0, promise: undefined, filename: "run.js", number: 0, hasListeners: false,
        isFinal: false,
    };
    const { pulse } = share;

    // Calls to the host. Each begin is counted, so that a run knows what it still waits for.
    const { call, begin } = host;
    const { MapGet, MapSet, MapDelete } = P;
    const waiting = new Map();
    let waitingCount = 0;

    share.call = (op, meta, bytes) => ReflectApply(call, host, [op, meta, bytes]);
    share.begin = (op, meta, bytes) => {
        let id;
        try {
            id = ReflectApply(begin, host, [op, meta, bytes]);
        } catch (error) {
            return P.PromiseReject(error); // what the host refuses at once is no different to the caller
        }
        const wait = P.deferred();
        MapSet(waiting, id, wait);
        waitingCount++;
        pulse.isTouched = true;
        return wait.promise;
    };
    share.waiting = () => waitingCount;
    // The run is over: what still comes for it is passed over.
    share.forgetCalls = () => {
        if (waitingCount === 0) return;
        P.MapClear(waiting);
        waitingCount = 0;
    };

    // What a begun call came to: {meta, bytes}, or an error in meta {name, message, code}.
    share.settle = (id, ok, meta, bytes) => {
        const wait = MapGet(waiting, id);
        if (wait === undefined) return;
        MapDelete(waiting, id);
        waitingCount--;
        if (ok) {
            wait.resolve({ __proto__: null, meta, bytes });
        } else {
            wait.reject(share.hostError(meta));
        }
    };
})
