// Text and bytes as the web has them: TextEncoder, TextDecoder, atob and btoa; and the globals that
// need no file of their own (global, performance, navigator).
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { StrToLowerCase, StrTrim, StrCharCodeAt, StrSlice, StrIndexOf, Uint8Array, TaSet, TaSubarray, TaLength, TypeError,
        RangeError, DOMException, String, bytesOf, webClass, WeakMap, WeakMapGet, WeakMapSet, matches, replaceAll,
        ObjDefineProperty, append, hide } = P;
    const { utf8_encode, utf8_decode, units_decode, units_encode, base64_encode, base64_decode } = native;

    class TextEncoder {
        get encoding() { return "utf-8"; }
        encode(text = "") { return utf8_encode(`${text}`); }
        encodeInto(text, target) {
            let read = 0, written = 0;
            const room = TaLength(target);
            text = `${text}`;
            const all = utf8_encode(text);
            if (all.length <= room) {
                TaSet(target, all);
                return { read: text.length, written: all.length };
            }
            while (read < text.length) {
                const code = StrCharCodeAt(text, read);
                const isPair = code >= 0xd800 && code < 0xdc00 && read + 1 < text.length &&
                    (StrCharCodeAt(text, read + 1) & 0xfc00) === 0xdc00;
                const size = isPair ? 4 : code < 0x80 ? 1 : code < 0x800 ? 2 : 3;
                if (written + size > room) break;
                written += size;
                read += isPair ? 2 : 1;
            }
            TaSet(target, TaSubarray(all, 0, written));
            return { read, written };
        }
    }
    webClass(TextEncoder, "TextEncoder");

    const LABELS = {
        __proto__: null, "utf-8": "utf-8", utf8: "utf-8", "unicode-1-1-utf-8": "utf-8", unicode11utf8: "utf-8",
        "utf-16le": "utf-16le", "utf-16": "utf-16le", ucs2: "utf-16le", "ucs-2": "utf-16le", unicode: "utf-16le",
        "iso-10646-ucs-2": "utf-16le", latin1: "windows-1252", "iso-8859-1": "windows-1252", ascii: "windows-1252",
        "us-ascii": "windows-1252", "windows-1252": "windows-1252", "iso8859-1": "windows-1252", l1: "windows-1252",
        "x-cp1252": "windows-1252", cp1252: "windows-1252",
    };
    // What windows-1252 has where Latin-1 has control characters.
    const HIGH = "\u20ac\x81\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\x8d\u017d\x8f" +
        "\x90\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\x9d\u017e\u0178";

    const inner = new WeakMap();

    // How many bytes at the end may be the start of a character that goes on.
    function unfinished(bytes) {
        const length = bytes.length;
        for (let back = 1; back <= 3 && back <= length; back++) {
            const byte = bytes[length - back];
            if (byte >= 0xc0) {
                const need = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
                return byte <= 0xf4 && need > back ? back : 0;
            }
            if (byte < 0x80) return 0;
        }
        return 0;
    }

    class TextDecoder {
        constructor(label = "utf-8", options = {}) {
            const name = LABELS[StrToLowerCase(StrTrim(`${label}`))];
            if (name === undefined) {
                throw share.codeError(RangeError, "ERR_ENCODING_NOT_SUPPORTED",
                    `The "${label}" encoding is not supported`);
            }
            WeakMapSet(inner, this, { __proto__: null, name, fatal: !!(options && options.fatal),
                ignoreBOM: !!(options && options.ignoreBOM), kept: undefined, isStarted: false });
        }
        get encoding() { return WeakMapGet(inner, this).name; }
        get fatal() { return WeakMapGet(inner, this).fatal; }
        get ignoreBOM() { return WeakMapGet(inner, this).ignoreBOM; }
        decode(input, options) {
            const self = WeakMapGet(inner, this);
            let bytes = input === undefined ? new Uint8Array(0) : bytesOf(input);
            if (bytes === undefined) {
                throw share.wrongType("list", "an instance of SharedArrayBuffer, ArrayBuffer or ArrayBufferView", input);
            }
            const isStream = !!(options && options.stream);
            if (self.kept !== undefined) {
                const joined = new Uint8Array(self.kept.length + bytes.length);
                TaSet(joined, self.kept);
                TaSet(joined, bytes, self.kept.length);
                bytes = joined;
                self.kept = undefined;
            }
            if (isStream) {
                const keep = self.name === "utf-8" ? unfinished(bytes) : self.name === "utf-16le" ? bytes.length & 1 : 0;
                if (keep > 0) {
                    self.kept = new Uint8Array(TaSubarray(bytes, bytes.length - keep));
                    bytes = TaSubarray(bytes, 0, bytes.length - keep);
                }
            }
            let text;
            if (self.name === "utf-8") {
                text = utf8_decode(bytes, 0, bytes.length, self.fatal);
                if (text === undefined) {
                    throw share.codeError(TypeError, "ERR_ENCODING_INVALID_ENCODED_DATA",
                        "The encoded data was not valid for encoding utf-8");
                }
            } else if (self.name === "utf-16le") {
                text = units_decode(bytes, 0, bytes.length, 2) + (bytes.length & 1 ? "\ufffd" : "");
            } else {
                text = replaceAll(/[\x80-\x9f]/g, units_decode(bytes, 0, bytes.length, 0),
                    (found) => HIGH[StrCharCodeAt(found[0], 0) - 0x80]);
            }
            if (!self.isStarted && !self.ignoreBOM && StrCharCodeAt(text, 0) === 0xfeff) text = StrSlice(text, 1);
            self.isStarted = isStream && (self.isStarted || bytes.length > 0);
            return text;
        }
    }
    webClass(TextDecoder, "TextDecoder");

    function needInput(args) {
        if (args.length === 0) throw share.codeError(TypeError, "ERR_MISSING_ARGS", 'The "input" argument must be specified');
    }
    function atob(input) {
        needInput(arguments);
        let text = replaceAll(/[\t\n\f\r ]+/g, `${input}`, () => "");
        if (text.length % 4 === 0) text = replaceAll(/={1,2}$/g, text, () => "");
        if (matches(/[^A-Za-z0-9+/=]|=[^=]/, text)) throw new DOMException("Invalid character", "InvalidCharacterError");
        if (text.length % 4 === 1 || StrIndexOf(text, "=") >= 0) {
            throw new DOMException("The string to be decoded is not correctly encoded.", "InvalidCharacterError");
        }
        const bytes = base64_decode(text);
        return units_decode(bytes, 0, bytes.length, 0);
    }
    function btoa(input) {
        needInput(arguments);
        const text = `${input}`;
        if (matches(/[^\0-\xff]/, text)) {
            throw new DOMException("Invalid character", "InvalidCharacterError");
        }
        return base64_encode(units_encode(text, 0));
    }
    share.define("atob", atob);
    share.define("btoa", btoa);
    share.define("global", globalThis);
    share.TextEncoder = TextEncoder;
    share.TextDecoder = TextDecoder;
    share.atob = atob;
    share.btoa = btoa;

    // ---- performance -------------------------------------------------------------------------

    const { monotonic, now } = native;
    let origin;
    class Performance {
        now() {
            if (origin === undefined) origin = monotonic();
            return monotonic() - origin;
        }
        get timeOrigin() { return now() - this.now(); }
        mark(name) { return { name: `${name}`, entryType: "mark", startTime: this.now(), duration: 0, detail: null }; }
        measure(name, from, to) {
            const start = from && from.startTime !== undefined ? from.startTime : 0;
            const end = to && to.startTime !== undefined ? to.startTime : this.now();
            return { name: `${name}`, entryType: "measure", startTime: start, duration: end - start, detail: null };
        }
        toJSON() { return { timeOrigin: this.timeOrigin }; }
    }
    const performance = new Performance();
    ObjDefineProperty(Performance.prototype, Symbol.toStringTag, { __proto__: null, value: "Performance", configurable: true });
    share.define("performance", performance);
    share.beginClock = () => { origin = undefined; };
    share.builtins.perf_hooks = { performance };
    share.define("navigator", { hardwareConcurrency: 1, language: "en-US", languages: ["en-US"], platform: "linux", userAgent: "cove" });
})
