// Prints what an agent does while it does it, each tool call with the time that it took.

const seconds = (ms) => (ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`);
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 3)}...` : text);

/** A call in one line: the tool, and what of its input says most. */
function callText(name, input) {
    const what = input.command ?? input.path ?? input.pid ?? input.code ?? "";
    return `${name.replace("mastra_workspace_", "")} ${shortened(String(what).trim().replaceAll(/\s+/g, " "), 60)}${input.background ? " &" : ""}`;
}

/** The last lines of a result, which say most. */
function resultLines(result) {
    const text = typeof result === "string" ? result : JSON.stringify(result);
    return text.split("\n").filter((line) => line.trim() !== "").slice(-2).map((line) => shortened(line, 100));
}

export async function told(title, task, stream) {
    const began = performance.now(), calls = new Map();
    let said = "";
    console.log(`${title}\n   task: ${task}`);
    const flush = () => {
        if (said !== "") console.log(`   model: ${said}`);
        said = "";
    };
    for await (const { type, payload } of stream.fullStream) {
        if (type === "text-delta") said += payload.text;
        if (type === "tool-call") {
            flush();
            calls.set(payload.toolCallId, [callText(payload.toolName, payload.args), performance.now()]);
        }
        if (type === "tool-result" || type === "tool-error") {
            const [text, start] = calls.get(payload.toolCallId);
            console.log(`     ${text.padEnd(80)} ${seconds(performance.now() - start).padStart(10)}`);
            for (const line of resultLines(payload.result ?? payload.error?.message ?? payload.error)) console.log(`       | ${line}`);
        }
        if (type === "error") throw payload.error;
    }
    flush();
    console.log(`   ${calls.size} tool calls, ${seconds(performance.now() - began)}\n`);
}
