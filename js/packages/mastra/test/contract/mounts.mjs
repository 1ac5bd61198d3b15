// Directories of the host in the sandbox: section 1.5 of the contract.
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { LocalFilesystem, Workspace } from '@mastra/core/workspace';
import { need, out } from './kit.mjs';

export const title = 'mounts';

/** A sandbox that is to have the directory of the host at /data, and is started. */
async function mounted(box, options) {
    const host = await box.host();
    const made = box.make(options);
    need(made, 'mounts').add({ '/data': new LocalFilesystem({ basePath: host }) });
    await made.start();
    return { host, made, inside: box.mounted(made, '/data') };
}

/** Files that no host has. */
const elsewhere = (config) => ({
    id: 'elsewhere',
    name: 'Elsewhere',
    provider: 'elsewhere',
    status: 'ready',
    ...(config && { getMountConfig: () => config }),
});

export const cases = [
    {
        name: 'a mount that waits is made by the start, and leads both ways',
        expected: { state: 'mounted', read: 'from outside\n', written: 'from inside\n' },
        async run(box) {
            const { host, made, inside } = await mounted(box);
            await writeFile(path.join(host, 'out'), 'from outside\n');
            const read = (await made.executeCommand(`cat ${inside}/out`)).stdout;
            await made.executeCommand(`echo from inside >${inside}/in`);
            const written = await readFile(path.join(host, 'in'), 'utf8').catch((error) => error.code);
            return { state: made.mounts.get('/data')?.state, read, written };
        },
    },
    {
        name: 'it is there again after a stop and a start',
        expected: ['one\n', 'one\n'],
        async run(box) {
            const { host, made, inside } = await mounted(box);
            await writeFile(path.join(host, 'file'), 'one\n');
            const seen = [(await made.executeCommand(`cat ${inside}/file`)).stdout];
            await made._stop();
            await made.start();
            seen.push((await made.executeCommand(`cat ${inside}/file`)).stdout);
            return seen;
        },
    },
    {
        name: 'getInfo() tells it',
        expected: [['/data', 'local']],
        async run(box) {
            const { made } = await mounted(box);
            const { mounts = [] } = await made.getInfo();
            return mounts.map((mount) => [mount.path, mount.filesystem]);
        },
    },
    {
        name: 'those of a workspace are made when it begins',
        expected: { state: 'mounted', read: 'of the workspace\n' },
        async run(box) {
            const made = box.make();
            const host = await box.host();
            need(made, 'mounts');
            await writeFile(path.join(host, 'file'), 'of the workspace\n');
            const mounts = { '/data': new LocalFilesystem({ basePath: host }) };
            const workspace = new Workspace({ sandbox: made, mounts });
            await workspace.init();
            const inside = box.mounted(made, '/data');
            const read = (await made.executeCommand(`cat ${inside}/file`)).stdout;
            return { state: made.mounts.get('/data')?.state, read };
        },
    },
    {
        name: 'another kind is unsupported, and starts the sandbox all the same',
        expected: ['running', 'unmounted'],
        async run(box) {
            const made = box.make();
            need(made, 'mounts').add({ '/data': elsewhere({ type: 's3', bucket: 'b' }) });
            await made.start();
            const { state } = made.mounts.get('/data');
            return [made.status, state === 'mounted' ? state : 'unmounted'];
        },
    },
    {
        name: 'files that cannot be mounted are unsupported',
        expected: ['running', 'unsupported'],
        async run(box) {
            const made = box.make();
            need(made, 'mounts').add({ '/data': elsewhere() });
            await made.start();
            return [made.status, made.mounts.get('/data').state];
        },
    },
    {
        name: 'onMount that says false leaves it out',
        expected: ['running', 'unsupported'],
        async run(box) {
            const made = box.make();
            const host = await box.host();
            need(made, 'mounts').add({ '/data': new LocalFilesystem({ basePath: host }) });
            made.mounts.setOnMount(() => false);
            await made.start();
            return [made.status, made.mounts.get('/data').state];
        },
    },
    {
        name: 'onMount that did it is believed',
        expected: 'mounted',
        async run(box) {
            const made = box.make();
            need(made, 'mounts').add({ '/data': elsewhere({ type: 's3', bucket: 'b' }) });
            made.mounts.setOnMount(() => ({ success: true }));
            await made.start();
            return made.mounts.get('/data').state;
        },
    },
    {
        name: 'a path that is none is no mount, and the sandbox starts',
        expected: ['running', 'error', 'error'],
        async run(box) {
            const made = box.make();
            const host = await box.host();
            const files = new LocalFilesystem({ basePath: host });
            need(made, 'mounts').add({ 'relative/path': files, '/a/../b': files });
            await made.start();
            return [made.status, made.mounts.get('relative/path').state, made.mounts.get('/a/../b').state];
        },
    },
    {
        name: 'mount() and unmount() throw for a path that is none',
        expected: { mount: Array(6).fill('Invalid mount path'), unmount: Array(6).fill('Invalid mount path') },
        async run(box) {
            const made = box.make();
            await made.start();
            const files = new LocalFilesystem({ basePath: await box.host() });
            const said = { mount: [], unmount: [] };
            for (const wrong of ['relative/path', '/', '/a/../b', '/./data', '/tmp/bad path', '/data\n'])
                for (const verb of ['mount', 'unmount'])
                    try {
                        await need(made, verb)(...(verb === 'mount' ? [files, wrong] : [wrong]));
                        said[verb].push('no error');
                    } catch (error) {
                        said[verb].push(error.message.split(':')[0]);
                    }
            return said;
        },
    },
    {
        name: 'mount() that fails says why by its result and by the state',
        expected: [false, 'error', true, false, 'unsupported', true],
        async run(box) {
            const made = box.make();
            await made.start();
            const seen = [];
            for (const [files, why] of [
                [elsewhere(), /does not provide a mount config/],
                [elsewhere({ type: 's3', bucket: 'b' }), /^Unsupported mount type: s3/],
            ]) {
                const { success, error } = await need(made, 'mount')(files, '/data');
                seen.push(success, made.mounts.get('/data').state, why.test(error));
            }
            return seen;
        },
    },
    {
        name: 'mount() after a command has a result, and an entry that says the same',
        expected: true,
        async run(box) {
            const made = box.make();
            await made.executeCommand('true');
            const { success } = await need(made, 'mount')(new LocalFilesystem({ basePath: await box.host() }), '/data/');
            return made.mounts.get('/data').state === (success ? 'mounted' : 'error');
        },
    },
    {
        name: 'mount() has an entry, and unmount() takes it and the directory away',
        expected: { mounted: ['/data', 'mounted'], after: [], there: 'gone' },
        async run(box) {
            const made = box.make();
            await made.start();
            await need(made, 'mount')(new LocalFilesystem({ basePath: await box.host() }), '/data//');
            const entries = () => [...made.mounts.entries].flatMap(([path, { state }]) => [path, state]);
            const mounted = entries();
            await need(made, 'unmount')('/data');
            const { exitCode } = await made.executeCommand(`test -e ${box.mounted(made, '/data')}`);
            return { mounted, after: entries(), there: exitCode === 0 ? 'there' : 'gone' };
        },
    },
    {
        name: 'unmount() of what is not mounted does nothing',
        expected: 'running',
        async run(box) {
            const made = box.make();
            await made.start();
            await need(made, 'unmount')('/never/mounted');
            return made.status;
        },
    },
    {
        name: 'what is mounted is read by commands with arguments',
        expected: 'file\n',
        async run(box) {
            const { host, made, inside } = await mounted(box);
            await writeFile(path.join(host, 'file'), '');
            return out(made, 'ls', [`${inside}/`]);
        },
    },
];
