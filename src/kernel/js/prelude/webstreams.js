// ReadableStream as far as bodies need it: pull and start sources, one reader, async iteration, tee,
// cancel, from, pipeTo and pipeThrough; WritableStream and TransformStream in their plain form, and
// the text codec streams. No byte readers with buffers of the caller's.
(function (host, native, share) {
    "use strict";

    const { P } = share;
    const { append, ArrShift, deferred, PromiseThen, PromiseResolve, PromiseReject, TypeError, webClass, WeakMap, WeakMapGet, WeakMapSet,
        ObjCreate, AsyncIteratorPrototype, hide, bytesOf, Uint8Array } = P;

    const states = new WeakMap();
    const readers = new WeakMap();
    const of = (stream) => WeakMapGet(states, stream);
    const handled = (promise) => {
        PromiseThen(promise, undefined, () => {});
        return promise;
    };
    const stateError = (code, message) => share.codeError(TypeError, code, message);

    function newState(highWaterMark) {
        return { __proto__: null, queue: [], waits: [], phase: "readable", error: undefined, isLocked: false, isPulling: false, isAgain: false,
            isClosing: false, pull: undefined, cancel: undefined, closed: handled0(), most: highWaterMark, isDisturbed: false, controller: undefined };
    }
    function handled0() {
        const wait = deferred();
        handled(wait.promise);
        return wait;
    }

    function close(state) {
        if (state.phase !== "readable") return;
        state.phase = "closed";
        const waits = state.waits;
        state.waits = [];
        for (let i = 0; i < waits.length; i++) waits[i].resolve({ value: undefined, done: true });
        state.closed.resolve(undefined);
    }

    function fail(state, error) {
        if (state.phase !== "readable") return;
        state.phase = "errored";
        state.error = error;
        state.queue = [];
        const waits = state.waits;
        state.waits = [];
        for (let i = 0; i < waits.length; i++) waits[i].reject(error);
        state.closed.reject(error);
    }

    function pull(state) {
        if (state.phase !== "readable" || state.isClosing || state.pull === undefined || !state.isStarted) return;
        if (state.waits.length === 0 && state.queue.length >= state.most) return;
        if (state.isPulling) {
            state.isAgain = true;
            return;
        }
        state.isPulling = true;
        let made;
        try {
            made = PromiseResolve(state.pull(state.controller));
        } catch (error) {
            made = PromiseReject(error);
        }
        PromiseThen(made, () => {
            state.isPulling = false;
            if (state.isAgain) {
                state.isAgain = false;
                pull(state);
            }
        }, (error) => fail(state, error));
    }

    function enqueue(state, chunk) {
        if (state.isClosing || state.phase !== "readable") throw stateError("ERR_INVALID_STATE", "Invalid state: Controller is already closed");
        const wait = ArrShift(state.waits);
        if (wait !== undefined) wait.resolve({ value: chunk, done: false });
        else append(state.queue, chunk);
        pull(state);
    }

    function read(state) {
        const wait = deferred();
        state.isDisturbed = true;
        if (state.queue.length > 0) {
            const value = ArrShift(state.queue);
            if (state.isClosing && state.queue.length === 0) close(state);
            else pull(state);
            wait.resolve({ value, done: false });
        } else if (state.phase === "closed") {
            wait.resolve({ value: undefined, done: true });
        } else if (state.phase === "errored") {
            wait.reject(state.error);
        } else {
            append(state.waits, wait);
            pull(state);
        }
        return wait.promise;
    }

    async function cancel(state, reason) {
        state.isDisturbed = true;
        if (state.phase === "closed") return;
        if (state.phase === "errored") throw state.error;
        state.queue = [];
        const source = state.cancel;
        close(state);
        if (source !== undefined) await source(reason);
    }

    class ReadableStreamDefaultController {
        #state;
        constructor(state) { this.#state = state; }
        get desiredSize() {
            const state = this.#state;
            return state.phase === "errored" ? null : state.phase === "closed" ? 0 : state.most - state.queue.length;
        }
        enqueue(chunk) { enqueue(this.#state, chunk); }
        close() {
            const state = this.#state;
            if (state.isClosing || state.phase !== "readable") throw stateError("ERR_INVALID_STATE", "Invalid state: Controller is already closed");
            state.isClosing = true;
            if (state.queue.length === 0) close(state);
        }
        error(reason) { fail(this.#state, reason); }
        get byobRequest() { return null; }
    }
    webClass(ReadableStreamDefaultController, "ReadableStreamDefaultController");

    class ReadableStreamDefaultReader {
        constructor(stream) {
            const state = of(stream);
            if (state === undefined) throw share.wrongType("stream", "an instance of ReadableStream", stream);
            if (state.isLocked) throw stateError("ERR_INVALID_STATE", "Invalid state: ReadableStream is locked");
            state.isLocked = true;
            WeakMapSet(readers, this, { __proto__: null, state, closed: state.closed.promise });
        }
        get closed() { return WeakMapGet(readers, this).closed; }
        read() {
            const { state } = WeakMapGet(readers, this);
            return state === undefined ? PromiseReject(stateError("ERR_INVALID_STATE", "Invalid state: The reader is not attached to a stream")) : read(state);
        }
        cancel(reason) {
            const { state } = WeakMapGet(readers, this);
            return state === undefined ? PromiseReject(stateError("ERR_INVALID_STATE", "Invalid state: The reader is not attached to a stream")) : cancel(state, reason);
        }
        releaseLock() {
            const self = WeakMapGet(readers, this);
            if (self.state === undefined) return;
            const { waits } = self.state;
            self.state.waits = [];
            for (let i = 0; i < waits.length; i++) waits[i].reject(stateError("ERR_INVALID_STATE", "Invalid state: Releasing reader"));
            self.state.isLocked = false;
            self.state = undefined;
        }
    }
    webClass(ReadableStreamDefaultReader, "ReadableStreamDefaultReader");

    class ReadableStream {
        constructor(source, strategy) {
            const given = source === undefined || source === null ? {} : source;
            const isBytes = given.type === "bytes";
            const mark = strategy && strategy.highWaterMark !== undefined ? +strategy.highWaterMark : isBytes ? 0 : 1;
            const state = newState(mark);
            WeakMapSet(states, this, state);
            state.controller = new ReadableStreamDefaultController(state);
            if (given.pull !== undefined) state.pull = (controller) => P.apply(given.pull, given, [controller]);
            if (given.cancel !== undefined) state.cancel = (reason) => P.apply(given.cancel, given, [reason]);
            const started = given.start === undefined ? undefined : P.apply(given.start, given, [state.controller]);
            PromiseThen(PromiseResolve(started), () => {
                state.isStarted = true;
                pull(state);
            }, (error) => fail(state, error));
        }
        static from(items) {
            const method = items[Symbol.asyncIterator] || items[Symbol.iterator];
            const iterator = P.apply(method, items, []);
            return new ReadableStream({
                async pull(controller) {
                    const step = await iterator.next();
                    if (step.done) controller.close();
                    else controller.enqueue(step.value);
                },
                async cancel(reason) {
                    if (typeof iterator.return === "function") await iterator.return(reason);
                },
            }, { highWaterMark: 0 });
        }
        get locked() { return of(this).isLocked; }
        cancel(reason) {
            const state = of(this);
            if (state.isLocked) return PromiseReject(stateError("ERR_INVALID_STATE", "Invalid state: ReadableStream is locked"));
            return cancel(state, reason);
        }
        getReader(options) {
            if (options && options.mode === "byob") throw share.wrongValue("options.mode", "byob", "is not part of this kernel");
            return new ReadableStreamDefaultReader(this);
        }
        tee() {
            const reader = this.getReader();
            const controllers = [];
            let isReading = false, cancelled = 0;
            const step = async () => {
                if (isReading) return;
                isReading = true;
                const { value, done } = await reader.read();
                isReading = false;
                for (let i = 0; i < 2; i++) {
                    try {
                        if (done) controllers[i].close();
                        else controllers[i].enqueue(value);
                    } catch {
                        // that half was cancelled
                    }
                }
            };
            const half = () => new ReadableStream({
                start(controller) { append(controllers, controller); },
                pull: step,
                async cancel(reason) { if (++cancelled === 2) await reader.cancel(reason); },
            });
            return [half(), half()];
        }
        async pipeTo(target, options) {
            const reader = this.getReader(), writer = target.getWriter();
            const given = options || {};
            try {
                for (;;) {
                    if (given.signal) given.signal.throwIfAborted();
                    const { value, done } = await reader.read();
                    if (done) break;
                    await writer.write(value);
                }
                if (!given.preventClose) await writer.close();
            } catch (error) {
                if (!given.preventAbort) handled(writer.abort(error));
                if (!given.preventCancel) handled(reader.cancel(error));
                throw error;
            } finally {
                reader.releaseLock();
                writer.releaseLock();
            }
        }
        pipeThrough(pair, options) {
            handled(this.pipeTo(pair.writable, options));
            return pair.readable;
        }
        values(options) { return iterator(this, options); }
        [share.inspectCustom](depth, options, inspect) {
            const state = of(this);
            return `ReadableStream { locked: ${state.isLocked}, state: '${state.phase}', supportsBYOB: false }`;
        }
    }
    webClass(ReadableStream, "ReadableStream");
    hide(ReadableStream.prototype, Symbol.asyncIterator, ReadableStream.prototype.values);

    function iterator(stream, options) {
        const reader = stream.getReader();
        const keep = !!(options && options.preventCancel);
        const out = ObjCreate(AsyncIteratorPrototype);
        hide(out, "next", async () => {
            const step = await reader.read();
            if (step.done) reader.releaseLock();
            return step;
        });
        hide(out, "return", async (value) => {
            // The engine asks for this after a failed read too, and then there is nothing to cancel.
            if (!keep) await PromiseThen(reader.cancel(value), undefined, () => {});
            reader.releaseLock();
            return { value, done: true };
        });
        return out;
    }

    // ---- writing -----------------------------------------------------------------------------

    const sinks = new WeakMap();
    const writers = new WeakMap();

    class WritableStreamDefaultController {
        #state;
        constructor(state) { this.#state = state; }
        error(reason) { this.#state.error = { reason }; }
        get signal() { return this.#state.signal; }
    }
    webClass(WritableStreamDefaultController, "WritableStreamDefaultController");

    class WritableStream {
        constructor(sink) {
            const given = sink === undefined || sink === null ? {} : sink;
            const state = { __proto__: null, sink: given, tail: undefined, error: undefined, isClosed: false, isLocked: false, closed: handled0(), controller: undefined };
            state.controller = new WritableStreamDefaultController(state);
            state.tail = PromiseResolve(given.start === undefined ? undefined : P.apply(given.start, given, [state.controller]));
            WeakMapSet(sinks, this, state);
        }
        get locked() { return WeakMapGet(sinks, this).isLocked; }
        getWriter() { return new WritableStreamDefaultWriter(this); }
        close() { return finish(WeakMapGet(sinks, this)); }
        abort(reason) { return stop(WeakMapGet(sinks, this), reason); }
    }
    webClass(WritableStream, "WritableStream");

    // One write after the other, whoever writes.
    function chained(state, perform) {
        const next = PromiseThen(state.tail, () => {
            if (state.error !== undefined) throw state.error.reason;
            return perform();
        });
        state.tail = PromiseThen(next, () => {}, (error) => {
            if (state.error === undefined) {
                state.error = { reason: error };
                state.closed.reject(error);
            }
        });
        return handled(next);
    }

    function finish(state) {
        if (state.isClosed) return PromiseReject(stateError("ERR_INVALID_STATE", "Invalid state: Stream is already closed"));
        state.isClosed = true;
        return chained(state, async () => {
            if (state.sink.close !== undefined) await P.apply(state.sink.close, state.sink, []);
            state.closed.resolve(undefined);
        });
    }

    async function stop(state, reason) {
        if (state.error === undefined) {
            state.error = { reason };
            state.closed.reject(reason);
            if (state.sink.abort !== undefined) await P.apply(state.sink.abort, state.sink, [reason]);
        }
    }

    class WritableStreamDefaultWriter {
        constructor(stream) {
            const state = WeakMapGet(sinks, stream);
            if (state.isLocked) throw stateError("ERR_INVALID_STATE", "Invalid state: WritableStream is locked");
            state.isLocked = true;
            WeakMapSet(writers, this, state);
        }
        get closed() { return WeakMapGet(writers, this).closed.promise; }
        get ready() { return PromiseThen(WeakMapGet(writers, this).tail, () => undefined); }
        get desiredSize() { return WeakMapGet(writers, this).isClosed ? 0 : 1; }
        write(chunk) {
            const state = WeakMapGet(writers, this);
            if (state.isClosed) return handled(PromiseReject(stateError("ERR_INVALID_STATE", "Invalid state: Stream is closed")));
            return chained(state, () => state.sink.write === undefined ? undefined : P.apply(state.sink.write, state.sink, [chunk, state.controller]));
        }
        close() { return finish(WeakMapGet(writers, this)); }
        abort(reason) { return stop(WeakMapGet(writers, this), reason); }
        releaseLock() { WeakMapGet(writers, this).isLocked = false; }
    }
    webClass(WritableStreamDefaultWriter, "WritableStreamDefaultWriter");

    class TransformStream {
        #readable;
        #writable;
        constructor(transformer) {
            const given = transformer || {};
            let controller;
            this.#readable = new ReadableStream({ start(made) { controller = made; } }, { highWaterMark: Infinity });
            const out = {
                enqueue(chunk) { controller.enqueue(chunk); },
                error(reason) { controller.error(reason); },
                terminate() { controller.close(); },
                get desiredSize() { return controller.desiredSize; },
            };
            this.#writable = new WritableStream({
                start() { return given.start === undefined ? undefined : given.start(out); },
                async write(chunk) {
                    if (given.transform === undefined) out.enqueue(chunk);
                    else await given.transform(chunk, out);
                },
                async close() {
                    if (given.flush !== undefined) await given.flush(out);
                    controller.close();
                },
                abort(reason) { controller.error(reason); },
            });
        }
        get readable() { return this.#readable; }
        get writable() { return this.#writable; }
    }
    webClass(TransformStream, "TransformStream");

    class TextDecoderStream extends TransformStream {
        constructor(label, options) {
            const decoder = new share.TextDecoder(label, options);
            super({
                transform(chunk, out) {
                    const text = decoder.decode(chunk, { stream: true });
                    if (text !== "") out.enqueue(text);
                },
                flush(out) {
                    const text = decoder.decode();
                    if (text !== "") out.enqueue(text);
                },
            });
        }
    }
    webClass(TextDecoderStream, "TextDecoderStream");
    class TextEncoderStream extends TransformStream {
        constructor() {
            super({ transform(chunk, out) { out.enqueue(native.utf8_encode(`${chunk}`)); } });
        }
    }
    webClass(TextEncoderStream, "TextEncoderStream");

    share.ReadableStream = ReadableStream;
    share.isReadable = (value) => typeof value === "object" && value !== null && of(value) !== undefined;
    share.isDisturbed = (stream) => of(stream).isDisturbed;
    share.isLocked = (stream) => of(stream).isLocked;
    share.errorStream = (stream, reason) => fail(of(stream), reason);

    // All of it, as one Uint8Array.
    share.drain = async (stream) => {
        const reader = stream.getReader(), parts = [];
        let length = 0;
        for (;;) {
            const { value, done } = await reader.read();
            if (done) break;
            const bytes = typeof value === "string" ? undefined : bytesOf(value);
            if (bytes === undefined) throw new TypeError("Received non-Uint8Array chunk");
            append(parts, bytes);
            length += bytes.length;
        }
        if (parts.length === 1) return parts[0];
        const out = new Uint8Array(length);
        for (let i = 0, at = 0; i < parts.length; at += parts[i++].length) P.TaSet(out, parts[i], at);
        return out;
    };
    share.builtins["stream/web"] = { ReadableStream, WritableStream, TransformStream, TextDecoderStream, TextEncoderStream,
        ReadableStreamDefaultReader, WritableStreamDefaultWriter };
})
