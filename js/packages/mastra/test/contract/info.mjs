// What a sandbox says of itself, and how others are made from it: section 1.1 of the contract.
import { need, out } from './kit.mjs';

export const title = 'what it says of itself';

export const cases = [
    {
        name: 'getInfo() names it, its state and its age',
        expected: { same: true, status: 'running', created: true },
        async run(box) {
            const made = box.make();
            await made.start();
            const info = await need(made, 'getInfo')();
            return {
                same: info.id === made.id && info.name === made.name && info.provider === made.provider,
                status: info.status,
                created: info.createdAt instanceof Date,
            };
        },
    },
    {
        name: 'getInfo() starts nothing',
        expected: ['pending', 'pending'],
        async run(box) {
            const made = box.make();
            const info = await need(made, 'getInfo')();
            return [info.status, made.status];
        },
    },
    {
        name: 'getInfo() tells the mounts',
        expected: [],
        async run(box) {
            const made = box.make();
            await made.start();
            return (await made.getInfo()).mounts ?? 'no mounts';
        },
    },
    {
        name: 'getInstructions() is a text, that of the options, or what a function makes of the default',
        expected: { text: true, own: 'mine', none: '', made: true },
        async run(box) {
            const text = need(box.make(), 'getInstructions')();
            const heard = [];
            const made = box
                .make({
                    instructions: ({ defaultInstructions, requestContext }) => {
                        heard.push(defaultInstructions === undefined, requestContext);
                        return 'made';
                    },
                })
                .getInstructions({ requestContext: 'context' });
            return {
                text: typeof text === 'string' && text !== '',
                own: box.make({ instructions: 'mine' }).getInstructions(),
                none: box.make({ instructions: '' }).getInstructions(),
                made: made === 'made' && heard[0] === false && heard[1] === 'context',
            };
        },
    },
    {
        name: 'clone() makes another of the same kind, and starts nothing',
        expected: { other: true, kind: true, status: 'pending', first: 'running' },
        async run(box) {
            const made = box.make();
            await made.start();
            const copy = box.keep(need(made, 'clone')());
            return {
                other: copy.id !== made.id,
                kind: copy.constructor === made.constructor,
                status: copy.status,
                first: made.status,
            };
        },
    },
    {
        name: 'clone() keeps the environment, and takes another',
        expected: ['first\n', 'second\n'],
        async run(box) {
            const made = box.make({ env: { WHO: 'first' } });
            const same = box.keep(need(made, 'clone')());
            const other = box.keep(made.clone({ id: box.id(), env: { WHO: 'second' } }));
            return [await out(same, 'echo "$WHO"'), await out(other, 'echo "$WHO"')];
        },
    },
    {
        name: 'clone() takes an id and a working directory',
        expected: { id: true, directory: true },
        async run(box) {
            const id = box.id();
            const directory = box.directory();
            const copy = box.keep(need(box.make(), 'clone')({ id, workingDirectory: directory }));
            return { id: copy.id === id, directory: copy.workingDirectory === directory };
        },
    },
    {
        name: 'workingDirectory is where commands run',
        expected: true,
        async run(box) {
            const made = box.make();
            const pwd = (await out(made, 'pwd')).trim();
            return made.workingDirectory === undefined || made.workingDirectory === pwd;
        },
    },
    {
        name: 'getPortUrl() of one that does not run is null, and starts nothing',
        expected: [null, 'pending'],
        async run(box) {
            const made = box.make();
            const url = await need(need(made, 'networking'), 'getPortUrl')(8000);
            return [url, made.status];
        },
    },
    {
        name: 'getPortUrl() leads to a server inside',
        expected: 'hello from inside',
        async run(box) {
            const made = box.make();
            await made.start();
            const getPortUrl = need(need(made, 'networking'), 'getPortUrl');
            await out(made, 'echo hello from inside >index.html');
            await made.processes.spawn('/usr/bin/python3 -u -m http.server 8123 --bind 127.0.0.1', {
                stdinMode: 'ignore',
            });
            const url = await getPortUrl(8123, { waitMs: 60_000 });
            return (await (await fetch(url)).text()).trim();
        },
    },
    {
        name: 'getPortUrl() after a stop is null',
        expected: [null, 'stopped'],
        async run(box) {
            const made = box.make();
            await made.start();
            const getPortUrl = need(need(made, 'networking'), 'getPortUrl');
            await getPortUrl(8123, { waitMs: 0 });
            await made._stop();
            return [await getPortUrl(8123), made.status];
        },
    },
];
