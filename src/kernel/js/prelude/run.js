// A run: evaluates the user's source, follows what it left pending, and says what came of it. The
// guest calls share.run, then lets the engine's jobs run and calls share.step until that says the
// run is done (-1), then share.result. It must never let anything of one run show in the next.
(function (host, native, share) {
    "use strict";

    const { P, inspect, pulse } = share;
    const { JsonStringify, PromiseThen, Map, MapSet, MapDelete, MapSize,
        MapForEach, String, SyntaxError, Error, getter, hide, matches } = P;
    const { erase_types, evaluate, evaluate_module, is_promise, own_kind } = native;

    // What step() answers; any other number is the milliseconds until a timer is due.
    const DONE = -1, HOST = -2, AGAIN = -3;

    const state = pulse;
    const none = { __proto__: null };
    let rejected = new Map(); // promises that were rejected and that nobody handles yet
    let rejectedCount = 0;

    // ---- the final answer --------------------------------------------------------------------

    let finalValue;
    const finalNames = ["__finalAnswer__", "__final_answer__"];
    for (let i = 0; i < finalNames.length; i++) {
        getter(globalThis, finalNames[i], () => finalValue, (value) => {
            finalValue = value;
            pulse.isFinal = true;
        });
    }

    // ---- the end of a run --------------------------------------------------------------------

    function finish() {
        if (state.done) return;
        state.done = true;
        pulse.isTouched = true;
        share.closeLog();
        share.dropTimers();
        share.forgetCalls();
        if (rejectedCount > 0) {
            rejected = new Map();
            rejectedCount = 0;
        }
    }

    function fail(error) {
        if (state.done) return;
        state.isFailed = true;
        state.error = error;
        state.exitCode = 1;
        finish();
    }

    function settled(value) {
        state.isSettled = true;
        state.value = value;
    }

    // Something threw where no caller of the user's is left. process.on("uncaughtException") may
    // take it.
    share.uncaught = (error) => {
        if (state.done || share.emitProcess("uncaughtException", error, "uncaughtException")) return;
        fail(error);
    };

    share.isDone = () => state.done;

    // process.exit: nothing of the user's runs after it.
    share.exit = (code) => {
        if (!state.done) {
            state.exitCode = code;
            state.isExited = true;
            finish();
        }
        native.stop();
    };

    // ---- rejections that nobody handles ------------------------------------------------------

    share.onRejection = (promise, reason, isHandled) => {
        if (isHandled) MapDelete(rejected, promise);
        else MapSet(rejected, promise, reason);
        rejectedCount = MapSize(rejected);
        pulse.isTouched = true;
    };

    function unhandled() {
        const all = rejected;
        rejected = new Map();
        rejectedCount = 0;
        MapForEach(all, (reason, promise) => {
            if (state.done || promise === state.promise) return;
            if (share.emitProcess("unhandledRejection", reason, promise)) return;
            if (own_kind(reason) === "Error" || own_kind(reason) === "DOMException") {
                fail(reason);
                return;
            }
            const error = share.codeError(Error, "ERR_UNHANDLED_REJECTION",
                "This error originated either by throwing inside of an async function without a catch block, " +
                "or by rejecting a promise which was not handled with .catch(). The promise rejected with the " +
                `reason "${shown(reason)}".`);
            hide(error, "name", "UnhandledPromiseRejection");
            fail(error);
        });
    }

    // ---- start -------------------------------------------------------------------------------

    const MODULE_WORDS = /\b(?:import|export)\b/;

    function isSyntax(error) {
        return own_kind(error) === "Error" && P.ObjGetPrototypeOf(error) === SyntaxError.prototype;
    }

    function compiles(source, filename, flags) {
        try {
            evaluate(source, filename, flags | 4);
            return true;
        } catch {
            return false;
        }
    }

    // As a script where that is possible: its variables stay for later runs, and it has a value.
    // `import` at its top becomes `await import`; what cannot be had so (export) is a module.
    function startAgain(source, filename, error) {
        if (!isSyntax(error) || !matches(MODULE_WORDS, source) || compiles(source, filename, SCRIPT)) throw error;
        const rewritten = share.withoutImports(source);
        if (rewritten !== undefined && compiles(rewritten, filename, SCRIPT)) return evaluate(rewritten, filename, SCRIPT);
        return evaluate_module(source, filename, share.metaOf(filename));
    }
    const SCRIPT = 2 | 8; // no frames of ours in stacks; asynchronous where it says `await`

    // What came of the source: a value, or a promise of one.
    function take(value) {
        const { number } = state;
        if (typeof value === "object" && is_promise(value)) {
            state.promise = value;
            PromiseThen(value, (result) => {
                if (number === state.number) settled(result);
            }, (error) => {
                if (number === state.number) fail(error);
            });
        } else {
            state.value = value;
            state.isSettled = true;
        }
    }

    function firstTurnEnds() {
        if (pulse.isTouched) share.runTicks();
    }

    // The guest begins most runs itself, and ends those that need nothing of the prelude: scripts whose
    // value is no object. These two are told what the others came to; the state is as after begin().
    share.took = (filename, value) => {
        state.filename = filename;
        take(value);
        firstTurnEnds();
    };
    share.threw = (filename, error, source) => {
        state.filename = filename;
        try {
            take(startAgain(source, filename, error));
        } catch (last) {
            fail(last);
        }
        firstTurnEnds();
    };

    function begin() {
        state.number++;
        state.done = state.isSettled = state.isFailed = state.isExited = false;
        state.value = state.error = state.promise = undefined;
        state.exitCode = 0;
        if (state.isFinal) {
            state.isFinal = false;
            finalValue = undefined;
        }
        if (pulse.isTouched) {
            share.beginLog();
            share.beginTimers();
            share.forgetExitCode();
            pulse.isTouched = false;
        }
    }

    share.run = (source, options) => {
        const given = options === undefined || options === null ? none : options;
        const { filename } = given;
        begin();
        state.filename = typeof filename === "string" && filename !== "" ? filename : "run.js";
        try {
            const text = given.language === "ts" ? erase_types(source, state.filename) : source;
            let value;
            if (given.module === true) {
                value = evaluate_module(text, state.filename, share.metaOf(state.filename));
            } else {
                try {
                    value = evaluate(text, state.filename, SCRIPT);
                } catch (error) {
                    value = startAgain(text, state.filename, error);
                }
            }
            take(value);
        } catch (error) {
            fail(error);
        }
        firstTurnEnds();
        return state;
    };

    // As if nothing had been run.
    share.reset = () => {
        state.value = state.error = state.promise = undefined;
        state.isSettled = state.isFailed = false;
        state.exitCode = state.number = 0;
        share.beginLog();
        share.beginTimers();
        pulse.isTouched = pulse.isFinal = false;
        finalValue = undefined;
    };

    // What is to be done next; called with no job of the engine left.
    share.step = () => {
        if (state.done) return DONE;
        if (!state.isTouched && state.isSettled && !state.hasListeners) {
            state.done = true;
            return DONE;
        }
        if (rejectedCount > 0) {
            unhandled();
            if (state.done) return DONE;
        }
        share.endFirstTurn();
        if (share.turn()) return state.done ? DONE : AGAIN;
        if (!share.isHeld() && share.waiting() === 0) {
            if (!state.isSettled) {
                // A timer that would not keep the run alive may still be what it waits for.
                if (share.hasTimers()) return share.next_timer();
                if (share.emitProcess("beforeExit", 0) && share.isHeld()) return AGAIN;
                share.deadlock();
                return DONE;
            }
            if (share.emitProcess("exit", state.exitCode) && share.isHeld()) return AGAIN;
            finish();
            return DONE;
        }
        const wait = share.next_timer();
        return wait < 0 ? HOST : wait;
    };

    // Nothing is pending and the run still waits.
    share.deadlock = () => {
        const error = new Error("the run waits for a promise that can never settle: " +
            "no timer, no request and no tool call is pending");
        hide(error, "name", "DeadlockError");
        hide(error, "stack", `DeadlockError: ${error.message}`);
        fail(error);
    };

    // ---- the result --------------------------------------------------------------------------

    function shown(value) {
        if (typeof value === "string") return value;
        try {
            return inspect(value);
        } catch (error) {
            return `[${own_kind(value) || typeof value}]`;
        }
    }

    function text(value, otherwise) {
        try {
            return String(value);
        } catch {
            return otherwise;
        }
    }

    function errorOf(error, filename) {
        const kind = own_kind(error);
        if (kind !== "Error" && kind !== "DOMException") {
            const message = shown(error);
            return { __proto__: null, name: "Error", message, stack: `Uncaught ${typeof error === "string" ? share.quoted(error) : message}`,
                line: null, column: null, code: null };
        }
        const out = { __proto__: null, name: "Error", message: "", stack: "", line: null, column: null, code: null };
        try {
            out.name = text(error.name, "Error");
            out.message = text(error.message, "");
            out.stack = text(error.stack, `${out.name}: ${out.message}`);
            if (typeof error.code === "string") out.code = error.code;
        } catch {
            // a getter of the user's that throws: what was read until then is what there is
        }
        const place = share.placeOf(error, filename);
        if (place !== undefined) {
            out.line = place.line;
            out.column = place.column;
        }
        return out;
    }

    // What JSON cannot hold is told apart: a function, a symbol, a cycle.
    function jsonOf(value, out) {
        if (typeof value === "function" || typeof value === "symbol") {
            out.value_error = `KernelSerializationError: a ${typeof value} cannot be given as a result`;
            return;
        }
        if (value === undefined) return;
        try {
            const json = JsonStringify(value);
            if (json !== undefined) out.value_json = json;
        } catch (error) {
            out.value_error = `KernelSerializationError: ${text(error && error.message, "the value cannot be written as JSON")}`;
        }
    }

    // Only what there is to say: a field that is missing means none, or false, or zero.
    share.result = () => {
        const out = { __proto__: null };
        if (state.isFailed) {
            out.error = errorOf(state.error, state.filename);
        } else if (!state.isExited || state.isFinal) {
            const value = state.isFinal ? finalValue : state.value;
            const type = typeof value;
            out.type = value === null ? "null" : type;
            if (type === "number") {
                out.output = value === 0 && 1 / value < 0 ? "-0" : `${value}`;
                out.value_json = value - value === 0 ? `${value}` : "null";
            } else if (type === "undefined") {
                out.output = "undefined";
            } else {
                out.output = shown(value);
                if (type === "boolean") out.value_json = out.output;
                else jsonOf(value, out);
            }
            if (state.isTouched && share.process.exitCode !== undefined) state.exitCode = +share.process.exitCode || 0;
        }
        if (state.isFinal) out.is_final_answer = true;
        if (state.exitCode !== 0) out.exit_code = state.exitCode;
        if (pulse.isTouched) {
            const logs = share.logs(), problems = share.problems();
            if (logs.length > 0) out.logs = logs;
            if (problems !== "") out.stderr = problems;
        }
        return out;
    };
})
