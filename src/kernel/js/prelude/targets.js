// Events of the web: Event, CustomEvent, EventTarget, AbortController and AbortSignal. What a
// listener throws is an uncaught error of the run, as in Node.
(function (host, native, share) {
    "use strict";

    const { P, needFunction } = share;
    const { append, apply, ArrSlice, ArrIndexOf, ArrSplice, ObjDefineProperty, webClass, WeakMap, WeakMapGet, WeakMapSet,
        TypeError, DOMException, hide, Map, MapGet, MapSet, SymFor, deferred } = P;
    const { monotonic } = native;

    const about = new WeakMap();

    class Event {
        constructor(type, options) {
            if (arguments.length === 0) {
                throw share.codeError(TypeError, "ERR_MISSING_ARGS", 'The "type" argument must be specified');
            }
            const given = options === undefined || options === null ? {} : options;
            WeakMapSet(about, this, {
                __proto__: null, type: `${type}`, bubbles: !!given.bubbles, cancelable: !!given.cancelable,
                composed: !!given.composed, target: null, current: null, isPrevented: false, isStopped: false,
                isPassive: false, isActive: false, time: monotonic(),
            });
        }
        get type() { return WeakMapGet(about, this).type; }
        get target() { return WeakMapGet(about, this).target; }
        get srcElement() { return WeakMapGet(about, this).target; }
        get currentTarget() { return WeakMapGet(about, this).current; }
        get bubbles() { return WeakMapGet(about, this).bubbles; }
        get cancelable() { return WeakMapGet(about, this).cancelable; }
        get composed() { return WeakMapGet(about, this).composed; }
        get defaultPrevented() {
            const self = WeakMapGet(about, this);
            return self.cancelable && self.isPrevented;
        }
        get returnValue() { return !this.defaultPrevented; }
        get eventPhase() { return WeakMapGet(about, this).isActive ? 2 : 0; }
        get timeStamp() { return WeakMapGet(about, this).time; }
        get isTrusted() { return false; }
        get cancelBubble() { return WeakMapGet(about, this).isStopped; }
        composedPath() {
            const self = WeakMapGet(about, this);
            return self.isActive ? [self.current] : [];
        }
        preventDefault() {
            const self = WeakMapGet(about, this);
            if (!self.isPassive) self.isPrevented = true;
        }
        stopPropagation() {}
        stopImmediatePropagation() { WeakMapGet(about, this).isStopped = true; }
    }
    webClass(Event, "Event");
    for (const [name, value] of [["NONE", 0], ["CAPTURING_PHASE", 1], ["AT_TARGET", 2], ["BUBBLING_PHASE", 3]]) {
        ObjDefineProperty(Event, name, { __proto__: null, value, enumerable: true });
    }

    class CustomEvent extends Event {
        #detail;
        constructor(type, options) {
            super(type, options);
            this.#detail = options && options.detail !== undefined ? options.detail : null;
        }
        get detail() { return this.#detail; }
    }
    webClass(CustomEvent, "CustomEvent");

    const inner = new WeakMap();

    function listenersOf(target) {
        let found = WeakMapGet(inner, target);
        if (found === undefined) {
            found = new Map();
            WeakMapSet(inner, target, found);
        }
        return found;
    }

    class EventTarget {
        addEventListener(type, listener, options) {
            if (listener === null || listener === undefined) return;
            if (typeof listener !== "function" && typeof listener !== "object") {
                throw share.wrongType("listener", "an instance of EventListener", listener);
            }
            const given = typeof options === "boolean" ? { capture: options } : options || {};
            const { signal } = given;
            if (signal && signal.aborted) return;
            const all = listenersOf(this);
            let list = MapGet(all, `${type}`);
            if (list === undefined) {
                list = [];
                MapSet(all, `${type}`, list);
            }
            for (let i = 0; i < list.length; i++) {
                if (list[i].listener === listener && list[i].capture === !!given.capture) return;
            }
            append(list, { __proto__: null, listener, capture: !!given.capture, once: !!given.once, passive: !!given.passive,
                isRemoved: false });
            if (signal) {
                signal.addEventListener("abort", () => this.removeEventListener(type, listener, given), { once: true });
            }
        }
        removeEventListener(type, listener, options) {
            const capture = typeof options === "boolean" ? options : !!(options && options.capture);
            const list = MapGet(listenersOf(this), `${type}`);
            if (list === undefined) return;
            for (let i = 0; i < list.length; i++) {
                if (list[i].listener === listener && list[i].capture === capture) {
                    list[i].isRemoved = true;
                    ArrSplice(list, i, 1);
                    return;
                }
            }
        }
        dispatchEvent(event) {
            const self = typeof event === "object" && event !== null ? WeakMapGet(about, event) : undefined;
            if (self === undefined) throw share.wrongType("event", "an instance of Event", event);
            if (self.isActive) throw new DOMException("The event is already being dispatched", "InvalidStateError");
            self.target = this;
            self.current = this;
            self.isActive = true;
            self.isStopped = false;
            const list = MapGet(listenersOf(this), self.type);
            const called = list === undefined ? [] : ArrSlice(list);
            for (let i = 0; i < called.length && !self.isStopped; i++) {
                const one = called[i];
                if (one.isRemoved) continue;
                if (one.once) this.removeEventListener(self.type, one.listener, { capture: one.capture });
                self.isPassive = one.passive;
                try {
                    if (typeof one.listener === "function") apply(one.listener, this, [event]);
                    else if (typeof one.listener.handleEvent === "function") one.listener.handleEvent(event);
                } catch (error) {
                    share.nextTick(() => { throw error; });
                }
                self.isPassive = false;
            }
            self.isActive = false;
            self.current = null;
            return !(self.cancelable && self.isPrevented);
        }
    }
    webClass(EventTarget, "EventTarget");

    // A property `onNAME` that is one listener among the others.
    share.handlerProperty = (prototype, type) => {
        const held = new WeakMap();
        P.getter(prototype, `on${type}`,
            function () { return WeakMapGet(held, this) || null; },
            function (value) {
                const before = WeakMapGet(held, this);
                if (before) this.removeEventListener(type, before);
                WeakMapSet(held, this, typeof value === "function" ? value : null);
                if (typeof value === "function") this.addEventListener(type, value);
            }, true);
    };

    // ---- abort -------------------------------------------------------------------------------

    const states = new WeakMap();
    const KEY = Symbol("made by the prelude");
    const dispatch = EventTarget.prototype.dispatchEvent;

    function newSignal() {
        return new AbortSignal(KEY);
    }

    function abort(signal, reason) {
        const state = WeakMapGet(states, signal);
        if (state.isAborted) return;
        state.isAborted = true;
        state.reason = reason === undefined ? new DOMException("This operation was aborted", "AbortError") : reason;
        const { followers } = state;
        state.followers = [];
        apply(dispatch, signal, [new Event("abort")]);
        for (let i = 0; i < followers.length; i++) abort(followers[i], state.reason);
    }

    class AbortSignal extends EventTarget {
        constructor(key) {
            if (key !== KEY) throw share.codeError(TypeError, "ERR_ILLEGAL_CONSTRUCTOR", "Illegal constructor");
            super();
            WeakMapSet(states, this, { __proto__: null, isAborted: false, reason: undefined, followers: [] });
        }
        get aborted() { return WeakMapGet(states, this).isAborted; }
        get reason() { return WeakMapGet(states, this).reason; }
        throwIfAborted() {
            const state = WeakMapGet(states, this);
            if (state.isAborted) throw state.reason;
        }
        static abort(reason) {
            const signal = newSignal();
            abort(signal, reason);
            return signal;
        }
        static timeout(delay) {
            const signal = newSignal();
            share.setTimeout(() => abort(signal,
                new DOMException("The operation was aborted due to timeout", "TimeoutError")), delay).unref();
            return signal;
        }
        static any(signals) {
            const list = P.listOf(signals), signal = newSignal();
            for (let i = 0; i < list.length; i++) {
                const state = WeakMapGet(states, list[i]);
                if (state.isAborted) {
                    abort(signal, state.reason);
                    return signal;
                }
            }
            for (let i = 0; i < list.length; i++) append(WeakMapGet(states, list[i]).followers, signal);
            return signal;
        }
        [share.inspectCustom](depth, options) {
            return `AbortSignal { aborted: ${this.aborted} }`;
        }
    }
    webClass(AbortSignal, "AbortSignal");
    share.handlerProperty(AbortSignal.prototype, "abort");

    class AbortController {
        #signal = newSignal();
        get signal() { return this.#signal; }
        abort(reason) { abort(this.#signal, reason); }
        [share.inspectCustom]() {
            return `AbortController { signal: AbortSignal { aborted: ${this.#signal.aborted} } }`;
        }
    }
    webClass(AbortController, "AbortController");
    share.Event = Event;
    share.EventTarget = EventTarget;
    share.AbortSignal = AbortSignal;
    share.isSignal = (value) => typeof value === "object" && value !== null && WeakMapGet(states, value) !== undefined;
    // Called by the prelude once, when the signal is aborted.
    share.onAbort = (signal, callback) => signal.addEventListener("abort", callback, { once: true });
})
