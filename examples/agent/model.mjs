// A model without a network: it has a plan instead of weights. Each step of the plan looks at what the last tool gave, as a model would,
// says something, and calls the next tool. If it does not see what it has to see, it says so and stops: the example then fails.
//
// To Mastra it is a language model like any other (LanguageModelV2), so that all that happens around it is the real thing.

/** The newest result of a tool in the conversation, as text. */
function lastResult(prompt) {
    const tools = prompt.filter(({ role }) => role === "tool").at(-1);
    const output = tools?.content.filter(({ type }) => type === "tool-result").at(-1)?.output;
    if (output === undefined) return "";
    return typeof output.value === "string" ? output.value : JSON.stringify(output.value ?? output);
}

/**
 * A step: `{ sees?: RegExp, says: string, calls?: [tool, input] }`. `input` may be a function of what matched. A step that calls nothing is the last one.
 */
export class PlannedModel {
    specificationVersion = "v2";
    provider = "plan";
    modelId = "plan";
    supportedUrls = {};
    /** What went wrong, if something did. */
    failure;

    constructor(plan) {
        this.plan = plan;
        this.next = 0;
    }

    /** What it says to this conversation: text, and the call of a tool unless it is done. */
    answer(prompt) {
        const step = this.plan[this.next++], seen = lastResult(prompt);
        const match = step?.sees === undefined ? [] : step.sees.exec(seen);
        if (step === undefined || match === null) {
            this.failure = step === undefined ? "the plan has no more steps" : `step ${this.next} wants to see ${step.sees}, and sees: ${seen}`;
            return [{ type: "text", text: `This is not what I expected. ${this.failure}` }];
        }
        const content = [{ type: "text", text: step.says }];
        if (step.calls !== undefined) {
            const [toolName, input] = step.calls;
            content.push({ type: "tool-call", toolCallId: `call-${this.next}`, toolName,
                input: JSON.stringify(typeof input === "function" ? input(match) : input) });
        }
        return content;
    }

    async doGenerate({ prompt }) {
        const content = this.answer(prompt);
        return { content, finishReason: content.length > 1 ? "tool-calls" : "stop", usage: USAGE, warnings: [] };
    }

    async doStream({ prompt }) {
        const [{ text }, call] = this.answer(prompt), id = `text-${this.next}`;
        const parts = [
            { type: "stream-start", warnings: [] },
            { type: "text-start", id },
            { type: "text-delta", id, delta: text },
            { type: "text-end", id },
            ...(call === undefined ? [] : [call]),
            { type: "finish", finishReason: call === undefined ? "stop" : "tool-calls", usage: USAGE },
        ];
        return { stream: ReadableStream.from(parts) };
    }
}

const USAGE = { inputTokens: 0, outputTokens: 0, totalTokens: 0 };
