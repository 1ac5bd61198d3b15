// What code in a CoveLocalSandbox may do to its directory while this program works with it: links that lead to the host,
// in the way of checkpoints, of mounts and of other working directories. The engine is a real one.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readFile, readdir, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { LocalFilesystem, MountError } from '@mastra/core/workspace';
import { CoveLocalSandbox, CoveSandbox } from '@cove/mastra';
import { until } from './contract/kit.mjs';
import { engine, free, fresh, make as makeAt, own, top } from './local-kit.mjs';

const make = (options = {}) => makeAt({ workingDirectory: path.join(free(), 'work'), ...options });

const out = async (sandbox, command) => {
    const result = await sandbox.executeCommand(command);
    assert.equal(result.exitCode, 0, `${command}: ${result.stderr}`);
    return result.stdout.trimEnd();
};

/** Where a sandbox with this checkpoint has its copy. */
const copyOf = (sandbox) => path.join(path.dirname(sandbox.workingDirectory), '.checkpoints/base');

/** All that is below a directory; links are not followed. */
const all = async (directory) => {
    const { stdout } = await promisify(execFile)('find', [directory, '-mindepth', '1', '-printf', '%P\\n']);
    return stdout.split('\n').filter((line) => line !== '');
};

/** A directory of the host that no sandbox has. */
const secret = async () => {
    const directory = await fresh();
    await mkdir(path.join(directory, 'deep'));
    for (let i = 0; i < 5; i++) await writeFile(path.join(directory, `deep/host-${i}`), 'host');
    return directory;
};

describe('checkpoints', () => {
    test('a directory that is exchanged for a link while it is copied brings nothing of the host in', async () => {
        const outside = await secret();
        const sandbox = make({ checkpointName: 'base' });
        await out(sandbox, `mkdir -p a/deep; touch a/deep/1 a/deep/2; ln -s ${outside} b`);
        const flip = 'while :; do mv a c; mv b a; mv a b; mv c a; done';
        await sandbox.processes.spawn(flip);
        for (const end = Date.now() + 2000; Date.now() < end; ) {
            await sandbox.snapshot();
            assert.deepEqual((await all(copyOf(sandbox))).filter((name) => name.includes('host-')), []);
        }
    });

    test('what vanishes meanwhile, FIFOs and sockets are left out, all else is kept', async () => {
        const sandbox = make({ checkpointName: 'base' });
        const listen = "require('net').createServer().listen('socket')";
        await sandbox.processes.spawn(`${process.execPath} -e "${listen}"`);
        await out(sandbox, 'mkdir in; mkfifo fifo in/fifo; echo kept >in/file; ln -s nowhere link; until test -S socket; do :; done');
        await sandbox.processes.spawn('while :; do mkdir t; echo x >t/1; echo y >t/2; rm -r t; done');
        assert.ok(await until(async () => (await sandbox.executeCommand('test -e t')).exitCode === 0));
        for (let i = 0; i < 30; i++) await sandbox.snapshot();
        const seen = await all(copyOf(sandbox));
        assert.deepEqual(seen.filter((name) => !/^t(\/|$)/.test(name)).sort(), ['in', 'in/file', 'link']);
        assert.equal(await readFile(path.join(copyOf(sandbox), 'in/file'), 'utf8'), 'kept\n');
    });

    test('they cannot lie where the sandbox writes', () => {
        const workingDirectory = path.join(top, 'x');
        const checkpointsDirectory = path.join(workingDirectory, 'kept');
        assert.throws(() => make({ workingDirectory, checkpointsDirectory, checkpointName: 'base' }), MountError);
    });
});

describe('working directories', () => {
    test('a link that a sandbox put in the way is not followed, nor when that sandbox is gone', async () => {
        const [outside, outer] = [await secret(), await fresh()];
        const first = make({ workingDirectory: outer });
        await out(first, `mkdir sub in; ln -s ${outside} taken; ln -s ${outside} in/taken`);
        const refused = async () => {
            for (const options of [
                { workingDirectory: path.join(outer, 'taken') },
                { workingDirectory: path.join(outer, 'in/taken/deep') },
                { workingDirectory: path.join(outer, 'taken/new') },
                { nativeSandbox: { readOnlyPaths: [path.join(outer, 'taken')] } },
            ])
                await assert.rejects(make(options).start(), (error) => error instanceof MountError && /is a link/.test(error.message));
        };
        await refused();
        const inner = make({ workingDirectory: path.join(outer, 'sub') });
        await out(inner, 'echo x >file');
        // Its directory becomes a link while it runs.
        await out(first, `mv sub away; ln -s ${outside} sub`);
        await assert.rejects(inner.executeCommand('ls'), /is a link/);
        await first._destroy();
        await refused();
        assert.deepEqual(await readdir(outside), ['deep']);
    });

    test('links of one\'s own, where no sandbox writes, are followed', async () => {
        const [real, at] = [await fresh(), await fresh()];
        await symlink(real, path.join(at, 'link'));
        await symlink('link', path.join(at, 'relative'));
        const sandbox = make({ workingDirectory: path.join(at, 'relative') });
        await out(sandbox, 'echo x >file');
        assert.equal(await readFile(path.join(real, 'file'), 'utf8'), 'x\n');
        assert.equal(await out(sandbox, 'pwd'), path.join(at, 'relative'));
    });
});

