// An agent of Mastra that works in sandboxes of cove: it writes a program, runs it, reads how it failed, fixes it, starts a server and
// fetches from it. Once for each tier: a sandbox with its own disk, a directory of yours in a box, and a kernel for code that only calls
// tools. All is real but the model, which is a plan (model.mjs), so that this runs without a network and gives the same each time.
// usage: node agent.mjs        exit status 1 if anything is not as it should be
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Agent } from "@mastra/core/agent";
import { createCodeMode, createTool } from "@mastra/core/tools";
import { Workspace } from "@mastra/core/workspace";
import { CoveCodeModeTransport, CoveFilesystem, CoveLocalSandbox, CoveSandbox } from "@cove/mastra";
import { z } from "zod";
import { PlannedModel } from "./model.mjs";
import { PORT, boxPlan, kernelPlan } from "./plans.mjs";
import { POEM } from "./poem.mjs";
import { told } from "./transcript.mjs";

async function work(title, model, agent, task) {
    await told(title, task, await agent.stream(task, { maxSteps: 20 }));
    if (model.failure !== undefined) throw new Error(`${title}: ${model.failure}`);
}

const TASK = "Count the words of poem.txt and find the longest of each line, and serve what you found over HTTP.";

/** The same agent and the same plan, in whatever workspace. */
async function inWorkspace(title, workspace) {
    const model = new PlannedModel(boxPlan);
    const agent = new Agent({ id: "clerk", name: "clerk", instructions: "You write small programs and run them.", model, workspace });
    await work(title, model, agent, TASK);
}

/** What the agent started is reached from here; the server in the sandbox listens nowhere else. */
async function visit(sandbox) {
    const url = await sandbox.networking.getPortUrl(PORT);
    const answer = await (await fetch(url)).json();
    console.log(`   The server that the agent started: ${url}`);
    console.log(`   From this program it answers: ${JSON.stringify(answer)}\n`);
    return url;
}

async function inKernel(title, url) {
    const poem = createTool({ id: "poem", description: "The lines of the poem.", outputSchema: z.array(z.string()), execute: async () => POEM.split("\n") });
    const fetchPage = createTool({
        id: "fetchPage", description: "Fetches the page of the report.", outputSchema: z.string(),
        execute: async () => (await fetch(url)).text(),
    });
    const { tool, instructions } = createCodeMode({ tools: { poem, fetchPage } }, new CoveCodeModeTransport());
    const model = new PlannedModel(kernelPlan);
    const agent = new Agent({ id: "clerk", name: "clerk", instructions, model, tools: { [tool.id]: tool } });
    await work(title, model, agent, "Find the longest word of each line of the poem, and check it with the report.");
}

const directory = fs.mkdtempSync(path.join(os.tmpdir(), "agent-"));
const box = new CoveSandbox({ id: "agent-example" });
const local = new CoveLocalSandbox({ id: "agent-example-local", workingDirectory: path.join(directory, "workspace") });
let status = 0;
try {
    await inWorkspace("1. A sandbox with a disk of its own: CoveSandbox and CoveFilesystem",
        new Workspace({ sandbox: box, filesystem: new CoveFilesystem({ sandbox: box }) }));
    const url = await visit(box);
    await inWorkspace("2. A directory of yours, in a box: CoveLocalSandbox in place of LocalSandbox",
        new Workspace({ sandbox: local, filesystem: new CoveFilesystem({ sandbox: local }) }));
    await visit(local);
    await inKernel("3. No processes and no files, only tools: code mode, in a kernel of this process", url);
    console.log("The agent has done its work in each of them.");
} catch (error) {
    console.error(`THIS SHOULD NOT HAVE HAPPENED: ${error.stack}`);
    status = 1;
} finally {
    await Promise.all([box._destroy(), local._destroy()]);
    fs.rmSync(directory, { recursive: true });
}
process.exit(status);
