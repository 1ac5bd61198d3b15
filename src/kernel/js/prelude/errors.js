// Errors as Node words them: an error with a code, an error of a file operation, and `stack` with
// its first line and the user's own frames. The prelude's frames are left out of every stack: they
// say nothing about the user's code.
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { ErrStack, ErrCaptureStackTrace, StrSlice, StrIndexOf, StrSplit, StrStartsWith, StrIncludes,
        ObjDefineProperty, ObjGetOwnPropertyDescriptor, WeakSetAdd, WeakSetHas, TypeError, RangeError,
        Error, String, StrLastIndexOf, ArrJoin, ObjGetPrototypeOf, StrEndsWith } = P;

    const withCode = new P.WeakSet();

    // The first line of a stack. It is made when the stack is read: an error that nobody looks at
    // costs nothing.
    function firstLine(error) {
        try {
            const name = error.name === undefined ? "Error" : String(error.name);
            const message = error.message === undefined ? "" : String(error.message);
            const shown = WeakSetHas(withCode, error) ? `${name} [${error.code}]` : name;
            if (message === "") return shown;
            return shown === "" ? message : `${shown}: ${message}`;
        } catch {
            return "Error";
        }
    }

    // The engine's frames without those of the prelude; a frame of a run's own top level has no
    // function's name.
    function frames(raw) {
        const lines = StrSplit(raw, "\n");
        let out = "";
        for (let i = 0; i < lines.length; i++) {
            const line = lines[i];
            if (line === "" || StrIncludes(line, "(cove:") || StrIncludes(line, "at cove:")) continue;
            if (StrEndsWith(line, " (native)")) {
                if (out === "" || StrStartsWith(line, "    at evaluate")) continue;
                out += "\n" + StrSlice(line, 0, -9) + " (<anonymous>)";
            } else if (StrStartsWith(line, "    at <eval> (")) {
                out += "\n    at " + StrSlice(line, 15, -1);
            } else {
                out += "\n" + line;
            }
        }
        return out;
    }

    const found = ObjGetOwnPropertyDescriptor(Error.prototype, "stack");
    ObjDefineProperty(Error.prototype, "stack", {
        __proto__: null,
        get: function stack() {
            let raw;
            try {
                raw = ErrStack(this);
            } catch {
                return undefined;
            }
            return typeof raw === "string" ? firstLine(this) + frames(raw) : raw;
        },
        set: function stack(value) {
            P.hide(this, "stack", value);
        },
        enumerable: false,
        configurable: true,
    });

    P.hide(Error, "captureStackTrace", function captureStackTrace(target, above) {
        ErrCaptureStackTrace(target, typeof above === "function" ? above : captureStackTrace);
        const own = ObjGetOwnPropertyDescriptor(target, "stack");
        if (own && typeof own.value === "string") {
            P.hide(target, "stack", firstLine(target) + frames(own.value));
        }
    });

    // The frames alone, for whoever prints them.
    share.framesOf = (error) => {
        const stack = error.stack;
        if (typeof stack !== "string") return "";
        const at = StrIndexOf(stack, "\n    at ");
        return at < 0 ? "" : StrSlice(stack, at + 1);
    };

    // Where in the user's code: {line, column} of the first frame in `filename`.
    share.placeOf = (error, filename) => {
        let raw = "";
        try {
            raw = error.stack;
        } catch {
            return undefined;
        }
        if (typeof raw !== "string") return undefined;
        const lines = StrSplit(raw, "\n");
        for (let i = 0; i < lines.length; i++) {
            const at = StrLastIndexOf(lines[i], filename + ":");
            if (at < 0 || !StrStartsWith(lines[i], "    at ")) continue;
            const place = P.ReExec(/^(\d+):(\d+)/, StrSlice(lines[i], at + filename.length + 1));
            if (place !== null) {
                return { __proto__: null, line: +place[1], column: +place[2] };
            }
        }
        return undefined;
    };

    // An error of one of Node's own kinds: `TypeError [ERR_...]: message`.
    share.codeError = (Base, code, message) => {
        const error = new Base(message);
        error.code = code;
        WeakSetAdd(withCode, error);
        return error;
    };

    const ARTICLES = { __proto__: null, string: "type string", number: "type number",
        function: "type function", boolean: "type boolean", object: "type object" };

    // What was received, in Node's words.
    function received(value) {
        if (value === undefined || value === null) return ` Received ${value}`;
        if (typeof value === "function") return ` Received function ${value.name}`;
        if (typeof value === "object") {
            const constructor = value.constructor;
            if (typeof constructor === "function" && constructor.name) {
                return ` Received an instance of ${constructor.name}`;
            }
            return ` Received ${share.inspect(value, { depth: -1 })}`;
        }
        let text = share.inspect(value);
        if (text.length > 28) text = StrSlice(text, 0, 25) + "...";
        return ` Received type ${typeof value} (${text})`;
    }

    // expected: "string", "number", or "an instance of Buffer" said as it is to be read.
    share.wrongType = (name, expected, value) => {
        const what = StrEndsWith(name, "argument") ? `The ${name}`
            : `The "${name}" ${StrIncludes(name, ".") ? "property" : "argument"}`;
        return share.codeError(TypeError, "ERR_INVALID_ARG_TYPE",
            `${what} must be ${ARTICLES[expected] ? "of " + ARTICLES[expected] : expected}.` +
            received(value));
    };
    share.wrongValue = (name, value, reason) => share.codeError(TypeError, "ERR_INVALID_ARG_VALUE",
        `The ${StrIncludes(name, ".") ? "property" : "argument"} '${name}' ${reason || "is invalid"}. ` +
        `Received ${share.inspect(value)}`);
    share.outOfRange = (name, range, value) => share.codeError(RangeError, "ERR_OUT_OF_RANGE",
        `The value of "${name}" is out of range. It must be ${range}. Received ` +
        (typeof value === "number" || typeof value === "bigint" ? grouped(value) : share.inspect(value)));

    function grouped(value) {
        const isBig = typeof value === "bigint";
        const size = value < 0 ? -value : value;
        if ((!isBig && !P.NumIsInteger(value)) || size <= 4294967296) return String(value) + (isBig ? "n" : "");
        const text = String(size);
        const parts = [];
        for (let end = text.length; end > 0; end -= 3) {
            P.ArrUnshift(parts, StrSlice(text, end > 3 ? end - 3 : 0, end));
        }
        return (value < 0 ? "-" : "") + ArrJoin(parts, "_") + (isBig ? "n" : "");
    }

    share.needString = (value, name) => {
        if (typeof value !== "string") throw share.wrongType(name, "string", value);
        return value;
    };
    share.needFunction = (value, name) => {
        if (typeof value !== "function") throw share.wrongType(name, "function", value);
        return value;
    };
    share.needNumber = (value, name) => {
        if (typeof value !== "number") throw share.wrongType(name, "number", value);
        return value;
    };

    const NUMBERS = {
        __proto__: null, EPERM: -1, ENOENT: -2, EIO: -5, EBADF: -9, EACCES: -13, EEXIST: -17, EXDEV: -18,
        ENOTDIR: -20, EISDIR: -21, EINVAL: -22, EMFILE: -24, EFBIG: -27, ENOSPC: -28, EROFS: -30,
        ENAMETOOLONG: -36, ENOSYS: -38, ENOTEMPTY: -39, ELOOP: -40, EDQUOT: -122,
    };
    const WORDS = {
        __proto__: null, EPERM: "operation not permitted", ENOENT: "no such file or directory",
        EIO: "i/o error", EBADF: "bad file descriptor", EACCES: "permission denied",
        EEXIST: "file already exists", EXDEV: "cross-device link not permitted",
        ENOTDIR: "not a directory", EISDIR: "illegal operation on a directory",
        EINVAL: "invalid argument", EMFILE: "too many open files", EFBIG: "file too large",
        ENOSPC: "no space left on device", EROFS: "read-only file system",
        ENAMETOOLONG: "name too long", ENOSYS: "function not implemented",
        ENOTEMPTY: "directory not empty", ELOOP: "too many symbolic links encountered",
        EDQUOT: "disk quota exceeded",
    };
    share.errorNumbers = NUMBERS;
    share.errorWords = WORDS;

    // The error of a file operation, as Node words it; what the host says of a denied capability
    // is kept, because it names the remedy.
    share.fileError = (cause, syscall, path, destination) => {
        const code = typeof cause === "string" ? cause : cause.code;
        const said = typeof cause === "string" ? undefined : cause.message;
        if (NUMBERS[code] === undefined) return cause;
        let message = `${code}: ${WORDS[code]}, ${syscall}`;
        if (path !== undefined) message += ` '${path}'`;
        if (destination !== undefined) message += ` -> '${destination}'`;
        if (code === "EACCES" && said) message = StrStartsWith(said, "EACCES") ? said : `${message}: ${said}`;
        const error = new Error(message);
        error.errno = NUMBERS[code];
        error.code = code;
        error.syscall = syscall;
        if (path !== undefined) error.path = path;
        if (destination !== undefined) error.dest = destination;
        return error;
    };

    // An error that the host sent: {name, message, code}.
    share.hostError = (meta) => {
        const about = meta === undefined || meta === null ? {} : meta;
        const name = typeof about.name === "string" ? about.name : "Error";
        const Base = name === "TypeError" ? TypeError : name === "RangeError" ? RangeError : Error;
        const error = new Base(typeof about.message === "string" ? about.message : "the host call failed");
        if (typeof about.code === "string") error.code = about.code;
        if (error.name !== name) P.hide(error, "name", name);
        return error;
    };
})
