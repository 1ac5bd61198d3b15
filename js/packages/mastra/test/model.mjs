// A language model for tests that asks nobody: it plays a script, one step for each time an agent asks it. A step
// sees what the tools answered last, so that a script can go on from there.

import { setTimeout as sleep } from "node:timers/promises";

const USAGE = { inputTokens: 1, outputTokens: 1, totalTokens: 2 };

/** What tools answered since the model spoke last, as text. */
function answersOf(prompt) {
    const last = prompt.at(-1);
    if (last?.role !== "tool") return [];
    return last.content
        .filter((part) => part.type === "tool-result")
        .map((part) => (typeof part.output.value === "string" ? part.output.value : JSON.stringify(part.output.value)));
}

export class ScriptedModel {
    specificationVersion = "v2";
    provider = "scripted";
    modelId = "scripted";
    supportedUrls = {};
    /** What the model was asked with: one entry for each step. */
    asked = [];
    #steps;
    #at = 0;
    #calls = 0;

    /**
     * Each step is a function of the last answers, or its result: `{ calls: [[tool, input], ...] }` or `{ text }`. With
     * `again` the same step comes once more, and sees what the calls came to.
     */
    constructor(steps) {
        this.#steps = steps;
    }

    async #next({ prompt, tools }) {
        this.asked.push({ prompt, tools: (tools ?? []).map((tool) => tool.name) });
        const step = this.#steps[this.#at++];
        if (step === undefined) throw new Error(`the script has ${this.#steps.length} steps, and the agent asks for one more`);
        const { calls = [], text, again = false } = typeof step === "function" ? step(answersOf(prompt)) : step;
        if (again) {
            this.#at--;
            await sleep(20); // a model takes its time, too, and what is waited for needs the machine
        }
        const content = calls.map(([toolName, input]) => ({
            type: "tool-call", toolCallId: `call-${++this.#calls}`, toolName, input: JSON.stringify(input),
        }));
        if (text !== undefined) content.unshift({ type: "text", text });
        return { content, finishReason: calls.length > 0 ? "tool-calls" : "stop" };
    }

    async doGenerate(options) {
        const { content, finishReason } = await this.#next(options);
        return { content, finishReason, usage: USAGE, warnings: [] };
    }

    async doStream(options) {
        const { content, finishReason } = await this.#next(options);
        const parts = [{ type: "stream-start", warnings: [] }];
        for (const part of content)
            if (part.type === "text")
                parts.push(
                    { type: "text-start", id: "text" },
                    { type: "text-delta", id: "text", delta: part.text },
                    { type: "text-end", id: "text" },
                );
            else parts.push(part);
        parts.push({ type: "finish", finishReason, usage: USAGE });
        return { stream: ReadableStream.from(parts) };
    }
}
