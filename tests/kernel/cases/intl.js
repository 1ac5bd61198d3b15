//// numbers by default
for (const n of [0, -0, 1, 12, 1234, 1234567.891, 0.1234, 1e21, 1e-7, -1234.5, NaN, Infinity, -Infinity, 1.005, 2.5, 123456789012345680000, 0.0005, 999.9995]) console.log(n.toLocaleString(), n.toLocaleString("en-US"));
//// bigints
console.log(123456789012345678901234567890n.toLocaleString(), (-5n).toLocaleString("en-US", { style: "currency", currency: "USD" }));
//// fraction digits
for (const n of [1, 1.5, 1.005, 1.255, 2.345, 1234.5678, 0.5, -0.004]) console.log(n.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }), n.toLocaleString("en-US", { maximumFractionDigits: 0 }), n.toLocaleString("en-US", { minimumFractionDigits: 1 }), n.toLocaleString(undefined, { maximumFractionDigits: 1 }));
//// significant digits
for (const n of [0, 1, 123456, 0.00123456, 99999, 1.5]) console.log(n.toLocaleString("en-US", { maximumSignificantDigits: 3 }), n.toLocaleString("en-US", { minimumSignificantDigits: 4 }), n.toLocaleString("en-US", { minimumSignificantDigits: 2, maximumSignificantDigits: 2 }));
//// integer digits and grouping
console.log((5).toLocaleString("en-US", { minimumIntegerDigits: 3 }), (12345).toLocaleString("en-US", { useGrouping: false }), (1234).toLocaleString("en-US", { useGrouping: "min2" }), (12345).toLocaleString("en-US", { useGrouping: "min2" }), (1234).toLocaleString("en-US", { useGrouping: true }));
//// currency
for (const c of ["USD", "EUR", "GBP", "JPY", "INR", "CHF", "CAD", "BRL", "KRW", "XYZ", "BHD"]) console.log((1234.5).toLocaleString("en-US", { style: "currency", currency: c }), (-0.5).toLocaleString("en-US", { style: "currency", currency: c }), (1).toLocaleString("en-US", { style: "currency", currency: c, currencyDisplay: "code" }));
//// currency names
console.log((1).toLocaleString("en-US", { style: "currency", currency: "USD", currencyDisplay: "name" }), (2).toLocaleString("en-US", { style: "currency", currency: "EUR", currencyDisplay: "name" }), (2).toLocaleString("en-US", { style: "currency", currency: "JPY", currencyDisplay: "name" }), (2).toLocaleString("en-US", { style: "currency", currency: "CAD", currencyDisplay: "narrowSymbol" }), (-5).toLocaleString("en-US", { style: "currency", currency: "USD", currencySign: "accounting" }), (1234.5).toLocaleString("en-US", { style: "currency", currency: "USD", maximumFractionDigits: 0 }), (1234.567).toLocaleString("en-US", { style: "currency", currency: "USD", minimumFractionDigits: 3 }));
//// percent
for (const n of [0.256, 1, 0, 0.005, 12.3456, -0.5]) console.log(n.toLocaleString("en-US", { style: "percent" }), n.toLocaleString("en-US", { style: "percent", maximumFractionDigits: 1 }), n.toLocaleString("en-US", { style: "percent", minimumFractionDigits: 2 }));
//// units
for (const u of ["kilometer", "celsius", "byte", "megabyte", "liter", "hour", "day", "percent", "mile-per-hour", "kilometer-per-hour", "foot", "second", "kilobyte", "gigabyte"]) for (const unitDisplay of ["short", "long", "narrow"]) console.log((1).toLocaleString("en-US", { style: "unit", unit: u, unitDisplay }), (16.5).toLocaleString("en-US", { style: "unit", unit: u, unitDisplay }));
//// compact
for (const n of [0, 5, 99, 999, 1000, 1234, 9999, 12345, 99950, 999999, 1234567, 15e6, 1.5e9, 2e12, 3e15, 0.123, -1500, 999500]) console.log(n.toLocaleString("en-US", { notation: "compact" }), n.toLocaleString("en-US", { notation: "compact", compactDisplay: "long" }), n.toLocaleString("en-US", { notation: "compact", maximumFractionDigits: 1 }));
//// compact currency
console.log((1234567).toLocaleString("en-US", { notation: "compact", style: "currency", currency: "USD" }), (950).toLocaleString("en-US", { notation: "compact", style: "currency", currency: "USD" }));
//// scientific
for (const n of [0, 1, 12345, 0.00012, 9.999e10]) console.log(n.toLocaleString("en-US", { notation: "scientific" }), n.toLocaleString("en-US", { notation: "engineering" }), n.toLocaleString("en-US", { notation: "scientific", maximumFractionDigits: 1 }));
//// signs
for (const n of [5, -5, 0, -0]) for (const signDisplay of ["auto", "always", "never", "exceptZero", "negative"]) console.log(n.toLocaleString("en-US", { signDisplay }));
//// rounding modes
for (const roundingMode of ["ceil", "floor", "expand", "trunc", "halfCeil", "halfFloor", "halfExpand", "halfTrunc", "halfEven"]) console.log(roundingMode, [1.5, 2.5, -1.5, -2.5, 1.1, -1.1].map((n) => n.toLocaleString("en-US", { maximumFractionDigits: 0, roundingMode })).join(" "));
//// number parts
console.log(new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" }).formatToParts(-1234.5), new Intl.NumberFormat("en-US", { notation: "compact" }).formatToParts(12345), new Intl.NumberFormat("en-US", { style: "unit", unit: "liter" }).formatToParts(3));
//// number resolved options
const ro = new Intl.NumberFormat("en-US", { style: "currency", currency: "eur" }).resolvedOptions(); console.log(ro.locale, ro.numberingSystem, ro.style, ro.currency, ro.minimumFractionDigits, ro.maximumFractionDigits, ro.useGrouping, ro.notation, ro.signDisplay); console.log([1, 2].map(new Intl.NumberFormat("en-US").format), Intl.NumberFormat("en-US").format(5), Intl.NumberFormat.supportedLocalesOf(["en-US"]));
//// number errors
for (const o of [{ style: "currency" }, { style: "x" }, { style: "unit", unit: "q" }, { maximumFractionDigits: 101 }, { minimumFractionDigits: 3, maximumFractionDigits: 1 }, { currency: "US", style: "currency" }]) { try { new Intl.NumberFormat("en-US", o); console.log("ok"); } catch (e) { console.log(e.name); } }
//// dates by default
const d = new Date(Date.UTC(2024, 0, 5, 15, 4, 9, 87)); console.log(d.toLocaleString(), "|", d.toLocaleDateString(), "|", d.toLocaleTimeString(), "|", d.toLocaleString("en-US"), "|", new Date(NaN).toLocaleString(), "|", new Intl.DateTimeFormat("en-US").format(d));
//// date styles
const d2 = new Date(Date.UTC(2024, 10, 25, 0, 4, 9)); for (const s of ["full", "long", "medium", "short"]) console.log(d2.toLocaleDateString("en-US", { dateStyle: s }), "|", d2.toLocaleTimeString("en-US", { timeStyle: s }), "|", d2.toLocaleString("en-US", { dateStyle: s, timeStyle: "short" }), "|", d2.toLocaleString("en-US", { dateStyle: "short", timeStyle: s }));
//// date fields
const d3 = new Date(Date.UTC(2024, 2, 7, 9, 5, 3)); for (const o of [{ year: "numeric" }, { month: "long" }, { month: "short" }, { month: "narrow" }, { month: "2-digit" }, { day: "numeric" }, { weekday: "long" }, { weekday: "short" }, { year: "numeric", month: "long" }, { year: "numeric", month: "short", day: "numeric" }, { year: "numeric", month: "long", day: "numeric" }, { weekday: "long", year: "numeric", month: "long", day: "numeric" }, { weekday: "short", month: "short", day: "numeric" }, { month: "short", day: "numeric" }, { month: "numeric", day: "numeric" }, { year: "numeric", month: "2-digit", day: "2-digit" }, { year: "2-digit", month: "2-digit", day: "2-digit" }, { year: "numeric", month: "numeric" }, { weekday: "short", year: "numeric", month: "numeric", day: "numeric" }, { month: "long", day: "2-digit" }]) console.log(JSON.stringify(o), d3.toLocaleDateString("en-US", o));
//// time fields
const d4 = new Date(Date.UTC(2024, 2, 7, 13, 5, 3, 45)); for (const o of [{ hour: "numeric" }, { hour: "numeric", minute: "2-digit" }, { hour: "2-digit", minute: "2-digit" }, { hour: "2-digit", minute: "2-digit", hour12: false }, { hour: "numeric", minute: "numeric", second: "numeric" }, { minute: "2-digit", second: "2-digit" }, { hour12: false }, { hourCycle: "h23", hour: "numeric", minute: "numeric" }, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false }, { hour: "numeric", hour12: true }]) console.log(JSON.stringify(o), d4.toLocaleTimeString("en-US", o));
//// dates and times together
const d5 = new Date(Date.UTC(2024, 2, 7, 13, 5, 3)); for (const o of [{ year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit" }, { year: "numeric", month: "long", day: "numeric", hour: "numeric", minute: "2-digit" }, { month: "numeric", day: "numeric", hour: "numeric" }, { dateStyle: "medium", timeStyle: "medium" }, { weekday: "long", hour: "numeric" }, { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }, { timeZoneName: "short" }]) console.log(JSON.stringify(o), d5.toLocaleString("en-US", o));
//// time zones
const d6 = new Date(Date.UTC(2024, 6, 4, 16, 30)), d7 = new Date(Date.UTC(2024, 0, 4, 16, 30)); for (const timeZone of ["UTC", "America/New_York", "America/Los_Angeles", "America/Phoenix", "Europe/London", "Europe/Berlin", "Asia/Tokyo", "Asia/Kolkata", "Asia/Shanghai", "Australia/Sydney", "Pacific/Auckland", "Asia/Kathmandu", "America/Sao_Paulo"]) console.log(timeZone, d6.toLocaleString("en-US", { timeZone }), d7.toLocaleString("en-US", { timeZone }), d6.toLocaleTimeString("en-US", { timeZone, timeZoneName: "short" }), d7.toLocaleTimeString("en-US", { timeZone, timeZoneName: "longOffset" }));
//// time zone names
const d8 = new Date(Date.UTC(2024, 6, 4, 16, 30)); for (const timeZone of ["UTC", "America/New_York", "Europe/London", "Europe/Paris", "Asia/Tokyo", "Asia/Kolkata"]) console.log(d8.toLocaleTimeString("en-US", { timeZone, timeZoneName: "long" })); try { d8.toLocaleString("en-US", { timeZone: "Nowhere/City" }); } catch (e) { console.log(e.name, e.message); }
//// changes of summer time
for (const t of [Date.UTC(2024, 2, 10, 6, 59), Date.UTC(2024, 2, 10, 7, 0), Date.UTC(2024, 10, 3, 5, 59), Date.UTC(2024, 10, 3, 6, 0)]) console.log(new Date(t).toLocaleString("en-US", { timeZone: "America/New_York", timeZoneName: "short" })); for (const t of [Date.UTC(2024, 2, 31, 0, 59), Date.UTC(2024, 2, 31, 1, 0), Date.UTC(2024, 9, 27, 0, 59), Date.UTC(2024, 9, 27, 1, 0)]) console.log(new Date(t).toLocaleTimeString("en-US", { timeZone: "Europe/Berlin" }));
//// date parts and options
const f = new Intl.DateTimeFormat("en-US", { year: "numeric", month: "short", day: "2-digit", hour: "numeric", minute: "2-digit", timeZone: "UTC" }); console.log(f.formatToParts(new Date(0)).map((p) => `${p.type}:${p.value}`).join("|")); const o = f.resolvedOptions(); console.log(o.locale, o.calendar, o.timeZone, o.year, o.month, o.day, o.hour12, Intl.DateTimeFormat().resolvedOptions().timeZone);
//// plural rules
const pr = new Intl.PluralRules("en-US"), po = new Intl.PluralRules("en-US", { type: "ordinal" }); console.log([0, 1, 2, 1.5, 1.0, -1, 100].map((n) => pr.select(n)), [1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 101, 111].map((n) => po.select(n)));
//// lists
for (const type of ["conjunction", "disjunction", "unit"]) for (const style of ["long", "short", "narrow"]) console.log([[], ["a"], ["a", "b"], ["a", "b", "c"]].map((l) => new Intl.ListFormat("en", { type, style }).format(l)));
//// relative time
for (const numeric of ["always", "auto"]) for (const style of ["long", "short", "narrow"]) { const r = new Intl.RelativeTimeFormat("en", { numeric, style }); console.log(numeric, style, ["second", "minute", "hour", "day", "week", "month", "quarter", "year"].map((u) => [-2, -1, 0, 1, 5].map((n) => r.format(n, u)).join(", ")).join("; ")); } console.log(new Intl.RelativeTimeFormat("en").format(-1.5, "days"), new Intl.RelativeTimeFormat("en").format(12345, "day"));
//// collation
console.log(["b", "A", "a", "B", "á", "Z", "_", "1", "10", "2", "é", "e", "f", " "].sort((a, b) => a.localeCompare(b)), ["item10", "item9", "item1"].sort(new Intl.Collator("en", { numeric: true }).compare), "a".localeCompare("A"), "a".localeCompare("b"), "a".localeCompare("A", undefined, { sensitivity: "base" }), "a".localeCompare("á", "en", { sensitivity: "base" }), "a".localeCompare("á", "en", { sensitivity: "accent" }), "résumé".localeCompare("resume"), "co-op".localeCompare("coop"), "".localeCompare("a"));
//// segments
console.log([...new Intl.Segmenter("en", { granularity: "grapheme" }).segment("a👨‍👩‍👧é🇺🇸")].map((s) => s.segment), [...new Intl.Segmenter("en", { granularity: "word" }).segment("Hello, world 42!")].map((s) => [s.segment, s.isWordLike]));
//// arrays and others
console.log([1234.5, new Date(0)].toLocaleString("en-US"), "i".toLocaleUpperCase(), Intl.getCanonicalLocales("EN-us"), Object.prototype.toString.call(Intl), new Intl.Locale("en-Latn-US").language);
