// Timers and ticks, in Node's order: the ticks of process.nextTick, then promises, then timers that
// are due (by time, then by age), then immediates. The prelude never waits: it says when the next
// timer is due, and the host calls again. Nothing runs after its run is done.
(function (host, native, share) {
    "use strict";

    const { P, pulse } = share;
    const { append, ArrShift, Map, MapGet, MapSet, MapDelete, MathFloor, MathMax, apply, hide, getter, SymFor,
        Promise, AsyncIteratorPrototype, ArrSplice } = P;
    const { monotonic } = native;

    const LONGEST = 2147483647;
    let heap = [];          // timers by time, then by age
    let alive = new Map();  // id → timer, so that a number works where Node takes one
    let ticks = [];
    let immediates = [];
    let batch = [];         // the immediates of this turn; those they make wait for the next
    let held = 0;           // timers and immediates that keep the run alive
    let age = 0;
    let nextId = 1;
    let isFirstTurn = true;
    let loopTime = -1;      // as in libuv, time stands still within one turn

    function isBefore(a, b) {
        return a.due < b.due || (a.due === b.due && a.age < b.age);
    }

    function place(index, timer) {
        heap[index] = timer;
        timer.index = index;
    }

    function up(index) {
        const timer = heap[index];
        while (index > 0) {
            const parent = (index - 1) >> 1;
            if (!isBefore(timer, heap[parent])) break;
            place(index, heap[parent]);
            index = parent;
        }
        place(index, timer);
    }

    function down(index) {
        const timer = heap[index];
        for (;;) {
            let child = 2 * index + 1;
            if (child >= heap.length) break;
            if (child + 1 < heap.length && isBefore(heap[child + 1], heap[child])) child++;
            if (!isBefore(heap[child], timer)) break;
            place(index, heap[child]);
            index = child;
        }
        place(index, timer);
    }

    function insert(timer) {
        timer.age = age++;
        append(heap, timer);
        up(heap.length - 1);
    }

    function remove(timer) {
        const last = heap.length - 1, index = timer.index;
        if (index < 0) return;
        const moved = heap[last];
        heap.length = last;
        timer.index = -1;
        if (index < last) {
            place(index, moved);
            up(index);
            down(moved.index);
        }
    }

    // What the user holds is an object of this class; what the queue holds stays out of reach.
    const inner = new P.WeakMap();
    const { WeakMapGet, WeakMapSet } = P;

    function make(handle, callback, delay, args, repeats) {
        delay = +delay;
        if (!(delay >= 1 && delay <= LONGEST)) delay = 1;
        pulse.isTouched = true;
        if (loopTime < 0) loopTime = MathFloor(monotonic());
        const timer = {
            __proto__: null, handle, callback, args, delay: MathFloor(delay), repeats, due: loopTime + MathFloor(delay),
            age: 0, index: -1, id: nextId++, isHeld: true, isAlive: true,
        };
        WeakMapSet(inner, handle, timer);
        MapSet(alive, timer.id, timer);
        held++;
        insert(timer);
        return handle;
    }

    function end(timer) {
        if (!timer.isAlive) return;
        timer.isAlive = false;
        MapDelete(alive, timer.id);
        if (timer.isHeld) held--;
        remove(timer);
    }

    class Timeout {
        ref() {
            const timer = WeakMapGet(inner, this);
            if (!timer.isHeld) {
                timer.isHeld = true;
                if (timer.isAlive) held++;
            }
            return this;
        }
        unref() {
            const timer = WeakMapGet(inner, this);
            if (timer.isHeld) {
                timer.isHeld = false;
                if (timer.isAlive) held--;
            }
            return this;
        }
        hasRef() { return WeakMapGet(inner, this).isHeld; }
        refresh() {
            const timer = WeakMapGet(inner, this);
            if (timer.isAlive) {
                remove(timer);
                timer.due = loopTime + timer.delay;
                insert(timer);
            }
            return this;
        }
        close() {
            end(WeakMapGet(inner, this));
            return this;
        }
        [Symbol.toPrimitive]() { return WeakMapGet(inner, this).id; }
        [Symbol.dispose]() { end(WeakMapGet(inner, this)); }
    }

    class Immediate {
        ref() {
            const one = WeakMapGet(inner, this);
            if (!one.isHeld) {
                one.isHeld = true;
                if (one.isAlive) held++;
            }
            return this;
        }
        unref() {
            const one = WeakMapGet(inner, this);
            if (one.isHeld) {
                one.isHeld = false;
                if (one.isAlive) held--;
            }
            return this;
        }
        hasRef() { return WeakMapGet(inner, this).isHeld; }
        [Symbol.dispose]() { clearImmediate(this); }
    }

    function setTimeout(callback, delay, ...args) {
        share.needFunction(callback, "callback");
        return make(new Timeout(), callback, delay, args, false);
    }

    function setInterval(callback, delay, ...args) {
        share.needFunction(callback, "callback");
        return make(new Timeout(), callback, delay, args, true);
    }

    function clearTimeout(timer) {
        let found;
        if (typeof timer === "object" && timer !== null) {
            found = WeakMapGet(inner, timer);
        } else if (typeof timer === "number" || typeof timer === "string") {
            found = MapGet(alive, +timer);
        }
        if (found !== undefined && found.delay !== undefined) end(found);
    }
    const clearInterval = { clearInterval(timer) { clearTimeout(timer); } }.clearInterval;

    function setImmediate(callback, ...args) {
        share.needFunction(callback, "callback");
        const handle = new Immediate();
        const one = { __proto__: null, callback, args, handle, isAlive: true, isHeld: true };
        WeakMapSet(inner, handle, one);
        held++;
        pulse.isTouched = true;
        append(immediates, one);
        return handle;
    }

    function clearImmediate(handle) {
        const one = typeof handle === "object" && handle !== null ? WeakMapGet(inner, handle) : undefined;
        if (one === undefined || !one.isAlive || one.delay !== undefined) return;
        one.isAlive = false;
        if (one.isHeld) held--;
    }

    function nextTick(callback, ...args) {
        share.needFunction(callback, "callback");
        pulse.isTouched = true;
        append(ticks, { __proto__: null, callback, args });
    }

    // A callback of the user: what it throws ends the run.
    function run(callback, self, args) {
        try {
            if (args.length === 0) apply(callback, self, args);
            else apply(callback, self, args);
        } catch (error) {
            share.uncaught(error);
        }
    }

    function runTicks() {
        // By index: a list of ticks that grows while it runs must not cost its square.
        for (let i = 0; i < ticks.length; i++) {
            const tick = ticks[i];
            if (share.isDone()) break;
            run(tick.callback, undefined, tick.args);
        }
        ticks = [];
    }

    function runDue() {
        if (heap.length === 0 || heap[0].due > loopTime) return false;
        const timer = heap[0];
        if (timer.repeats) {
            remove(timer);
            run(timer.callback, timer.handle, timer.args);
            if (timer.isAlive && timer.index < 0) {
                timer.due = MathMax(loopTime, MathFloor(monotonic())) + timer.delay;
                insert(timer);
            }
        } else {
            remove(timer);
            run(timer.callback, timer.handle, timer.args);
            if (timer.isAlive && timer.index < 0) end(timer); // else refreshed from within
        }
        return true;
    }

    function runImmediate() {
        while (batch.length > 0) {
            const one = ArrShift(batch);
            if (!one.isAlive) continue;
            one.isAlive = false;
            if (one.isHeld) held--;
            run(one.callback, one.handle, one.args);
            return true;
        }
        return false;
    }

    // One piece of work, or false when there is nothing to do now. Between two pieces the engine's
    // jobs run, as in Node.
    share.turn = () => {
        if (ticks.length > 0) {
            runTicks();
            return true;
        }
        if (batch.length > 0 && runImmediate()) return true;
        if (heap.length === 0 && immediates.length === 0) return false;
        loopTime = MathMax(loopTime, MathFloor(monotonic()));
        if (runDue()) return true;
        if (immediates.length > 0) {
            batch = immediates;
            immediates = [];
            return runImmediate();
        }
        return false;
    };

    share.runTicks = () => {
        if (ticks.length > 0) runTicks();
    };

    // ms until the next timer that keeps the run alive, or -1.
    share.next_timer = () => {
        if (heap.length === 0) return -1;
        return MathMax(0, heap[0].due - monotonic());
    };
    share.run_timers = () => {
        while (!share.isDone() && share.turn());
    };
    share.isHeld = () => held > 0;
    share.hasTimers = () => heap.length > 0;
    share.hasImmediates = () => immediates.length > 0 || batch.length > 0;

    // At the start of a run. The first turn counts as a millisecond later: setTimeout(f, 0) comes
    // before setImmediate(g), as it does in practice.
    share.beginTimers = () => {
        loopTime = -1; // the clock is asked when the first timer is made
        isFirstTurn = true;
    };
    share.endFirstTurn = () => {
        if (isFirstTurn && loopTime >= 0) {
            isFirstTurn = false;
            loopTime++;
        }
    };
    share.dropTimers = () => {
        if (heap.length > 0 || held > 0 || ticks.length > 0) {
            heap = [];
            alive = new Map();
            ticks = [];
            immediates = [];
            batch = [];
            held = 0;
        }
    };

    const timers = { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, clearImmediate };
    const names = P.ObjKeys(timers);
    for (let i = 0; i < names.length; i++) {
        P.ObjDefineProperty(globalThis, names[i], { __proto__: null, value: timers[names[i]], writable: true,
            enumerable: true, configurable: true });
    }
    share.nextTick = nextTick;
    share.setTimeout = setTimeout;
    share.setImmediate = setImmediate;
    share.clearTimeout = clearTimeout;

    // queueMicrotask: as the engine's, but what it throws is an uncaught error of the run.
    const { PromiseThen, deferred } = P;
    const settled = deferred();
    settled.resolve(undefined);
    function queueMicrotask(callback) {
        share.needFunction(callback, "callback");
        PromiseThen(settled.promise, () => run(callback, undefined, []));
    }
    share.define("queueMicrotask", queueMicrotask);

    // ---- node:timers and node:timers/promises ------------------------------------------------

    function aborted(signal) {
        const error = new P.Error("The operation was aborted", { cause: signal.reason });
        error.code = "ABORT_ERR";
        hide(error, "name", "AbortError");
        return error;
    }

    function waitFor(start, stop, value, options) {
        const signal = options === undefined || options === null ? undefined : options.signal;
        const wait = deferred();
        if (signal && signal.aborted) {
            wait.reject(aborted(signal));
            return wait.promise;
        }
        let onAbort;
        const handle = start(() => {
            if (onAbort) signal.removeEventListener("abort", onAbort);
            wait.resolve(value);
        });
        if (options && options.ref === false) handle.unref();
        if (signal) {
            onAbort = () => {
                stop(handle);
                wait.reject(aborted(signal));
            };
            signal.addEventListener("abort", onAbort, { once: true });
        }
        return wait.promise;
    }

    const promises = {
        setTimeout(delay, value, options) {
            return waitFor((done) => setTimeout(done, delay), clearTimeout, value, options);
        },
        setImmediate(value, options) {
            return waitFor(setImmediate, clearImmediate, value, options);
        },
        async *setInterval(delay, value, options) {
            for (;;) yield await promises.setTimeout(delay, value, options);
        },
        scheduler: {
            wait(delay, options) { return promises.setTimeout(delay, undefined, options); },
            yield() { return promises.setImmediate(); },
        },
    };
    const promisify = SymFor("nodejs.util.promisify.custom");
    hide(setTimeout, promisify, promises.setTimeout);
    hide(setImmediate, promisify, promises.setImmediate);
    share.builtins.timers = { ...timers, promises };
    share.builtins["timers/promises"] = promises;
})
