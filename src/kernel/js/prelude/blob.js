// Blob, File and FormData, with multipart/form-data written and read.
(function (host, native, share) {
    "use strict";

    const { P, ReadableStream } = share;
    const { append, Uint8Array, TaSet, TaSubarray, TaBuffer, TaByteOffset, BufSlice, bytesOf, StrToLowerCase, StrToWellFormed, matches, TypeError, webClass,
        WeakMap, WeakMapGet, WeakMapSet, MathMax, MathMin, ArrSplice, hide, replaceAll, StrSlice, StrIndexOf, StrSplit, ReExec, listOf } = P;
    const { utf8_encode, utf8_decode, units_decode, index_of } = native;

    const blobs = new WeakMap(); // Blob → {bytes, type}
    const KEEP = Symbol("bytes that need no copy");

    function joined(parts) {
        let length = 0;
        for (let i = 0; i < parts.length; i++) length += parts[i].length;
        const out = new Uint8Array(length);
        for (let i = 0, at = 0; i < parts.length; at += parts[i++].length) TaSet(out, parts[i], at);
        return out;
    }

    function typeOf(text) {
        const type = `${text}`;
        return matches(/[^\x20-\x7e]/, type) ? "" : StrToLowerCase(type);
    }

    class Blob {
        constructor(parts, options, key) {
            if (key === KEEP) {
                WeakMapSet(blobs, this, { __proto__: null, bytes: parts, type: options });
                return;
            }
            const out = [];
            if (parts !== undefined) {
                if (parts === null || typeof parts !== "object" || typeof parts[Symbol.iterator] !== "function") {
                    throw share.wrongType("sources", "an instance of Sequence", parts);
                }
                const list = listOf(parts);
                for (let i = 0; i < list.length; i++) {
                    const inner = typeof list[i] === "object" && list[i] !== null ? WeakMapGet(blobs, list[i]) : undefined;
                    const bytes = inner !== undefined ? inner.bytes : bytesOf(list[i]);
                    const text = bytes === undefined ? StrToWellFormed(`${list[i]}`) : undefined;
                    append(out, text === undefined ? bytes : utf8_encode(options && options.endings === "native" ? replaceAll(/\r\n?/g, text, () => "\n") : text));
                }
            }
            WeakMapSet(blobs, this, { __proto__: null, bytes: joined(out), type: typeOf(options && options.type !== undefined ? options.type : "") });
        }
        get size() { return WeakMapGet(blobs, this).bytes.length; }
        get type() { return WeakMapGet(blobs, this).type; }
        slice(start = 0, end = this.size, type = "") {
            const { bytes } = WeakMapGet(blobs, this), { length } = bytes;
            const from = start < 0 ? MathMax(0, length + start) : MathMin(start, length);
            const to = end < 0 ? MathMax(0, length + end) : MathMin(end, length);
            return new Blob(new Uint8Array(TaSubarray(bytes, from, MathMax(from, to))), typeOf(type), KEEP);
        }
        async text() {
            const { bytes } = WeakMapGet(blobs, this);
            const text = utf8_decode(bytes, 0, bytes.length, false);
            return text[0] === "\ufeff" ? StrSlice(text, 1) : text;
        }
        async arrayBuffer() {
            const { bytes } = WeakMapGet(blobs, this);
            return BufSlice(TaBuffer(bytes), TaByteOffset(bytes), TaByteOffset(bytes) + bytes.length);
        }
        async bytes() { return new Uint8Array(WeakMapGet(blobs, this).bytes); }
        stream() {
            const { bytes } = WeakMapGet(blobs, this);
            let at = 0;
            return new ReadableStream({
                pull(controller) {
                    if (at < bytes.length) controller.enqueue(new Uint8Array(TaSubarray(bytes, at, at += 65536)));
                    if (at >= bytes.length) controller.close();
                },
            }, { highWaterMark: 0 });
        }
        [share.inspectCustom](depth, options) {
            return `Blob { size: ${this.size}, type: '${this.type}' }`;
        }
    }
    webClass(Blob, "Blob");

    const names = new WeakMap();
    class File extends Blob {
        constructor(parts, name, options) {
            if (arguments.length < 2) {
                throw share.codeError(TypeError, "ERR_MISSING_ARGS", 'The "fileBits" and "fileName" arguments must be specified');
            }
            super(parts, options);
            const modified = options && options.lastModified !== undefined ? +options.lastModified : P.MathFloor(native.now());
            WeakMapSet(names, this, { __proto__: null, name: StrToWellFormed(`${name}`), modified });
        }
        get name() { return WeakMapGet(names, this).name; }
        get lastModified() { return WeakMapGet(names, this).modified; }
        [share.inspectCustom]() {
            return `File { size: ${this.size}, type: '${this.type}', name: '${this.name}', lastModified: ${this.lastModified} }`;
        }
    }
    webClass(File, "File");

    const isBlob = (value) => typeof value === "object" && value !== null && WeakMapGet(blobs, value) !== undefined;
    const isFile = (value) => isBlob(value) && WeakMapGet(names, value) !== undefined;
    share.isBlob = isBlob;
    share.blobBytes = (blob) => WeakMapGet(blobs, blob).bytes;
    share.newBlob = (bytes, type) => new Blob(bytes, type, KEEP);
    share.cloneBlob = (blob) => isFile(blob)
        ? new File([blob], blob.name, { type: blob.type, lastModified: blob.lastModified }) : new Blob(WeakMapGet(blobs, blob).bytes, blob.type, KEEP);
    share.builtins.buffer.Blob = Blob;
    share.builtins.buffer.File = File;

    // ---- FormData ----------------------------------------------------------------------------

    const forms = new WeakMap();
    const of = (form) => WeakMapGet(forms, form);
    const iterate = share.pairIterator("FormData Iterator");

    function entry(value, name) {
        if (!isBlob(value)) return StrToWellFormed(`${value}`);
        if (isFile(value) && name === undefined) return value;
        return new File([value], name === undefined ? "blob" : `${name}`, { type: value.type });
    }

    class FormData {
        constructor(form) {
            if (form !== undefined) throw new TypeError("Failed to construct 'FormData': parameter 1 is not of type 'HTMLFormElement'");
            WeakMapSet(forms, this, []);
        }
        append(name, value, filename) { append(of(this), [StrToWellFormed(`${name}`), entry(value, filename)]); }
        delete(name) {
            const list = of(this);
            for (let i = list.length - 1; i >= 0; i--) if (list[i][0] === `${name}`) ArrSplice(list, i, 1);
        }
        get(name) {
            const list = of(this);
            for (let i = 0; i < list.length; i++) if (list[i][0] === `${name}`) return list[i][1];
            return null;
        }
        getAll(name) {
            const list = of(this), out = [];
            for (let i = 0; i < list.length; i++) if (list[i][0] === `${name}`) append(out, list[i][1]);
            return out;
        }
        has(name) {
            const list = of(this);
            for (let i = 0; i < list.length; i++) if (list[i][0] === `${name}`) return true;
            return false;
        }
        set(name, value, filename) {
            const list = of(this), made = [StrToWellFormed(`${name}`), entry(value, filename)];
            let at = -1;
            for (let i = 0; i < list.length; i++) {
                if (list[i][0] !== made[0]) continue;
                if (at < 0) list[at = i] = made;
                else ArrSplice(list, i--, 1);
            }
            if (at < 0) append(list, made);
        }
        forEach(callback, self) {
            const list = of(this);
            for (let i = 0; i < list.length; i++) P.apply(callback, self, [list[i][1], list[i][0], this]);
        }
        entries() { return iterate(() => of(this), "both"); }
        keys() { return iterate(() => of(this), "key"); }
        values() { return iterate(() => of(this), "value"); }
    }
    webClass(FormData, "FormData");
    hide(FormData.prototype, Symbol.iterator, FormData.prototype.entries);
    share.isForm = (value) => typeof value === "object" && value !== null && of(value) !== undefined;

    const field = (text) => replaceAll(/[\r\n"]/g, text, (found) => found[0] === '"' ? "%22" : found[0] === "\r" ? "%0D" : "%0A");

    // → {bytes, type}
    share.writeForm = (form) => {
        const boundary = `----formdata-cove-${native.hex_encode(share.randomBytes(12))}`;
        const list = of(form), parts = [];
        for (let i = 0; i < list.length; i++) {
            const [name, value] = list[i];
            let head = `--${boundary}\r\nContent-Disposition: form-data; name="${field(name)}"`;
            if (typeof value === "string") {
                append(parts, utf8_encode(`${head}\r\n\r\n${replaceAll(/\r\n|\r|\n/g, value, () => "\r\n")}\r\n`));
                continue;
            }
            head += `; filename="${field(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`;
            append(parts, utf8_encode(head));
            append(parts, share.blobBytes(value));
            append(parts, utf8_encode("\r\n"));
        }
        append(parts, utf8_encode(`--${boundary}--\r\n`));
        return { __proto__: null, bytes: joined(parts), type: `multipart/form-data; boundary=${boundary}` };
    };

    const unfield = (text) => replaceAll(/%22|%0D|%0A/gi, text, (found) => found[0][1] === "2" ? '"' : found[0][2] === "D" || found[0][2] === "d" ? "\r" : "\n");

    share.readForm = (bytes, type) => {
        const form = new FormData();
        if (matches(/^application\/x-www-form-urlencoded/i, type)) {
            const params = new share.URLSearchParams(utf8_decode(bytes, 0, bytes.length, false));
            params.forEach((value, name) => form.append(name, value));
            return form;
        }
        const found = ReExec(/^multipart\/form-data.*;\s*boundary=(?:"([^"]+)"|([^\s;]+))/i, type);
        if (found === null) throw new TypeError("Failed to parse body as FormData.");
        const mark = utf8_encode(`--${found[1] || found[2]}`);
        let at = index_of(bytes, mark, 0, false);
        while (at >= 0) {
            at += mark.length;
            if (bytes[at] === 45 && bytes[at + 1] === 45) break;
            const next = index_of(bytes, mark, at, false);
            const headEnd = index_of(bytes, utf8_encode("\r\n\r\n"), at, false);
            if (next < 0 || headEnd < 0 || headEnd > next) throw new TypeError("Failed to parse body as FormData.");
            const head = utf8_decode(bytes, at, headEnd, false);
            const name = ReExec(/name="([^"]*)"/i, replaceAll(/filename="[^"]*"/gi, head, () => ""));
            const filename = ReExec(/filename="([^"]*)"/i, head);
            const content = TaSubarray(bytes, headEnd + 4, MathMax(headEnd + 4, next - 2));
            if (name === null) throw new TypeError("Failed to parse body as FormData.");
            if (filename === null) {
                form.append(unfield(name[1]), utf8_decode(content, 0, content.length, false));
            } else {
                const said = ReExec(/content-type:\s*([^\r\n]+)/i, head);
                form.append(unfield(name[1]), new File([content], unfield(filename[1]), { type: said === null ? "text/plain" : said[1] }));
            }
            at = next;
        }
        return form;
    };
    share.FormData = FormData;
})
