// `process`, node:os, the globals that a context is given (env, tools, __env__), and share.configure,
// which sets them before the first run. What it says of the machine is the same everywhere: nothing
// of the host is told.
(function (host, native, share) {
    "use strict";

    const { P, EventEmitter } = share;
    const { ObjCreate, ObjKeys, ObjFreeze, ObjDefineProperty, ObjSetPrototypeOf, append, ArrIsArray, MathFloor, MathRound, BigInt, String, Proxy, hide,
        getter, TypeError, Error, ReflectOwnKeys, apply, PromiseThen } = P;
    const { monotonic, memory, own_kind } = native;

    let cwd = "/";
    share.cwd = () => cwd;
    let started = monotonic();

    // ---- process -----------------------------------------------------------------------------

    const process = ObjCreate(ObjCreate(EventEmitter.prototype, {
        constructor: { value: function process() {}, writable: true, configurable: true },
        [Symbol.toStringTag]: { value: "process", configurable: true },
    }));
    apply(EventEmitter, process, []);

    function stream(name, fd) {
        const out = new EventEmitter();
        hide(out, "_events", out._events);
        const write = (text, encoding, done) => {
            const bytes = typeof text === "string" ? undefined : P.bytesOf(text);
            if (typeof text !== "string" && bytes === undefined) {
                throw share.wrongType("chunk", "of type string or an instance of Buffer or Uint8Array", text);
            }
            share.write(name, bytes === undefined ? text : native.utf8_decode(bytes, 0, bytes.length, false));
            const callback = typeof encoding === "function" ? encoding : done;
            if (typeof callback === "function") share.nextTick(callback);
            return true;
        };
        out.fd = fd;
        out.isTTY = false;
        out.writable = true;
        out.columns = 80;
        out.write = write;
        out.end = (text, ...rest) => {
            if (text !== undefined && typeof text !== "function") write(text, ...rest);
            return out;
        };
        out.cork = out.uncork = () => {};
        out.getColorDepth = () => 1;
        out.hasColors = () => false;
        return out;
    }

    function hrtime(before) {
        const ms = monotonic();
        let seconds = MathFloor(ms / 1000), rest = MathRound(ms % 1000 * 1e6);
        if (before !== undefined) {
            seconds -= before[0];
            rest -= before[1];
            if (rest < 0) {
                seconds--;
                rest += 1e9;
            }
        }
        return [seconds, rest];
    }
    hrtime.bigint = () => BigInt(MathRound(monotonic() * 1e6));

    const facts = {
        title: "node", version: "v22.12.0", pid: 1, ppid: 0, arch: "x64", platform: "linux", execPath: "/usr/bin/node", execArgv: [],
        argv0: "node", argv: ["/usr/bin/node", "/run.js"], env: {}, features: {}, config: {},
        versions: { node: "22.12.0" }, release: { name: "node" }, debugPort: 0,
    };
    for (const name of ObjKeys(facts)) process[name] = facts[name];
    let exitCode;
    P.getter(process, "exitCode", () => exitCode, (code) => {
        exitCode = code;
        share.pulse.isTouched = true;
    }, true);
    share.forgetExitCode = () => { exitCode = undefined; };
    process.stdout = stream("log", 1);
    process.stderr = stream("error", 2);
    process.stdin = { fd: 0, isTTY: false, on() { return this; }, once() { return this; }, setEncoding() { return this; }, resume() { return this; }, pause() { return this; },
        read() { return null; }, async *[Symbol.asyncIterator]() {} };

    const methods = {
        cwd() { return cwd; },
        chdir(path) {
            const full = share.paths.resolve(share.needString(path, "directory"));
            share.builtins.fs.readdirSync(full);
            cwd = full;
        },
        exit(code) {
            if (code !== undefined) process.exitCode = code;
            const final = process.exitCode === undefined ? 0 : MathFloor(+process.exitCode) || 0;
            if (!process._exiting) {
                hide(process, "_exiting", true);
                process.emit("exit", final);
            }
            share.exit(final);
        },
        abort() { share.exit(134); },
        nextTick: share.nextTick,
        hrtime,
        uptime() { return (monotonic() - started) / 1000; },
        memoryUsage() {
            const [used, total] = memory();
            return { rss: total, heapTotal: total, heapUsed: used, external: 0, arrayBuffers: 0 };
        },
        cpuUsage() { return { user: MathRound((monotonic() - started) * 1000), system: 0 }; },
        resourceUsage() { return { userCPUTime: 0, systemCPUTime: 0, maxRSS: MathRound(memory()[1] / 1024) }; },
        umask() { return 18; },
        getuid() { return 1000; },
        geteuid() { return 1000; },
        getgid() { return 1000; },
        getegid() { return 1000; },
        emitWarning(warning, type) {
            const name = typeof type === "string" ? type : type && type.type ? type.type : "Warning";
            share.print("error", `(node:1) ${own_kind(warning) === "Error" ? `${warning.name}: ${warning.message}` : `${name}: ${warning}`}`);
        },
        binding() { throw new Error("process.binding is not part of this kernel"); },
        kill() { throw share.fileError("EPERM", "kill"); },
        getBuiltinModule(name) { return share.builtinOf(name); },
    };
    for (const name of ObjKeys(methods)) process[name] = methods[name];
    process.memoryUsage.rss = () => memory()[1];
    share.process = process;
    share.builtins.process = process;
    share.define("process", process);

    // Whether anybody listened. Only listeners that the user added count, so a run without any pays
    // nothing.
    share.emitProcess = (name, ...args) => {
        if (process._eventsCount === 0 || !(process.listenerCount(name) > 0)) return false;
        try {
            process.emit(name, ...args);
        } catch (error) {
            if (name === "uncaughtException") return false;
            share.uncaught(error);
        }
        return true;
    };

    // ---- node:os -----------------------------------------------------------------------------

    share.builtins.os = {
        EOL: "\n", devNull: "/dev/null",
        arch() { return "x64"; },
        platform() { return "linux"; },
        type() { return "Linux"; },
        release() { return "6.0.0"; },
        version() { return "#1"; },
        machine() { return "x86_64"; },
        hostname() { return "localhost"; },
        homedir() { return process.env.HOME || "/"; },
        tmpdir() { return process.env.TMPDIR || "/tmp"; },
        endianness() { return "LE"; },
        uptime() { return MathFloor(monotonic() / 1000); },
        loadavg() { return [0, 0, 0]; },
        totalmem() { return 4294967296; },
        freemem() { return 4294967296 - memory()[1]; },
        cpus() { return [{ model: "cove", speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } }]; },
        availableParallelism() { return 1; },
        networkInterfaces() { return {}; },
        userInfo() { return { uid: 1000, gid: 1000, username: "user", homedir: process.env.HOME || "/", shell: null }; },
        getPriority() { return 0; },
        setPriority() {},
        constants: { signals: { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 }, errno: {} },
    };

    // ---- tools -------------------------------------------------------------------------------

    function callTool(name, args) {
        const given = args === undefined ? {} : args;
        return PromiseThen(share.begin("tool", { __proto__: null, name: `${name}`, args: given }), (answer) => answer.meta.value);
    }

    // `tools.anything(args)`: a name that was not granted is refused by the host, which says so.
    function namespace(names) {
        const known = ObjCreate(null);
        for (let i = 0; i < names.length; i++) {
            const name = `${names[i]}`;
            hide(known, name, { [name](args) { return callTool(name, args); } }[name]);
            ObjDefineProperty(known, name, { __proto__: null, value: known[name], enumerable: true, writable: false, configurable: true });
        }
        return new Proxy(known, {
            __proto__: null,
            get(target, name) {
                if (typeof name === "symbol" || name === "then") return undefined;
                return target[name] !== undefined ? target[name] : (args) => callTool(name, args);
            },
            set() { return false; },
            defineProperty() { return false; },
            deleteProperty() { return false; },
        });
    }
    share.define("callTool", callTool);

    // ---- what a context is given -------------------------------------------------------------

    // {env, argv, cwd, tools: [names]}, before the first run of a context.
    share.configure = (given) => {
        const wanted = given === undefined || given === null ? {} : given;
        started = monotonic();
        share.beginClock();
        if (typeof wanted.cwd === "string") cwd = share.paths.normalize(wanted.cwd);
        if (ArrIsArray(wanted.argv)) {
            process.argv = ["/usr/bin/node", share.paths.join(cwd, "run.js")];
            for (let i = 0; i < wanted.argv.length; i++) append(process.argv, `${wanted.argv[i]}`);
        }
        const env = wanted.env;
        if (env !== undefined && env !== null) {
            const names = ObjKeys(env), copy = {}, frozen = {};
            for (let i = 0; i < names.length; i++) {
                copy[names[i]] = `${env[names[i]]}`;
                frozen[names[i]] = `${env[names[i]]}`;
            }
            process.env = copy;
            if (names.length > 0) {
                ObjDefineProperty(globalThis, "__env__", { __proto__: null, value: ObjFreeze(frozen), writable: false, enumerable: false, configurable: false });
            }
        }
        if (ArrIsArray(wanted.tools) && wanted.tools.length > 0) {
            const tools = namespace(wanted.tools);
            share.define("tools", tools);
            share.define("codemode", tools);
        }
    };
    share.define("__env__", undefined);
    const none = namespace([]);
    share.define("tools", none);
    share.define("codemode", none);
})
