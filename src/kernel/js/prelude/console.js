// The console: each call is one entry {level, text} in the log of the run, formatted as Node does.
// What process.stdout.write leaves without an end of line is kept until its line is complete.
(function (host, native, share) {
    "use strict";

    const { P, inspect, formatWithOptions, pulse } = share;
    const { append, ArrJoin, ArrPush, ArrUnshift, ArrIsArray, StrSplit, StrRepeat, StrIncludes, StrSlice, StrLastIndexOf,
        ObjKeys, ObjHasOwnProperty, MathMax, MathFloor, NumToFixed, Map, MapGet, MapSet, MapHas,
        MapDelete, MapForEach, SetForEach, StrPadStart, StrPadEnd, hide, String } = P;
    const { own_kind, monotonic } = native;

    const { print: hostPrint } = native; // where the host keeps the log: it then outlasts a run that is cut off
    let logs = [];
    let problems = ""; // what was printed on the error stream
    let isOpen = true;
    let partial = { __proto__: null, log: "", error: "" };
    let indent = "";
    let counts = new Map();
    let times = new Map();

    function entry(level, text) {
        if (!isOpen) return;
        pulse.isTouched = true;
        if (level === "warn" || level === "error") problems += text + "\n";
        if (hostPrint !== undefined) hostPrint(level, text);
        else append(logs, { __proto__: null, level, text });
    }

    // One entry; a line that was begun on the same stream comes first.
    function print(level, text) {
        const stream = level === "warn" || level === "error" ? "error" : "log";
        if (partial[stream] !== "") {
            text = partial[stream] + text;
            partial[stream] = "";
        }
        entry(level, text);
    }

    // process.stdout.write and process.stderr.write.
    function write(stream, text) {
        const all = partial[stream] + text;
        const end = StrLastIndexOf(all, "\n");
        pulse.isTouched = true;
        partial[stream] = StrSlice(all, end + 1);
        if (end >= 0) entry(stream, StrSlice(all, 0, end));
    }

    function emit(level, args) {
        let text = args.length === 1 && typeof args[0] === "string" ? args[0]
            : formatWithOptions(options, args);
        if (indent !== "") {
            if (StrIncludes(text, "\n")) text = ArrJoin(StrSplit(text, "\n"), "\n" + indent);
            text = indent + text;
        }
        print(level, text);
    }
    const options = { breakLength: 80 };

    function label(value) {
        return value === undefined ? "default" : `${value}`;
    }

    function duration(ms) {
        if (ms >= 3600000) {
            const hours = MathFloor(ms / 3600000), minutes = MathFloor(ms % 3600000 / 60000);
            return `${hours}:${StrPadStart(String(minutes), 2, "0")}:${StrPadStart(String(MathFloor(ms % 60000 / 1000)), 2, "0")} (h:mm:ss)`;
        }
        if (ms >= 60000) {
            const seconds = StrPadStart(NumToFixed(ms % 60000 / 1000, 3), 6, "0");
            return `${MathFloor(ms / 60000)}:${seconds} (m:ss.mmm)`;
        }
        if (ms >= 1000) return `${NumToFixed(ms / 1000, 3)}s`;
        return `${+NumToFixed(ms, 3)}ms`;
    }

    // ---- console.table -----------------------------------------------------------------------

    function cell(value) {
        const depth = value !== null && typeof value === "object" && !ArrIsArray(value) &&
            ObjKeys(value).length > 2 ? -1 : 0;
        return inspect(value, { depth, maxArrayLength: 3, breakLength: Infinity });
    }

    function row(cells, widths) {
        let out = "│";
        for (let i = 0; i < widths.length; i++) {
            const text = cells[i] === undefined ? "" : cells[i];
            out += ` ${text}${StrRepeat(" ", widths[i] - text.length - 1)}│`;
        }
        return out;
    }

    function rule(widths, left, middle, right) {
        const parts = [];
        for (let i = 0; i < widths.length; i++) append(parts, StrRepeat("─", widths[i]));
        return left + ArrJoin(parts, middle) + right;
    }

    function drawn(head, columns) {
        const widths = [];
        let height = 0;
        for (let i = 0; i < columns.length; i++) {
            let widest = head[i].length;
            height = MathMax(height, columns[i].length);
            for (let j = 0; j < columns[i].length; j++) {
                if (columns[i][j] !== undefined) widest = MathMax(widest, columns[i][j].length);
            }
            append(widths, widest + 2);
        }
        let out = `${rule(widths, "┌", "┬", "┐")}\n${row(head, widths)}\n${rule(widths, "├", "┼", "┤")}\n`;
        for (let j = 0; j < height; j++) {
            const cells = [];
            for (let i = 0; i < columns.length; i++) append(cells, columns[i][j]);
            out += `${row(cells, widths)}\n`;
        }
        return out + rule(widths, "└", "┴", "┘");
    }

    function tableOf(data, wanted) {
        const kind = own_kind(data);
        const index = [], values = [];
        if (kind === "Map") {
            const keys = [];
            MapForEach(data, (value, key) => {
                append(index, String(index.length));
                append(keys, cell(key));
                append(values, cell(value));
            });
            return drawn(["(iteration index)", "Key", "Values"], [index, keys, values]);
        }
        if (kind === "Set") {
            SetForEach(data, (value) => {
                append(index, String(index.length));
                append(values, cell(value));
            });
            return drawn(["(iteration index)", "Values"], [index, values]);
        }
        const columns = { __proto__: null };
        const rows = ObjKeys(data);
        let hasPlain = false;
        for (let i = 0; i < rows.length; i++) {
            const item = data[rows[i]];
            const isPlain = item === null || (typeof item !== "function" && typeof item !== "object");
            const keys = wanted || (isPlain ? [] : ObjKeys(item));
            for (let k = 0; k < keys.length; k++) {
                const key = keys[k];
                if (columns[key] === undefined) columns[key] = { __proto__: null, length: rows.length };
                columns[key][i] = isPlain || !ObjHasOwnProperty(item, key) ? "" : cell(item[key]);
            }
            if (isPlain) {
                hasPlain = true;
                values[i] = cell(item);
            }
        }
        const head = ObjKeys(columns), list = [];
        for (let i = 0; i < head.length; i++) append(list, columns[head[i]]);
        if (hasPlain) {
            append(head, "Values");
            append(list, values);
        }
        ArrUnshift(head, "(index)");
        ArrUnshift(list, rows);
        return drawn(head, list);
    }

    // ---- the object --------------------------------------------------------------------------

    function timeText(name, args, method) {
        const started = MapGet(times, name);
        if (started === undefined) {
            emit("warn", [`Warning: No such label '${name}' for console.${method}()`]);
            return;
        }
        const text = `${name}: ${duration(monotonic() - started)}`;
        const all = [text];
        for (let i = 0; i < args.length; i++) append(all, args[i]);
        emit("log", all);
    }

    const methods = {
        log(...args) { emit("log", args); },
        warn(...args) { emit("warn", args); },
        error(...args) { emit("error", args); },
        info(...args) { emit("info", args); },
        debug(...args) { emit("debug", args); },
        dir(value, given) {
            emit("log", [inspect(value, { customInspect: false, breakLength: 80, ...given })]);
        },
        dirxml(...args) { emit("log", args); },
        table(data, wanted) {
            if (data === null || typeof data !== "object") {
                emit("log", [data]);
                return;
            }
            if (wanted !== undefined && !ArrIsArray(wanted)) {
                throw share.wrongType("properties", "an instance of Array", wanted);
            }
            emit("log", [tableOf(data, wanted)]);
        },
        assert(condition, ...args) {
            if (condition) return;
            args[0] = `Assertion failed${args.length === 0 ? "" : `: ${args[0]}`}`;
            emit("warn", args);
        },
        count(name) {
            name = label(name);
            const count = (MapGet(counts, name) || 0) + 1;
            MapSet(counts, name, count);
            emit("log", [`${name}: ${count}`]);
        },
        countReset(name) {
            name = label(name);
            if (!MapDelete(counts, name)) emit("warn", [`Warning: Count for '${name}' does not exist`]);
        },
        time(name) {
            name = label(name);
            if (MapHas(times, name)) {
                emit("warn", [`Warning: Label '${name}' already exists for console.time()`]);
                return;
            }
            MapSet(times, name, monotonic());
        },
        timeEnd(name) {
            name = label(name);
            timeText(name, [], "timeEnd");
            MapDelete(times, name);
        },
        timeLog(name, ...args) {
            timeText(label(name), args, "timeLog");
        },
        group(...args) {
            if (args.length > 0) emit("log", args);
            pulse.isTouched = true;
            indent += "  ";
        },
        groupEnd() {
            indent = StrSlice(indent, 0, MathMax(0, indent.length - 2));
        },
        trace(...args) {
            const error = { __proto__: null };
            P.ErrCaptureStackTrace(error, methods.trace);
            const frames = share.framesOf({ __proto__: null, stack: "\n" + error.stack });
            const text = formatWithOptions(options, args);
            emit("error", [`Trace${text === "" ? "" : `: ${text}`}${frames === "" ? "" : "\n" + ArrJoin(kept(frames), "\n")}`]);
        },
    };

    function kept(frames) {
        const lines = StrSplit(frames, "\n"), out = [];
        for (let i = 0; i < lines.length; i++) {
            if (lines[i] !== "" && !StrIncludes(lines[i], "cove:")) append(out, lines[i]);
        }
        return out;
    }

    methods.groupCollapsed = methods.group;
    const console = {};
    const names = ObjKeys(methods);
    for (let i = 0; i < names.length; i++) console[names[i]] = methods[names[i]];
    P.ObjDefineProperty(console, Symbol.toStringTag, { __proto__: null, value: "console", configurable: true });
    share.define("console", console);
    share.builtins.console = console;
    share.print = print;
    share.write = write;

    // A new run begins with no entries; what a console remembers (counts, times, groups) stays.
    share.beginLog = () => {
        if (logs.length > 0) logs = [];
        if (problems !== "") problems = "";
        indent = "";
        isOpen = true;
    };
    // Whatever still runs of a run that is over prints nothing.
    share.closeLog = () => {
        if (partial.log !== "") entry("log", partial.log);
        if (partial.error !== "") entry("error", partial.error);
        partial.log = "";
        partial.error = "";
        isOpen = false;
    };
    share.logs = () => logs;
    share.problems = () => problems;
})
