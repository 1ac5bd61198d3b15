// Intl for text, in English: Collator and localeCompare, ListFormat, RelativeTimeFormat, Segmenter,
// Locale. The order of letters is that of a dictionary: letters before case and accents.
(function (host, native, share) {
    "use strict";

    const { P, intl, Intl } = share;
    const { option, needLocales, english } = intl;
    const { append, StrNormalize, StrToLowerCase, StrToUpperCase, StrCharCodeAt, StrCodePointAt, StrSlice, StrSplit, StrIndexOf, matches, ReExec, replaceAll, WeakMap, WeakMapGet,
        WeakMapSet, hide, getter, MathAbs, Number, ObjIs, RangeError, TypeError, String, NumIsNaN, ArrJoin, ObjDefineProperty, ObjCreate, StrFromCodePoint } = P;

    // ---- Collator ----------------------------------------------------------------------------

    const ORDER = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789";
    const RANKS = { __proto__: null };
    for (let i = 0; i < ORDER.length; i++) RANKS[ORDER[i]] = 10 + i;
    const MARK = /^\p{M}$/u;

    // [primary weights, accents, capitals] of a text.
    function weights(text, isNumeric) {
        const plain = StrNormalize(text, "NFD"), primary = [], accents = [], capitals = [];
        for (let i = 0; i < plain.length; i++) {
            const code = StrCodePointAt(plain, i);
            let character = plain[i];
            if (code > 0xffff) character = plain[i] + plain[++i];
            if (isNumeric && code >= 48 && code <= 57) {
                const digits = ReExec(/^[0-9]+/, StrSlice(plain, i))[0];
                append(primary, 60);
                append(primary, Number(digits));
                append(accents, 0);
                append(capitals, 0);
                i += digits.length - 1;
                continue;
            }
            if (code > 127 && matches(MARK, character)) {
                if (accents.length > 0) accents[accents.length - 1] += code;
                continue;
            }
            const lower = StrToLowerCase(character);
            const rank = RANKS[character];
            append(primary, rank !== undefined ? rank : code <= 32 ? code === 32 ? 9 : 1 + code % 8 : 1000 + StrCodePointAt(lower, 0));
            append(accents, 0);
            append(capitals, lower === character ? 0 : 1);
        }
        return [primary, accents, capitals];
    }

    function ordered(a, b) {
        for (let i = 0; i < a.length && i < b.length; i++) {
            if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
        }
        return a.length === b.length ? 0 : a.length < b.length ? -1 : 1;
    }

    function compare(a, b, options) {
        if (a === b) return 0;
        const left = weights(a, options.numeric), right = weights(b, options.numeric);
        let order = ordered(left[0], right[0]);
        const { sensitivity } = options;
        if (order === 0 && (sensitivity === "variant" || sensitivity === "accent")) order = ordered(left[1], right[1]);
        if (order === 0 && (sensitivity === "variant" || sensitivity === "case")) {
            order = ordered(left[2], right[2]);
            if (options.caseFirst === "upper") order = -order;
        }
        return order;
    }

    function settle(locales, given) {
        const wanted = given === undefined ? {} : given;
        return { __proto__: null, locale: english(needLocales(locales)), usage: option(wanted, "usage", ["sort", "search"], "sort"),
            sensitivity: option(wanted, "sensitivity", ["base", "accent", "case", "variant"], "variant"),
            ignorePunctuation: !!wanted.ignorePunctuation, numeric: !!wanted.numeric, caseFirst: option(wanted, "caseFirst", ["upper", "lower", "false"], "false") };
    }

    const collators = new WeakMap();
    function Collator(locales, options) {
        const self = new.target ? this : ObjCreate(Collator.prototype);
        WeakMapSet(collators, self, { __proto__: null, options: settle(locales, options), bound: undefined });
        return self;
    }
    getter(Collator.prototype, "compare", function () {
        const self = WeakMapGet(collators, this);
        if (self.bound === undefined) self.bound = (a, b) => compare(`${a}`, `${b}`, self.options);
        return self.bound;
    });
    hide(Collator.prototype, "resolvedOptions", function resolvedOptions() {
        const { locale, usage, sensitivity, ignorePunctuation, numeric, caseFirst } = WeakMapGet(collators, this).options;
        return { locale, usage, sensitivity, ignorePunctuation, collation: "default", numeric, caseFirst };
    });
    intl.publish(Collator, "Collator");

    const usual = settle(undefined, undefined);
    hide(P.String.prototype, "localeCompare", function localeCompare(other, locales, options) {
        if (this === undefined || this === null) throw new TypeError("String.prototype.localeCompare called on null or undefined");
        return compare(`${this}`, `${other}`, locales === undefined && options === undefined ? usual : settle(locales, options));
    });

    // ---- ListFormat --------------------------------------------------------------------------

    const lists = new WeakMap();
    class ListFormat {
        constructor(locales, options) {
            const given = options === undefined ? {} : options;
            WeakMapSet(lists, this, { __proto__: null, locale: english(needLocales(locales)), type: option(given, "type", ["conjunction", "disjunction", "unit"], "conjunction"),
                style: option(given, "style", ["long", "short", "narrow"], "long") });
        }
        formatToParts(items) {
            const { type, style } = WeakMapGet(lists, this), values = P.listOf(items), out = [];
            const word = type === "disjunction" ? "or" : type === "unit" || style === "narrow" ? "" : style === "short" ? "&" : "and";
            const comma = type === "unit" && style === "narrow" ? " " : ", ";
            for (let i = 0; i < values.length; i++) {
                if (typeof values[i] !== "string") throw new TypeError("Iterable yielded a non-String value");
                if (i > 0) {
                    const isLast = i === values.length - 1;
                    const between = !isLast || word === "" ? comma : values.length === 2 ? ` ${word} ` : `, ${word} `;
                    append(out, { type: "literal", value: between });
                }
                append(out, { type: "element", value: values[i] });
            }
            return out;
        }
        format(items) { return intl.join(this.formatToParts(items)); }
        resolvedOptions() {
            const { locale, type, style } = WeakMapGet(lists, this);
            return { locale, type, style };
        }
    }
    intl.publish(ListFormat, "ListFormat");

    // ---- RelativeTimeFormat ------------------------------------------------------------------

    const SHORT = { __proto__: null, second: "sec.", minute: "min.", hour: "hr.", day: "day", week: "wk.", month: "mo.", quarter: "qtr.", year: "yr." };
    const NARROW = { __proto__: null, second: "s", minute: "m", hour: "h", day: "d", week: "w", month: "mo", quarter: "q", year: "y" };
    const SPECIAL = { __proto__: null, day: ["yesterday", "today", "tomorrow"], second: [undefined, "now", undefined], minute: [undefined, "this minute", undefined],
        hour: [undefined, "this hour", undefined] };

    const relative = new WeakMap();
    class RelativeTimeFormat {
        constructor(locales, options) {
            const given = options === undefined ? {} : options;
            WeakMapSet(relative, this, { __proto__: null, locale: english(needLocales(locales)), style: option(given, "style", ["long", "short", "narrow"], "long"),
                numeric: option(given, "numeric", ["always", "auto"], "always") });
        }
        format(value, unit) { return intl.join(this.formatToParts(value, unit)); }
        formatToParts(value, unit) {
            const { style, numeric } = WeakMapGet(relative, this);
            const number = Number(value);
            if (!P.isFinite(number)) throw new RangeError("Invalid number value");
            const name = replaceAll(/s$/g, `${unit}`, () => "");
            if (SHORT[name] === undefined) throw new RangeError(`Invalid unit argument for format() '${unit}'`);
            if (numeric === "auto" && (number === 0 || number === 1 || number === -1)) {
                const short = style === "long" ? name : SHORT[name];
                const words = SPECIAL[name] || [`last ${short}`, `this ${short}`, `next ${short}`];
                const at = number === 0 ? 1 : number + 1;
                if (words[at] !== undefined) return [{ type: "literal", value: words[at] }];
            }
            const isPast = number < 0 || ObjIs(number, -0), amount = MathAbs(number);
            const parts = new Intl.NumberFormat("en").formatToParts(amount);
            for (let i = 0; i < parts.length; i++) parts[i].unit = name;
            const isOne = amount === 1;
            let text;
            if (style === "long") text = ` ${name}${isOne ? "" : "s"}`;
            else if (style === "short") text = ` ${name === "day" ? (isOne ? "day" : "days") : name === "quarter" && !isOne ? "qtrs." : SHORT[name]}`;
            else text = NARROW[name];
            if (isPast) append(parts, { type: "literal", value: `${text} ago` });
            else {
                P.ArrUnshift(parts, { type: "literal", value: "in " });
                append(parts, { type: "literal", value: text });
            }
            return parts;
        }
        resolvedOptions() {
            const { locale, style, numeric } = WeakMapGet(relative, this);
            return { locale, style, numeric, numberingSystem: "latn" };
        }
    }
    intl.publish(RelativeTimeFormat, "RelativeTimeFormat");

    // ---- Segmenter ---------------------------------------------------------------------------

    const GRAPHEME = /\r\n|\p{RI}\p{RI}|\p{Emoji}(?:\p{EMod}|\ufe0f\u20e3?|[\u{e0020}-\u{e007e}]+\u{e007f})?(?:\u200d\p{Emoji}(?:\p{EMod}|\ufe0f\u20e3?)?)*[\p{M}\u200d]*|[^]\p{M}*/gu;
    const WORD = /[\p{L}\p{N}_\p{M}]+(?:['’.][\p{L}\p{N}_]+)*|\s+|[^]/gu;
    const SENTENCE = /[^.!?\n]*(?:[.!?]+["'”’)]*\s*|\n+|$)/g;

    const segmenters = new WeakMap();
    class Segmenter {
        constructor(locales, options) {
            const given = options === undefined ? {} : options;
            WeakMapSet(segmenters, this, { __proto__: null, locale: english(needLocales(locales)), granularity: option(given, "granularity", ["grapheme", "word", "sentence"], "grapheme") });
        }
        segment(input) {
            const text = `${input}`, { granularity } = WeakMapGet(segmenters, this), found = [];
            replaceAll(granularity === "word" ? WORD : granularity === "sentence" ? SENTENCE : GRAPHEME, text, (match) => {
                if (match[0] !== "") {
                    const one = { segment: match[0], index: match.index, input: text };
                    if (granularity === "word") one.isWordLike = matches(/[\p{L}\p{N}]/u, match[0]);
                    append(found, one);
                }
                return "";
            });
            return {
                containing(index = 0) {
                    for (let i = 0; i < found.length; i++) if (index < found[i].index + found[i].segment.length && index >= found[i].index) return found[i];
                    return undefined;
                },
                *[Symbol.iterator]() { for (let i = 0; i < found.length; i++) yield found[i]; },
            };
        }
        resolvedOptions() {
            const { locale, granularity } = WeakMapGet(segmenters, this);
            return { locale, granularity };
        }
    }
    intl.publish(Segmenter, "Segmenter");

    // ---- the rest ----------------------------------------------------------------------------

    function canonical(tag) {
        const parts = StrSplit(replaceAll(/_/g, tag, () => "-"), "-");
        for (let i = 0; i < parts.length; i++) {
            if (i === 0) parts[i] = StrToLowerCase(parts[i]);
            else if (parts[i].length === 2 && matches(/^[A-Za-z]+$/, parts[i])) parts[i] = StrToUpperCase(parts[i]);
            else if (parts[i].length === 4 && matches(/^[A-Za-z]+$/, parts[i])) parts[i] = StrToUpperCase(parts[i][0]) + StrToLowerCase(StrSlice(parts[i], 1));
        }
        return ArrJoin(parts, "-");
    }
    hide(Intl, "getCanonicalLocales", (locales) => {
        const list = needLocales(locales), out = [];
        for (let i = 0; i < list.length; i++) append(out, canonical(list[i]));
        return out;
    });
    hide(Intl, "supportedValuesOf", (key) => {
        const values = { __proto__: null, timeZone: intl.zoneNames(), calendar: ["gregory"], numberingSystem: ["latn"], collation: ["default"],
            currency: ["AUD", "BRL", "CAD", "CHF", "CNY", "EUR", "GBP", "INR", "JPY", "KRW", "MXN", "USD"], unit: ["byte", "day", "hour", "kilometer", "liter", "meter", "minute", "second"] }[key];
        if (values === undefined) throw new RangeError(`Invalid key : ${key}`);
        return values;
    });
    class Locale {
        #tag;
        constructor(tag) {
            if (typeof tag !== "string" && (typeof tag !== "object" || tag === null)) throw new TypeError("First argument to Intl.Locale constructor can't be empty or missing");
            this.#tag = canonical(needLocales(`${tag}`)[0]);
        }
        get baseName() { return this.#tag; }
        get language() { return StrSplit(this.#tag, "-")[0]; }
        get region() {
            const found = ReExec(/-([A-Z]{2}|\d{3})(?:-|$)/, this.#tag);
            return found === null ? undefined : found[1];
        }
        get script() {
            const found = ReExec(/-([A-Z][a-z]{3})(?:-|$)/, this.#tag);
            return found === null ? undefined : found[1];
        }
        maximize() { return this; }
        minimize() { return this; }
        toString() { return this.#tag; }
    }
    hide(Intl, "Locale", Locale);
    ObjDefineProperty(Locale.prototype, Symbol.toStringTag, { __proto__: null, value: "Intl.Locale", configurable: true });
})
