// node:util: promisify and its opposites, the questions of util.types, deep equality.
(function (host, native, share) {
    "use strict";

    const { P, inspect, formatWithOptions, needFunction } = share;
    const { own_kind, proxy_parts } = native;
    const { apply, append, ArrIsArray, ArrSlice, ObjKeys, ObjGetOwnPropertyNames, ObjGetOwnPropertySymbols, ObjGetOwnPropertyDescriptor,
        ObjDefineProperties, ObjGetOwnPropertyDescriptors, ObjGetPrototypeOf, ObjSetPrototypeOf, ObjHasOwnProperty, ObjIs,
        ObjPropertyIsEnumerable, SymFor, PromiseThen, Promise, MapForEach, MapGet, MapHas, MapSize, SetForEach, SetHas, SetSize,
        DateGetTime, ReSource, ReFlags, ReLastIndex, TaSymbolToStringTag, TaLength, NumValueOf, StrValueOf, BoolValueOf, BigValueOf,
        SymValueOf, matches, replaceAll, Error, TypeError, String, StrSlice, StrStartsWith, Map, Set, SetAdd, MapSet, hide, bytesOf,
        isBuffer, StrSplit, ArrJoin } = P;

    const customPromisify = SymFor("nodejs.util.promisify.custom");

    function promisify(original) {
        needFunction(original, "original");
        const own = original[customPromisify];
        if (own) return needFunction(own, "util.promisify.custom");
        const made = function (...args) {
            return new Promise((yes, no) => {
                append(args, (error, value) => {
                    if (error) no(error);
                    else yes(value);
                });
                apply(original, this, args);
            });
        };
        ObjSetPrototypeOf(made, ObjGetPrototypeOf(original));
        return ObjDefineProperties(made, ObjGetOwnPropertyDescriptors(original));
    }
    promisify.custom = customPromisify;

    function callbackify(original) {
        needFunction(original, "original");
        return function (...args) {
            const callback = needFunction(args.pop(), "last argument");
            PromiseThen(apply(original, this, args), (value) => share.nextTick(callback, null, value), (error) => {
                if (!error) {
                    const made = share.codeError(Error, "ERR_FALSY_VALUE_REJECTION", "Promise was rejected with falsy value");
                    made.reason = error;
                    error = made;
                }
                share.nextTick(callback, error);
            });
        };
    }

    // ---- types -------------------------------------------------------------------------------

    const is = (...kinds) => {
        const set = { __proto__: null };
        for (let i = 0; i < kinds.length; i++) set[kinds[i]] = true;
        return (value) => set[own_kind(value)] === true;
    };
    const types = {
        isPromise: is("Promise"), isRegExp: is("RegExp"), isDate: is("Date"), isMap: is("Map"), isSet: is("Set"),
        isWeakMap: is("WeakMap"), isWeakSet: is("WeakSet"), isNativeError: is("Error", "DOMException"),
        isArrayBuffer: is("ArrayBuffer"), isSharedArrayBuffer: is("SharedArrayBuffer"),
        isAnyArrayBuffer: is("ArrayBuffer", "SharedArrayBuffer"), isDataView: is("DataView"),
        isArgumentsObject: is("Arguments"), isProxy: is("Proxy"), isModuleNamespaceObject: is("Module"),
        isAsyncFunction: is("AsyncFunction", "AsyncGeneratorFunction"),
        isGeneratorFunction: is("GeneratorFunction", "AsyncGeneratorFunction"),
        isGeneratorObject: is("Generator", "AsyncGenerator"), isMapIterator: is("Map Iterator"), isSetIterator: is("Set Iterator"),
        isNumberObject: is("Number"), isStringObject: is("String"), isBooleanObject: is("Boolean"),
        isSymbolObject: is("Symbol"), isBigIntObject: is("BigInt"),
        isBoxedPrimitive: is("Number", "String", "Boolean", "Symbol", "BigInt"),
        isTypedArray(value) { return typeof value === "object" && value !== null && TaSymbolToStringTag(value) !== undefined; },
        isArrayBufferView(value) { return P.isView(value); },
        isExternal() { return false; },
    };
    for (const name of ["Uint8Array", "Uint8ClampedArray", "Int8Array", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
        "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array"]) {
        types[`is${name}`] = is(name);
    }

    // ---- deep equality -----------------------------------------------------------------------

    function ownEnumerable(value) {
        const keys = ObjKeys(value), symbols = ObjGetOwnPropertySymbols(value);
        for (let i = 0; i < symbols.length; i++) {
            if (ObjPropertyIsEnumerable(value, symbols[i])) append(keys, symbols[i]);
        }
        return keys;
    }

    const BOXES = { __proto__: null, Number: NumValueOf, String: StrValueOf, Boolean: BoolValueOf, BigInt: BigValueOf, Symbol: SymValueOf };

    function looselySame(a, b) {
        // eslint-disable-next-line eqeqeq
        return a == b || (a !== a && b !== b);
    }

    function same(a, b, isStrict, seen) {
        if (a === b) return a !== 0 || !isStrict || ObjIs(a, b);
        const isObjectA = typeof a === "object" && a !== null, isObjectB = typeof b === "object" && b !== null;
        if (isStrict) {
            if (!isObjectA || !isObjectB) return typeof a === "number" && a !== a && b !== b;
            if (ObjGetPrototypeOf(a) !== ObjGetPrototypeOf(b)) return false;
        } else {
            if (!isObjectA || !isObjectB) {
                return (!isObjectA && typeof a !== "function") && (!isObjectB && typeof b !== "function") && looselySame(a, b);
            }
        }
        const kind = own_kind(a);
        if (kind !== own_kind(b)) return false;
        if (!sameInside(a, b, kind, isStrict, seen)) return false;
        return sameContents(a, b, kind, isStrict, seen);
    }

    function sameInside(a, b, kind, isStrict) {
        if (kind === "Array") return a.length === b.length;
        if (kind === "Date") return ObjIs(DateGetTime(a), DateGetTime(b));
        if (kind === "RegExp") return ReSource(a) === ReSource(b) && ReFlags(a) === ReFlags(b) && a.lastIndex === b.lastIndex;
        if (kind === "Error" || kind === "DOMException") {
            return a.message === b.message && a.name === b.name;
        }
        if (BOXES[kind]) return ObjIs(BOXES[kind](a), BOXES[kind](b));
        if (isBuffer(a) || kind === "DataView") return native.compare(bytesOf(a), bytesOf(b)) === 0;
        if (TaSymbolToStringTag(a) !== undefined) {
            if (TaLength(a) !== TaLength(b)) return false;
            if (matches(/^Float/, kind)) {
                for (let i = 0; i < a.length; i++) {
                    if (isStrict ? !ObjIs(a[i], b[i]) : a[i] !== b[i]) return false;
                }
                return true;
            }
            return native.compare(a, b) === 0;
        }
        if (kind === "Map") return MapSize(a) === MapSize(b);
        if (kind === "Set") return SetSize(a) === SetSize(b);
        if (kind === "Promise" || kind === "WeakMap" || kind === "WeakSet") return false;
        return true;
    }

    function sameContents(a, b, kind, isStrict, seen) {
        let keysA = isStrict ? ownEnumerable(a) : ObjKeys(a), keysB = isStrict ? ownEnumerable(b) : ObjKeys(b);
        if (TaSymbolToStringTag(a) !== undefined) {
            keysA = ArrSlice(keysA, TaLength(a));
            keysB = ArrSlice(keysB, TaLength(b));
        }
        if (keysA.length !== keysB.length) return false;
        for (let i = 0; i < keysA.length; i++) {
            if (!ObjPropertyIsEnumerable(b, keysA[i])) return false;
        }
        if (seen === undefined) {
            seen = { __proto__: null, a: new Map(), b: new Map(), depth: 0 };
        } else if (MapHas(seen.a, a)) {
            const at = MapGet(seen.a, a);
            return at === MapGet(seen.b, b);
        }
        MapSet(seen.a, a, ++seen.depth);
        MapSet(seen.b, b, seen.depth);
        let isSame = true;
        if (kind === "Set") isSame = sameSets(a, b, isStrict, seen);
        else if (kind === "Map") isSame = sameMaps(a, b, isStrict, seen);
        for (let i = 0; isSame && i < keysA.length; i++) isSame = same(a[keysA[i]], b[keysA[i]], isStrict, seen);
        if (isSame && (kind === "Error" || kind === "DOMException") && isStrict) {
            for (const key of ["cause", "errors"]) {
                if (ObjHasOwnProperty(a, key) !== ObjHasOwnProperty(b, key) || !same(a[key], b[key], isStrict, seen)) isSame = false;
            }
        }
        P.MapDelete(seen.a, a);
        P.MapDelete(seen.b, b);
        return isSame;
    }

    function sameSets(a, b, isStrict, seen) {
        const left = [];
        SetForEach(a, (item) => {
            if (!SetHas(b, item)) append(left, item);
        });
        if (left.length === 0) return true;
        const right = [];
        SetForEach(b, (item) => {
            if (!SetHas(a, item)) append(right, item);
        });
        return paired(left, right, (x, y) => same(x, y, isStrict, seen));
    }

    function sameMaps(a, b, isStrict, seen) {
        const left = [], right = [];
        let isSame = true;
        MapForEach(a, (value, key) => {
            if (MapHas(b, key)) {
                if (isSame && !same(value, MapGet(b, key), isStrict, seen)) isSame = false;
            } else {
                append(left, [key, value]);
            }
        });
        if (!isSame || left.length === 0) return isSame;
        MapForEach(b, (value, key) => {
            if (!MapHas(a, key)) append(right, [key, value]);
        });
        return paired(left, right, (x, y) => same(x[0], y[0], isStrict, seen) && same(x[1], y[1], isStrict, seen));
    }

    function paired(left, right, isPair) {
        if (left.length !== right.length) return false;
        for (let i = 0; i < left.length; i++) {
            let at = 0;
            while (at < right.length && !isPair(left[i], right[at])) at++;
            if (at === right.length) return false;
            P.ArrSplice(right, at, 1);
        }
        return true;
    }

    share.deepEqual = (a, b, isStrict) => same(a, b, isStrict, undefined);

    // ---- the rest ----------------------------------------------------------------------------

    const ANSI = /\u001b\[[0-9;]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g;
    const COLORS = { __proto__: null, ...inspect.colors, reset: [0, 0], dim: [2, 22], italic: [3, 23], inverse: [7, 27], hidden: [8, 28],
        strikethrough: [9, 29], black: [30, 39], white: [37, 39], grey: [90, 39], redBright: [91, 39], greenBright: [92, 39],
        yellowBright: [93, 39], blueBright: [94, 39], magentaBright: [95, 39], cyanBright: [96, 39], whiteBright: [97, 39],
        bgRed: [41, 49], bgGreen: [42, 49], bgYellow: [43, 49], bgBlue: [44, 49], bgMagenta: [45, 49], bgCyan: [46, 49],
        bgBlack: [40, 49], bgWhite: [47, 49] };

    function inherits(constructor, above) {
        needFunction(constructor, "ctor");
        needFunction(above, "superCtor");
        P.ObjDefineProperty(constructor, "super_", { __proto__: null, value: above, writable: true, configurable: true });
        ObjSetPrototypeOf(constructor.prototype, above.prototype);
    }

    function deprecate(original, message, code) {
        let isWarned = false;
        return function (...args) {
            if (!isWarned) {
                isWarned = true;
                share.print("error", `DeprecationWarning: ${message}`);
            }
            return new.target ? P.ReflectConstruct(original, args, new.target) : apply(original, this, args);
        };
    }

    function parseArgs(given = {}) {
        const args = given.args || ArrSlice(share.process.argv, 2), options = given.options || {};
        const values = P.ObjCreate(null), positionals = [];
        const isStrict = given.strict !== false;
        const byShort = { __proto__: null };
        for (const name of ObjKeys(options)) {
            if (options[name].short) byShort[options[name].short] = name;
            if (options[name].default !== undefined) values[name] = options[name].default;
        }
        const seen = { __proto__: null };
        const put = (name, value, raw) => {
            const option = options[name];
            if (option === undefined && isStrict) {
                throw share.codeError(TypeError, "ERR_PARSE_ARGS_UNKNOWN_OPTION", `Unknown option '${raw}'`);
            }
            if (option && option.multiple) {
                if (!seen[name]) values[name] = [];
                append(values[name], value);
            } else {
                values[name] = value;
            }
            seen[name] = true;
        };
        for (let i = 0; i < args.length; i++) {
            const arg = args[i];
            if (arg === "--") {
                for (i++; i < args.length; i++) append(positionals, args[i]);
            } else if (StrStartsWith(arg, "--") || (arg.length === 2 && arg[0] === "-")) {
                const equals = P.StrIndexOf(arg, "=");
                const name = arg[1] === "-" ? StrSlice(arg, 2, equals < 0 ? undefined : equals) : byShort[arg[1]] || arg[1];
                const isText = options[name] !== undefined && options[name].type === "string";
                if (equals >= 0) {
                    put(name, StrSlice(arg, equals + 1), arg);
                } else if (isText) {
                    if (i + 1 >= args.length) {
                        throw share.codeError(TypeError, "ERR_PARSE_ARGS_INVALID_OPTION_VALUE", `Option '--${name} <value>' argument missing`);
                    }
                    put(name, args[++i], arg);
                } else {
                    put(name, true, arg);
                }
            } else {
                if (isStrict && given.allowPositionals !== true && given.args === undefined) {
                    throw share.codeError(TypeError, "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL", `Unexpected argument '${arg}'. This command does not take positional arguments`);
                }
                append(positionals, arg);
            }
        }
        return { values, positionals };
    }

    const util = {
        promisify, callbackify, inspect, types, inherits, deprecate, parseArgs,
        format(...args) { return formatWithOptions(undefined, args); },
        formatWithOptions(options, ...args) {
            if (typeof options !== "object" || options === null) throw share.wrongType("inspectOptions", "object", options);
            return formatWithOptions(options, args);
        },
        isDeepStrictEqual(a, b) { return share.deepEqual(a, b, true); },
        stripVTControlCharacters(text) { return replaceAll(ANSI, share.needString(text, "str"), () => ""); },
        styleText(format, text) {
            const names = ArrIsArray(format) ? format : [format];
            let open = "", close = "";
            for (let i = 0; i < names.length; i++) {
                const code = COLORS[names[i]];
                if (code === undefined) throw share.wrongValue("format", names[i], "must be one of the known styles");
                open += `\u001b[${code[0]}m`;
                close = `\u001b[${code[1]}m${close}`;
            }
            return open + text + close;
        },
        toUSVString(value) { return P.StrToWellFormed(`${value}`); },
        debuglog() {
            const log = () => {};
            log.enabled = false;
            return log;
        },
        getSystemErrorName(number) {
            for (const name in share.errorNumbers) if (share.errorNumbers[name] === number) return name;
            return `Unknown system error ${number}`;
        },
        aborted(signal) {
            const wait = P.deferred();
            if (signal.aborted) wait.resolve(undefined);
            else signal.addEventListener("abort", () => wait.resolve(undefined), { once: true });
            return wait.promise;
        },
        TextEncoder: share.TextEncoder,
        TextDecoder: share.TextDecoder,
        isArray: ArrIsArray,
        isRegExp: types.isRegExp,
        isDate: types.isDate,
        isError: types.isNativeError,
        isString(value) { return typeof value === "string"; },
        isNumber(value) { return typeof value === "number"; },
        isBoolean(value) { return typeof value === "boolean"; },
        isFunction(value) { return typeof value === "function"; },
        isObject(value) { return typeof value === "object" && value !== null; },
        isUndefined(value) { return value === undefined; },
        isNull(value) { return value === null; },
        isPrimitive(value) { return value === null || (typeof value !== "object" && typeof value !== "function"); },
    };
    util.debug = util.debuglog;
    share.util = util;
    share.promisify = promisify;
    share.builtins.util = util;
    share.builtins.sys = util;
    share.builtins["util/types"] = types;
})
