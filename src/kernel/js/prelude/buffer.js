// Buffer: a Uint8Array with Node's methods. Encodings and searches are the natives'; numbers are
// read and written through a DataView over the same memory.
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { Uint8Array, ArrayBuffer, DataView, TaBuffer, TaByteOffset, TaByteLength, TaLength, TaSet, TaSubarray, TaFill, StrToLowerCase,
        TypeError, RangeError, Error, MathMin, MathMax, MathTrunc, Number, NumIsNaN, append, hide, isBuffer, isView, bytesOf,
        ObjSetPrototypeOf, ArrIsArray, String, ObjDefineProperty, StrRepeat, StrSlice, TaSymbolToStringTag, BufByteLength,
        BigInt, NumIsInteger, StrCharCodeAt } = P;
    const { utf8_encode, utf8_decode, utf8_length, units_encode, units_decode, hex_encode, hex_decode, base64_encode,
        base64_decode, compare, index_of } = native;

    const NAMES = {
        __proto__: null, utf8: "utf8", "utf-8": "utf8", hex: "hex", base64: "base64", base64url: "base64url", latin1: "latin1",
        binary: "latin1", ascii: "ascii", ucs2: "utf16le", "ucs-2": "utf16le", utf16le: "utf16le", "utf-16le": "utf16le",
    };

    function encodingOf(name) {
        if (name === undefined || name === null || name === "") return "utf8";
        const found = NAMES[name] || NAMES[StrToLowerCase(`${name}`)];
        if (found === undefined) throw share.codeError(TypeError, "ERR_UNKNOWN_ENCODING", `Unknown encoding: ${name}`);
        return found;
    }

    function encode(text, encoding) {
        switch (encoding) {
        case "utf8": return utf8_encode(text);
        case "hex": return hex_decode(text);
        case "base64": case "base64url": return base64_decode(text);
        case "utf16le": return units_encode(text, 2);
        default: return units_encode(text, 0);
        }
    }

    function decode(bytes, encoding, from, to) {
        switch (encoding) {
        case "utf8": return utf8_decode(bytes, from, to, false);
        case "hex": return hex_encode(bytes, from, to);
        case "base64": return base64_encode(bytes, from, to, false);
        case "base64url": return base64_encode(bytes, from, to, true);
        case "utf16le": return units_decode(bytes, from, to, 2);
        case "ascii": return units_decode(bytes, from, to, 1);
        default: return units_decode(bytes, from, to, 0);
        }
    }

    // The bytes as a Buffer, over the same memory.
    function made(bytes) {
        return ObjSetPrototypeOf(bytes, Buffer.prototype);
    }

    function index(value, otherwise, length) {
        if (value === undefined) return otherwise;
        value = MathTrunc(+value) || 0;
        if (value < 0) value += length;
        return value < 0 ? 0 : value > length ? length : value;
    }

    function ofSize(size) {
        if (typeof size !== "number") throw share.wrongType("size", "number", size);
        if (!(size >= 0 && size <= 4294967296)) throw share.outOfRange("size", ">= 0 && <= 4294967296", size);
        return made(new Uint8Array(size));
    }

    function fromValue(value, second, third) {
        if (typeof value === "string") return made(encode(value, encodingOf(second)));
        if (typeof value === "object" && value !== null) {
            if (isBuffer(value)) {
                const offset = second === undefined ? 0 : +second || 0;
                if (offset > BufByteLength(value)) {
                    throw share.codeError(RangeError, "ERR_BUFFER_OUT_OF_BOUNDS", '"offset" is outside of buffer bounds');
                }
                return made(third === undefined ? new Uint8Array(value, offset) : new Uint8Array(value, offset, MathMax(0, third)));
            }
            if (TaSymbolToStringTag(value) !== undefined || ArrIsArray(value)) return made(new Uint8Array(value));
            const inner = typeof value.valueOf === "function" ? value.valueOf() : undefined;
            if (inner !== undefined && inner !== null && inner !== value && (typeof inner === "string" || typeof inner === "object")) {
                return fromValue(inner, second, third);
            }
            if (value.type === "Buffer" && ArrIsArray(value.data)) return made(new Uint8Array(value.data));
            if (value.length !== undefined) {
                return typeof value.length === "number" ? made(new Uint8Array(P.ArrFrom(value))) : made(new Uint8Array(0));
            }
            const primitive = value[Symbol.toPrimitive];
            if (typeof primitive === "function") {
                const text = P.apply(primitive, value, ["string"]);
                if (typeof text === "string") return made(encode(text, encodingOf(second)));
            }
        }
        throw share.codeError(TypeError, "ERR_INVALID_ARG_TYPE",
            "The first argument must be of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object." +
            P.StrSlice(share.wrongType("x argument", "y", value).message, "The x argument must be y.".length));
    }

    function Buffer(value, second, third) {
        if (typeof value === "number") {
            if (typeof second === "string") throw share.wrongType("string", "string", value);
            return ofSize(value);
        }
        return fromValue(value, second, third);
    }
    ObjSetPrototypeOf(Buffer, Uint8Array);
    Buffer.prototype = P.ObjCreate(Uint8Array.prototype);
    hide(Buffer.prototype, "constructor", Buffer);
    Buffer.poolSize = 8192;

    const statics = {
        from: fromValue,
        alloc(size, fill, encoding) {
            const out = ofSize(size);
            return fill === undefined || fill === 0 || size === 0 ? out : out.fill(fill, encoding);
        },
        allocUnsafe(size) { return ofSize(size); },
        allocUnsafeSlow(size) { return ofSize(size); },
        of(...items) { return made(new Uint8Array(items)); },
        isBuffer(value) { return value instanceof Buffer; },
        isEncoding(name) { return typeof name === "string" && name !== "" && NAMES[StrToLowerCase(name)] !== undefined; },
        byteLength(value, encoding) {
            if (typeof value !== "string") {
                const bytes = bytesOf(value);
                if (bytes !== undefined) return bytes.length;
                throw share.wrongType("string", "of type string or an instance of Buffer or ArrayBuffer", value);
            }
            const name = NAMES[encoding] || (encoding && NAMES[StrToLowerCase(`${encoding}`)]) || "utf8";
            switch (name) {
            case "utf8": return utf8_length(value);
            case "hex": return value.length >>> 1;
            case "utf16le": return value.length * 2;
            case "latin1": case "ascii": return value.length;
            default: return base64_decode(value).length;
            }
        },
        compare(a, b) { return compare(needBytes(a, "buf1"), needBytes(b, "buf2")); },
        concat(list, total) {
            if (!ArrIsArray(list)) throw share.wrongType("list", "an instance of Array", list);
            let length = 0;
            for (let i = 0; i < list.length; i++) length += needBytes(list[i], `list[${i}]`).length;
            if (total === undefined) total = length;
            const out = ofSize(total);
            let at = 0;
            for (let i = 0; i < list.length && at < total; i++) {
                const part = at + list[i].length > total ? TaSubarray(list[i], 0, total - at) : list[i];
                TaSet(out, part, at);
                at += part.length;
            }
            return out;
        },
        copyBytesFrom(view, offset, length) {
            const step = TaByteLength(view) / TaLength(view);
            const from = (offset || 0) * step;
            const bytes = bytesOf(view);
            return made(new Uint8Array(TaSubarray(bytes, from, length === undefined ? bytes.length : from + length * step)));
        },
    };
    for (const name of P.ObjKeys(statics)) hide(Buffer, name, statics[name]);

    function needBytes(value, name) {
        const bytes = isView(value) ? bytesOf(value) : undefined;
        if (bytes === undefined) throw share.wrongType(name, "an instance of Buffer or Uint8Array", value);
        return bytes;
    }

    // Where a search begins, as Node reads its second argument.
    function search(buffer, wanted, from, encoding, isBackward) {
        const length = TaLength(buffer);
        if (typeof from === "string") {
            encoding = from;
            from = undefined;
        }
        let start = from === undefined ? (isBackward ? length : 0) : +from;
        if (NumIsNaN(start)) start = isBackward ? length : 0;
        start = MathTrunc(start);
        if (start < 0) start += length;
        if (start < 0) {
            if (isBackward) return -1;
            start = 0;
        }
        let bytes;
        if (typeof wanted === "string") bytes = encode(wanted, encodingOf(encoding));
        else if (typeof wanted === "number") bytes = new Uint8Array([wanted & 255]);
        else if (isView(wanted)) bytes = bytesOf(wanted);
        else throw share.wrongType("value", "one of type number or string or an instance of Buffer or Uint8Array", wanted);
        if (bytes.length === 0) return MathMin(start, length);
        if (start >= length) {
            if (!isBackward) return -1;
            start = length - 1;
        }
        return index_of(buffer, bytes, start, isBackward);
    }

    const methods = {
        toString(encoding, start, end) {
            const length = TaLength(this);
            if (arguments.length === 0) return utf8_decode(this, 0, length, false);
            const from = start === undefined ? 0 : MathMax(0, MathTrunc(+start) || 0);
            const to = end === undefined ? length : MathMin(length, MathTrunc(+end) || 0);
            if (from >= to) return "";
            return decode(this, encodingOf(encoding), from, to);
        },
        toLocaleString(encoding, start, end) { return this.toString(encoding, start, end); },
        toJSON() {
            const data = [];
            for (let i = 0; i < this.length; i++) append(data, this[i]);
            return { type: "Buffer", data };
        },
        equals(other) {
            if (!isView(other)) throw share.wrongType("otherBuffer", "an instance of Buffer or Uint8Array", other);
            return compare(this, bytesOf(other)) === 0;
        },
        compare(target, targetStart, targetEnd, start, end) {
            const other = needBytes(target, "target");
            const a = TaSubarray(this, start === undefined ? 0 : start, end === undefined ? this.length : end);
            const b = TaSubarray(other, targetStart === undefined ? 0 : targetStart, targetEnd === undefined ? other.length : targetEnd);
            return compare(a, b);
        },
        indexOf(value, from, encoding) { return search(this, value, from, encoding, false); },
        lastIndexOf(value, from, encoding) { return search(this, value, from, encoding, true); },
        includes(value, from, encoding) { return search(this, value, from, encoding, false) !== -1; },
        subarray(start, end) {
            const length = TaLength(this);
            const from = index(start, 0, length), to = index(end, length, length);
            return made(new Uint8Array(TaBuffer(this), TaByteOffset(this) + from, MathMax(0, to - from)));
        },
        slice(start, end) { return P.apply(methods.subarray, this, [start, end]); },
        copy(target, targetStart, start, end) {
            const to = needBytes(target, "target");
            const at = targetStart === undefined ? 0 : MathTrunc(+targetStart) || 0;
            const from = start === undefined ? 0 : MathTrunc(+start) || 0;
            const until = end === undefined ? this.length : MathMin(this.length, MathTrunc(+end) || 0);
            if (at < 0) throw share.outOfRange("targetStart", ">= 0", at);
            if (from < 0 || from > this.length) throw share.outOfRange("sourceStart", `>= 0 && <= ${this.length}`, from);
            if (at >= to.length || from >= until) return 0;
            const count = MathMin(until - from, to.length - at);
            TaSet(to, new Uint8Array(TaBuffer(this), TaByteOffset(this) + from, count), at);
            return count;
        },
        fill(value, start, end, encoding) {
            if (typeof start === "string") {
                encoding = start;
                start = undefined;
            } else if (typeof end === "string") {
                encoding = end;
                end = undefined;
            }
            const from = start === undefined ? 0 : +start, to = end === undefined ? this.length : +end;
            if (from < 0 || from > this.length) throw share.outOfRange("offset", `>= 0 && <= ${this.length}`, from);
            if (to < 0 || to > this.length) throw share.outOfRange("end", `>= 0 && <= ${this.length}`, to);
            let bytes;
            if (typeof value === "string") {
                bytes = value === "" ? new Uint8Array(1) : encode(value, encodingOf(encoding));
                if (bytes.length === 0) throw share.wrongValue("value", value);
            } else if (isView(value)) {
                bytes = bytesOf(value);
                if (bytes.length === 0) throw share.wrongValue("value", value);
            } else {
                TaFill(this, value & 255, from, to);
                return this;
            }
            if (bytes.length === 1) {
                TaFill(this, bytes[0], from, to);
            } else {
                for (let i = from; i < to; i++) this[i] = bytes[(i - from) % bytes.length];
            }
            return this;
        },
        write(text, offset, length, encoding) {
            if (typeof text !== "string") throw share.wrongType("argument", "string", text);
            if (typeof offset === "string") {
                encoding = offset;
                offset = undefined;
                length = undefined;
            } else if (typeof length === "string") {
                encoding = length;
                length = undefined;
            }
            const at = offset === undefined ? 0 : offset;
            if (at < 0 || at > this.length) throw share.outOfRange("offset", `>= 0 && <= ${this.length}`, at);
            let room = this.length - at;
            if (length !== undefined) room = MathMin(room, length);
            const name = encodingOf(encoding);
            let bytes = encode(text, name);
            if (bytes.length > room) {
                let cut = room;
                if (name === "utf8") while (cut > 0 && (bytes[cut] & 0xc0) === 0x80) cut--;
                else if (name === "utf16le") cut &= ~1;
                bytes = TaSubarray(bytes, 0, cut);
            }
            TaSet(this, bytes, at);
            return bytes.length;
        },
        swap16() { return swapped(this, 2); },
        swap32() { return swapped(this, 4); },
        swap64() { return swapped(this, 8); },
        [share.inspectCustom](depth, options) {
            const shown = MathMin(50, this.length);
            let text = "";
            for (let i = 0; i < shown; i++) text += (i ? " " : "") + hex_encode(this, i, i + 1);
            const left = this.length - shown;
            if (left > 0) text += ` ... ${left} more byte${left > 1 ? "s" : ""}`;
            const extra = {};
            let hasExtra = false;
            const keys = P.ObjKeys(this);
            for (let i = this.length; i < keys.length; i++) {
                extra[keys[i]] = this[keys[i]];
                hasExtra = true;
            }
            if (hasExtra) {
                const more = share.inspect(extra, { ...options, breakLength: Infinity, compact: true });
                text += (this.length ? ", " : "") + StrSlice(more, 2, -2);
            }
            return `<${this.constructor.name} ${text}>`;
        },
    };

    function swapped(buffer, size) {
        if (buffer.length % size !== 0) {
            throw share.codeError(RangeError, "ERR_INVALID_BUFFER_SIZE", `Buffer size must be a multiple of ${size * 8}-bits`);
        }
        for (let i = 0; i < buffer.length; i += size) P.TaReverse(TaSubarray(bytesOf(buffer), i, i + size));
        return buffer;
    }

    // ---- numbers -----------------------------------------------------------------------------

    function viewAt(buffer, offset, size) {
        if (offset === undefined) offset = 0;
        if (typeof offset !== "number") throw share.wrongType("offset", "number", offset);
        const last = buffer.length - size;
        if (!(offset >= 0 && offset <= last)) {
            if (!NumIsInteger(offset)) throw share.outOfRange("offset", "an integer", offset);
            if (last < 0) throw share.codeError(RangeError, "ERR_BUFFER_OUT_OF_BOUNDS", "Attempt to access memory outside buffer bounds");
            throw share.outOfRange("offset", `>= 0 and <= ${last}`, offset);
        }
        if (!NumIsInteger(offset)) throw share.outOfRange("offset", "an integer", offset);
        return new DataView(TaBuffer(buffer), TaByteOffset(buffer) + offset, size);
    }

    function inRange(value, low, high, isBig) {
        if (!(value >= low && value <= high)) {
            const unit = isBig ? "n" : "";
            let range = `>= ${low}${unit} and <= ${high}${unit}`;
            if (isBig || high > 0xffffffff || low < -0x80000000) {
                const bits = isBig ? 64 : 48;
                range = low === 0 || low === 0n ? `>= 0${unit} and < 2${unit} ** ${bits}${unit}`
                    : `>= -(2${unit} ** ${bits - 1}${unit}) and < 2${unit} ** ${bits - 1}${unit}`;
            }
            throw share.outOfRange("value", range, value);
        }
    }

    // Name, size, DataView's name, lowest, highest; each in both byte orders.
    const KINDS = [
        ["UInt8", 1, "Uint8", 0, 255], ["Int8", 1, "Int8", -128, 127],
        ["UInt16", 2, "Uint16", 0, 65535], ["Int16", 2, "Int16", -32768, 32767],
        ["UInt32", 4, "Uint32", 0, 4294967295], ["Int32", 4, "Int32", -2147483648, 2147483647],
        ["BigUInt64", 8, "BigUint64", 0n, 0xffffffffffffffffn],
        ["BigInt64", 8, "BigInt64", -0x8000000000000000n, 0x7fffffffffffffffn],
        ["Float", 4, "Float32"], ["Double", 8, "Float64"],
    ];
    for (const [name, size, viewName, low, high] of KINDS) {
        const get = P[`ViewGet${viewName}`], set = P[`ViewSet${viewName}`];
        for (const order of size === 1 ? [""] : ["LE", "BE"]) {
            const isLittle = order === "LE";
            const read = { [`read${name}${order}`](offset) { return get(viewAt(this, offset, size), 0, isLittle); } }[`read${name}${order}`];
            const write = { [`write${name}${order}`](value, offset = 0) {
                if (typeof low !== "bigint") value = +value;
                if (low !== undefined) inRange(value, low, high, typeof low === "bigint");
                set(viewAt(this, offset, size), 0, value, isLittle);
                return offset + size;
            } }[`write${name}${order}`];
            methods[`read${name}${order}`] = read;
            methods[`write${name}${order}`] = write;
            if (name[0] === "U") {
                methods[`readUint${name.slice(4)}${order}`] = read;
                methods[`writeUint${name.slice(4)}${order}`] = write;
            } else if (name === "BigUInt64") {
                methods[`readBigUint64${order}`] = read;
                methods[`writeBigUint64${order}`] = write;
            }
        }
    }

    function needSize(size) {
        if (typeof size !== "number") throw share.wrongType("byteLength", "number", size);
        if (!NumIsInteger(size) || size < 1 || size > 6) throw share.outOfRange("byteLength", ">= 1 and <= 6", size);
    }

    for (const isLittle of [true, false]) {
        const order = isLittle ? "LE" : "BE";
        const readUnsigned = function (offset, size) {
            needSize(size);
            const view = viewAt(this, offset, size);
            let value = 0;
            for (let i = 0; i < size; i++) value = value * 256 + P.ViewGetUint8(view, isLittle ? size - 1 - i : i);
            return value;
        };
        const write = (isSigned) => function (value, offset, size) {
            needSize(size);
            value = +value;
            const half = 2 ** (8 * size - 1);
            inRange(value, isSigned ? -half : 0, isSigned ? half - 1 : 2 * half - 1, false);
            const view = viewAt(this, offset, size);
            let rest = value < 0 ? value + 2 * half : value;
            for (let i = 0; i < size; i++) {
                P.ViewSetUint8(view, isLittle ? i : size - 1 - i, rest % 256);
                rest = P.MathFloor(rest / 256);
            }
            return offset + size;
        };
        methods[`readUInt${order}`] = readUnsigned;
        methods[`readUint${order}`] = readUnsigned;
        methods[`readInt${order}`] = function (offset, size) {
            const value = P.apply(readUnsigned, this, [offset, size]), half = 2 ** (8 * size - 1);
            return value >= half ? value - 2 * half : value;
        };
        methods[`writeUInt${order}`] = write(false);
        methods[`writeUint${order}`] = methods[`writeUInt${order}`];
        methods[`writeInt${order}`] = write(true);
    }

    for (const name of P.ReflectOwnKeys(methods)) hide(Buffer.prototype, name, methods[name]);
    P.getter(Buffer.prototype, "parent", function () { return this instanceof Buffer ? TaBuffer(this) : undefined; });
    P.getter(Buffer.prototype, "offset", function () { return this instanceof Buffer ? TaByteOffset(this) : undefined; });

    share.define("Buffer", Buffer);
    share.Buffer = Buffer;
    share.bufferOver = made;
    share.encodeText = (text, encoding) => encode(text, encodingOf(encoding));
    share.decodeText = (bytes, encoding) => decode(bytes, encodingOf(encoding), 0, bytes.length);
    share.encodingOf = encodingOf;
    share.builtins.buffer = {
        Buffer, SlowBuffer: ofSize, kMaxLength: 4294967296, kStringMaxLength: 1073741823, atob: share.atob, btoa: share.btoa,
        constants: { MAX_LENGTH: 4294967296, MAX_STRING_LENGTH: 1073741823 }, INSPECT_MAX_BYTES: 50,
        isUtf8(value) { return native.utf8_decode(bytesOf(value), 0, undefined, true) !== undefined; },
        isAscii(value) {
            const bytes = bytesOf(value);
            for (let i = 0; i < bytes.length; i++) if (bytes[i] > 127) return false;
            return true;
        },
        transcode(bytes, from, to) { return made(encode(decode(bytes, encodingOf(from), 0, bytes.length), encodingOf(to))); },
    };
})
