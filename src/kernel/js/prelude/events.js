// node:events: EventEmitter, once and on.
(function (host, native, share) {
    "use strict";

    const { P, needFunction } = share;
    const { append, apply, ArrSlice, ArrIsArray, ReflectOwnKeys, ArrSplice, ArrUnshift, ArrIndexOf, deferred, hide, Error, String,
        SymFor, ObjGetPrototypeOf, ObjCreate, ArrShift, Promise } = P;

    const capture = SymFor("nodejs.rejection");

    function EventEmitter(options) {
        EventEmitter.init.call(this, options);
    }
    hide(EventEmitter, "init", function () {
        if (this._events === undefined || this._events === ObjGetPrototypeOf(this)._events) {
            this._events = ObjCreate(null);
            this._eventsCount = 0;
        }
        this._maxListeners = this._maxListeners || undefined;
    });
    EventEmitter.prototype._events = undefined;
    EventEmitter.prototype._eventsCount = 0;
    EventEmitter.prototype._maxListeners = undefined;

    function listOf(emitter, type) {
        const found = emitter._events === undefined ? undefined : emitter._events[type];
        return found === undefined ? [] : typeof found === "function" ? [found] : found;
    }

    function add(emitter, type, listener, isFirst) {
        needFunction(listener, "listener");
        if (emitter === share.process) share.pulse.hasListeners = true;
        if (emitter._events === undefined) {
            emitter._events = ObjCreate(null);
            emitter._eventsCount = 0;
        } else if (emitter._events.newListener !== undefined) {
            emitter.emit("newListener", type, listener.listener ? listener.listener : listener);
        }
        const found = emitter._events[type];
        if (found === undefined) {
            emitter._events[type] = listener;
            emitter._eventsCount++;
        } else if (typeof found === "function") {
            emitter._events[type] = isFirst ? [listener, found] : [found, listener];
        } else if (isFirst) {
            ArrUnshift(found, listener);
        } else {
            append(found, listener);
        }
        const most = limitOf(emitter), now = emitter._events[type];
        if (most > 0 && ArrIsArray(now) && now.length > most && !now.warned) {
            now.warned = true;
            share.print("error", `(cove) MaxListenersExceededWarning: Possible EventEmitter memory leak detected. ${now.length} ${String(type)} listeners added. Use emitter.setMaxListeners() to increase limit`);
        }
        return emitter;
    }

    function limitOf(emitter) {
        return emitter._maxListeners === undefined ? EventEmitter.defaultMaxListeners : emitter._maxListeners;
    }

    function wrapped(emitter, type, listener) {
        needFunction(listener, "listener");
        let isFired = false;
        const wrap = function (...args) {
            if (isFired) return undefined;
            isFired = true;
            emitter.removeListener(type, wrap);
            return apply(listener, emitter, args);
        };
        wrap.listener = listener;
        return wrap;
    }

    const methods = {
        setMaxListeners(count) {
            if (typeof count !== "number" || count < 0 || P.NumIsNaN(count)) {
                throw share.outOfRange("setMaxListeners", "a non-negative number", count);
            }
            this._maxListeners = count;
            return this;
        },
        getMaxListeners() { return limitOf(this); },
        emit(type, ...args) {
            const found = this._events === undefined ? undefined : this._events[type];
            if (found === undefined) {
                if (type !== "error") return false;
                const error = args[0];
                if (native.own_kind(error) === "Error") throw error;
                const made = share.codeError(Error, "ERR_UNHANDLED_ERROR",
                    `Unhandled error. (${typeof error === "string" ? `'${error}'` : share.inspect(error)})`);
                made.context = error;
                throw made;
            }
            if (typeof found === "function") {
                apply(found, this, args);
            } else {
                const list = ArrSlice(found);
                for (let i = 0; i < list.length; i++) apply(list[i], this, args);
            }
            return true;
        },
        addListener(type, listener) { return add(this, type, listener, false); },
        prependListener(type, listener) { return add(this, type, listener, true); },
        once(type, listener) { return this.on(type, wrapped(this, type, listener)); },
        prependOnceListener(type, listener) { return this.prependListener(type, wrapped(this, type, listener)); },
        removeListener(type, listener) {
            needFunction(listener, "listener");
            const list = listOf(this, type);
            let at = list.length - 1;
            while (at >= 0 && list[at] !== listener && list[at].listener !== listener) at--;
            if (at < 0) return this;
            const removed = list[at];
            if (list.length === 1) {
                delete this._events[type];
                this._eventsCount--;
            } else {
                const rest = ArrSlice(list);
                ArrSplice(rest, at, 1);
                this._events[type] = rest.length === 1 ? rest[0] : rest;
            }
            if (this._events.removeListener !== undefined) {
                this.emit("removeListener", type, removed.listener || listener);
            }
            return this;
        },
        removeAllListeners(type) {
            if (this._events === undefined) return this;
            if (arguments.length === 0) {
                const keys = ReflectOwnKeys(this._events);
                if (this._events.removeListener !== undefined) {
                    for (let i = 0; i < keys.length; i++) {
                        if (keys[i] !== "removeListener") this.removeAllListeners(keys[i]);
                    }
                }
                this._events = ObjCreate(null);
                this._eventsCount = 0;
                return this;
            }
            const list = ArrSlice(listOf(this, type));
            for (let i = list.length - 1; i >= 0; i--) this.removeListener(type, list[i]);
            return this;
        },
        listeners(type) {
            const list = listOf(this, type), out = [];
            for (let i = 0; i < list.length; i++) append(out, list[i].listener || list[i]);
            return out;
        },
        rawListeners(type) { return ArrSlice(listOf(this, type)); },
        listenerCount(type, listener) {
            const list = listOf(this, type);
            if (listener === undefined || listener === null) return list.length;
            let count = 0;
            for (let i = 0; i < list.length; i++) {
                if (list[i] === listener || list[i].listener === listener) count++;
            }
            return count;
        },
        eventNames() { return this._events === undefined ? [] : ReflectOwnKeys(this._events); },
    };
    methods.on = methods.addListener;
    methods.off = methods.removeListener;
    const names = P.ObjKeys(methods);
    for (let i = 0; i < names.length; i++) EventEmitter.prototype[names[i]] = methods[names[i]];

    EventEmitter.defaultMaxListeners = 10;
    EventEmitter.EventEmitter = EventEmitter;
    EventEmitter.captureRejectionSymbol = capture;
    EventEmitter.errorMonitor = Symbol("events.errorMonitor");

    function listen(target, type, listener, options) {
        if (typeof target.addEventListener === "function") target.addEventListener(type, listener, options);
        else if (options && options.once) target.once(type, listener);
        else target.on(type, listener);
    }
    function unlisten(target, type, listener) {
        if (typeof target.removeEventListener === "function") target.removeEventListener(type, listener);
        else target.removeListener(type, listener);
    }
    function abortError(signal) {
        const error = new Error("The operation was aborted", { cause: signal.reason });
        error.code = "ABORT_ERR";
        hide(error, "name", "AbortError");
        return error;
    }

    EventEmitter.once = (emitter, type, options) => {
        const wait = deferred();
        const signal = options ? options.signal : undefined;
        const onValue = (...args) => {
            end();
            wait.resolve(args);
        };
        const onError = (error) => {
            end();
            wait.reject(error);
        };
        const onAbort = () => {
            end();
            wait.reject(abortError(signal));
        };
        const end = () => {
            unlisten(emitter, type, onValue);
            if (type !== "error" && typeof emitter.once === "function") unlisten(emitter, "error", onError);
            if (signal) signal.removeEventListener("abort", onAbort);
        };
        if (signal && signal.aborted) {
            wait.reject(abortError(signal));
            return wait.promise;
        }
        listen(emitter, type, onValue, { once: true });
        if (type !== "error" && typeof emitter.once === "function") emitter.once("error", onError);
        if (signal) signal.addEventListener("abort", onAbort, { once: true });
        return wait.promise;
    };

    EventEmitter.on = (emitter, type, options) => {
        const values = [], waits = [];
        let failure, isOver = false;
        const signal = options ? options.signal : undefined;
        const onValue = (...args) => {
            const wait = ArrShift(waits);
            if (wait) wait.resolve({ value: args, done: false });
            else append(values, args);
        };
        const onError = (error) => {
            const wait = ArrShift(waits);
            if (wait) wait.reject(error);
            else failure = { error };
        };
        const end = () => {
            isOver = true;
            unlisten(emitter, type, onValue);
            unlisten(emitter, "error", onError);
            for (let i = 0; i < waits.length; i++) waits[i].resolve({ value: undefined, done: true });
            waits.length = 0;
        };
        listen(emitter, type, onValue);
        if (type !== "error") listen(emitter, "error", onError);
        if (signal) signal.addEventListener("abort", () => onError(abortError(signal)), { once: true });
        return {
            next() {
                if (values.length > 0) return P.PromiseResolve({ value: ArrShift(values), done: false });
                if (failure) {
                    const { error } = failure;
                    failure = undefined;
                    return P.PromiseReject(error);
                }
                if (isOver) return P.PromiseResolve({ value: undefined, done: true });
                const wait = deferred();
                append(waits, wait);
                return wait.promise;
            },
            return() {
                end();
                return P.PromiseResolve({ value: undefined, done: true });
            },
            throw(error) {
                onError(error);
                return P.PromiseResolve({ value: undefined, done: true });
            },
            [Symbol.asyncIterator]() { return this; },
        };
    };
    EventEmitter.listenerCount = (emitter, type) => emitter.listenerCount(type);
    EventEmitter.getEventListeners = (emitter, type) => emitter.listeners(type);
    EventEmitter.setMaxListeners = (count, ...emitters) => {
        for (let i = 0; i < emitters.length; i++) {
            if (emitters[i].setMaxListeners) emitters[i].setMaxListeners(count);
        }
    };
    share.EventEmitter = EventEmitter;
    share.builtins.events = EventEmitter;
})
