// Intl for numbers, in English: NumberFormat and PluralRules, and what Number and BigInt say with
// toLocaleString. Numbers are rounded on their decimal digits, as people read them, not on their
// binary value. Any other language that is asked for gets English, and resolvedOptions says so.
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { StrSlice, StrIndexOf, StrRepeat, StrPadStart, StrPadEnd, StrToUpperCase, StrToLowerCase, StrSplit, ReExec, matches, append, ArrJoin, ArrIncludes, RangeError, TypeError,
        MathAbs, MathFloor, MathMax, MathMin, Number, String, NumIsNaN, BigToString, ObjDefineProperty, ObjCreate, WeakMap, WeakMapGet, WeakMapSet,
        hide, getter, ArrIsArray, ObjIs, replaceAll, StrEndsWith, StrLastIndexOf, ReflectOwnKeys } = P;

    const Intl = {};
    ObjDefineProperty(Intl, Symbol.toStringTag, { __proto__: null, value: "Intl", configurable: true });
    share.define("Intl", Intl);
    share.Intl = Intl;

    // The locales asked for, checked; ours is English whatever they are.
    const LOCALE = /^[a-zA-Z]{2,8}(?:[-_][a-zA-Z0-9]{1,8})*$/;
    function needLocales(locales) {
        if (locales === undefined) return [];
        const list = typeof locales === "string" ? [locales] : P.listOf(locales);
        for (let i = 0; i < list.length; i++) {
            const text = `${list[i]}`;
            if (!matches(LOCALE, text)) throw new RangeError(`Incorrect locale information provided`);
            list[i] = text;
        }
        return list;
    }
    const english = (list) => list.length > 0 && matches(/^en(-[A-Za-z]{2})?$/, list[0]) ? list[0] : "en-US";
    share.intl = { __proto__: null, needLocales, english };

    function option(given, name, allowed, otherwise) {
        const value = given[name];
        if (value === undefined) return otherwise;
        const text = `${value}`;
        if (allowed !== undefined && !ArrIncludes(allowed, text)) {
            throw new RangeError(`Value ${text} out of range for Intl.NumberFormat options property ${name}`);
        }
        return text;
    }
    share.intl.option = option;

    function digitsOption(given, name, low, high, otherwise) {
        const value = given[name];
        if (value === undefined) return otherwise;
        const number = Number(value);
        if (NumIsNaN(number) || number < low || number > high) throw new RangeError(`${name} value is out of range.`);
        return MathFloor(number);
    }

    // A class whose methods need no `new` and whose objects print what Node prints.
    share.intl.publish = (constructor, name) => {
        hide(Intl, name, constructor);
        ObjDefineProperty(constructor.prototype, Symbol.toStringTag, { __proto__: null, value: `Intl.${name}`, configurable: true });
        hide(constructor, "supportedLocalesOf", (locales) => {
            const list = needLocales(locales), out = [];
            for (let i = 0; i < list.length; i++) if (matches(/^en(-|$)/, list[i])) append(out, list[i]);
            return out;
        });
    };

    // ---- decimal digits ----------------------------------------------------------------------

    // {digits, point}: 0.DIGITS × 10^point. Zero has no digits.
    function decimalOf(text) {
        const parts = ReExec(/^(\d*)\.?(\d*)(?:e([+-]?\d+))?$/, text);
        let digits = parts[1] + parts[2], point = parts[1].length + (parts[3] === undefined ? 0 : +parts[3]);
        let zeros = 0;
        while (zeros < digits.length && digits[zeros] === "0") zeros++;
        digits = replaceAll(/0+$/g, StrSlice(digits, zeros), () => "");
        return { __proto__: null, digits, point: digits === "" ? 0 : point - zeros };
    }

    function increment(digits) {
        let at = digits.length - 1;
        while (at >= 0 && digits[at] === "9") at--;
        if (at < 0) return "1" + StrRepeat("0", digits.length);
        return StrSlice(digits, 0, at) + String(+digits[at] + 1) + StrRepeat("0", digits.length - at - 1);
    }

    // Keeps `keep` digits (it may be none or less), by the mode.
    function rounded(value, keep, mode, isNegative) {
        const { digits, point } = value;
        if (keep >= digits.length) return value;
        const kept = keep > 0 ? StrSlice(digits, 0, keep) : "";
        const next = keep < 0 ? "0" : digits[keep];
        const rest = keep < 0 ? true : matches(/[1-9]/, StrSlice(digits, keep + 1));
        let isUp;
        switch (mode) {
        case "trunc": isUp = false; break;
        case "expand": isUp = true; break;
        case "ceil": isUp = !isNegative; break;
        case "floor": isUp = isNegative; break;
        case "halfTrunc": isUp = next > "5" || (next === "5" && rest); break;
        case "halfEven": isUp = next > "5" || (next === "5" && (rest || (kept !== "" && +kept[kept.length - 1] % 2 === 1))); break;
        case "halfCeil": isUp = next > "5" || (next === "5" && (rest || !isNegative)); break;
        case "halfFloor": isUp = next > "5" || (next === "5" && (rest || isNegative)); break;
        default: isUp = next >= "5";
        }
        if (!isUp) return { __proto__: null, digits: replaceAll(/0+$/g, kept, () => ""), point: matches(/[1-9]/, kept) ? point : 0 };
        if (kept === "") return { __proto__: null, digits: "1", point: point - keep + 1 };
        const up = increment(kept);
        return { __proto__: null, digits: replaceAll(/0+$/g, up, () => ""), point: up.length > kept.length ? point + 1 : point };
    }

    // The digits before and after the point, with the fewest and most that are wanted.
    function laidOut(value, options, isNegative) {
        let kept;
        if (options.minimumSignificantDigits !== undefined) {
            kept = rounded(value, options.maximumSignificantDigits, options.roundingMode, isNegative);
        } else {
            kept = rounded(value, value.point + options.maximumFractionDigits, options.roundingMode, isNegative);
        }
        const { digits, point } = kept;
        let whole = point > 0 ? StrPadEnd(StrSlice(digits, 0, point), point, "0") : "0";
        let fraction = point > 0 ? StrSlice(digits, point) : digits === "" ? "" : StrRepeat("0", -point) + digits;
        if (options.minimumSignificantDigits !== undefined) {
            const wanted = options.minimumSignificantDigits - (point > 0 ? point : digits === "" ? 1 : point);
            if (wanted > 0) fraction = StrPadEnd(fraction, wanted, "0");
        } else {
            fraction = StrPadEnd(fraction, options.minimumFractionDigits, "0");
        }
        if (options.trailingZeroDisplay === "stripIfInteger" && !matches(/[1-9]/, fraction)) fraction = "";
        whole = StrPadStart(whole, options.minimumIntegerDigits, "0");
        return { __proto__: null, whole, fraction, isZero: digits === "", kept };
    }

    function grouped(whole, grouping) {
        const least = grouping === "min2" ? 5 : 4;
        if (grouping === false || whole.length < least) return [whole];
        const out = [];
        for (let end = whole.length; end > 0; end -= 3) P.ArrUnshift(out, StrSlice(whole, MathMax(0, end - 3), end));
        return out;
    }

    // ---- words -------------------------------------------------------------------------------

    const SYMBOLS = { __proto__: null, USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$",
        NZD: "NZ$", HKD: "HK$", TWD: "NT$", ILS: "₪", VND: "₫", XAF: "FCFA", XOF: "F\u202fCFA", PHP: "₱", XCD: "EC$", XPF: "CFPF" };
    const NARROW = { __proto__: null, ...SYMBOLS, CAD: "$", AUD: "$", MXN: "$", NZD: "$", HKD: "$", TWD: "$", CNY: "¥", RUB: "₽", UAH: "₴", TRY: "₺", NGN: "₦",
        PLN: "zł", SEK: "kr", NOK: "kr", DKK: "kr", CZK: "Kč", HUF: "Ft", THB: "฿", SGD: "$", ARS: "$", CLP: "$", COP: "$", KZT: "₸" };
    const NAMES = { __proto__: null, USD: "US dollar", EUR: "euro", GBP: "British pound", JPY: "Japanese yen", INR: "Indian rupee", CNY: "Chinese yuan",
        KRW: "South Korean won", BRL: "Brazilian real", CAD: "Canadian dollar", AUD: "Australian dollar", CHF: "Swiss franc", MXN: "Mexican peso",
        RUB: "Russian ruble", SEK: "Swedish krona", NOK: "Norwegian krone", DKK: "Danish krone", PLN: "Polish zloty", NZD: "New Zealand dollar",
        ZAR: "South African rand", TRY: "Turkish lira", SGD: "Singapore dollar", HKD: "Hong Kong dollar", THB: "Thai baht" };
    const UNCHANGED = { __proto__: null, JPY: 1, CNY: 1, KRW: 1, THB: 1, ZAR: 1 };
    const IRREGULAR = { __proto__: null, SEK: "Swedish kronor", NOK: "Norwegian kroner", DKK: "Danish kroner", PLN: "Polish zlotys", BRL: "Brazilian reals" };
    const NO_CENTS = ["JPY", "KRW", "VND", "CLP", "ISK", "UGX", "XAF", "XOF", "XPF", "PYG", "RWF", "KMF", "GNF", "DJF", "BIF", "VUV"];
    const MILLS = ["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"];

    // Unit: [short one, short other, narrow, long one, long other]; "_" is a space.
    const UNITS = {
        __proto__: null, kilometer: ["_km", "_km", "km", "_kilometer", "_kilometers"], meter: ["_m", "_m", "m", "_meter", "_meters"],
        centimeter: ["_cm", "_cm", "cm", "_centimeter", "_centimeters"], millimeter: ["_mm", "_mm", "mm", "_millimeter", "_millimeters"],
        mile: ["_mi", "_mi", "mi", "_mile", "_miles"], foot: ["_ft", "_ft", "′", "_foot", "_feet"], inch: ["_in", "_in", "″", "_inch", "_inches"],
        yard: ["_yd", "_yd", "yd", "_yard", "_yards"], gram: ["_g", "_g", "g", "_gram", "_grams"], kilogram: ["_kg", "_kg", "kg", "_kilogram", "_kilograms"],
        pound: ["_lb", "_lb", "#", "_pound", "_pounds"], ounce: ["_oz", "_oz", "oz", "_ounce", "_ounces"], liter: ["_L", "_L", "L", "_liter", "_liters"],
        milliliter: ["_mL", "_mL", "mL", "_milliliter", "_milliliters"], gallon: ["_gal", "_gal", "gal", "_gallon", "_gallons"],
        bit: ["_bit", "_bit", "bit", "_bit", "_bits"], byte: ["_byte", "_byte", "B", "_byte", "_bytes"], kilobit: ["_kb", "_kb", "kb", "_kilobit", "_kilobits"],
        kilobyte: ["_kB", "_kB", "kB", "_kilobyte", "_kilobytes"], megabit: ["_Mb", "_Mb", "Mb", "_megabit", "_megabits"],
        megabyte: ["_MB", "_MB", "MB", "_megabyte", "_megabytes"], gigabit: ["_Gb", "_Gb", "Gb", "_gigabit", "_gigabits"],
        gigabyte: ["_GB", "_GB", "GB", "_gigabyte", "_gigabytes"], terabyte: ["_TB", "_TB", "TB", "_terabyte", "_terabytes"],
        petabyte: ["_PB", "_PB", "PB", "_petabyte", "_petabytes"], celsius: ["°C", "°C", "°C", "_degree Celsius", "_degrees Celsius"],
        fahrenheit: ["°F", "°F", "°", "_degree Fahrenheit", "_degrees Fahrenheit"], percent: ["%", "%", "%", "_percent", "_percent"],
        degree: ["_deg", "_deg", "°", "_degree", "_degrees"], second: ["_sec", "_sec", "s", "_second", "_seconds"], minute: ["_min", "_min", "m", "_minute", "_minutes"],
        hour: ["_hr", "_hr", "h", "_hour", "_hours"], day: ["_day", "_days", "d", "_day", "_days"], week: ["_wk", "_wks", "w", "_week", "_weeks"],
        month: ["_mth", "_mths", "m", "_month", "_months"], year: ["_yr", "_yrs", "y", "_year", "_years"],
        millisecond: ["_ms", "_ms", "ms", "_millisecond", "_milliseconds"], microsecond: ["_μs", "_μs", "μs", "_microsecond", "_microseconds"],
        nanosecond: ["_ns", "_ns", "ns", "_nanosecond", "_nanoseconds"], acre: ["_ac", "_ac", "ac", "_acre", "_acres"], hectare: ["_ha", "_ha", "ha", "_hectare", "_hectares"],
        stone: ["_st", "_st", "st", "_stone", "_stones"], "fluid-ounce": ["_fl oz", "_fl oz", "fl oz", "_fluid ounce", "_fluid ounces"], terabit: ["_Tb", "_Tb", "Tb", "_terabit", "_terabits"],
        "mile-scandinavian": ["_smi", "_smi", "smi", "_mile-scandinavian", "_miles-scandinavian"],
    };
    const PER = { __proto__: null, second: "s", minute: "min", hour: "h", day: "d", week: "w", month: "m", year: "y", meter: "m", kilometer: "km", liter: "L", gallon: "gal",
        mile: "mi", kilogram: "kg", gram: "g", foot: "ft", inch: "in", centimeter: "cm" };

    function unitText(unit, display, isOne) {
        const per = StrIndexOf(unit, "-per-");
        if (per > 0) {
            const a = StrSlice(unit, 0, per), b = StrSlice(unit, per + 5);
            if (unit === "kilometer-per-hour") return display === "long" ? (isOne ? " kilometer per hour" : " kilometers per hour") : display === "narrow" ? "km/h" : " km/h";
            if (unit === "mile-per-hour") return display === "long" ? (isOne ? " mile per hour" : " miles per hour") : display === "narrow" ? "mph" : " mph";
            if (unit === "mile-per-gallon") return display === "long" ? (isOne ? " mile per gallon" : " miles per gallon") : display === "narrow" ? "mpg" : " mpg";
            return display === "long" ? `${unitText(a, display, isOne)} per ${b}` : `${unitText(a, display, isOne)}/${PER[b] || b}`;
        }
        const words = UNITS[unit];
        const text = display === "long" ? words[isOne ? 3 : 4] : display === "narrow" ? words[2] : words[isOne ? 0 : 1];
        return text[0] === "_" ? " " + StrSlice(text, 1) : text;
    }

    function isUnit(unit) {
        const per = StrIndexOf(unit, "-per-");
        return per > 0 ? UNITS[StrSlice(unit, 0, per)] !== undefined && UNITS[StrSlice(unit, per + 5)] !== undefined : UNITS[unit] !== undefined;
    }

    const SHORT = ["", "K", "M", "B", "T"], LONG = ["", " thousand", " million", " billion", " trillion"];

    // ---- NumberFormat ------------------------------------------------------------------------

    const formats = new WeakMap();

    function settle(locales, given) {
        const style = option(given, "style", ["decimal", "percent", "currency", "unit"], "decimal");
        const out = { locale: english(needLocales(locales)), numberingSystem: "latn", style };
        const currency = given.currency === undefined ? undefined : StrToUpperCase(`${given.currency}`);
        if (currency !== undefined && !matches(/^[A-Z]{3}$/, currency)) throw new RangeError(`Invalid currency code : ${given.currency}`);
        if (style === "currency") {
            if (currency === undefined) throw new TypeError("Currency code is required with currency style.");
            out.currency = currency;
            out.currencyDisplay = option(given, "currencyDisplay", ["code", "symbol", "narrowSymbol", "name"], "symbol");
            out.currencySign = option(given, "currencySign", ["standard", "accounting"], "standard");
        }
        if (style === "unit") {
            if (given.unit === undefined) throw new TypeError("Unit is required with unit style.");
            out.unit = `${given.unit}`;
            if (!isUnit(out.unit)) throw new RangeError(`Invalid unit argument for Intl.NumberFormat() '${out.unit}'`);
            out.unitDisplay = option(given, "unitDisplay", ["short", "narrow", "long"], "short");
        }
        const notation = option(given, "notation", ["standard", "scientific", "engineering", "compact"], "standard");
        out.minimumIntegerDigits = digitsOption(given, "minimumIntegerDigits", 1, 21, 1);
        const cents = style === "currency" && notation === "standard" ? (ArrIncludes(NO_CENTS, currency) ? 0 : ArrIncludes(MILLS, currency) ? 3 : 2) : 0;
        const hasFraction = given.minimumFractionDigits !== undefined || given.maximumFractionDigits !== undefined;
        const hasSignificant = given.minimumSignificantDigits !== undefined || given.maximumSignificantDigits !== undefined;
        if (hasSignificant) {
            out.minimumSignificantDigits = digitsOption(given, "minimumSignificantDigits", 1, 21, 1);
            out.maximumSignificantDigits = digitsOption(given, "maximumSignificantDigits", out.minimumSignificantDigits, 21, 21);
        } else if (notation === "compact" && !hasFraction) {
            out.minimumFractionDigits = 0;
            out.maximumFractionDigits = 0;
            out.isCompactRounding = true;
        } else {
            const least = cents, most = style === "percent" ? 0 : MathMax(cents, style === "currency" ? cents : 3);
            let low = digitsOption(given, "minimumFractionDigits", 0, 100, undefined);
            let high = digitsOption(given, "maximumFractionDigits", 0, 100, undefined);
            if (low === undefined) low = high === undefined ? least : MathMin(least, high);
            else if (high !== undefined && low > high) throw new RangeError("maximumFractionDigits value is out of range.");
            if (high === undefined) high = MathMax(most, low);
            out.minimumFractionDigits = low;
            out.maximumFractionDigits = high;
        }
        let grouping = given.useGrouping;
        if (grouping === undefined) grouping = notation === "compact" ? "min2" : "auto";
        else if (grouping === true || grouping === "true" || grouping === "always") grouping = "always";
        else if (grouping === false) grouping = false;
        else if (grouping === "false") grouping = "auto";
        else if (!ArrIncludes(["min2", "auto"], grouping)) throw new RangeError(`Value ${grouping} out of range for Intl.NumberFormat options property useGrouping`);
        out.useGrouping = grouping;
        out.notation = notation;
        if (notation === "compact") out.compactDisplay = option(given, "compactDisplay", ["short", "long"], "short");
        out.signDisplay = option(given, "signDisplay", ["auto", "never", "always", "exceptZero", "negative"], "auto");
        out.roundingIncrement = 1;
        out.roundingMode = option(given, "roundingMode", ["ceil", "floor", "expand", "trunc", "halfCeil", "halfFloor", "halfExpand", "halfTrunc", "halfEven"], "halfExpand");
        out.roundingPriority = option(given, "roundingPriority", ["auto", "morePrecision", "lessPrecision"], "auto");
        out.trailingZeroDisplay = option(given, "trailingZeroDisplay", ["auto", "stripIfInteger"], "auto");
        return out;
    }

    // The value as {isNegative, kind, decimal}; kind is "finite", "nan" or "infinity".
    function read(value) {
        if (typeof value === "bigint") {
            const text = BigToString(value), isNegative = text[0] === "-";
            return { __proto__: null, isNegative, kind: "finite", decimal: decimalOf(isNegative ? StrSlice(text, 1) : text) };
        }
        if (typeof value === "string" && matches(/^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i, value)) {
            const text = StrToLowerCase(P.StrTrim(value)), isSigned = text[0] === "-" || text[0] === "+";
            return { __proto__: null, isNegative: text[0] === "-", kind: "finite", decimal: decimalOf(isSigned ? StrSlice(text, 1) : text) };
        }
        const number = Number(value);
        if (NumIsNaN(number)) return { __proto__: null, isNegative: false, kind: "nan", decimal: undefined };
        const isNegative = number < 0 || ObjIs(number, -0);
        if (number - number !== 0) return { __proto__: null, isNegative, kind: "infinity", decimal: undefined };
        return { __proto__: null, isNegative, kind: "finite", decimal: decimalOf(String(MathAbs(number))) };
    }

    function add(parts, type, value) {
        if (value !== "") append(parts, { type, value });
    }

    function numberParts(parts, laid, options) {
        const groups = grouped(laid.whole, options.useGrouping);
        for (let i = 0; i < groups.length; i++) {
            if (i > 0) add(parts, "group", ",");
            add(parts, "integer", groups[i]);
        }
        if (laid.fraction !== "") {
            add(parts, "decimal", ".");
            add(parts, "fraction", laid.fraction);
        }
    }

    // Compact: thousands taken out, two digits kept where the whole part has one.
    function compactParts(parts, value, options, isNegative) {
        let power = value.digits === "" ? 0 : MathMin(4, MathMax(0, MathFloor((value.point - 1) / 3)));
        let laid;
        for (;;) {
            const scaled = { __proto__: null, digits: value.digits, point: value.digits === "" ? 0 : value.point - 3 * power };
            let own = options;
            if (options.isCompactRounding) {
                own = { ...options, __proto__: null, minimumFractionDigits: 0, maximumFractionDigits: scaled.point >= 2 || scaled.digits === "" ? 0 : scaled.point === 1 ? 1 : MathMax(0, 2 - scaled.point) };
            }
            laid = laidOut(scaled, own, isNegative);
            if (laid.kept.point > 3 && power < 4) power++;
            else break;
        }
        numberParts(parts, laid, options);
        if (power > 0) {
            const word = options.compactDisplay === "long" ? LONG[power] : SHORT[power];
            if (word[0] === " ") add(parts, "literal", " ");
            add(parts, "compact", word[0] === " " ? StrSlice(word, 1) : word);
        }
        return laid;
    }

    function scientificParts(parts, value, options, isNegative) {
        const step = options.notation === "engineering" ? 3 : 1;
        let exponent = value.digits === "" ? 0 : MathFloor((value.point - 1) / step) * step;
        let laid = laidOut({ __proto__: null, digits: value.digits, point: value.digits === "" ? 0 : value.point - exponent }, options, isNegative);
        if (laid.kept.point > step) {
            exponent += step;
            laid = laidOut({ __proto__: null, digits: value.digits, point: value.point - exponent }, options, isNegative);
        }
        numberParts(parts, laid, options);
        add(parts, "exponentSeparator", "E");
        if (exponent < 0) add(parts, "exponentMinusSign", "-");
        add(parts, "exponentInteger", String(MathAbs(exponent)));
        return laid;
    }

    function format(options, value) {
        const { isNegative, kind, decimal } = read(value);
        const inner = [];
        let isZero = false, laid;
        if (kind === "nan") {
            add(inner, "nan", "NaN");
        } else if (kind === "infinity") {
            add(inner, "infinity", "∞");
        } else {
            const scaled = options.style === "percent" && decimal.digits !== ""
                ? { __proto__: null, digits: decimal.digits, point: decimal.point + 2 } : decimal;
            if (options.notation === "compact") laid = compactParts(inner, scaled, options, isNegative);
            else if (options.notation === "standard") numberParts(inner, laid = laidOut(scaled, options, isNegative), options);
            else laid = scientificParts(inner, scaled, options, isNegative);
            ({ isZero } = laid);
        }
        const { signDisplay } = options;
        let sign = "";
        if (isNegative && signDisplay !== "never" && !(isZero && (signDisplay === "exceptZero" || signDisplay === "negative"))) sign = "-";
        else if (!isNegative && (signDisplay === "always" || (signDisplay === "exceptZero" && !isZero && kind !== "nan"))) sign = "+";
        return dressed(options, inner, sign, laid !== undefined && laid.whole === "1" && laid.fraction === "");
    }

    function dressed(options, inner, sign, isOne) {
        const parts = [];
        const isAccounting = options.style === "currency" && options.currencySign === "accounting" && sign === "-" && options.currencyDisplay !== "name";
        if (isAccounting) add(parts, "literal", "(");
        else if (sign !== "") add(parts, sign === "-" ? "minusSign" : "plusSign", sign);
        if (options.style === "currency" && options.currencyDisplay !== "name") {
            const { currency, currencyDisplay } = options;
            const symbol = currencyDisplay === "code" ? currency : (currencyDisplay === "narrowSymbol" ? NARROW : SYMBOLS)[currency] || currency;
            add(parts, "currency", symbol);
            if (matches(/[A-Za-z]$/, symbol)) add(parts, "literal", "\u00a0");
        }
        for (let i = 0; i < inner.length; i++) append(parts, inner[i]);
        if (options.style === "percent") add(parts, "percentSign", "%");
        if (options.style === "unit") {
            const text = unitText(options.unit, options.unitDisplay, isOne);
            if (text[0] === " ") add(parts, "literal", " ");
            add(parts, "unit", text[0] === " " ? StrSlice(text, 1) : text);
        }
        if (options.style === "currency" && options.currencyDisplay === "name") {
            const one = NAMES[options.currency] || options.currency;
            add(parts, "literal", " ");
            add(parts, "currency", isOne || UNCHANGED[options.currency] || !NAMES[options.currency] ? one : IRREGULAR[options.currency] || one + "s");
        }
        if (isAccounting) add(parts, "literal", ")");
        return parts;
    }

    function join(parts) {
        let out = "";
        for (let i = 0; i < parts.length; i++) out += parts[i].value;
        return out;
    }
    share.intl.join = join;

    function NumberFormat(locales, options) {
        const self = new.target ? this : ObjCreate(NumberFormat.prototype);
        WeakMapSet(formats, self, { __proto__: null, options: settle(locales, options === undefined ? {} : options), bound: undefined });
        return self;
    }
    const of = (format) => {
        const found = WeakMapGet(formats, format);
        if (found === undefined) throw new TypeError("Method Intl.NumberFormat.prototype.format called on incompatible receiver");
        return found;
    };
    getter(NumberFormat.prototype, "format", function () {
        const self = of(this);
        if (self.bound === undefined) self.bound = (value) => join(format(self.options, value));
        return self.bound;
    });
    hide(NumberFormat.prototype, "formatToParts", function formatToParts(value) { return format(of(this).options, value); });
    hide(NumberFormat.prototype, "formatRange", function formatRange(from, to) {
        const { options } = of(this), a = join(format(options, from)), b = join(format(options, to));
        if (a === b) return `~${a}`;
        const symbol = options.style === "currency" ? ReExec(/^[^\d-]+/, a) : null;
        return symbol !== null ? `${a} – ${b}` : `${a}–${b}`;
    });
    hide(NumberFormat.prototype, "resolvedOptions", function resolvedOptions() {
        const out = { ...of(this).options };
        delete out.isCompactRounding;
        return out;
    });
    share.intl.publish(NumberFormat, "NumberFormat");

    let plain;
    function localeString(value, locales, options) {
        if (locales === undefined && options === undefined) {
            if (plain === undefined) plain = settle(undefined, {});
            return join(format(plain, value));
        }
        return join(format(settle(locales, options === undefined ? {} : options), value));
    }
    hide(Number.prototype, "toLocaleString", function toLocaleString(locales, options) {
        return localeString(P.NumValueOf(this), locales, options);
    });
    hide(P.BigInt.prototype, "toLocaleString", function toLocaleString(locales, options) {
        return localeString(P.BigValueOf(this), locales, options);
    });
    share.intl.number = localeString;

    // ---- PluralRules -------------------------------------------------------------------------

    const rules = new WeakMap();
    class PluralRules {
        constructor(locales, options) {
            const given = options === undefined ? {} : options;
            const type = option(given, "type", ["cardinal", "ordinal"], "cardinal");
            WeakMapSet(rules, this, { __proto__: null, type, options: settle(locales, { ...given, style: "decimal", notation: "standard" }) });
        }
        select(value) {
            const { type, options } = WeakMapGet(rules, this);
            const { kind, decimal, isNegative } = read(value);
            if (kind !== "finite") return "other";
            const { whole, fraction } = laidOut(decimal, options, isNegative);
            if (type === "cardinal") return whole === "1" && fraction === "" ? "one" : "other";
            if (fraction !== "") return "other";
            const two = +StrSlice(whole, -2), one = two % 10;
            if (one === 1 && two !== 11) return "one";
            if (one === 2 && two !== 12) return "two";
            return one === 3 && two !== 13 ? "few" : "other";
        }
        selectRange(from, to) { return this.select(to); }
        resolvedOptions() {
            const { type, options } = WeakMapGet(rules, this);
            return { locale: options.locale, type, minimumIntegerDigits: options.minimumIntegerDigits, minimumFractionDigits: options.minimumFractionDigits,
                maximumFractionDigits: options.maximumFractionDigits, pluralCategories: type === "ordinal" ? ["few", "one", "two", "other"] : ["one", "other"] };
        }
    }
    share.intl.publish(PluralRules, "PluralRules");
})
