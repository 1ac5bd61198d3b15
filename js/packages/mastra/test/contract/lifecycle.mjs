// Identity, states and hooks of a sandbox: section 1.1 of the contract.
import { execFile } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { begun, beating, life, need, out, refusal, refused, until, within } from './kit.mjs';

const run = promisify(execFile);

export const title = 'lifecycle';

export const cases = [
    {
        name: 'a new one has id, name and provider, is pending, and costs nothing',
        expected: { id: true, name: true, provider: true, status: 'pending', snapshot: 'function' },
        async run(box) {
            const made = box.make();
            const filled = (text) => typeof text === 'string' && text !== '';
            return {
                id: filled(made.id),
                name: filled(made.name),
                provider: filled(made.provider),
                status: made.status,
                snapshot: typeof made.snapshot,
            };
        },
    },
    {
        name: 'the first start creates, the next says connected',
        expected: ['created', 'running', 'connected'],
        async run(box) {
            const made = box.make();
            return [(await made.start()).outcome, made.status, (await made.start()).outcome];
        },
    },
    {
        name: 'a second object of the same id finds the first one, with its files',
        expected: ['created', 'connected', 'kept\n'],
        async run(box) {
            const first = box.make();
            const one = await first.start();
            await out(first, 'echo kept >left');
            const second = box.again(first);
            const two = await second.start();
            return [one.outcome, two.outcome, (await second.executeCommand('cat left')).stdout];
        },
    },
    {
        name: 'concurrent starts are one',
        expected: { outcomes: ['created'], hooks: 1 },
        async run(box) {
            let hooks = 0;
            const made = box.make({ onStart: () => void hooks++ });
            const all = await Promise.all(
                Array.from({ length: 8 }, (_, i) => (i % 2 ? made.start() : made._start())),
            );
            return { outcomes: [...new Set(all.map((one) => one.outcome))], hooks };
        },
    },
    {
        name: 'the first command starts it',
        expected: ['pending', '0', 'running'],
        async run(box) {
            const made = box.make();
            const before = made.status;
            const { exitCode } = await made.executeCommand('true');
            return [before, String(exitCode), made.status];
        },
    },
    {
        name: 'onStart hears the sandbox that runs, and the outcome',
        expected: ['running', true, 'created'],
        async run(box) {
            const heard = [];
            const made = box.make({
                onStart: ({ sandbox, outcome }) => void heard.push(sandbox.status, sandbox === made, outcome),
            });
            await made.start();
            return heard;
        },
    },
    {
        name: 'onStart may run commands',
        expected: 'ready\n',
        async run(box) {
            const made = box.make({
                onStart: async ({ sandbox }) => void (await sandbox.executeCommand('echo ready >state')),
            });
            return out(made, 'cat state');
        },
    },
    {
        name: 'an onStart that throws fails the start; the next one may succeed',
        expected: { first: 'Error', says: true, status: 'error', then: 'running' },
        async run(box) {
            let times = 0;
            const made = box.make({
                onStart: () => {
                    if (++times === 1) throw new Error('not yet');
                },
            });
            let says = false;
            const first = await refusal(() =>
                made.start().catch((error) => {
                    says = error.message.includes('not yet');
                    throw error;
                }),
            );
            const { status } = made;
            await made.start();
            return { first, says, status, then: made.status };
        },
    },
    {
        name: 'setOnStart adds to the hook that is there',
        expected: ['one', 'two'],
        async run(box) {
            const heard = [];
            const made = box.make({ onStart: () => void heard.push('one') });
            made.setOnStart((previous) => async (event) => {
                await previous?.(event);
                heard.push('two');
            });
            await made.start();
            return heard;
        },
    },
    {
        name: 'onStop and onDestroy come before what they are about',
        expected: ['stopping', 'stopped', 'destroying', 'destroyed'],
        async run(box) {
            const heard = [];
            const hook = ({ sandbox }) => void heard.push(sandbox.status);
            const made = box.make({ onStop: hook, onDestroy: hook });
            await made.start();
            await made._stop();
            heard.push(made.status);
            await made._destroy();
            heard.push(made.status);
            return heard;
        },
    },
    {
        name: 'an onStop that throws leaves it in error',
        expected: ['Error', 'error'],
        async run(box) {
            const made = box.make({
                onStop: () => {
                    throw new Error('no');
                },
            });
            await made.start();
            return [await refusal(() => made._stop()), made.status];
        },
    },
    {
        name: 'an onDestroy that throws leaves it in error',
        expected: ['Error', 'error'],
        async run(box) {
            let times = 0;
            const made = box.make({
                onDestroy: () => {
                    if (++times === 1) throw new Error('no');
                },
            });
            await made.start();
            return [await refusal(() => made._destroy()), made.status];
        },
    },
    {
        name: 'concurrent stops are one, and to stop what is stopped is nothing',
        expected: { hooks: 1, status: 'stopped' },
        async run(box) {
            let hooks = 0;
            const made = box.make({ onStop: () => void hooks++ });
            await made.start();
            await Promise.all([made._stop(), made._stop(), made._stop()]);
            await made._stop();
            return { hooks, status: made.status };
        },
    },
    {
        name: 'to destroy a pending one calls nothing',
        expected: { hooks: 0, status: 'destroyed' },
        async run(box) {
            let hooks = 0;
            const made = box.make({ onDestroy: () => void hooks++ });
            await made._destroy();
            return { hooks, status: made.status };
        },
    },
    {
        name: 'what is destroyed does not start again',
        expected: ['Error', 'SandboxNotReadyError NOT_READY', 'SandboxNotReadyError NOT_READY'],
        async run(box) {
            const made = box.make();
            await made.start();
            await made._destroy();
            return [
                await refusal(() => made.start()),
                await refusal(() => made.ensureRunning()),
                await refusal(() => made.executeCommand('true')),
            ];
        },
    },
    {
        name: 'a command starts one that was stopped',
        expected: ['stopped', 'again\n', 'running'],
        async run(box) {
            const made = box.make();
            await made.start();
            await made._stop();
            const { status } = made;
            return [status, await out(made, 'echo again'), made.status];
        },
    },
    {
        name: 'three times stopped and started, with its files',
        expected: ['1\n', '1\n2\n', '1\n2\n3\n', '1\n2\n3\n'],
        async run(box) {
            const made = box.make();
            const seen = [];
            for (let i = 1; i <= 3; i++) {
                await made.start();
                seen.push(await out(made, `echo ${i} >>log; cat log`));
                await made._stop();
            }
            await made.start();
            seen.push(await out(made, 'cat log'));
            return seen;
        },
    },
    {
        name: 'stop ends what runs in the background',
        expected: { begun: true, after: 'dead' },
        async run(box) {
            const made = box.make();
            await made.start();
            await made.processes.spawn(beating('work'));
            const was = await begun(made, 'work');
            await made._stop();
            return { begun: was, after: await life(made, 'work') };
        },
    },
    {
        name: 'a start that meets a stop waits for it',
        expected: ['running', '0'],
        async run(box) {
            const made = box.make();
            await made.start();
            const stop = made._stop();
            await Promise.all([stop, made.start()]);
            // The start may have come first in the queue: what counts is that a command works afterwards.
            const { exitCode } = await made.executeCommand('true');
            return [made.status, String(exitCode)];
        },
    },
    {
        name: 'starts and stops at once leave it usable',
        expected: 'works\n',
        async run(box) {
            const made = box.make();
            const calls = [];
            for (let i = 0; i < 6; i++) calls.push(i % 2 ? made._stop() : made.start());
            await Promise.allSettled(calls);
            return out(made, 'echo works');
        },
    },
    {
        name: 'while it stops, nothing starts it again',
        expected: { ensured: 'nothing', status: 'stopped' },
        async run(box) {
            let open;
            const gate = new Promise((resolve) => (open = resolve));
            const made = box.make({ onStop: () => gate });
            await made.start();
            const stop = made._stop();
            await until(() => made.status === 'stopping');
            const ensured = (await within(5000, made.ensureRunning())) ?? 'nothing';
            open();
            await stop;
            await pause(20);
            return { ensured, status: made.status };
        },
    },
    {
        name: 'one that is killed behind its back is there for the next command',
        expected: { stopped: 'again\n', removed: 'anew\n', status: 'running' },
        async run(box) {
            const made = box.make();
            await made.start();
            await need(made, 'native').stop();
            const stopped = (await made.executeCommand('echo again')).stdout;
            await made.native.remove();
            const removed = (await made.executeCommand('echo anew')).stdout;
            return { stopped, removed, status: made.status };
        },
    },
    {
        name: 'many that find it killed start it once',
        expected: { said: ['here\n'], boxes: 1 },
        async run(box) {
            const made = box.make();
            await made.start();
            await need(made, 'native').remove();
            const all = await Promise.all(Array.from({ length: 10 }, () => made.executeCommand('echo here')));
            let boxes = 0;
            for await (const each of made.cove.list()) if (`${each.labels['mastra.id']}-`.startsWith(`${made.id}-`)) boxes++;
            return { said: [...new Set(all.map(({ stdout }) => stdout))], boxes };
        },
    },
    {
        name: 'another program finds the sandbox and what runs in it, hears it and kills it',
        expected: { outcome: 'connected', heard: 'ready\n', killed: true, ended: true },
        async run(box) {
            const made = box.make();
            await made.start();
            const handle = await made.processes.spawn('echo ready; exec sleep 60');
            await until(() => handle.stdout === 'ready\n');
            const program = `
                const [module, name, options, pid] = JSON.parse(process.argv[1]);
                const sandbox = new (await import(module))[name](options);
                const { outcome } = await sandbox.start();
                const handle = await sandbox.processes.get(pid);
                const killed = (await handle?.kill()) ?? false;
                console.log(JSON.stringify({ outcome, heard: handle?.stdout, killed }));
                process.exit();`;
            const given = JSON.stringify([...box.elsewhere(made), handle.pid]);
            const options = { cwd: import.meta.dirname };
            const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program, given], options);
            const ended = (await within(box.patience, handle.wait())) !== 'still waiting';
            await handle.kill();
            return { heard: undefined, ...JSON.parse(stdout), ended };
        },
    },
    {
        name: 'a start that is given up is an abort, and the next one may succeed',
        expected: { refused: 'SandboxAbortError ABORTED', then: 'running' },
        async run(box) {
            const made = box.make();
            const refused = await refusal(() => made._start({ abortSignal: AbortSignal.abort() }));
            await made.start();
            return { refused, then: made.status };
        },
    },
    {
        name: 'a start that cannot be is an error, of its state and of commands, too',
        expected: { start: 'an error', status: 'error', command: 'an error' },
        async run(box) {
            const made = box.make({ workingDirectory: '/etc/passwd/no/directory' });
            return {
                start: await refused(() => made.start()),
                status: made.status,
                command: await refused(() => made.executeCommand('true')),
            };
        },
    },
    {
        name: 'snapshot() of one that has no checkpoint is nothing',
        expected: 'nothing',
        async run(box) {
            const made = box.make();
            await made.start();
            return (await need(made, 'snapshot')()) ?? 'nothing';
        },
    },
];
