// Web Crypto's randomness and digests, and of node:crypto what needs no cipher: hashes, HMAC, random
// bytes, timingSafeEqual, PBKDF2. Random bytes come from the host, always.
(function (host, native, share) {
    "use strict";

    const { P, Buffer, call } = share;
    const { digest, hex_encode, compare } = native;
    const { Uint8Array, TaSet, TaSubarray, TaBuffer, TaByteOffset, TaByteLength, TaSymbolToStringTag, DOMException, TypeError, RangeError, Error,
        MathMin, StrSlice, StrToLowerCase, replaceAll, bytesOf, append, matches, deferred, webClass, hide, BufSlice, NumIsInteger, MathFloor,
        StrToUpperCase, WeakMap, WeakMapGet, WeakMapSet } = P;

    const PIECE = 65536;

    function random(length) {
        const out = new Uint8Array(length);
        for (let at = 0; at < length; at += PIECE) {
            TaSet(out, call("random", { __proto__: null, length: MathMin(PIECE, length - at) }).bytes, at);
        }
        return out;
    }

    function uuid() {
        const bytes = random(16);
        bytes[6] = (bytes[6] & 15) | 64;
        bytes[8] = (bytes[8] & 63) | 128;
        const text = hex_encode(bytes);
        return `${StrSlice(text, 0, 8)}-${StrSlice(text, 8, 12)}-${StrSlice(text, 12, 16)}-${StrSlice(text, 16, 20)}-${StrSlice(text, 20)}`;
    }

    const HASHES = { __proto__: null, md5: "md5", sha1: "sha1", sha256: "sha256", sha384: "sha384", sha512: "sha512", "rsa-sha256": "sha256",
        "rsa-sha1": "sha1", "rsa-sha512": "sha512" };
    const hashOf = (name) => HASHES[replaceAll(/^sha-(?=\d)/g, StrToLowerCase(`${name}`), () => "sha")];

    function hmac(name, key, data) {
        const block = name === "sha384" || name === "sha512" ? 128 : 64;
        if (key.length > block) key = digest(name, key);
        const inner = new Uint8Array(block + data.length), outer = new Uint8Array(block);
        for (let i = 0; i < block; i++) {
            const byte = i < key.length ? key[i] : 0;
            inner[i] = byte ^ 0x36;
            outer[i] = byte ^ 0x5c;
        }
        TaSet(inner, data, block);
        return digest(name, joined([outer, digest(name, inner)]));
    }

    function joined(parts) {
        let length = 0;
        for (let i = 0; i < parts.length; i++) length += parts[i].length;
        const out = new Uint8Array(length);
        for (let i = 0, at = 0; i < parts.length; at += parts[i++].length) TaSet(out, parts[i], at);
        return out;
    }

    function pbkdf2(password, salt, rounds, length, name) {
        const parts = [];
        for (let block = 1, made = 0; made < length; block++) {
            let last = hmac(name, password, joined([salt, new Uint8Array([block >>> 24, block >>> 16, block >>> 8, block])]));
            const sum = new Uint8Array(last);
            for (let round = 1; round < rounds; round++) {
                last = hmac(name, password, last);
                for (let i = 0; i < sum.length; i++) sum[i] ^= last[i];
            }
            append(parts, sum);
            made += sum.length;
        }
        return TaSubarray(joined(parts), 0, length);
    }

    // ---- Web Crypto --------------------------------------------------------------------------

    const keys = new WeakMap();
    class CryptoKey {
        constructor() { throw share.codeError(TypeError, "ERR_ILLEGAL_CONSTRUCTOR", "Illegal constructor"); }
        get type() { return WeakMapGet(keys, this).type; }
        get extractable() { return WeakMapGet(keys, this).extractable; }
        get algorithm() { return WeakMapGet(keys, this).algorithm; }
        get usages() { return WeakMapGet(keys, this).usages; }
    }

    function needHash(algorithm) {
        const given = typeof algorithm === "string" ? algorithm : algorithm && algorithm.name;
        const name = hashOf(given);
        if (name === undefined || name === "md5" || !matches(/^sha-/i, `${given}`)) {
            throw new DOMException("Unrecognized algorithm name", "NotSupportedError");
        }
        return name;
    }

    function needBytes(data, name) {
        const bytes = bytesOf(data);
        if (bytes === undefined) throw share.wrongType(name, "an instance of ArrayBuffer, Buffer, TypedArray, or DataView", data);
        return bytes;
    }

    const bufferOf = (bytes) => BufSlice(TaBuffer(bytes), TaByteOffset(bytes), TaByteOffset(bytes) + bytes.length);

    function hmacKey(key, usage) {
        const found = WeakMapGet(keys, key);
        if (found === undefined || found.algorithm.name !== "HMAC" || !P.ArrIncludes(found.usages, usage)) {
            throw new DOMException("The requested operation is not valid for the provided key", "InvalidAccessError");
        }
        return found;
    }

    function newKey(bytes, hash, extractable, usages) {
        const key = P.ObjCreate(CryptoKey.prototype);
        WeakMapSet(keys, key, { __proto__: null, type: "secret", extractable: !!extractable, usages: P.listOf(usages), bytes, hash,
            algorithm: { name: "HMAC", hash: { name: `SHA-${StrSlice(hash, 3)}` }, length: bytes.length * 8 } });
        return key;
    }

    class SubtleCrypto {
        async digest(algorithm, data) {
            return bufferOf(digest(needHash(algorithm), needBytes(data, "data")));
        }
        async importKey(format, data, algorithm, extractable, usages) {
            const name = typeof algorithm === "string" ? algorithm : algorithm.name;
            if (StrToUpperCase(name) !== "HMAC" || (format !== "raw" && format !== "jwk")) {
                throw new DOMException("of keys only raw and JWK ones for HMAC are part of this kernel", "NotSupportedError");
            }
            const bytes = format === "jwk" ? native.base64_decode(data.k) : new Uint8Array(needBytes(data, "keyData"));
            return newKey(bytes, needHash(algorithm.hash), extractable, usages);
        }
        async generateKey(algorithm, extractable, usages) {
            if (StrToUpperCase(algorithm.name) !== "HMAC") {
                throw new DOMException("of keys only those for HMAC are part of this kernel", "NotSupportedError");
            }
            const hash = needHash(algorithm.hash);
            const bits = algorithm.length || (hash === "sha384" || hash === "sha512" ? 1024 : 512);
            return newKey(random(bits / 8), hash, extractable, usages);
        }
        async exportKey(format, key) {
            const found = WeakMapGet(keys, key);
            if (!found.extractable) throw new DOMException("key is not extractable", "InvalidAccessError");
            if (format === "jwk") {
                return { kty: "oct", k: native.base64_encode(found.bytes, 0, found.bytes.length, true), alg: `HS${StrSlice(found.hash, 3)}`, key_ops: found.usages, ext: true };
            }
            return bufferOf(found.bytes);
        }
        async sign(algorithm, key, data) {
            const found = hmacKey(key, "sign");
            return bufferOf(hmac(found.hash, found.bytes, needBytes(data, "data")));
        }
        async verify(algorithm, key, signature, data) {
            const found = hmacKey(key, "verify");
            return isSame(hmac(found.hash, found.bytes, needBytes(data, "data")), needBytes(signature, "signature"));
        }
    }

    function isSame(a, b) {
        if (a.length !== b.length) return false;
        let difference = 0;
        for (let i = 0; i < a.length; i++) difference |= a[i] ^ b[i];
        return difference === 0;
    }

    const INTEGERS = /^(Uint8|Uint8Clamped|Int8|Int16|Uint16|Int32|Uint32|BigInt64|BigUint64)Array$/;
    const subtle = P.ObjCreate(SubtleCrypto.prototype);
    class Crypto {
        get subtle() { return subtle; }
        getRandomValues(target) {
            const kind = typeof target === "object" && target !== null ? TaSymbolToStringTag(target) : undefined;
            if (kind === undefined || !matches(INTEGERS, kind)) {
                throw new DOMException("The data argument must be an integer-type TypedArray", "TypeMismatchError");
            }
            if (TaByteLength(target) > 65536) {
                throw new DOMException(`The requested length exceeds 65,536 bytes`, "QuotaExceededError");
            }
            const bytes = bytesOf(target);
            TaSet(bytes, random(bytes.length));
            return target;
        }
        randomUUID() { return uuid(); }
    }
    webClass(SubtleCrypto, "SubtleCrypto");
    webClass(CryptoKey, "CryptoKey");
    webClass(Crypto, "Crypto");
    const crypto = P.ObjCreate(Crypto.prototype);
    share.define("crypto", crypto);

    // ---- node:crypto -------------------------------------------------------------------------

    function dataOf(data, encoding, name) {
        if (typeof data === "string") return share.encodeText(data, encoding);
        const bytes = bytesOf(data);
        if (bytes === undefined) {
            throw share.wrongType(name || "data", "of type string or an instance of Buffer, TypedArray, or DataView", data);
        }
        return bytes;
    }

    function output(bytes, encoding) {
        const buffer = share.bufferOver(bytes);
        return encoding === undefined || encoding === "buffer" ? buffer : buffer.toString(encoding);
    }

    class Hash {
        #name;
        #key;
        #parts = [];
        #isDone = false;
        constructor(name, key) {
            this.#name = hashOf(name);
            this.#key = key;
            if (this.#name === undefined) {
                if (key === undefined) throw new Error("Digest method not supported");
                throw share.codeError(Error, "ERR_CRYPTO_INVALID_DIGEST", `Invalid digest: ${name}`);
            }
        }
        update(data, encoding) {
            if (this.#isDone) throw share.codeError(Error, "ERR_CRYPTO_HASH_FINALIZED", "Digest already called");
            const bytes = dataOf(data, encoding);
            append(this.#parts, typeof data === "string" ? bytes : new Uint8Array(bytes));
            return this;
        }
        digest(encoding) {
            if (this.#isDone) throw share.codeError(Error, "ERR_CRYPTO_HASH_FINALIZED", "Digest already called");
            this.#isDone = true;
            const data = this.#parts.length === 1 ? this.#parts[0] : joined(this.#parts);
            return output(this.#key === undefined ? digest(this.#name, data) : hmac(this.#name, this.#key, data), encoding);
        }
        copy() {
            const out = new Hash(this.#name, this.#key);
            for (let i = 0; i < this.#parts.length; i++) append(out.#parts, this.#parts[i]);
            return out;
        }
    }

    function later(perform, callback) {
        if (callback === undefined) return perform();
        let value, error = null;
        try {
            value = perform();
        } catch (caught) {
            error = caught;
        }
        share.setImmediate(() => error === null ? callback(null, value) : callback(error));
        return undefined;
    }

    // The part of `target` that is to be filled.
    function filled(target, offset, size) {
        const bytes = bytesOf(target);
        if (bytes === undefined) {
            throw share.wrongType("buf", "an instance of ArrayBuffer or ArrayBufferView", target);
        }
        share.needNumber(offset, "offset");
        if (!(offset >= 0 && offset <= bytes.length)) throw share.outOfRange("offset", `>= 0 && <= ${bytes.length}`, offset);
        if (size === undefined) return P.TaSubarray(bytes, offset);
        share.needNumber(size, "size");
        if (!(size >= 0 && size <= 2147483647)) throw share.outOfRange("size", ">= 0 && <= 2147483647", size);
        if (offset + size > bytes.length) throw share.outOfRange("size + offset", `<= ${bytes.length}`, offset + size);
        return P.TaSubarray(bytes, offset, offset + size);
    }

    function randomInt(low, high, callback) {
        if (high === undefined || typeof high === "function") {
            callback = high;
            high = low;
            low = 0;
        }
        if (!P.NumIsSafeInteger(low)) throw share.wrongType("min", "a safe integer", low);
        if (!P.NumIsSafeInteger(high)) throw share.wrongType("max", "a safe integer", high);
        if (high <= low) throw share.outOfRange("max", `greater than the value of "min" (${low})`, high);
        const range = high - low;
        if (range > 281474976710655) throw share.outOfRange("max - min", "<= 281474976710655", range);
        return later(() => {
            const limit = 281474976710656 - 281474976710656 % range;
            for (;;) {
                const bytes = random(6);
                let value = 0;
                for (let i = 0; i < 6; i++) value = value * 256 + bytes[i];
                if (value < limit) return low + value % range;
            }
        }, callback);
    }

    function missing(name) {
        return () => {
            throw share.codeError(Error, "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM", `crypto.${name} is not part of this kernel`);
        };
    }

    const node = {
        createHash(name) { return new Hash(share.needString(name, "algorithm")); },
        createHmac(name, key) { return new Hash(share.needString(name, "hmac"), new Uint8Array(dataOf(key, "utf8", "key"))); },
        hash(name, data, encoding = "hex") {
            return new Hash(share.needString(name, "algorithm")).update(data).digest(encoding);
        },
        randomBytes(size, callback) {
            share.needNumber(size, "size");
            if (!(size >= 0 && size <= 2147483647)) throw share.outOfRange("size", ">= 0 && <= 2147483647", size);
            return later(() => share.bufferOver(random(size)), callback);
        },
        randomFillSync(target, offset = 0, size) {
            const bytes = filled(target, offset, size);
            TaSet(bytes, random(bytes.length));
            return target;
        },
        randomFill(target, offset, size, callback) {
            if (typeof offset === "function") [offset, size, callback] = [0, undefined, offset];
            else if (typeof size === "function") [size, callback] = [undefined, size];
            share.needFunction(callback, "callback");
            filled(target, offset, size);
            later(() => node.randomFillSync(target, offset, size), callback);
        },
        randomInt,
        randomUUID() { return uuid(); },
        timingSafeEqual(a, b) {
            const left = dataOf(a, undefined, "buf1"), right = dataOf(b, undefined, "buf2");
            if (left.length !== right.length) {
                throw share.codeError(RangeError, "ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH", "Input buffers must have the same byte length");
            }
            return isSame(left, right);
        },
        pbkdf2Sync(password, salt, rounds, length, name) {
            const hash = hashOf(name);
            if (hash === undefined) throw share.codeError(TypeError, "ERR_CRYPTO_INVALID_DIGEST", `Invalid digest: ${name}`);
            return share.bufferOver(pbkdf2(dataOf(password), dataOf(salt), rounds, length, hash));
        },
        pbkdf2(password, salt, rounds, length, name, callback) {
            later(() => node.pbkdf2Sync(password, salt, rounds, length, name), share.needFunction(callback, "callback"));
        },
        getHashes() { return ["md5", "sha1", "sha256", "sha384", "sha512"]; },
        getRandomValues(target) { return crypto.getRandomValues(target); },
        webcrypto: crypto, subtle, constants: {},
    };
    for (const name of ["createCipheriv", "createDecipheriv", "createSign", "createVerify", "scrypt", "scryptSync", "generateKeyPair",
        "generateKeyPairSync", "createPrivateKey", "createPublicKey", "createECDH", "createDiffieHellman"]) {
        node[name] = missing(name);
    }
    share.randomBytes = random;
    share.builtins.crypto = node;

    // Math.random from the host's seed: the engine's own would be the same in every copy of an image.
    hide(Math, "random", native.random);
})
