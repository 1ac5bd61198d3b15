// node:stream in the form that programs use: Readable, Writable, Duplex, Transform, PassThrough,
// pipeline, finished; and on top of them node:readline over lines, node:string_decoder and the streams
// of node:fs. One chunk is under way at a time; highWaterMark counts chunks.
(function (host, native, share) {
    "use strict";

    const { P, EventEmitter, Buffer } = share;
    const { append, apply, ArrShift, ArrJoin, Error, deferred, PromiseThen, bytesOf, hide, StrSplit,
        StrSlice, StrLastIndexOf, ArrIsArray, replaceAll, PromiseResolve } = P;

    function later(callback, ...args) {
        apply(share.nextTick, undefined, [callback, ...args]);
    }

    function codeError(code, message) {
        return share.codeError(Error, code, message);
    }

    class Stream extends EventEmitter {
        constructor() {
            super();
            this.destroyed = false;
            this.closed = false;
            this.errored = null;
        }
        destroy(error) {
            if (this.destroyed) return this;
            this.destroyed = true;
            if (error) this.errored = error;
            const done = (failure) => {
                const final = failure || error;
                later(() => {
                    this.closed = true;
                    if (final) this.emit("error", final);
                    this.emit("close");
                });
            };
            if (typeof this._destroy === "function") this._destroy(error || null, done);
            else done();
            return this;
        }
        async [Symbol.asyncDispose]() { this.destroy(); }
    }

    // ---- reading -----------------------------------------------------------------------------

    function startReading(self, options) {
        self.readable = true;
        self.readableEnded = false;
        self.readableFlowing = null;
        self.readableObjectMode = !!(options.objectMode || options.readableObjectMode);
        self.readableEncoding = options.encoding || null;
        self.readableHighWaterMark = options.highWaterMark || (self.readableObjectMode ? 16 : 65536);
        hide(self, "_reading", { __proto__: null, queue: [], isEnded: false, isPulling: false, decoder: undefined, isScheduled: false });
        if (typeof options.read === "function") self._read = options.read;
        if (self.readableEncoding) self.setEncoding(self.readableEncoding);
    }

    const reading = {
        _read() {},
        setEncoding(encoding) {
            this.readableEncoding = encoding;
            this._reading.decoder = new StringDecoder(encoding);
            return this;
        },
        push(chunk, encoding) {
            const state = this._reading;
            state.isPulling = false;
            if (chunk === null) {
                state.isEnded = true;
                const rest = state.decoder === undefined ? "" : state.decoder.end();
                if (rest !== "") append(state.queue, rest);
            } else {
                if (!this.readableObjectMode) {
                    if (typeof chunk === "string" && state.decoder === undefined) chunk = Buffer.from(chunk, encoding);
                    else if (typeof chunk !== "string" && bytesOf(chunk) === undefined) {
                        this.destroy(share.wrongType("chunk", "of type string or an instance of Buffer or Uint8Array", chunk));
                        return false;
                    }
                    if (state.decoder !== undefined && typeof chunk !== "string") chunk = state.decoder.write(chunk);
                    if (chunk.length === 0) return true;
                }
                append(state.queue, chunk);
            }
            schedule(this);
            return state.queue.length < 16;
        },
        unshift(chunk) { P.ArrUnshift(this._reading.queue, chunk); },
        read() {
            const state = this._reading;
            if (state.queue.length === 0) {
                if (state.isEnded) end(this);
                else pull(this);
                if (state.queue.length === 0) return null;
            }
            let chunk;
            if (this.readableObjectMode || state.queue.length === 1) chunk = ArrShift(state.queue);
            else {
                chunk = typeof state.queue[0] === "string" ? ArrJoin(state.queue, "") : Buffer.concat(state.queue);
                state.queue = [];
            }
            if (state.queue.length === 0 && state.isEnded) schedule(this);
            return chunk;
        },
        on(type, listener) {
            apply(EventEmitter.prototype.on, this, [type, listener]);
            if (type === "data" && this.readableFlowing !== false) this.resume();
            else if (type === "readable") {
                this.readableFlowing = false;
                schedule(this);
            }
            return this;
        },
        pause() {
            this.readableFlowing = false;
            return this;
        },
        resume() {
            this.readableFlowing = true;
            schedule(this);
            return this;
        },
        isPaused() { return this.readableFlowing === false; },
        pipe(target, options) {
            this.on("data", (chunk) => {
                if (target.write(chunk) === false) {
                    this.pause();
                    target.once("drain", () => this.resume());
                }
            });
            if (!(options && options.end === false) && target !== share.process.stdout && target !== share.process.stderr) this.once("end", () => target.end());
            target.emit("pipe", this);
            return target;
        },
        async *[Symbol.asyncIterator]() {
            const state = this._reading;
            let wake = deferred(), failure;
            const on = () => wake.resolve();
            apply(EventEmitter.prototype.on, this, ["error", (error) => {
                failure = { error };
                wake.resolve();
            }]);
            apply(EventEmitter.prototype.on, this, ["close", on]);
            hide(state, "wake", on);
            this.readableFlowing = false;
            try {
                for (;;) {
                    const chunk = this.destroyed ? null : this.read();
                    if (chunk !== null) {
                        yield chunk;
                        continue;
                    }
                    if (failure) throw failure.error;
                    if (this.readableEnded || this.destroyed) return;
                    await wake.promise;
                    wake = deferred();
                    hide(state, "wake", () => wake.resolve());
                }
            } finally {
                this.destroy();
            }
        },
        async toArray() {
            const out = [];
            for await (const chunk of this) append(out, chunk);
            return out;
        },
        async forEach(callback) { for await (const chunk of this) await callback(chunk); },
        map(callback) {
            const self = this;
            return Readable.from((async function* () { for await (const chunk of self) yield await callback(chunk); })());
        },
        filter(callback) {
            const self = this;
            return Readable.from((async function* () { for await (const chunk of self) if (await callback(chunk)) yield chunk; })());
        },
    };

    function pull(self) {
        const state = self._reading;
        if (state.isPulling || state.isEnded || self.destroyed) return;
        state.isPulling = true;
        try {
            self._read(self.readableHighWaterMark);
        } catch (error) {
            self.destroy(error);
        }
    }

    function end(self) {
        if (self.readableEnded) return;
        self.readableEnded = true;
        self.readable = false;
        later(() => {
            self.emit("end");
            if (self._reading.wake) self._reading.wake();
            if (self.writable !== true) self.destroy();
        });
    }

    function schedule(self) {
        const state = self._reading;
        if (state.isScheduled || self.destroyed) return;
        state.isScheduled = true;
        later(() => {
            state.isScheduled = false;
            if (state.wake) state.wake();
            if (self.readableFlowing === true) {
                while (self.readableFlowing === true && state.queue.length > 0 && !self.destroyed) self.emit("data", ArrShift(state.queue));
                if (state.queue.length === 0) {
                    if (state.isEnded) end(self);
                    else if (self.readableFlowing === true) pull(self);
                }
            } else if (self.listenerCount("readable") > 0) {
                if (state.queue.length > 0 || state.isEnded) self.emit("readable");
                if (state.queue.length === 0 && state.isEnded) end(self);
                else if (state.queue.length === 0) pull(self);
            }
        });
    }

    class Readable extends Stream {
        constructor(options = {}) {
            super();
            startReading(this, options);
            if (typeof options.destroy === "function") this._destroy = options.destroy;
        }
        static from(items, options) {
            if (typeof items === "string" || bytesOf(items) !== undefined) {
                const whole = [items];
                return Readable.from(whole, { objectMode: false, ...options });
            }
            const method = items[Symbol.asyncIterator] || items[Symbol.iterator];
            if (typeof method !== "function") throw share.wrongType("iterable", "an instance of Iterable", items);
            const iterator = apply(method, items, []);
            return new Readable({
                objectMode: true, ...options,
                read() {
                    PromiseThen(PromiseResolve(0), () => iterator.next()).then(({ value, done }) => {
                        if (done) this.push(null);
                        else PromiseThen(PromiseResolve(value), (chunk) => this.push(chunk), (error) => this.destroy(error));
                    }, (error) => this.destroy(error));
                },
                destroy(error, done) {
                    if (typeof iterator.return === "function") iterator.return();
                    done();
                },
            });
        }
        static fromWeb(stream, options) { return Readable.from(stream, { objectMode: false, ...options }); }
        static toWeb(stream) { return share.ReadableStream.from(stream); }
        static isDisturbed(stream) { return stream.readableFlowing !== null; }
    }
    for (const key of P.ReflectOwnKeys(reading)) hide(Readable.prototype, key, reading[key]);
    hide(Readable.prototype, "addListener", reading.on);

    // ---- writing -----------------------------------------------------------------------------

    function startWriting(self, options) {
        self.writable = true;
        self.writableEnded = false;
        self.writableFinished = false;
        self.writableObjectMode = !!(options.objectMode || options.writableObjectMode);
        self.writableHighWaterMark = options.highWaterMark || (self.writableObjectMode ? 16 : 16384);
        hide(self, "_writing", { __proto__: null, queue: [], size: 0, isBusy: false, needsDrain: false, decode: options.decodeStrings !== false });
        for (const name of ["write", "writev", "final"]) if (typeof options[name] === "function") self[`_${name}`] = options[name];
    }

    const writing = {
        write(chunk, encoding, callback) {
            if (typeof encoding === "function") {
                callback = encoding;
                encoding = undefined;
            }
            const state = this._writing;
            if (this.writableEnded) {
                const error = codeError("ERR_STREAM_WRITE_AFTER_END", "write after end");
                if (callback) later(callback, error);
                this.destroy(error);
                return false;
            }
            if (this.destroyed) {
                const error = codeError("ERR_STREAM_DESTROYED", "Cannot call write after a stream was destroyed");
                if (callback) later(callback, error);
                return false;
            }
            if (chunk === null) throw codeError("ERR_STREAM_NULL_VALUES", "May not write null values to stream");
            if (!this.writableObjectMode) {
                if (typeof chunk === "string") {
                    if (state.decode) {
                        chunk = Buffer.from(chunk, encoding);
                        encoding = "buffer";
                    }
                } else if (bytesOf(chunk) === undefined) {
                    throw share.wrongType("chunk", "of type string or an instance of Buffer or Uint8Array", chunk);
                }
            }
            const size = this.writableObjectMode ? 1 : chunk.length;
            append(state.queue, { __proto__: null, chunk, encoding: encoding || "utf8", callback, size });
            state.size += size;
            flush(this);
            const hasRoom = state.size < this.writableHighWaterMark;
            if (!hasRoom) state.needsDrain = true;
            return hasRoom;
        },
        end(chunk, encoding, callback) {
            if (typeof chunk === "function") {
                callback = chunk;
                chunk = undefined;
            } else if (typeof encoding === "function") {
                callback = encoding;
                encoding = undefined;
            }
            if (chunk !== undefined && chunk !== null) this.write(chunk, encoding);
            if (callback) this.once("finish", callback);
            if (!this.writableEnded) {
                this.writableEnded = true;
                this.writable = false;
                flush(this);
            }
            return this;
        },
        cork() {},
        uncork() {},
        setDefaultEncoding() { return this; },
        get writableLength() { return this._writing.size; },
    };

    function flush(self) {
        const state = self._writing;
        if (state.isBusy || self.destroyed) return;
        if (state.queue.length === 0) {
            if (self.writableEnded && !self.writableFinished && !state.isFinal) {
                state.isFinal = true;
                const done = (error) => later(() => {
                    if (error) {
                        self.destroy(error);
                        return;
                    }
                    self.writableFinished = true;
                    self.emit("finish");
                    if (self.readable !== true) self.destroy();
                });
                try {
                    if (typeof self._final === "function") self._final(done);
                    else done();
                } catch (error) {
                    done(error);
                }
            }
            return;
        }
        const one = ArrShift(state.queue);
        state.isBusy = true;
        let isDone = false;
        const done = (error) => {
            if (isDone) return;
            isDone = true;
            state.size -= one.size;
            later(() => {
                state.isBusy = false;
                if (one.callback) one.callback(error || null);
                if (error) {
                    self.destroy(error);
                    return;
                }
                if (state.needsDrain && state.size === 0 && !self.writableEnded) {
                    state.needsDrain = false;
                    self.emit("drain");
                }
                flush(self);
            });
        };
        try {
            if (typeof self._write === "function") self._write(one.chunk, one.encoding, done);
            else if (typeof self._writev === "function") self._writev([one], done);
            else throw codeError("ERR_METHOD_NOT_IMPLEMENTED", "The _write() method is not implemented");
        } catch (error) {
            done(error);
        }
    }

    class Writable extends Stream {
        constructor(options = {}) {
            super();
            startWriting(this, options);
            if (typeof options.destroy === "function") this._destroy = options.destroy;
        }
    }
    function giveWriting(target) {
        for (const key of P.ReflectOwnKeys(writing)) P.ObjDefineProperty(target.prototype, key, { ...P.ObjGetOwnPropertyDescriptor(writing, key), __proto__: null, enumerable: false });
    }
    giveWriting(Writable);

    class Duplex extends Readable {
        constructor(options = {}) {
            super(options);
            startWriting(this, options);
        }
    }
    giveWriting(Duplex);

    class Transform extends Duplex {
        constructor(options = {}) {
            super(options);
            if (typeof options.transform === "function") this._transform = options.transform;
            if (typeof options.flush === "function") this._flush = options.flush;
            this._write = (chunk, encoding, done) => this._transform(chunk, encoding, (error, value) => {
                if (!error && value !== undefined && value !== null) this.push(value);
                done(error);
            });
            this._final = (done) => {
                const finish = (error, value) => {
                    if (!error && value !== undefined && value !== null) this.push(value);
                    if (!error) this.push(null);
                    done(error);
                };
                if (typeof this._flush === "function") this._flush(finish);
                else finish();
            };
        }
        _transform(chunk, encoding, done) { done(codeError("ERR_METHOD_NOT_IMPLEMENTED", "The _transform() method is not implemented")); }
    }
    class PassThrough extends Transform {
        _transform(chunk, encoding, done) { done(null, chunk); }
    }

    // ---- several streams ---------------------------------------------------------------------

    function finished(stream, options, callback) {
        if (typeof options === "function") callback = options;
        let isCalled = false;
        const call = (error) => {
            if (isCalled) return;
            isCalled = true;
            apply(callback, stream, error ? [error] : []);
        };
        const check = () => {
            if ((stream._reading === undefined || stream.readableEnded) && (stream._writing === undefined || stream.writableFinished)) call();
        };
        stream.on("error", call);
        apply(EventEmitter.prototype.on, stream, ["end", check]);
        stream.on("finish", check);
        stream.on("close", () => {
            check();
            call(codeError("ERR_STREAM_PREMATURE_CLOSE", "Premature close"));
        });
        check();
        return () => { isCalled = true; };
    }

    function asStream(value, before) {
        if (typeof value === "function") {
            const made = before === undefined ? value() : value(before);
            return typeof made.then === "function" ? made : Readable.from(made);
        }
        return typeof value.pipe === "function" || typeof value.write === "function" ? value : Readable.from(value);
    }

    async function runPipeline(list) {
        let at = asStream(list[0]);
        const all = [at], waits = [];
        try {
            for (let i = 1; i < list.length; i++) {
                const next = asStream(list[i], at);
                if (typeof list[i] !== "function") {
                    const source = at;
                    append(waits, new P.Promise((yes, no) => finished(source, (error) => error ? no(error) : yes())));
                    at.pipe(next);
                }
                at = next;
                append(all, at);
            }
            if (typeof at.then === "function") return await at;
            if (at._writing !== undefined) {
                await P.PromiseAll([...waits, new P.Promise((yes, no) => {
                    at.on("error", no);
                    at.on("finish", yes);
                    if (at.writableFinished) yes();
                })]);
            }
            return undefined;
        } catch (error) {
            for (let i = 0; i < all.length; i++) if (typeof all[i].destroy === "function") all[i].destroy();
            throw error;
        }
    }

    function pipeline(...list) {
        const callback = typeof list[list.length - 1] === "function" && list.length > 1 ? list.pop() : undefined;
        const streams = list.length === 1 && ArrIsArray(list[0]) ? list[0] : list;
        PromiseThen(runPipeline(streams), (value) => callback && callback(undefined, value), (error) => {
            if (callback) callback(error);
            else throw error;
        });
        return streams[streams.length - 1];
    }
    const promises = {
        pipeline(...list) {
            const last = list[list.length - 1];
            if (typeof last === "object" && last !== null && typeof last.pipe !== "function" && typeof last.write !== "function") list.pop();
            return runPipeline(list.length === 1 && ArrIsArray(list[0]) ? list[0] : list);
        },
        finished(stream) { return new P.Promise((yes, no) => finished(stream, (error) => error ? no(error) : yes())); },
    };
    hide(pipeline, P.SymFor("nodejs.util.promisify.custom"), promises.pipeline);
    hide(finished, P.SymFor("nodejs.util.promisify.custom"), promises.finished);

    const stream = Stream;
    for (const [name, item] of P.ObjEntries({ Stream, Readable, Writable, Duplex, Transform, PassThrough, pipeline, finished, promises })) stream[name] = item;
    share.builtins.stream = stream;
    share.builtins["stream/promises"] = promises;
    share.builtins["stream/consumers"] = {
        async text(source) {
            const decoder = new share.TextDecoder();
            let out = "";
            for await (const chunk of source) out += typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
            return out + decoder.decode();
        },
        async json(source) { return P.JsonParse(await share.builtins["stream/consumers"].text(source)); },
        async buffer(source) {
            const parts = [];
            for await (const chunk of source) append(parts, typeof chunk === "string" ? Buffer.from(chunk) : chunk);
            return Buffer.concat(parts);
        },
        async arrayBuffer(source) {
            const whole = await share.builtins["stream/consumers"].buffer(source);
            return P.BufSlice(whole.buffer, whole.byteOffset, whole.byteOffset + whole.length);
        },
    };

    // ---- node:string_decoder -----------------------------------------------------------------

    // How many bytes make a whole that can be written; the rest waits for those that follow.
    const WHOLE = { __proto__: null, base64: 3, base64url: 3, utf16le: 2, hex: 1, latin1: 1, ascii: 1 };

    class StringDecoder {
        #decoder; // of UTF-8
        #rest = new P.Uint8Array(0); // of the others: bytes of a character that is not whole
        constructor(encoding) {
            this.encoding = share.encodingOf(encoding);
            if (this.encoding === "utf8") this.#decoder = new share.TextDecoder("utf-8", { ignoreBOM: true });
        }
        write(chunk) {
            if (typeof chunk === "string") return chunk;
            const bytes = P.isView(chunk) ? bytesOf(chunk) : undefined;
            if (bytes === undefined) throw share.wrongType("buf", "an instance of Buffer, TypedArray, or DataView", chunk);
            if (this.#decoder !== undefined) return this.#decoder.decode(bytes, { stream: true });
            const all = new P.Uint8Array(this.#rest.length + bytes.length);
            P.TaSet(all, this.#rest);
            P.TaSet(all, bytes, this.#rest.length);
            const whole = all.length - all.length % WHOLE[this.encoding];
            this.#rest = P.TaSlice(all, whole);
            return share.decodeText(P.TaSubarray(all, 0, whole), this.encoding);
        }
        end(chunk) {
            const out = chunk === undefined ? "" : this.write(chunk);
            if (this.#decoder !== undefined) return out + this.#decoder.decode();
            const rest = this.#rest;
            this.#rest = new P.Uint8Array(0);
            return out + share.decodeText(rest, this.encoding);
        }
    }
    share.builtins.string_decoder = { StringDecoder };

    // ---- node:tty, for packages that ask whether they may print in colour ----------------------

    class NoTerminal {
        constructor() {
            throw share.codeError(Error, "ERR_TTY_INIT_FAILED", "TTY initialization failed: a kernel has no terminal");
        }
    }
    share.builtins.tty = { isatty() { return false; }, ReadStream: class ReadStream extends NoTerminal {}, WriteStream: class WriteStream extends NoTerminal {} };

    // ---- node:readline -----------------------------------------------------------------------

    class Interface extends EventEmitter {
        #input;
        #questions = [];
        constructor(options) {
            super();
            this.#input = options.input;
            this.terminal = false;
            this.line = "";
            if (this.#input && typeof this.#input.on === "function" && !options.isLazy) later(() => this.#follow());
        }
        async #follow() {
            if (this.listenerCount("line") === 0 && this.#questions.length === 0) return;
            for await (const line of this) {
                const question = ArrShift(this.#questions);
                if (question) question(line);
                else this.emit("line", line);
            }
        }
        async *[Symbol.asyncIterator]() {
            let rest = "";
            const decoder = new StringDecoder();
            for await (const chunk of this.#input) {
                rest += typeof chunk === "string" ? chunk : decoder.write(chunk);
                const at = StrLastIndexOf(rest, "\n");
                if (at < 0) continue;
                const lines = StrSplit(StrSlice(rest, 0, at), "\n");
                rest = StrSlice(rest, at + 1);
                for (let i = 0; i < lines.length; i++) yield replaceAll(/\r$/g, lines[i], () => "");
            }
            rest += decoder.end();
            if (rest !== "") yield rest;
            this.close();
        }
        question(text, options, callback) {
            share.write("log", text);
            append(this.#questions, typeof options === "function" ? options : callback);
        }
        setPrompt() {}
        prompt() {}
        write() {}
        pause() { return this; }
        resume() { return this; }
        close() {
            if (this.closed) return;
            this.closed = true;
            later(() => this.emit("close"));
        }
    }
    const createInterface = (input, output) => new Interface(input && input.input !== undefined ? input : { input, output });
    share.builtins.readline = { Interface, createInterface, clearLine() { return true; }, cursorTo() { return true; }, promises: { createInterface, Interface } };
    share.builtins["readline/promises"] = share.builtins.readline.promises;
})