describe('mounts', () => {
    /** How the mounts of a sandbox came out that was started with them. */
    const mounted = async (sandbox, mounts) => {
        sandbox.mounts.add(mounts);
        await sandbox.start();
        return Object.keys(mounts).map((key) => sandbox.mounts.get(key).state);
    };

    test('a link that the sandbox made leads nothing of this program out of the directory', async () => {
        const [outside, files] = [await secret(), await fresh()];
        const sandbox = make();
        await mkdir(sandbox.workingDirectory, { recursive: true });
        await symlink(outside, path.join(sandbox.workingDirectory, 'skills'));
        await mkdir(path.join(outside, 'empty'));
        const basePath = files;
        assert.deepEqual(
            await mounted(sandbox, {
                '/skills/new': new LocalFilesystem({ basePath }),
                '/skills/empty': new LocalFilesystem({ basePath }),
                '/skills/deep/er': new LocalFilesystem({ basePath }),
            }),
            ['error', 'error', 'error'],
        );
        assert.deepEqual((await readdir(outside)).sort(), ['deep', 'empty']);
        assert.equal((await readdir(path.join(outside, 'deep'))).length, 5);
    });

    test('files that are to be mounted are not looked for behind a link of a sandbox', async () => {
        const [outside, outer] = [await secret(), await fresh()];
        const first = make({ workingDirectory: outer });
        await out(first, `ln -s ${outside} taken`);
        for (const sandbox of [make(), own(new CoveSandbox({ engine: 'private' }))]) {
            const taken = new LocalFilesystem({ basePath: path.join(outer, 'taken') });
            assert.deepEqual(await mounted(sandbox, { '/data': taken }), ['error']);
            assert.match(sandbox.mounts.get('/data').error, /is a link/);
        }
    });

    test('the link of a mount that fails is taken back', async () => {
        const sandbox = make({ id: `late-${process.pid}` });
        await out(sandbox, 'touch used /late');
        const filesystem = new LocalFilesystem({ basePath: await fresh() });
        const { success, error } = await sandbox.mount(filesystem, '/late');
        assert.equal(success, false);
        assert.match(error, /late/);
        assert.deepEqual(await readdir(sandbox.workingDirectory), ['used']);
    });

    test('files whose path is that of the mount, and two mounts of the same files', async () => {
        const files = await fresh();
        await writeFile(path.join(files, 'file'), 'here');
        const sandbox = make();
        const filesystem = () => new LocalFilesystem({ basePath: files });
        assert.deepEqual(
            await mounted(sandbox, { [files]: filesystem(), '/a': filesystem(), '/b': filesystem() }),
            ['mounted', 'mounted', 'mounted'],
        );
        assert.equal(await out(sandbox, `cat ${files}/file /a/file /b/file a/file b/file`), 'here'.repeat(5));
        assert.equal(await readlink(path.join(sandbox.workingDirectory, 'a')), files);
    });

    test('what cannot be mounted, and what is too many, is an error of the mount alone', async () => {
        const wrong = make();
        assert.deepEqual(
            await mounted(wrong, {
                '/host': new LocalFilesystem({ basePath: '/' }),
                '/proc-of': new LocalFilesystem({ basePath: '/proc/self' }),
                '/fine': new LocalFilesystem({ basePath: await fresh() }),
            }),
            ['error', 'error', 'mounted'],
        );
        assert.equal(await out(wrong, 'ls'), 'fine');
        const many = {};
        for (let i = 0; i < 12; i++) many[`/m${i}`] = new LocalFilesystem({ basePath: await fresh() });
        const sandbox = make();
        const states = await mounted(sandbox, many);
        assert.deepEqual([...new Set(states)].sort(), ['error', 'mounted']);
        assert.equal(states.filter((state) => state === 'mounted').length, (await out(sandbox, 'ls')).split('\n').length);
    });
});
