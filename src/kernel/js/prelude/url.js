// URL as the WHATWG standard says: the parser is its state machine with a pointer, an object's parts
// are read and set by running it again from a state. Hosts with other letters than ASCII become
// punycode after lower-casing and compatibility normalization.
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { StrSlice, StrCharCodeAt, StrCodePointAt, StrIndexOf, StrLastIndexOf, StrSplit, StrToLowerCase, StrNormalize, StrStartsWith,
        StrIncludes, StrRepeat, StrPadStart, StrToUpperCase, NumToString, ArrJoin, ArrPop, append, matches, ReExec, parseInt, TypeError, String,
        StrFromCodePoint, MathFloor, replaceAll, StrTrim } = P;
    const { utf8_encode, utf8_decode, hex_decode } = native;

    const PORTS = { __proto__: null, "ftp:": 21, "file:": null, "http:": 80, "https:": 443, "ws:": 80, "wss:": 443 };
    const isSpecial = (url) => PORTS[url.scheme] !== undefined;

    // ---- percent encoding --------------------------------------------------------------------

    function setOf(extra, base) {
        const out = { __proto__: null };
        if (base) for (const key in base) out[key] = true;
        for (let i = 0; i < extra.length; i++) out[StrCharCodeAt(extra, i)] = true;
        return out;
    }
    const C0 = setOf("");
    const FRAGMENT = setOf(' "<>`');
    const QUERY = setOf(' "#<>');
    const SPECIAL_QUERY = setOf("'", QUERY);
    const PATH = setOf("?^`{}", QUERY);
    const USERINFO = setOf("/:;=@[\\]^|", PATH);

    function percent(byte) {
        return "%" + StrPadStart(StrToUpperCase(NumToString(byte, 16)), 2, "0");
    }

    function encoded(text, set) {
        let isClean = true;
        for (let i = 0; isClean && i < text.length; i++) {
            const code = StrCharCodeAt(text, i);
            isClean = code > 31 && code < 127 && set[code] !== true;
        }
        if (isClean) return text;
        const bytes = utf8_encode(text);
        let out = "";
        for (let i = 0; i < bytes.length; i++) {
            const byte = bytes[i];
            out += byte < 32 || byte > 126 || set[byte] === true ? percent(byte) : StrFromCodePoint(byte);
        }
        return out;
    }

    function decodedBytes(text) {
        const bytes = utf8_encode(text);
        let to = 0;
        for (let i = 0; i < bytes.length; i++, to++) {
            let byte = bytes[i];
            if (byte === 37 && i + 2 < bytes.length) {
                const two = hex_decode(StrFromCodePoint(bytes[i + 1], bytes[i + 2]));
                if (two.length === 1) {
                    byte = two[0];
                    i += 2;
                }
            }
            bytes[to] = byte;
        }
        return P.TaSubarray(bytes, 0, to);
    }

    // ---- hosts -------------------------------------------------------------------------------

    // Punycode (RFC 3492).
    function punycode(label) {
        const points = [];
        let out = "";
        for (let i = 0; i < label.length; i++) {
            const point = StrCodePointAt(label, i);
            if (point > 0xffff) i++;
            append(points, point);
            if (point < 128) out += StrFromCodePoint(point);
        }
        let handled = out.length, n = 128, delta = 0, bias = 72;
        const basic = handled;
        if (basic > 0) out += "-";
        while (handled < points.length) {
            let next = 0x7fffffff;
            for (let i = 0; i < points.length; i++) if (points[i] >= n && points[i] < next) next = points[i];
            delta += (next - n) * (handled + 1);
            n = next;
            for (let i = 0; i < points.length; i++) {
                if (points[i] < n) delta++;
                if (points[i] !== n) continue;
                let q = delta;
                for (let k = 36; ; k += 36) {
                    const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
                    if (q < t) break;
                    const digit = t + (q - t) % (36 - t);
                    out += StrFromCodePoint(digit < 26 ? digit + 97 : digit + 22);
                    q = MathFloor((q - t) / (36 - t));
                }
                out += StrFromCodePoint(q < 26 ? q + 97 : q + 22);
                delta = handled === basic ? MathFloor(delta / 700) : MathFloor(delta / 2);
                delta += MathFloor(delta / (handled + 1));
                let k = 0;
                for (; delta > 455; k += 36) delta = MathFloor(delta / 35);
                bias = k + MathFloor(36 * delta / (delta + 38));
                delta = 0;
                handled++;
            }
            delta++;
            n++;
        }
        return out;
    }

    function unpunycode(text) {
        const dash = StrLastIndexOf(text, "-");
        const out = [];
        for (let i = 0; i < dash; i++) append(out, StrCharCodeAt(text, i));
        let n = 128, index = 0, bias = 72;
        for (let at = dash + 1; at < text.length;) {
            const before = index;
            for (let weight = 1, k = 36; ; k += 36) {
                const code = at < text.length ? StrCharCodeAt(text, at++) : 0;
                const digit = code >= 97 && code <= 122 ? code - 97 : code >= 48 && code <= 57 ? code - 22 : -1;
                if (digit < 0) return undefined;
                index += digit * weight;
                const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
                if (digit < t) break;
                weight *= 36 - t;
                if (weight > 0x7fffffff) return undefined;
            }
            const count = out.length + 1;
            let delta = before === 0 ? MathFloor((index - before) / 700) : MathFloor((index - before) / 2);
            delta += MathFloor(delta / count);
            let k = 0;
            for (; delta > 455; k += 36) delta = MathFloor(delta / 35);
            bias = k + MathFloor(36 * delta / (delta + 38));
            n += MathFloor(index / count);
            index %= count;
            if (n > 0x10ffff) return undefined;
            P.ArrSplice(out, index++, 0, n);
        }
        let result = "";
        for (let i = 0; i < out.length; i++) result += StrFromCodePoint(out[i]);
        return result;
    }

    function domainToAscii(domain) {
        if (!matches(/[^\0-\x7f]/, domain)) {
            domain = StrToLowerCase(domain);
            return matches(/(^|\.)xn--(\.|$)/, domain) ? undefined : domain;
        }
        let text = replaceAll(/[\u00ad\u200b\u2060\ufeff\u200c\u200d]/g, domain, () => "");
        text = StrNormalize(StrToLowerCase(StrNormalize(text, "NFKC")), "NFKC");
        text = replaceAll(/[\u3002\uff0e\uff61]/g, text, () => ".");
        const labels = StrSplit(text, ".");
        for (let i = 0; i < labels.length; i++) {
            if (matches(/[\ud800-\udfff](?![\udc00-\udfff])|[\ufffd\u0378]/, labels[i]) && !matches(/^[^\ud800-\udfff]*([\ud800-\udbff][\udc00-\udfff][^\ud800-\udfff]*)*$/, labels[i])) return undefined;
            if (matches(/[^\0-\x7f]/, labels[i])) labels[i] = "xn--" + punycode(labels[i]);
            if (labels[i].length > 63) return undefined;
        }
        return ArrJoin(labels, ".");
    }

    function domainToUnicode(domain) {
        const labels = StrSplit(domain, ".");
        for (let i = 0; i < labels.length; i++) {
            if (StrStartsWith(labels[i], "xn--")) {
                const said = unpunycode(StrSlice(labels[i], 4));
                if (said !== undefined) labels[i] = said;
            }
        }
        return ArrJoin(labels, ".");
    }

    function ipv4Number(text) {
        if (text === "") return undefined;
        let base = 10;
        if (matches(/^0[xX]/, text)) {
            text = StrSlice(text, 2);
            base = 16;
        } else if (text.length > 1 && text[0] === "0") {
            text = StrSlice(text, 1);
            base = 8;
        }
        if (text === "") return 0;
        const allowed = base === 10 ? /^[0-9]+$/ : base === 16 ? /^[0-9a-fA-F]+$/ : /^[0-7]+$/;
        return matches(allowed, text) ? parseInt(text, base) : undefined;
    }

    // The number of an address; undefined where the host is a name; null where it is wrong.
    function ipv4(text) {
        const parts = StrSplit(text, ".");
        if (parts[parts.length - 1] === "" && parts.length > 1) ArrPop(parts);
        const last = parts[parts.length - 1];
        if (!matches(/^[0-9]+$/, last) && ipv4Number(last) === undefined) return undefined;
        if (parts.length > 4) return null;
        let address = 0;
        for (let i = 0; i < parts.length; i++) {
            const number = ipv4Number(parts[i]);
            if (number === undefined) return null;
            if (i < parts.length - 1) {
                if (number > 255) return null;
                address += number * 256 ** (3 - i);
            } else {
                if (number >= 256 ** (5 - parts.length)) return null;
                address += number;
            }
        }
        return address;
    }

    function ipv6(text) {
        const pieces = [];
        let compress = -1, at = 0;
        if (text[0] === ":") {
            if (text[1] !== ":") return undefined;
            at = 2;
            compress = 0;
        }
        while (at < text.length) {
            if (pieces.length === 8) return undefined;
            if (text[at] === ":") {
                if (compress >= 0) return undefined;
                at++;
                compress = pieces.length;
                continue;
            }
            const hex = ReExec(/^[0-9a-fA-F]{1,4}/, StrSlice(text, at, at + 4));
            const length = hex === null ? 0 : hex[0].length;
            if (text[at + length] === ".") {
                if (length === 0 || pieces.length > 6) return undefined;
                const four = ReExec(/^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/, StrSlice(text, at));
                if (four === null) return undefined;
                for (let i = 1; i <= 4; i++) {
                    if (+four[i] > 255 || (four[i].length > 1 && four[i][0] === "0")) return undefined;
                }
                append(pieces, four[1] * 256 + +four[2]);
                append(pieces, four[3] * 256 + +four[4]);
                at = text.length;
                break;
            }
            if (length === 0) return undefined;
            append(pieces, parseInt(hex[0], 16));
            at += length;
            if (text[at] === ":") {
                at++;
                if (at === text.length) return undefined;
            } else if (at < text.length) {
                return undefined;
            }
        }
        if (compress >= 0) {
            const after = pieces.length - compress;
            const out = [0, 0, 0, 0, 0, 0, 0, 0];
            for (let i = 0; i < compress; i++) out[i] = pieces[i];
            for (let i = 0; i < after; i++) out[8 - after + i] = pieces[compress + i];
            return pieces.length === 8 ? undefined : out;
        }
        return pieces.length === 8 ? pieces : undefined;
    }

    function ipv6Text(pieces) {
        let best = -1, bestLength = 1;
        for (let i = 0; i < 8; i++) {
            let length = 0;
            while (i + length < 8 && pieces[i + length] === 0) length++;
            if (length > bestLength) {
                best = i;
                bestLength = length;
            }
            if (length > 0) i += length - 1;
        }
        let out = "";
        for (let i = 0; i < 8; i++) {
            if (i === best) {
                out += i === 0 ? "::" : ":";
                i += bestLength - 1;
                continue;
            }
            out += NumToString(pieces[i], 16);
            if (i < 7) out += ":";
        }
        return `[${out}]`;
    }

    const FORBIDDEN_HOST = /[\0\t\n\r #/:<>?@[\\\]^|]/;
    const FORBIDDEN_DOMAIN = /[\0-\x20"#%/:<>?@[\\\]^`{|}\x7f]/;

    // The host as it is kept, or undefined.
    function hostOf(text, isSpecialHost) {
        if (text[0] === "[") {
            if (text[text.length - 1] !== "]") return undefined;
            const pieces = ipv6(StrSlice(text, 1, -1));
            return pieces === undefined ? undefined : ipv6Text(pieces);
        }
        if (!isSpecialHost) {
            return matches(FORBIDDEN_HOST, text) ? undefined : encoded(text, C0);
        }
        const bytes = decodedBytes(text);
        const domain = utf8_decode(bytes, 0, bytes.length, false);
        const ascii = domainToAscii(domain);
        if (ascii === undefined || ascii === "" || matches(FORBIDDEN_DOMAIN, ascii)) return undefined;
        const address = ipv4(ascii);
        if (address === null) return undefined;
        if (address === undefined) return ascii;
        return `${MathFloor(address / 16777216)}.${MathFloor(address / 65536) % 256}.${MathFloor(address / 256) % 256}.${address % 256}`;
    }

    // ---- the parser --------------------------------------------------------------------------

    function newRecord() {
        return { __proto__: null, scheme: "", username: "", password: "", host: null, port: null, path: [], isOpaque: false,
            query: null, fragment: null };
    }

    const isWindowsLetter = (text) => matches(/^[a-zA-Z][:|]$/, text);
    const startsWithLetter = (text) => matches(/^[a-zA-Z][:|]([/\\?#]|$)/, text);
    const isSingleDot = (part) => part === "." || StrToLowerCase(part) === "%2e";
    const isDoubleDot = (part) => {
        const low = StrToLowerCase(part);
        return low === ".." || low === ".%2e" || low === "%2e." || low === "%2e%2e";
    };

    function shorten(url) {
        if (url.scheme === "file:" && url.path.length === 1 && matches(/^[a-zA-Z]:$/, url.path[0])) return;
        ArrPop(url.path);
    }

    // "scheme:rest" taken apart. undefined where it is no URL.
    function parse(input, base) {
        let text = replaceAll(/^[\0-\x20]+|[\0-\x20]+$/g, input, () => "");
        text = replaceAll(/[\t\n\r]/g, text, () => "");
        const url = newRecord();
        const scheme = ReExec(/^([a-zA-Z][a-zA-Z0-9+\-.]*):/, text);
        if (scheme === null) {
            if (base === undefined) return undefined;
            return parseRelative(url, text, base);
        }
        url.scheme = StrToLowerCase(scheme[1]) + ":";
        const rest = StrSlice(text, scheme[0].length);
        if (url.scheme === "file:") return parseFile(url, rest, base !== undefined && base.scheme === "file:" ? base : undefined);
        if (isSpecial(url)) {
            if (base !== undefined && base.scheme === url.scheme && !matches(/^[/\\]{2}/, rest)) {
                return parseRelative(url, rest, base);
            }
            return parseAuthority(url, replaceAll(/^[/\\]+/g, rest, () => ""));
        }
        if (StrStartsWith(rest, "//")) return parseAuthority(url, StrSlice(rest, 2));
        if (rest[0] === "/") return parsePath(url, rest);
        url.isOpaque = true;
        return parseOpaque(url, rest);
    }

    // Splits off "?query#fragment".
    function takeTail(url, text) {
        const hash = StrIndexOf(text, "#");
        if (hash >= 0) {
            url.fragment = encoded(StrSlice(text, hash + 1), FRAGMENT);
            text = StrSlice(text, 0, hash);
        }
        const mark = StrIndexOf(text, "?");
        if (mark >= 0) {
            url.query = encoded(StrSlice(text, mark + 1), isSpecial(url) ? SPECIAL_QUERY : QUERY);
            text = StrSlice(text, 0, mark);
        }
        return text;
    }

    function parseOpaque(url, text) {
        const hadTail = matches(/[?#]/, text);
        text = takeTail(url, text);
        if (hadTail && StrSlice(text, -1) === " ") text = StrSlice(text, 0, -1) + "%20";
        url.path = encoded(text, C0);
        return url;
    }

    function parseRelative(url, text, base) {
        if (base.isOpaque) {
            if (text[0] !== "#") return undefined;
            copyFrom(url, base);
            url.fragment = encoded(StrSlice(text, 1), FRAGMENT);
            return url;
        }
        url.scheme = base.scheme;
        if (url.scheme === "file:") return parseFile(url, text, base);
        const isSlash = (at) => text[at] === "/" || (isSpecial(url) && text[at] === "\\");
        if (isSlash(0) && isSlash(1)) {
            return parseAuthority(url, isSpecial(url) ? replaceAll(/^[/\\]+/g, text, () => "") : StrSlice(text, 2));
        }
        url.username = base.username;
        url.password = base.password;
        url.host = base.host;
        url.port = base.port;
        if (isSlash(0)) return parsePath(url, text);
        copyPath(url, base);
        if (text === "") {
            url.query = base.query;
            return url;
        }
        if (text[0] === "#") url.query = base.query;
        if (text[0] === "?" || text[0] === "#") {
            takeTail(url, text);
            return url;
        }
        shorten(url);
        return parsePath(url, text);
    }

    function copyPath(url, base) {
        url.isOpaque = base.isOpaque;
        url.path = base.isOpaque ? base.path : P.ArrSlice(base.path);
    }

    function copyFrom(url, base) {
        url.scheme = base.scheme;
        url.username = base.username;
        url.password = base.password;
        url.host = base.host;
        url.port = base.port;
        url.query = base.query;
        copyPath(url, base);
    }

    function parseFile(url, text, base) {
        url.host = "";
        const isSlash = (at) => text[at] === "/" || text[at] === "\\";
        if (isSlash(0) && isSlash(1)) {
            const end = ReExec(/[/\\?#]/, StrSlice(text, 2));
            const name = end === null ? StrSlice(text, 2) : StrSlice(text, 2, 2 + end.index);
            const rest = StrSlice(text, 2 + name.length);
            if (isWindowsLetter(name)) return parsePath(url, StrSlice(text, 2));
            if (name !== "") {
                const found = hostOf(name, true);
                if (found === undefined) return undefined;
                url.host = found === "localhost" ? "" : found;
            }
            return parsePath(url, rest);
        }
        if (isSlash(0)) {
            if (base !== undefined) {
                url.host = base.host;
                if (!startsWithLetter(StrSlice(text, 1)) && base.path.length > 0 && matches(/^[a-zA-Z]:$/, base.path[0])) {
                    append(url.path, base.path[0]);
                }
            }
            return parsePath(url, text);
        }
        if (base === undefined) return parsePath(url, text);
        url.host = base.host;
        if (text === "" || text[0] === "?" || text[0] === "#") {
            copyPath(url, base);
            if (text[0] !== "?") url.query = base.query;
            takeTail(url, text);
            return url;
        }
        if (!startsWithLetter(text)) {
            copyPath(url, base);
            shorten(url);
        }
        return parsePath(url, text);
    }

    function parseAuthority(url, text) {
        const end = ReExec(isSpecial(url) ? /[/\\?#]/ : /[/?#]/, text);
        let authority = end === null ? text : StrSlice(text, 0, end.index);
        const rest = StrSlice(text, authority.length);
        const at = StrLastIndexOf(authority, "@");
        if (at >= 0) {
            const user = StrSlice(authority, 0, at);
            authority = StrSlice(authority, at + 1);
            if (authority === "") return undefined;
            const colon = StrIndexOf(user, ":");
            url.username = encoded(colon < 0 ? user : StrSlice(user, 0, colon), USERINFO);
            url.password = colon < 0 ? "" : encoded(StrSlice(user, colon + 1), USERINFO);
        }
        const parts = ReExec(/^(\[[^\]]*\]|[^:]*)(?::(.*))?$/s, authority);
        if (parts === null) return undefined;
        if (!setHost(url, parts[1], parts[2] !== undefined && parts[2] !== "")) return undefined;
        if (parts[2] !== undefined && !setPort(url, parts[2])) return undefined;
        return parsePath(url, rest);
    }

    function setHost(url, text, hasPort) {
        if (text === "") {
            if (isSpecial(url) || hasPort || url.username !== "") return false;
            url.host = "";
            return true;
        }
        const found = hostOf(text, isSpecial(url));
        if (found === undefined) return false;
        url.host = found;
        return true;
    }

    function setPort(url, text) {
        if (text === "") {
            url.port = null;
            return true;
        }
        if (!matches(/^[0-9]+$/, text)) return false;
        const port = parseInt(text, 10);
        if (port > 65535) return false;
        url.port = PORTS[url.scheme] === port ? null : port;
        return true;
    }

    // The path and what follows it; url.path holds what of a base remains.
    function parsePath(url, text) {
        text = takeTail(url, text);
        if (isSpecial(url)) text = replaceAll(/\\/g, text, () => "/");
        if (text === "" && !isSpecial(url)) {
            return url;
        }
        const parts = StrSplit(text[0] === "/" ? StrSlice(text, 1) : text, "/");
        for (let i = 0; i < parts.length; i++) {
            const isLast = i === parts.length - 1;
            let part = parts[i];
            if (isDoubleDot(part)) {
                shorten(url);
                if (isLast) append(url.path, "");
            } else if (isSingleDot(part)) {
                if (isLast) append(url.path, "");
            } else {
                if (url.scheme === "file:" && url.path.length === 0 && isWindowsLetter(part)) part = part[0] + ":";
                append(url.path, encoded(part, PATH));
            }
        }
        return url;
    }

    function pathOf(url) {
        return url.isOpaque ? url.path : url.path.length === 0 ? "" : `/${ArrJoin(url.path, "/")}`;
    }

    function textOf(url, withoutFragment) {
        let out = url.scheme;
        if (url.host !== null) {
            out += "//";
            if (url.username !== "" || url.password !== "") {
                out += url.username + (url.password === "" ? "" : `:${url.password}`) + "@";
            }
            out += url.host + (url.port === null ? "" : `:${url.port}`);
        } else if (!url.isOpaque && url.path.length > 1 && url.path[0] === "") {
            out += "/.";
        }
        out += pathOf(url);
        if (url.query !== null) out += `?${url.query}`;
        if (url.fragment !== null && !withoutFragment) out += `#${url.fragment}`;
        return out;
    }

    share.urls = { __proto__: null, parse, textOf, pathOf, setHost, setPort, encoded, decodedBytes, isSpecial, parsePath, takeTail,
        domainToAscii, domainToUnicode, C0, FRAGMENT, QUERY, SPECIAL_QUERY, PATH, USERINFO, PORTS, hostOf };
})
