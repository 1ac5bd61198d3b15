// Intl for dates, in English: DateTimeFormat with the common options, time zones (UTC, offsets, and the
// well-known names by the rules that hold today), and Date's toLocaleString family.
(function (host, native, share) {
    "use strict";

    const { P, intl } = share;
    const { option, needLocales, english, join } = intl;
    const { append, matches, ReExec, RangeError, TypeError, Date, DateUTC, DateGetTime, MathFloor, MathAbs, Number, NumIsNaN, String, StrPadStart, StrToLowerCase, StrToUpperCase,
        StrSlice, StrSplit, WeakMap, WeakMapGet, WeakMapSet, hide, getter, ObjCreate, ObjKeys, ArrIncludes, own, StrIncludes } = P;
    const { now, own_kind } = native;

    const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
    const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    const pad = (value, length) => StrPadStart(String(value), length, "0");

    // ---- time zones --------------------------------------------------------------------------

    // Name → [minutes east of UTC, rule of summer time, long name, short letters]. Rules: when an hour
    // is added, as [month, which Sunday (-1 is the last), hour, hour is UTC] from and to.
    const RULES = {
        __proto__: null, us: [2, 2, 2, false, 10, 1, 2, false], eu: [2, -1, 1, true, 9, -1, 1, true], au: [9, 1, 2, false, 3, 1, 3, false],
        nz: [8, -1, 2, false, 3, 1, 3, false], cl: [8, 1, 4, true, 3, 1, 3, true],
    };
    const ZONES = { __proto__: null };
    const TABLE = "UTC 0 - Coordinated_Universal UTC|Etc/UTC 0 - Coordinated_Universal UTC|Etc/GMT 0 - Greenwich_Mean GMT|GMT 0 - Greenwich_Mean GMT|America/New_York -300 us Eastern E|America/Detroit -300 us Eastern E|America/Toronto -300 us Eastern E|US/Eastern -300 us Eastern E|America/Chicago -360 us Central C|US/Central -360 us Central C|America/Winnipeg -360 us Central C|America/Mexico_City -360 - Central C|America/Denver -420 us Mountain M|US/Mountain -420 us Mountain M|America/Edmonton -420 us Mountain M|America/Phoenix -420 - Mountain M|America/Los_Angeles -480 us Pacific P|US/Pacific -480 us Pacific P|America/Vancouver -480 us Pacific P|America/Anchorage -540 us Alaska AK|Pacific/Honolulu -600 - Hawaii-Aleutian H|America/Halifax -240 us Atlantic A|America/Puerto_Rico -240 - Atlantic A|America/Sao_Paulo -180 - Brasilia|America/Argentina/Buenos_Aires -180 - Argentina|America/Buenos_Aires -180 - Argentina|America/Bogota -300 - Colombia|America/Lima -300 - Peru|America/Caracas -240 - Venezuela|America/Santiago -240 cl Chile|Europe/London 0 eu Greenwich_Mean GMT/British_Summer|Europe/Dublin 0 eu Greenwich_Mean GMT/Irish_Standard|Europe/Lisbon 0 eu Western_European|Europe/Paris 60 eu Central_European|Europe/Berlin 60 eu Central_European|Europe/Madrid 60 eu Central_European|Europe/Rome 60 eu Central_European|Europe/Amsterdam 60 eu Central_European|Europe/Brussels 60 eu Central_European|Europe/Vienna 60 eu Central_European|Europe/Zurich 60 eu Central_European|Europe/Stockholm 60 eu Central_European|Europe/Oslo 60 eu Central_European|Europe/Copenhagen 60 eu Central_European|Europe/Warsaw 60 eu Central_European|Europe/Prague 60 eu Central_European|Europe/Budapest 60 eu Central_European|Europe/Belgrade 60 eu Central_European|Europe/Athens 120 eu Eastern_European|Europe/Helsinki 120 eu Eastern_European|Europe/Kiev 120 eu Eastern_European|Europe/Kyiv 120 eu Eastern_European|Europe/Bucharest 120 eu Eastern_European|Europe/Sofia 120 eu Eastern_European|Europe/Istanbul 180 - GMT|Europe/Moscow 180 - Moscow|Africa/Cairo 120 - Eastern_European|Africa/Johannesburg 120 - South_Africa|Africa/Lagos 60 - West_Africa|Africa/Nairobi 180 - East_Africa|Asia/Dubai 240 - Gulf|Asia/Karachi 300 - Pakistan|Asia/Kolkata 330 - India|Asia/Calcutta 330 - India|Asia/Dhaka 360 - Bangladesh|Asia/Kathmandu 345 - Nepal|Asia/Bangkok 420 - Indochina|Asia/Jakarta 420 - Western_Indonesia|Asia/Ho_Chi_Minh 420 - Indochina|Asia/Shanghai 480 - China|Asia/Hong_Kong 480 - Hong_Kong|Asia/Singapore 480 - Singapore|Asia/Taipei 480 - Taipei|Asia/Manila 480 - Philippine|Asia/Kuala_Lumpur 480 - Malaysia|Australia/Perth 480 - Australian_Western|Asia/Tokyo 540 - Japan|Asia/Seoul 540 - Korean|Australia/Brisbane 600 - Australian_Eastern|Australia/Sydney 600 au Australian_Eastern|Australia/Melbourne 600 au Australian_Eastern|Australia/Adelaide 570 au Australian_Central|Pacific/Auckland 720 nz New_Zealand|Asia/Riyadh 180 - Arabian|Asia/Tehran 210 - Iran|Asia/Jerusalem 120 - Israel";
    for (const row of StrSplit(TABLE, "|")) {
        const [name, minutes, rule, long, letters] = StrSplit(row, " ");
        ZONES[StrToLowerCase(name)] = { __proto__: null, name, minutes: +minutes, rule: RULES[rule],
            long: P.replaceAll(/_/g, long, () => " "), letters };
    }

    function zoneOf(given) {
        const text = `${given}`;
        const found = ZONES[StrToLowerCase(text)];
        if (found !== undefined) {
            return matches(/^(etc\/utc|etc\/gmt|gmt)$/i, text) ? ZONES.utc : found;
        }
        const offset = ReExec(/^([+-])(\d{2}):?(\d{2})?$/, text);
        if (offset !== null && +offset[2] < 24 && +(offset[3] || 0) < 60) {
            const minutes = (offset[1] === "-" ? -1 : 1) * (+offset[2] * 60 + +(offset[3] || 0));
            return { __proto__: null, name: `${offset[1]}${offset[2]}:${offset[3] || "00"}`, minutes, rule: undefined, long: "", letters: undefined };
        }
        throw new RangeError(`Invalid time zone specified: ${text}`);
    }

    // The time of the n-th Sunday of a month; -1 is the last.
    function sundayOf(year, month, nth, hour) {
        if (nth > 0) {
            const first = DateUTC(year, month, 1);
            return first + ((7 - weekday(first)) % 7 + 7 * (nth - 1)) * 86400000 + hour * 3600000;
        }
        const last = DateUTC(year, month + 1, 0);
        return last - weekday(last) * 86400000 + hour * 3600000;
    }
    const weekday = (time) => (((MathFloor(time / 86400000) + 4) % 7) + 7) % 7;

    function isSummer(zone, time) {
        if (zone.rule === undefined) return false;
        const year = P.DateGetUTCFullYear(new Date(time + zone.minutes * 60000));
        const [fromMonth, fromNth, fromHour, fromUtc, toMonth, toNth, toHour, toUtc] = zone.rule;
        const from = sundayOf(year, fromMonth, fromNth, fromHour) - (fromUtc ? 0 : zone.minutes * 60000);
        const to = sundayOf(year, toMonth, toNth, toHour) - (toUtc ? 0 : (zone.minutes + 60) * 60000);
        return from < to ? time >= from && time < to : time >= from || time < to;
    }

    const minutesAt = (zone, time) => zone.minutes + (isSummer(zone, time) ? 60 : 0);

    function zoneName(zone, time, kind) {
        const summer = isSummer(zone, time), minutes = minutesAt(zone, time);
        const sign = minutes < 0 ? "-" : "+", hours = MathFloor(MathAbs(minutes) / 60), rest = MathAbs(minutes) % 60;
        if (kind === "longOffset") return `GMT${sign}${pad(hours, 2)}:${pad(rest, 2)}`;
        const offset = minutes === 0 ? "GMT" : `GMT${sign}${hours}${rest ? `:${pad(rest, 2)}` : ""}`;
        if (kind === "shortOffset") return offset;
        if (kind === "long" || kind === "longGeneric") {
            if (zone.long === "" || zone.long === "GMT") return minutes === 0 ? "GMT" : `GMT${sign}${pad(hours, 2)}:${pad(rest, 2)}`;
            if (summer && zone.letters !== undefined && StrIncludes(zone.letters, "/")) {
                return P.replaceAll(/_/g, StrSplit(zone.letters, "/")[1], () => " ") + " Time";
            }
            if (zone.letters === "UTC" || StrIncludes(zone.long, "Greenwich")) return `${zone.long} Time`;
            if (kind === "longGeneric" && zone.letters !== undefined) return `${zone.long} Time`;
            return `${zone.long} ${summer ? (StrIncludes(zone.long, "European") ? "Summer" : "Daylight") : "Standard"} Time`;
        }
        if (zone.letters === "UTC") return "UTC";
        if (zone.letters !== undefined && !StrIncludes(zone.letters, "GMT")) {
            return kind === "shortGeneric" ? `${zone.letters}T` : `${zone.letters}${summer ? "D" : "S"}T`;
        }
        return offset;
    }

    // ---- options -----------------------------------------------------------------------------

    const WIDTHS = ["narrow", "short", "long"], DIGITS = ["numeric", "2-digit"];
    const FIELDS = [["weekday", WIDTHS], ["era", WIDTHS], ["year", DIGITS], ["month", ["numeric", "2-digit", "narrow", "short", "long"]], ["day", DIGITS],
        ["dayPeriod", WIDTHS], ["hour", DIGITS], ["minute", DIGITS], ["second", DIGITS]];
    const STYLES = ["full", "long", "medium", "short"];

    // needs: what must be there ("date", "time" or "any"); defaults: what is added where nothing is.
    function settle(locales, options, needs, defaults) {
        const given = options === undefined ? {} : options;
        if (given === null) throw new TypeError("Cannot convert undefined or null to object");
        const out = { __proto__: null, locale: english(needLocales(locales)), zone: given.timeZone === undefined ? ZONES.utc : zoneOf(given.timeZone) };
        let hasDate = false, hasTime = false;
        for (const [name, allowed] of FIELDS) {
            out[name] = option(given, name, allowed, undefined);
            if (out[name] !== undefined && name !== "era") {
                if (ArrIncludes(["weekday", "year", "month", "day"], name)) hasDate = true;
                else hasTime = true;
            }
        }
        out.fractionalSecondDigits = given.fractionalSecondDigits === undefined ? undefined : Number(given.fractionalSecondDigits);
        if (out.fractionalSecondDigits !== undefined) hasTime = true;
        out.timeZoneName = option(given, "timeZoneName", ["short", "long", "shortOffset", "longOffset", "shortGeneric", "longGeneric"], undefined);
        out.dateStyle = option(given, "dateStyle", STYLES, undefined);
        out.timeStyle = option(given, "timeStyle", STYLES, undefined);
        const cycle = option(given, "hourCycle", ["h11", "h12", "h23", "h24"], undefined);
        out.hour12 = given.hour12 === undefined ? (cycle === undefined ? true : cycle === "h12" || cycle === "h11") : !!given.hour12;
        out.hourCycle = given.hour12 === undefined && cycle !== undefined ? cycle : out.hour12 ? "h12" : "h23";
        if (out.dateStyle !== undefined || out.timeStyle !== undefined) {
            if (hasDate || hasTime || out.timeZoneName !== undefined) {
                throw new TypeError(`Can't set option ${hasDate ? "weekday" : "hour"} when ${out.dateStyle !== undefined ? "dateStyle" : "timeStyle"} is used`);
            }
            fromStyles(out);
            return out;
        }
        const isBare = needs === "date" ? !hasDate : needs === "time" ? !hasTime : !hasDate && !hasTime;
        if (isBare && (defaults === "date" || defaults === "all")) out.year = out.month = out.day = "numeric";
        if (isBare && (defaults === "time" || defaults === "all")) out.hour = out.minute = out.second = "numeric";
        return out;
    }

    function fromStyles(out) {
        const { dateStyle, timeStyle } = out;
        if (dateStyle !== undefined) {
            out.year = dateStyle === "short" ? "2-digit" : "numeric";
            out.month = dateStyle === "short" ? "numeric" : dateStyle === "medium" ? "short" : "long";
            out.day = "numeric";
            if (dateStyle === "full") out.weekday = "long";
        }
        if (timeStyle !== undefined) {
            out.hour = "numeric";
            out.minute = "2-digit";
            if (timeStyle !== "short") out.second = "2-digit";
            if (timeStyle === "full") out.timeZoneName = "long";
            if (timeStyle === "long") out.timeZoneName = "short";
        }
    }

    // ---- parts -------------------------------------------------------------------------------

    const put = (parts, type, value) => append(parts, { type, value });
    const literal = (parts, value) => append(parts, { type: "literal", value });

    function monthText(width, month) {
        if (width === "numeric") return String(month + 1);
        if (width === "2-digit") return pad(month + 1, 2);
        return width === "long" ? MONTHS[month] : StrSlice(MONTHS[month], 0, width === "narrow" ? 1 : 3);
    }
    const dayName = (width, day) => width === "long" ? DAYS[day] : StrSlice(DAYS[day], 0, width === "narrow" ? 1 : 3);

    function dateParts(parts, options, at) {
        const { weekday: weekdayWidth, year, month, day } = options;
        const yearText = year === undefined ? undefined : year === "2-digit" ? pad(((at.year % 100) + 100) % 100, 2)
            : String(options.era !== undefined && at.year <= 0 ? 1 - at.year : at.year);
        const dayText = day === undefined ? undefined : day === "2-digit" ? pad(at.day, 2) : String(at.day);
        const isText = month !== undefined && month !== "numeric" && month !== "2-digit";
        if (weekdayWidth !== undefined && month === undefined && year === undefined && day !== undefined) {
            put(parts, "day", dayText);
            literal(parts, " ");
            put(parts, "weekday", dayName(weekdayWidth, at.weekday));
            return;
        }
        if (weekdayWidth !== undefined) {
            if (year !== undefined && month === undefined && day === undefined) {
                put(parts, "year", yearText);
                literal(parts, " ");
                put(parts, "weekday", dayName(weekdayWidth, at.weekday));
                return;
            }
            put(parts, "weekday", dayName(weekdayWidth, at.weekday));
            if (month !== undefined || day !== undefined || year !== undefined) literal(parts, ", ");
        }
        let isBegun = false;
        if (month !== undefined) {
            put(parts, "month", monthText(month, at.month));
            isBegun = true;
        }
        if (day !== undefined) {
            if (isBegun) literal(parts, isText ? " " : "/");
            put(parts, "day", dayText);
        }
        if (year !== undefined) {
            if (isBegun || day !== undefined) literal(parts, isText ? (day === undefined ? " " : ", ") : day !== undefined && !isBegun ? " " : "/");
            put(parts, "year", yearText);
        }
        if (options.era !== undefined) {
            literal(parts, " ");
            put(parts, "era", at.year > 0 ? (options.era === "long" ? "Anno Domini" : options.era === "narrow" ? "A" : "AD") : options.era === "long" ? "Before Christ" : options.era === "narrow" ? "B" : "BC");
        }
    }

    function timeParts(parts, options, at) {
        const { hour, minute, second, hourCycle } = options;
        let isBegun = false;
        if (hour !== undefined) {
            let value = at.hour;
            if (hourCycle === "h12") value = value % 12 || 12;
            else if (hourCycle === "h11") value %= 12;
            else if (hourCycle === "h24") value = value || 24;
            put(parts, "hour", hour === "2-digit" || hourCycle === "h23" || hourCycle === "h24" ? pad(value, 2) : String(value));
            isBegun = true;
        }
        if (minute !== undefined) {
            if (isBegun) literal(parts, ":");
            put(parts, "minute", isBegun || second !== undefined ? pad(at.minute, 2) : String(at.minute));
            isBegun = true;
        }
        if (second !== undefined) {
            if (isBegun) literal(parts, ":");
            put(parts, "second", isBegun ? pad(at.second, 2) : String(at.second));
            isBegun = true;
        }
        if (options.fractionalSecondDigits !== undefined) {
            if (isBegun) literal(parts, ".");
            put(parts, "fractionalSecond", StrSlice(pad(at.ms, 3), 0, options.fractionalSecondDigits));
        }
        if (hour !== undefined && (hourCycle === "h12" || hourCycle === "h11")) {
            literal(parts, " ");
            put(parts, "dayPeriod", at.hour < 12 ? "AM" : "PM");
        }
    }

    function partsOf(options, value) {
        const time = value === undefined ? MathFloor(now()) : typeof value === "object" && own_kind(value) === "Date" ? DateGetTime(value) : Number(value);
        if (NumIsNaN(time) || MathAbs(time) > 8.64e15) throw new RangeError("Invalid time value");
        const { zone } = options;
        const local = new Date(time + minutesAt(zone, time) * 60000);
        const at = { __proto__: null, year: P.DateGetUTCFullYear(local), month: P.DateGetUTCMonth(local), day: P.DateGetUTCDate(local), weekday: P.DateGetUTCDay(local),
            hour: P.DateGetUTCHours(local), minute: P.DateGetUTCMinutes(local), second: P.DateGetUTCSeconds(local), ms: P.DateGetUTCMilliseconds(local) };
        const parts = [];
        dateParts(parts, options, at);
        const hasTime = options.hour !== undefined || options.minute !== undefined || options.second !== undefined || options.fractionalSecondDigits !== undefined;
        if (hasTime) {
            if (parts.length > 0) {
                literal(parts, options.weekday !== undefined && options.month === undefined && options.day === undefined && options.year === undefined ? " " : options.month === "long" ? " at " : ", ");
            }
            timeParts(parts, options, at);
        }
        if (options.timeZoneName !== undefined) {
            if (parts.length > 0) literal(parts, hasTime ? " " : ", ");
            put(parts, "timeZoneName", zoneName(zone, time, options.timeZoneName));
        }
        return parts;
    }

    // ---- the class ---------------------------------------------------------------------------

    const formats = new WeakMap();
    function DateTimeFormat(locales, options) {
        const self = new.target ? this : ObjCreate(DateTimeFormat.prototype);
        WeakMapSet(formats, self, { __proto__: null, options: settle(locales, options, "any", "date"), bound: undefined });
        return self;
    }
    const of = (format) => {
        const found = WeakMapGet(formats, format);
        if (found === undefined) throw new TypeError("Method Intl.DateTimeFormat.prototype.format called on incompatible receiver");
        return found;
    };
    getter(DateTimeFormat.prototype, "format", function () {
        const self = of(this);
        if (self.bound === undefined) self.bound = (value) => join(partsOf(self.options, value));
        return self.bound;
    });
    // Only the parts have the narrow space before AM; the whole text has a plain one, as in V8.
    hide(DateTimeFormat.prototype, "formatToParts", function formatToParts(value) {
        const parts = partsOf(of(this).options, value);
        for (let i = 1; i < parts.length; i++) if (parts[i].type === "dayPeriod") parts[i - 1].value = "\u202f";
        return parts;
    });
    hide(DateTimeFormat.prototype, "formatRange", function formatRange(from, to) {
        const { options } = of(this), a = join(partsOf(options, from)), b = join(partsOf(options, to));
        return a === b ? a : `${a}\u2009–\u2009${b}`;
    });
    hide(DateTimeFormat.prototype, "resolvedOptions", function resolvedOptions() {
        const { options } = of(this);
        const out = { locale: options.locale, calendar: "gregory", numberingSystem: "latn", timeZone: options.zone.name };
        if (options.hour !== undefined) {
            out.hourCycle = options.hourCycle;
            out.hour12 = options.hourCycle === "h12" || options.hourCycle === "h11";
        }
        if (options.dateStyle === undefined && options.timeStyle === undefined) {
            for (const [name] of FIELDS) if (options[name] !== undefined) out[name] = name === "minute" || name === "second" ? "2-digit" : options[name];
            if (options.timeZoneName !== undefined) out.timeZoneName = options.timeZoneName;
        } else {
            if (options.dateStyle !== undefined) out.dateStyle = options.dateStyle;
            if (options.timeStyle !== undefined) out.timeStyle = options.timeStyle;
        }
        return out;
    });
    share.intl.publish(DateTimeFormat, "DateTimeFormat");

    function localeText(date, locales, options, needs, defaults) {
        const time = DateGetTime(date);
        if (NumIsNaN(time)) return "Invalid Date";
        return join(partsOf(settle(locales, options, needs, defaults), time));
    }
    // The local time is UTC here, and has a name.
    const named = (text) => text === "Invalid Date" ? text : `${text} (Coordinated Universal Time)`;
    hide(Date.prototype, "toString", function toString() { return named(P.DateToString(this)); });
    hide(Date.prototype, "toTimeString", function toTimeString() { return named(P.DateToTimeString(this)); });
    hide(Date.prototype, "toLocaleString", function toLocaleString(locales, options) { return localeText(this, locales, options, "any", "all"); });
    hide(Date.prototype, "toLocaleDateString", function toLocaleDateString(locales, options) { return localeText(this, locales, options, "date", "date"); });
    hide(Date.prototype, "toLocaleTimeString", function toLocaleTimeString(locales, options) { return localeText(this, locales, options, "time", "time"); });
    share.intl.zoneNames = () => {
        const out = [];
        for (const key in ZONES) append(out, ZONES[key].name);
        return P.ArrSort(out);
    };
})
