// node:assert. Messages are Node's where a program is likely to look at them; the long difference of
// two values is shown as both values, one after the other.
(function (host, native, share) {
    "use strict";

    const { P, inspect, needFunction } = share;
    const { own_kind, is_promise } = native;
    const { Error, TypeError, apply, matches, ObjIs, ObjKeys, append, hide, String, StrIncludes, StrSplit, ArrJoin, PromiseThen, ReTest, ReExec, StrSlice } = P;

    const TITLES = {
        __proto__: null, deepStrictEqual: "Expected values to be strictly deep-equal:",
        strictEqual: "Expected values to be strictly equal:", deepEqual: "Expected values to be loosely deep-equal:",
        notDeepStrictEqual: 'Expected "actual" not to be strictly deep-equal to:',
        notStrictEqual: 'Expected "actual" to be strictly unequal to:', notDeepEqual: 'Expected "actual" not to be loosely deep-equal to:',
    };

    function shown(value) {
        return inspect(value, { compact: false, customInspect: false, depth: 1000, maxArrayLength: Infinity, breakLength: Infinity,
            sorted: true, getters: true });
    }

    // The lines of both, those that differ marked.
    function difference(actual, expected, operator) {
        const a = StrSplit(shown(actual), "\n"), b = StrSplit(shown(expected), "\n");
        const title = TITLES[operator];
        const isPlain = (typeof actual !== "object" || actual === null) && (typeof expected !== "object" || expected === null);
        if (a.length === 1 && b.length === 1 && a[0] !== b[0] && isPlain && a[0].length + b[0].length <= 12 &&
            (actual !== 0 || expected !== 0)) {
            return `${title}\n\n${a[0]} !== ${b[0]}\n`;
        }
        let out = `${title}\n+ actual - expected\n`;
        let end = 0;
        while (end < a.length && end < b.length && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
        let start = 0;
        while (start < a.length - end && start < b.length - end && a[start] === b[start]) start++;
        for (let i = 0; i < start; i++) out += `\n  ${a[i]}`;
        for (let i = start; i < a.length - end; i++) out += `\n+ ${a[i]}`;
        for (let i = start; i < b.length - end; i++) out += `\n- ${b[i]}`;
        for (let i = a.length - end; i < a.length; i++) out += `\n  ${a[i]}`;
        return out;
    }

    class AssertionError extends Error {
        constructor(options) {
            if (options === null || typeof options !== "object") throw share.wrongType("options", "object", options);
            const { message, operator, actual, expected } = options;
            let text = message !== undefined && message !== null ? String(message) : undefined;
            if (text === undefined) {
                if (operator === "deepStrictEqual" || operator === "strictEqual") {
                    text = difference(actual, expected, operator);
                } else if (operator === "notDeepStrictEqual" || operator === "notStrictEqual") {
                    const said = shown(actual);
                    text = StrIncludes(said, "\n") ? `${TITLES[operator]}\n\n${said}\n` : `${TITLES[operator]} ${said}`;
                    if (operator === "notStrictEqual" && !StrIncludes(said, "\n") && typeof actual === "object") text = `${TITLES[operator]}\n\n${said}\n`;
                } else if (operator === "deepEqual" || operator === "notDeepEqual") {
                    text = `${TITLES[operator]}\n\n${shown(actual)}\n\nshould ${operator === "deepEqual" ? "" : "not "}loosely deep-equal\n\n${shown(expected)}`;
                } else {
                    text = `${inspect(actual)} ${operator} ${inspect(expected)}`;
                }
            }
            super(text);
            this.generatedMessage = message === undefined || message === null;
            hide(this, "name", "AssertionError");
            this.code = "ERR_ASSERTION";
            this.actual = actual;
            this.expected = expected;
            this.operator = operator;
            P.hide(this, "stack", `AssertionError [ERR_ASSERTION]: ${text}\n${share.framesOf(this)}`);
        }
        toString() { return `${this.name} [${this.code}]: ${this.message}`; }
    }

    function fail(message, actual, expected, operator) {
        if (own_kind(message) === "Error") throw message;
        throw new AssertionError({ message, actual, expected, operator });
    }

    // With our own words where the caller gave none.
    function failWith(message, otherwise, actual, expected, operator) {
        if (message !== undefined) fail(message, actual, expected, operator);
        const error = new AssertionError({ message: otherwise, actual, expected, operator });
        error.generatedMessage = true;
        throw error;
    }

    function ok(...args) {
        if (args[0]) return;
        let message = args[1];
        let isGenerated = false;
        if (args.length === 0) {
            isGenerated = true;
            message = "No value argument passed to `assert.ok()`";
        } else if (message === undefined || message === null) {
            isGenerated = true;
            message = "The expression evaluated to a falsy value";
        }
        if (own_kind(message) === "Error") throw message;
        const error = new AssertionError({ message, actual: args[0], expected: true, operator: "==" });
        error.generatedMessage = isGenerated;
        throw error;
    }

    function assert(...args) { apply(ok, undefined, args); }

    // ---- throws and rejects ------------------------------------------------------------------

    function checkError(error, wanted, message, name) {
        if (wanted === undefined) return;
        if (own_kind(wanted) === "RegExp") {
            if (ReExec(wanted, String(error)) !== null) return;
            fail(message !== undefined ? message : `The input did not match the regular expression ${inspect(wanted)}. Input:\n\n${inspect(String(error))}\n`,
                error, wanted, name);
        }
        if (typeof wanted === "object") {
            const keys = ObjKeys(wanted);
            if (own_kind(wanted) === "Error") append(keys, "name", "message");
            if (keys.length === 0) throw share.wrongValue("error", wanted, "may not be an empty object");
            if (own_kind(wanted) === "Error") {
                append(keys, "name");
                append(keys, "message");
            }
            for (let i = 0; i < keys.length; i++) {
                const key = keys[i];
                const isText = typeof error[key] === "string" && own_kind(wanted[key]) === "RegExp";
                if (isText ? ReExec(wanted[key], error[key]) !== null : key in error && share.deepEqual(error[key], wanted[key], true)) continue;
                fail(message !== undefined ? message : difference(picked(error, keys), picked(wanted, keys), "deepStrictEqual"), error, wanted, name);
            }
            return;
        }
        if (wanted.prototype !== undefined && error instanceof wanted) return;
        if (P.ObjIsPrototypeOf(Error, wanted) || wanted === Error) {
            const found = error && error.constructor && error.constructor.name;
            fail(message !== undefined ? message : `The error is expected to be an instance of "${wanted.name}". Received ${found ? `"${found}"` : `"${inspect(error)}"`}${error && error.message !== undefined ? `\n\nError message:\n\n${error.message}` : ""}`,
                error, wanted, name);
        }
        if (apply(wanted, {}, [error]) === true) return;
        fail(message !== undefined ? message : `The ${wanted.name ? `"${wanted.name}" ` : ""}validation function is expected to return "true". Received ${inspect(apply(wanted, {}, [error]))}\n\nCaught error:\n\n${error}`,
            error, wanted, name);
    }

    function picked(value, keys) {
        const out = {};
        for (let i = 0; i < keys.length; i++) if (keys[i] in value) out[keys[i]] = value[keys[i]];
        return out;
    }

    function missing(wanted, message, name) {
        const kind = name === "rejects" ? "rejection" : "exception";
        const which = wanted && wanted.name ? ` (${wanted.name})` : "";
        fail(own_kind(message) === "Error" ? message : `Missing expected ${kind}${which}${message ? `: ${message}` : "."}`, undefined, wanted, name);
    }

    function afterwards(error, wanted, message, name) {
        if (typeof wanted === "string") {
            message = wanted;
            wanted = undefined;
        }
        checkError(error, wanted, message, name);
    }

    function promiseOf(value) {
        if (typeof value === "function") {
            const made = value();
            if (!made || typeof made.then !== "function") {
                throw share.codeError(TypeError, "ERR_INVALID_RETURN_VALUE",
                    `Expected instance of Promise to be returned from the "promiseFn" function but got ${made === undefined ? "undefined" : `type ${typeof made}`}.`);
            }
            return made;
        }
        if (!value || typeof value.then !== "function") throw share.wrongType("promiseFn", "of type function or an instance of Promise", value);
        return value;
    }

    const methods = {
        ok,
        equal(actual, expected, message) {
            // eslint-disable-next-line eqeqeq
            if (!(actual == expected || (actual !== actual && expected !== expected))) fail(message, actual, expected, "==");
        },
        notEqual(actual, expected, message) {
            // eslint-disable-next-line eqeqeq
            if (actual == expected || (actual !== actual && expected !== expected)) fail(message, actual, expected, "!=");
        },
        strictEqual(actual, expected, message) {
            if (!ObjIs(actual, expected)) fail(message, actual, expected, "strictEqual");
        },
        notStrictEqual(actual, expected, message) {
            if (ObjIs(actual, expected)) fail(message, actual, expected, "notStrictEqual");
        },
        deepEqual(actual, expected, message) {
            if (!share.deepEqual(actual, expected, false)) fail(message, actual, expected, "deepEqual");
        },
        notDeepEqual(actual, expected, message) {
            if (share.deepEqual(actual, expected, false)) fail(message, actual, expected, "notDeepEqual");
        },
        deepStrictEqual(actual, expected, message) {
            if (!share.deepEqual(actual, expected, true)) fail(message, actual, expected, "deepStrictEqual");
        },
        notDeepStrictEqual(actual, expected, message) {
            if (share.deepEqual(actual, expected, true)) fail(message, actual, expected, "notDeepStrictEqual");
        },
        fail(message) {
            if (own_kind(message) === "Error") throw message;
            const error = new AssertionError({ message: message === undefined ? "Failed" : message, operator: "fail" });
            error.generatedMessage = message === undefined;
            throw error;
        },
        throws(callback, wanted, message) {
            needFunction(callback, "fn");
            let error, isThrown = false;
            try {
                callback();
            } catch (caught) {
                error = caught;
                isThrown = true;
            }
            if (!isThrown) missing(typeof wanted === "string" ? undefined : wanted, typeof wanted === "string" ? wanted : message, "throws");
            afterwards(error, wanted, message, "throws");
        },
        doesNotThrow(callback, wanted, message) {
            needFunction(callback, "fn");
            try {
                callback();
            } catch (error) {
                const said = typeof wanted === "string" ? wanted : message;
                fail(`Got unwanted exception${said ? `: ${said}` : "."}\nActual message: "${error && error.message}"`, error, wanted, "doesNotThrow");
            }
        },
        async rejects(value, wanted, message) {
            let error, isThrown = false;
            try {
                await promiseOf(value);
            } catch (caught) {
                error = caught;
                isThrown = true;
            }
            if (!isThrown) missing(typeof wanted === "string" ? undefined : wanted, typeof wanted === "string" ? wanted : message, "rejects");
            afterwards(error, wanted, message, "rejects");
        },
        async doesNotReject(value, wanted, message) {
            try {
                await promiseOf(value);
            } catch (error) {
                const said = typeof wanted === "string" ? wanted : message;
                fail(`Got unwanted rejection${said ? `: ${said}` : "."}\nActual message: "${error && error.message}"`, error, wanted, "doesNotReject");
            }
        },
        match(text, regexp, message) {
            if (typeof text !== "string" || ReExec(regexp, text) === null) {
                failWith(message, `The input did not match the regular expression ${inspect(regexp)}. Input:\n\n${inspect(text)}\n`, text, regexp, "match");
            }
        },
        doesNotMatch(text, regexp, message) {
            if (typeof text === "string" && ReExec(regexp, text) !== null) {
                failWith(message, `The input was expected to not match the regular expression ${inspect(regexp)}. Input:\n\n${inspect(text)}\n`, text, regexp, "doesNotMatch");
            }
        },
        ifError(value) {
            if (value === null || value === undefined) return;
            const text = own_kind(value) === "Error" ? value.message : inspect(value);
            fail(`ifError got unwanted exception: ${text}`, value, null, "ifError");
        },
        AssertionError,
    };

    function strict(...args) { apply(ok, undefined, args); }
    const names = ObjKeys(methods);
    for (let i = 0; i < names.length; i++) {
        assert[names[i]] = methods[names[i]];
        strict[names[i]] = methods[names[i]];
    }
    strict.equal = methods.strictEqual;
    strict.notEqual = methods.notStrictEqual;
    strict.deepEqual = methods.deepStrictEqual;
    strict.notDeepEqual = methods.notDeepStrictEqual;
    assert.strict = strict;
    strict.strict = strict;
    share.builtins.assert = assert;
    share.builtins["assert/strict"] = strict;
})
