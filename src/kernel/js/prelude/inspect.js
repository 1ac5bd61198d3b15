// Values as text, the way Node's util.inspect shows them: what the console prints and what a run
// gives as its result. The rules of layout (entries on one line up to 72 characters, arrays in
// columns, depth 2) are Node's, checked against it case by case in the tests. It asks the engine
// what a value is, so that no prototype can pretend; it must never run a getter unless asked to.
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { own_kind, proxy_parts, promise_state } = native;
    const { ArrJoin, ArrIsArray, ArrIncludes, ArrIndexOf, ArrSplice, ArrUnshift, ArrSort, ArrPop, append,
        StrSlice, StrIncludes, StrIndexOf, StrStartsWith, StrEndsWith, StrSplit, StrRepeat, StrPadStart,
        StrPadEnd, StrCharCodeAt, StrToUpperCase, NumToString, BigToString, SymToString, SymDescription,
        ObjKeys, ObjGetOwnPropertyNames, ObjGetOwnPropertySymbols, ObjGetOwnPropertyDescriptor,
        ObjGetPrototypeOf, ObjHasOwnProperty, ObjPropertyIsEnumerable, ObjIs, FnToString, DateToISOString,
        DateGetTime, DateToString, ReToString, ErrToString, MapForEach, SetForEach, MapSize, SetSize,
        MapGet, MapSet, TaLength, BufByteLength, MathMin, MathMax, MathRound, MathSqrt, MathFloor,
        matches, replaceAll, ReExec, FnSymbolHasInstance, NumIsNaN, NumIsInteger, NumValueOf, StrValueOf,
        BoolValueOf, BigValueOf, SymValueOf, Map, RegExp, String, Error, hide, apply, MathAbs, MathTrunc } = P;

    const custom = P.SymFor("nodejs.util.inspect.custom");
    const OBJECT = 0, ELEMENT = 1, EXTRA = 2; // kinds of property: of an object, of a list, beside a list
    const PLAIN_KEY = /^[a-zA-Z_][a-zA-Z_0-9]*$/;
    const CLASS_HEAD = /^(\s+[^(]*?)\s*\{/;
    const COMMENTS = /(\/\/.*?\n)|(\/\*(.|\n)*?\*\/)/g;

    const defaults = {
        showHidden: false, depth: 2, colors: false, customInspect: true, showProxy: false,
        maxArrayLength: 100, maxStringLength: 10000, breakLength: 80, compact: 3, sorted: false,
        getters: false, numericSeparator: false,
    };
    const OPTIONS = ObjKeys(defaults);
    const STYLES = {
        __proto__: null, special: [36, 39], number: [33, 39], bigint: [33, 39], boolean: [33, 39],
        undefined: [90, 39], null: [1, 22], string: [32, 39], symbol: [32, 39], date: [35, 39],
        regexp: [31, 39], module: [4, 24],
    };

    function style(ctx, text, kind) {
        const code = ctx.colors ? STYLES[kind] : undefined;
        return code === undefined ? text : `\u001b[${code[0]}m${text}\u001b[${code[1]}m`;
    }

    // ---- strings -----------------------------------------------------------------------------

    const ODD = /[\x00-\x1f'\\\x7f-\x9f\ud800-\udfff]/;
    const SHORT = { __proto__: null, 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 39: "\\'",
        92: "\\\\" };

    function escaped(text, quoteCode) {
        let out = "", from = 0;
        for (let i = 0; i < text.length; i++) {
            const code = StrCharCodeAt(text, i);
            let instead;
            if (code === quoteCode || code === 92) {
                instead = code === 39 ? "\\'" : "\\\\";
            } else if (code < 32) {
                instead = SHORT[code] || "\\x" + StrPadStart(StrToUpperCase(NumToString(code, 16)), 2, "0");
            } else if (code >= 127 && code <= 159) {
                instead = "\\x" + StrToUpperCase(NumToString(code, 16));
            } else if (code >= 0xd800 && code <= 0xdfff) {
                const next = i + 1 < text.length ? StrCharCodeAt(text, i + 1) : 0;
                if (code < 0xdc00 && next >= 0xdc00 && next <= 0xdfff) {
                    i++;
                    continue;
                }
                instead = "\\u" + NumToString(code, 16);
            } else {
                continue;
            }
            out += StrSlice(text, from, i) + instead;
            from = i + 1;
        }
        return from === 0 ? text : out + StrSlice(text, from);
    }

    // Single quotes, unless others need less escaping.
    function quoted(text) {
        if (!matches(ODD, text)) return `'${text}'`;
        if (!StrIncludes(text, "'")) return `'${escaped(text, 39)}'`;
        if (!StrIncludes(text, '"')) return `"${escaped(text, 92)}"`;
        if (!StrIncludes(text, "`") && !StrIncludes(text, "${")) return "`" + escaped(text, 92) + "`";
        return `'${escaped(text, 39)}'`;
    }

    function stringText(ctx, value) {
        let rest = "";
        if (value.length > ctx.maxStringLength) {
            const left = value.length - ctx.maxStringLength;
            rest = `... ${left} more character${left > 1 ? "s" : ""}`;
            value = StrSlice(value, 0, ctx.maxStringLength);
        }
        if (ctx.compact !== true && value.length > 16 &&
            value.length > ctx.breakLength - ctx.indent - 4 && StrIncludes(value, "\n")) {
            const lines = StrSplit(value, "\n");
            let out = "";
            for (let i = 0; i < lines.length; i++) {
                const last = i === lines.length - 1;
                if (last && lines[i] === "") break;
                if (i > 0) out += ` +\n${StrRepeat(" ", ctx.indent + 2)}`;
                out += style(ctx, quoted(last ? lines[i] : lines[i] + "\n"), "string");
            }
            return out + rest;
        }
        return style(ctx, quoted(value), "string") + rest;
    }

    function withSeparators(digits) {
        let out = "", i = digits.length;
        const stop = digits[0] === "-" ? 1 : 0;
        for (; i >= stop + 4; i -= 3) out = "_" + StrSlice(digits, i - 3, i) + out;
        return StrSlice(digits, 0, i) + out;
    }

    function numberText(ctx, value) {
        let text = ObjIs(value, -0) ? "-0" : String(value);
        if (ctx.numericSeparator && MathAbs(value) < 1e21 && !StrIncludes(text, "e")) {
            const parts = StrSplit(text, ".");
            text = withSeparators(parts[0]);
            if (parts.length > 1) {
                text += ".";
                for (let i = 0; i < parts[1].length; i += 3) text += (i ? "_" : "") + StrSlice(parts[1], i, i + 3);
            }
        }
        return style(ctx, text, "number");
    }

    function bigText(ctx, value) {
        const text = BigToString(value);
        return style(ctx, (ctx.numericSeparator ? withSeparators(text) : text) + "n", "bigint");
    }

    function symbolText(value) {
        const text = SymDescription(value);
        return text === undefined ? "Symbol()" : `Symbol(${text})`;
    }

    function primitive(ctx, value) {
        switch (typeof value) {
        case "string": return stringText(ctx, value);
        case "number": return numberText(ctx, value);
        case "bigint": return bigText(ctx, value);
        case "boolean": return style(ctx, value ? "true" : "false", "boolean");
        case "undefined": return style(ctx, "undefined", "undefined");
        default: return style(ctx, symbolText(value), "symbol");
        }
    }

    // ---- names -------------------------------------------------------------------------------

    function isMadeBy(value, constructor) {
        try {
            return apply(FnSymbolHasInstance, undefined, [constructor, value]);
        } catch {
            return false;
        }
    }

    // The name of the constructor; null where the value has no prototype at all.
    function constructorName(value, ctx, depth) {
        let first;
        for (let at = value; at !== null && at !== undefined;) {
            const found = ObjGetOwnPropertyDescriptor(at, "constructor");
            if (found !== undefined && typeof found.value === "function") {
                const name = ownName(found.value);
                if (name !== "" && isMadeBy(value, found.value)) return name;
            }
            at = ObjGetPrototypeOf(at);
            if (first === undefined) first = at;
        }
        if (first === null) return null;
        const kind = own_kind(value);
        if (depth > ctx.depth && ctx.depth !== null) return `${kind} <Complex prototype>`;
        const above = constructorName(first, ctx, depth + 1);
        if (above === null) {
            return `${kind} <${inspect(first, { ...ctx.given, customInspect: false, depth: -1 })}>`;
        }
        return `${kind} <${above}>`;
    }

    function ownName(constructor) {
        const found = ObjGetOwnPropertyDescriptor(constructor, "name");
        return found !== undefined && typeof found.value === "string" ? found.value : "";
    }

    function prefixOf(constructor, tag, fallback, size) {
        const count = size === undefined ? "" : `(${size})`;
        if (constructor === null) {
            const head = `[${fallback}${count}: null prototype] `;
            return tag !== "" && fallback !== tag ? `${head}[${tag}] ` : head;
        }
        if (tag !== "" && constructor !== tag) return `${constructor}${count} [${tag}] `;
        return `${constructor}${count} `;
    }

    function shownKeys(value, ctx) {
        const symbols = ObjGetOwnPropertySymbols(value);
        if (ctx.showHidden) {
            const names = ObjGetOwnPropertyNames(value);
            for (let i = 0; i < symbols.length; i++) append(names, symbols[i]);
            return names;
        }
        const keys = ObjKeys(value);
        for (let i = 0; i < symbols.length; i++) {
            if (ObjPropertyIsEnumerable(value, symbols[i])) append(keys, symbols[i]);
        }
        return keys;
    }

    const INDEX = /^(0|[1-9][0-9]*)$/;

    // The keys beside the elements. Indices come first in the order of keys.
    function keysBeside(value, ctx) {
        const keys = shownKeys(value, ctx), out = [];
        for (let i = 0; i < keys.length; i++) {
            if (typeof keys[i] === "symbol" || !(matches(INDEX, keys[i]) && +keys[i] < 4294967295)) {
                append(out, keys[i]);
            }
        }
        return out;
    }

    function functionBase(value, constructor, tag, kind) {
        const source = FnToString(value);
        if (StrStartsWith(source, "class") && StrEndsWith(source, "}")) {
            const body = StrSlice(source, 5, -1);
            const brace = StrIndexOf(body, "{");
            if (brace !== -1 && (!StrIncludes(StrSlice(body, 0, brace), "(") ||
                matches(CLASS_HEAD, replaceAll(COMMENTS, body, () => "")))) {
                return classBase(value, constructor, tag);
            }
        }
        const type = kind === "AsyncFunction" || kind === "GeneratorFunction" ||
            kind === "AsyncGeneratorFunction" ? kind : "Function";
        let base = `[${type}`;
        if (constructor === null) base += " (null prototype)";
        const name = value.name;
        base += name === "" || typeof name !== "string" ? " (anonymous)" : `: ${name}`;
        base += "]";
        if (constructor !== type && constructor !== null && constructor !== "Function") base += ` ${constructor}`;
        if (tag !== "" && constructor !== tag) base += ` [${tag}]`;
        return base;
    }

    function classBase(value, constructor, tag) {
        let base = `class ${(ObjHasOwnProperty(value, "name") && value.name) || "(anonymous)"}`;
        if (constructor !== "Function" && constructor !== null) base += ` [${constructor}]`;
        if (tag !== "" && constructor !== tag) base += ` [${tag}]`;
        if (constructor !== null) {
            const above = ObjGetPrototypeOf(value);
            const name = typeof above === "function" ? above.name : "";
            if (name) base += ` extends ${name}`;
        } else {
            base += " extends null";
        }
        return `[${base}]`;
    }

    // ---- errors ------------------------------------------------------------------------------

    function betterName(stack, constructor, name, tag) {
        const length = name.length;
        if (constructor !== null && !(StrEndsWith(name, "Error") && StrStartsWith(stack, name) &&
            (stack.length === length || stack[length] === ":" || stack[length] === "\n"))) {
            return stack;
        }
        if (constructor === null) {
            const start = ReExec(/^([A-Z][a-z_ A-Z0-9[\]()-]+)(?::|\n\s+at)/, stack) ||
                ReExec(/^([a-z_A-Z0-9-]*Error)$/, stack);
            const fallback = (start && start[1]) || "";
            return prefixTrimmed(null, tag, fallback || "Error") +
                StrSlice(stack, fallback.length);
        }
        const made = prefixTrimmed(constructor, tag, "Error");
        if (made === name) return stack;
        if (StrIncludes(made, name)) {
            return length === 0 ? `${made}: ${stack}` : made + StrSlice(stack, length);
        }
        return `${made} [${name}]${StrSlice(stack, length)}`;
    }

    function prefixTrimmed(constructor, tag, fallback) {
        return StrSlice(prefixOf(constructor, tag, fallback), 0, -1);
    }

    function errorBase(error, constructor, tag, ctx, keys) {
        const name = error.name === undefined || error.name === null ? "Error" : String(error.name);
        let stack = error.stack ? String(error.stack) : ErrToString(error);
        if (!ctx.showHidden) {
            const usual = ["name", "message", "stack"];
            for (let i = 0; i < 3; i++) {
                const at = ArrIndexOf(keys, usual[i]);
                const said = at === -1 ? "" : error[usual[i]];
                if (at !== -1 && (typeof said !== "string" || StrIncludes(stack, said))) ArrSplice(keys, at, 1);
            }
        }
        if ("cause" in error && !ArrIncludes(keys, "cause")) append(keys, "cause");
        if (ArrIsArray(error.errors) && !ArrIncludes(keys, "errors")) append(keys, "errors");
        stack = betterName(stack, constructor, name, tag);
        let from = typeof error.message === "string" && error.message !== ""
            ? StrIndexOf(stack, error.message) : -1;
        if (from !== -1) from += error.message.length;
        const at = StrIndexOf(stack, "\n    at", from < 0 ? 0 : from);
        if (at === -1) stack = `[${stack}]`;
        if (ctx.indent !== 0) stack = ArrJoin(StrSplit(stack, "\n"), `\n${StrRepeat(" ", ctx.indent)}`);
        return stack;
    }

    // ---- contents of each kind ---------------------------------------------------------------

    function more(left) {
        return `... ${left} more item${left > 1 ? "s" : ""}`;
    }

    function arrayEntries(ctx, value, depth) {
        const out = [];
        const limit = MathMin(MathMax(0, ctx.maxArrayLength), value.length);
        for (let i = 0; i < limit; i++) {
            if (!ObjHasOwnProperty(value, i)) return sparseEntries(ctx, value, depth, limit, out, i);
            append(out, property(ctx, value, depth, i, ELEMENT));
        }
        if (value.length > limit) append(out, more(value.length - limit));
        return out;
    }

    // With holes: each run of them counts as one entry.
    function sparseEntries(ctx, value, depth, limit, out, from) {
        const keys = ObjKeys(value);
        let index = from, left = value.length;
        for (let i = from; i < keys.length && out.length < limit; i++) {
            const key = keys[i];
            if (!matches(INDEX, key) || +key > 4294967294) break;
            if (`${index}` !== key) {
                const holes = +key - index;
                append(out, style(ctx, `<${holes} empty item${holes > 1 ? "s" : ""}>`, "undefined"));
                index = +key;
                if (out.length === limit) break;
            }
            append(out, property(ctx, value, depth, key, ELEMENT));
            index++;
        }
        left = value.length - index;
        if (out.length !== limit) {
            if (left > 0) append(out, style(ctx, `<${left} empty item${left > 1 ? "s" : ""}>`, "undefined"));
        } else if (left > 0) {
            append(out, more(left));
        }
        return out;
    }

    function typedEntries(ctx, value, length) {
        const out = [];
        const limit = MathMin(MathMax(0, ctx.maxArrayLength), length);
        for (let i = 0; i < limit; i++) {
            append(out, typeof value[i] === "bigint" ? bigText(ctx, value[i]) : numberText(ctx, value[i]));
        }
        if (length > limit) append(out, more(length - limit));
        return out;
    }

    function setEntries(ctx, value, depth) {
        const out = [], limit = MathMin(MathMax(0, ctx.maxArrayLength), SetSize(value));
        ctx.indent += 2;
        SetForEach(value, (item) => {
            if (out.length < limit) append(out, format(ctx, item, depth));
        });
        if (SetSize(value) > limit) append(out, more(SetSize(value) - limit));
        ctx.indent -= 2;
        return out;
    }

    function mapEntries(ctx, value, depth) {
        const out = [], limit = MathMin(MathMax(0, ctx.maxArrayLength), MapSize(value));
        ctx.indent += 2;
        MapForEach(value, (item, key) => {
            if (out.length < limit) append(out, `${format(ctx, key, depth)} => ${format(ctx, item, depth)}`);
        });
        if (MapSize(value) > limit) append(out, more(MapSize(value) - limit));
        ctx.indent -= 2;
        return out;
    }

    function bufferEntries(ctx, value, depth) {
        let bytes;
        try {
            bytes = P.bytesOf(value);
        } catch {
            return [style(ctx, "(detached)", "special")];
        }
        const shown = MathMin(MathMax(0, ctx.maxArrayLength), bytes.length);
        let text = native.hex_encode(bytes, 0, shown);
        let out = "";
        for (let i = 0; i < text.length; i += 2) out += (i ? " " : "") + StrSlice(text, i, i + 2);
        const left = bytes.length - shown;
        if (left > 0) out += ` ... ${left} more byte${left > 1 ? "s" : ""}`;
        return [`${style(ctx, "[Uint8Contents]", "special")}: <${out}>`];
    }

    function promiseEntries(ctx, value, depth) {
        const state = promise_state(value);
        if (state[0] === 0) return [style(ctx, "<pending>", "special")];
        ctx.indent += 2;
        const text = format(ctx, state[1], depth);
        ctx.indent -= 2;
        return [state[0] === 2 ? `${style(ctx, "<rejected>", "special")} ${text}` : text];
    }

    const BOXES = { __proto__: null, Number: NumValueOf, String: StrValueOf, Boolean: BoolValueOf,
        BigInt: BigValueOf, Symbol: SymValueOf };

    function boxBase(value, ctx, keys, constructor, tag, kind) {
        const inner = BOXES[kind](value);
        if (kind === "String") ArrSplice(keys, 0, value.length);
        let base = `[${kind}`;
        if (kind !== constructor) base += constructor === null ? " (null prototype)" : ` (${constructor})`;
        base += `: ${primitive({ ...ctx, colors: false, __proto__: null }, inner)}]`;
        if (tag !== "" && tag !== constructor) base += ` [${tag}]`;
        return base;
    }

    // What makes the text of a value: its base, its braces, how its entries are had.
    function shapeOf(ctx, value, depth, constructor, tag, kind) {
        const shape = { __proto__: null, base: "", open: "", close: "}", keys: undefined, entries: undefined,
            list: OBJECT, done: undefined };
        const size = kind === "Array" || TYPED[kind] ? TaOrLength(value, kind) : 0;
        if (kind === "Array") {
            shape.keys = keysBeside(value, ctx);
            const prefix = constructor !== "Array" || tag !== "" ? prefixOf(constructor, tag, "Array", size) : "";
            shape.open = `${prefix}[`;
            shape.close = "]";
            shape.list = EXTRA;
            shape.entries = arrayEntries;
            if (size === 0 && shape.keys.length === 0) shape.done = `${shape.open}]`;
            return shape;
        }
        if (TYPED[kind]) {
            shape.keys = keysBeside(value, ctx);
            shape.open = `${prefixOf(constructor, tag, constructor === null ? kind : "", size)}[`;
            shape.close = "]";
            shape.list = EXTRA;
            shape.entries = (c, v) => typedEntries(c, v, size);
            if (size === 0 && shape.keys.length === 0) shape.done = `${shape.open}]`;
            return shape;
        }
        shape.keys = shownKeys(value, ctx);
        const none = shape.keys.length === 0;
        if (kind === "Set" || kind === "Map") {
            const count = kind === "Set" ? SetSize(value) : MapSize(value);
            shape.open = `${prefixOf(constructor, tag, kind, count)}{`;
            shape.entries = kind === "Set" ? setEntries : mapEntries;
            if (count === 0 && none) shape.done = `${shape.open}}`;
        } else if (kind === "Arguments") {
            shape.open = "[Arguments] {";
            if (none) shape.done = `${shape.open}}`;
        } else if (typeof value === "function") {
            shape.base = functionBase(value, constructor, tag, kind);
            shape.open = "{";
            if (none) shape.done = style(ctx, shape.base, "special");
        } else if (kind === "RegExp") {
            shape.base = style(ctx, (constructor === "RegExp" && tag === "" ? ""
                : prefixOf(constructor, tag, "RegExp")) + ReToString(value), "regexp");
            shape.open = "{";
            if (none || (depth > ctx.depth && ctx.depth !== null)) shape.done = shape.base;
        } else if (kind === "Date") {
            const text = NumIsNaN(DateGetTime(value)) ? DateToString(value) : DateToISOString(value);
            shape.base = style(ctx, (constructor === "Date" && tag === "" ? ""
                : prefixOf(constructor, tag, "Date")) + text, "date");
            shape.open = "{";
            if (none) shape.done = shape.base;
        } else if (kind === "Error" || kind === "DOMException") {
            shape.base = errorBase(value, constructor, tag, ctx, shape.keys);
            shape.open = "{";
            if (shape.keys.length === 0) shape.done = shape.base;
        } else if (kind === "ArrayBuffer" || kind === "SharedArrayBuffer") {
            shape.open = `${prefixOf(constructor, tag, kind)}{`;
            shape.entries = bufferEntries;
            ArrUnshift(shape.keys, "byteLength");
        } else if (kind === "DataView") {
            shape.open = `${prefixOf(constructor, tag, kind)}{`;
            ArrUnshift(shape.keys, "byteLength", "byteOffset", "buffer");
        } else if (kind === "Promise") {
            shape.open = `${prefixOf(constructor, tag, kind)}{`;
            shape.entries = promiseEntries;
        } else if (kind === "WeakSet" || kind === "WeakMap") {
            shape.open = `${prefixOf(constructor, tag, kind)}{`;
            shape.entries = () => [style(ctx, "<items unknown>", "special")];
        } else if (kind === "Module" || tag === "Module") {
            shape.open = "[Module: null prototype] {";
            shape.entries = undefined;
        } else if (BOXES[kind]) {
            shape.base = style(ctx, boxBase(value, ctx, shape.keys, constructor, tag, kind), OBJECT);
            shape.open = "{";
            if (shape.keys.length === 0) shape.done = shape.base;
        } else {
            const isPlain = constructor === "Object" && tag === "";
            shape.open = isPlain ? "{" : `${prefixOf(constructor, tag, "Object")}{`;
            if (none) shape.done = `${shape.open}}`;
        }
        return shape;
    }

    const TYPED = { __proto__: null };
    const typedNames = ["Uint8Array", "Uint8ClampedArray", "Int8Array", "Int16Array", "Uint16Array",
        "Int32Array", "Uint32Array", "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array",
        "Float64Array"];
    for (let i = 0; i < typedNames.length; i++) TYPED[typedNames[i]] = true;

    function TaOrLength(value, kind) {
        return kind === "Array" ? value.length : TaLength(value);
    }

    // ---- one value ---------------------------------------------------------------------------

    function format(ctx, value, depth) {
        if (typeof value !== "object" && typeof value !== "function") return primitive(ctx, value);
        if (value === null) return style(ctx, "null", "null");
        const given = value;
        for (let parts; (parts = proxy_parts(value)) !== undefined;) {
            if (ctx.showProxy) return proxyText(ctx, parts, depth);
            if (parts[0] === null) return "<Revoked Proxy>";
            value = parts[0];
        }
        if (ctx.customInspect) {
            const own = value[custom];
            if (typeof own === "function" && own !== inspect &&
                !(value.constructor && value.constructor.prototype === value)) {
                const said = apply(own, given, [ctx.depth === null ? null : ctx.depth - depth,
                    optionsFor(ctx), inspect]);
                if (said !== given) {
                    if (typeof said !== "object" || said === null) {
                        return typeof said === "string"
                            ? ArrJoin(StrSplit(said, "\n"), `\n${StrRepeat(" ", ctx.indent)}`)
                            : format(ctx, said, depth);
                    }
                    return format(ctx, said, depth);
                }
            }
        }
        for (let i = 0; i < ctx.seen.length; i++) {
            if (ctx.seen[i] !== value) continue;
            if (ctx.circular === undefined) ctx.circular = new Map();
            let index = MapGet(ctx.circular, value);
            if (index === undefined) {
                index = MapSize(ctx.circular) + 1;
                MapSet(ctx.circular, value, index);
            }
            return style(ctx, `[Circular *${index}]`, "special");
        }
        return formatObject(ctx, value, depth);
    }

    function formatObject(ctx, value, depth) {
        const kind = own_kind(value);
        const constructor = constructorName(value, ctx, depth);
        let tag = value[Symbol.toStringTag];
        if (typeof tag !== "string" || (tag !== "" &&
            (ctx.showHidden ? ObjHasOwnProperty : ObjPropertyIsEnumerable)(value, Symbol.toStringTag))) {
            tag = "";
        }
        const shape = shapeOf(ctx, value, depth, constructor, tag, kind);
        if (shape.done !== undefined) return shape.done;
        if (depth > ctx.depth && ctx.depth !== null) {
            const name = prefixTrimmed(constructor, tag, kind === "Array" ? "Array" : "Object");
            return style(ctx, constructor === null ? name : `[${name}]`, "special");
        }
        depth++;
        append(ctx.seen, value);
        ctx.reached = depth;
        const out = shape.entries === undefined ? [] : shape.entries(ctx, value, depth);
        for (let i = 0; i < shape.keys.length; i++) {
            append(out, property(ctx, value, depth, shape.keys[i], shape.list));
        }
        let { base, open } = shape;
        if (ctx.circular !== undefined) {
            const index = MapGet(ctx.circular, value);
            if (index !== undefined) {
                const mark = style(ctx, `<ref *${index}>`, "special");
                if (ctx.compact !== true) base = base === "" ? mark : `${mark} ${base}`;
                else open = `${mark} ${open}`;
            }
        }
        ArrPop(ctx.seen);
        if (ctx.sorted && shape.list === OBJECT) {
            ArrSort(out, typeof ctx.sorted === "function" ? ctx.sorted : undefined);
        }
        return layOut(ctx, out, base, open, shape.close, shape.list, depth, value);
    }

    function proxyText(ctx, parts, depth) {
        if (depth > ctx.depth && ctx.depth !== null) return style(ctx, "Proxy [Array]", "special");
        depth++;
        ctx.indent += 2;
        const out = [format(ctx, parts[0], depth), format(ctx, parts[1], depth)];
        ctx.indent -= 2;
        ctx.reached = depth;
        return layOut(ctx, out, "", "Proxy [", "]", EXTRA, depth, undefined);
    }

    function keyText(ctx, key, isHidden) {
        if (typeof key === "symbol") return `[${style(ctx, escaped(symbolText(key), 39), "symbol")}]`;
        if (key === "__proto__") return "['__proto__']";
        if (isHidden) return `[${escaped(key, 39)}]`;
        return matches(PLAIN_KEY, key) ? key : style(ctx, quoted(key), "string");
    }

    function property(ctx, value, depth, key, list) {
        const found = ObjGetOwnPropertyDescriptor(value, key) ||
            { __proto__: null, value: value[key], configurable: true, enumerable: true };
        let text, gap = " ";
        if (found.value !== undefined) {
            const step = ctx.compact !== true || list !== OBJECT ? 2 : 3;
            ctx.indent += step;
            text = format(ctx, found.value, depth);
            if (step === 3 && ctx.breakLength < text.length) gap = `\n${StrRepeat(" ", ctx.indent)}`;
            ctx.indent -= step;
        } else if (found.get !== undefined) {
            text = getterText(ctx, value, key, found, depth);
        } else if (found.set !== undefined) {
            text = style(ctx, "[Setter]", "special");
        } else {
            text = style(ctx, "undefined", "undefined");
        }
        if (list === ELEMENT) return text;
        return `${keyText(ctx, key, found.enumerable === false)}:${gap}${text}`;
    }

    function getterText(ctx, value, key, found, depth) {
        const label = found.set !== undefined ? "Getter/Setter" : "Getter";
        if (!(ctx.getters === true || (ctx.getters === "get" && found.set === undefined) ||
            (ctx.getters === "set" && found.set !== undefined))) {
            return style(ctx, `[${label}]`, "special");
        }
        try {
            const got = apply(found.get, value, []);
            ctx.indent += 2;
            const text = got === null || typeof got !== "object"
                ? `${style(ctx, `[${label}:`, "special")} ${got === null ? "null" : format(ctx, got, depth)}${style(ctx, "]", "special")}`
                : `${style(ctx, `[${label}]`, "special")} ${format(ctx, got, depth)}`;
            ctx.indent -= 2;
            return text;
        } catch (error) {
            return style(ctx, `[${label}: <Inspection threw (${error && error.message})>]`, "special");
        }
    }

    // ---- layout ------------------------------------------------------------------------------

    function width(ctx, text) {
        return ctx.colors ? P.replaceAll(/\u001b\[\d\d?m/g, text, () => "").length : text.length;
    }

    function fits(ctx, out, start, base) {
        let total = out.length + start;
        if (total + out.length > ctx.breakLength) return false;
        for (let i = 0; i < out.length; i++) {
            total += width(ctx, out[i]);
            if (total > ctx.breakLength) return false;
        }
        return base === "" || !StrIncludes(base, "\n");
    }

    function layOut(ctx, out, base, open, close, list, depth, value) {
        const head = base ? `${base} ` : "";
        if (ctx.compact === true) {
            if (fits(ctx, out, 0, base)) {
                return `${open}${base ? ` ${base}` : ""} ${ArrJoin(out, ", ")} ${close}`;
            }
            const line = `\n${StrRepeat(" ", ctx.indent)}`;
            const after = base === "" && open.length === 1 ? " " : `${base ? ` ${base}` : ""}${line}  `;
            return `${open}${after}${ArrJoin(out, `,${line}  `)} ${close}`;
        }
        if (typeof ctx.compact === "number" && ctx.compact >= 1) {
            const count = out.length;
            if (list === EXTRA && count > 6) out = inColumns(ctx, out, value);
            // Up to `compact` inner levels share a line.
            if (ctx.reached - depth < ctx.compact && count === out.length) {
                const start = out.length + ctx.indent + open.length + base.length + 10;
                if (fits(ctx, out, start, base)) {
                    const joined = ArrJoin(out, ", ");
                    if (!StrIncludes(joined, "\n")) return `${head}${open} ${joined} ${close}`;
                }
            }
        }
        const line = `\n${StrRepeat(" ", ctx.indent)}`;
        return `${head}${open}${line}  ${ArrJoin(out, `,${line}  `)}${line}${close}`;
    }

    // More than six short entries go side by side, in columns of about a square.
    function inColumns(ctx, out, value) {
        const hasMore = value !== undefined && ctx.maxArrayLength < out.length;
        const count = hasMore ? out.length - 1 : out.length;
        const lengths = [];
        let total = 0, longest = 0;
        for (let i = 0; i < count; i++) {
            append(lengths, width(ctx, out[i]));
            total += lengths[i] + 2;
            if (lengths[i] > longest) longest = lengths[i];
        }
        const cell = longest + 2;
        if (!(cell * 3 + ctx.indent < ctx.breakLength && (total / cell > 5 || longest <= 6))) return out;
        const bias = MathMax(cell - 3 - MathSqrt(cell - total / out.length), 1);
        const columns = MathMin(MathRound(MathSqrt(2.5 * bias * count) / bias),
            MathFloor((ctx.breakLength - ctx.indent) / cell), ctx.compact * 4, 15);
        if (columns <= 1) return out;
        const widths = [];
        for (let column = 0; column < columns; column++) {
            let widest = 0;
            for (let i = column; i < count; i += columns) widest = MathMax(widest, lengths[i]);
            append(widths, widest + 2);
        }
        let isNumeric = value !== undefined;
        for (let i = 0; isNumeric && i < out.length; i++) {
            isNumeric = typeof value[i] === "number" || typeof value[i] === "bigint";
        }
        if (value === undefined) isNumeric = true;
        const rows = [];
        for (let i = 0; i < count; i += columns) {
            const end = MathMin(i + columns, count);
            let row = "";
            for (let j = i; j < end - 1; j++) {
                const room = widths[j - i] + out[j].length - lengths[j];
                row += isNumeric ? StrPadStart(`${out[j]}, `, room, " ") : StrPadEnd(`${out[j]}, `, room, " ");
            }
            if (isNumeric) {
                row += StrPadStart(out[end - 1], widths[end - 1 - i] + out[end - 1].length - lengths[end - 1] - 2, " ");
            } else {
                row += out[end - 1];
            }
            append(rows, row);
        }
        if (hasMore) append(rows, out[count]);
        return rows;
    }

    // ---- the way in --------------------------------------------------------------------------

    function newContext(given) {
        const ctx = { __proto__: null, seen: [], indent: 0, reached: 0, circular: undefined, given };
        for (let i = 0; i < OPTIONS.length; i++) {
            const name = OPTIONS[i];
            const said = given === undefined || given === null ? undefined : given[name];
            ctx[name] = said !== undefined ? said : defaults[name];
        }
        if (ctx.depth === Infinity) ctx.depth = null;
        if (ctx.maxArrayLength === null) ctx.maxArrayLength = Infinity;
        if (ctx.maxStringLength === null) ctx.maxStringLength = Infinity;
        return ctx;
    }

    function optionsFor(ctx) {
        const out = { ...ctx.given };
        for (let i = 0; i < OPTIONS.length; i++) out[OPTIONS[i]] = ctx[OPTIONS[i]];
        out.stylize = (text, kind) => style(ctx, `${text}`, kind);
        return out;
    }

    function inspect(value, options, showDepth, showColors) {
        if (typeof options === "boolean") options = { showHidden: options, depth: showDepth, colors: showColors };
        return format(newContext(options), value, 0);
    }

    hide(inspect, "custom", custom);
    inspect.custom = custom;
    inspect.defaultOptions = defaults;
    inspect.colors = { __proto__: null, bold: [1, 22], underline: [4, 24], red: [31, 39], green: [32, 39],
        yellow: [33, 39], blue: [34, 39], magenta: [35, 39], cyan: [36, 39], gray: [90, 39] };
    inspect.styles = { __proto__: null, number: "yellow", string: "green", symbol: "green", date: "magenta" };

    share.inspect = inspect;
    share.inspectCustom = custom;
    share.quoted = quoted;
    share.symbolText = symbolText;
})
