// CoveLocalSandbox, as far as it is more than the contract: which directories of this host it has and which not, whose
// the files are, the rules of nativeSandbox, checkpoints. The engine is a real one of its own.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, lstat, mkdir, readFile, readdir, readlink, rename, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import {
    IsolationUnavailableError, LocalFilesystem, MountError, SandboxUnsupportedFeatureError, Workspace,
} from '@mastra/core/workspace';
import { CoveLocalSandbox, CoveSandbox, detectIsolation } from '@cove/mastra';
import { until } from './contract/kit.mjs';
import { engine, fresh, made, make, own, top } from './local-kit.mjs';

const out = async (sandbox, command, options) => {
    const result = await sandbox.executeCommand(command, [], options);
    assert.equal(result.exitCode, 0, `${command}: ${result.stderr}`);
    return result.stdout.trimEnd();
};

const fails = async (sandbox, command) => assert.notEqual((await sandbox.executeCommand(command)).exitCode, 0, command);

/** How the engine has it. */
const view = (sandbox) => sandbox.native.view();

describe('directories', () => {
    test('the working directory is bound at its own path, and written to', async () => {
        const sandbox = make();
        const directory = sandbox.workingDirectory;
        assert.equal(await out(sandbox, 'pwd'), directory);
        await writeFile(path.join(directory, 'in'), 'from outside');
        assert.equal(await out(sandbox, `cat ${directory}/in; mkdir -p a/b; echo from inside >a/b/out`), 'from outside');
        assert.equal(await readFile(path.join(directory, 'a/b/out'), 'utf8'), 'from inside\n');
    });

    test('what is written belongs to the owner of the directory', async (t) => {
        const sandbox = make();
        await out(sandbox, 'echo x >mine');
        assert.equal((await stat(path.join(sandbox.workingDirectory, 'mine'))).uid, process.getuid());
        if (process.getuid() !== 0) return t.skip('only root can give a directory to somebody else');
        const directory = await fresh();
        await chown(directory, 1234, 1235);
        const other = make({ workingDirectory: directory });
        await out(other, 'echo x >theirs');
        const { uid, gid } = await stat(path.join(directory, 'theirs'));
        assert.deepEqual([uid, gid], [1234, 1235]);
        await other.writeFiles([{ path: 'written', content: 'x', mode: 0o640 }]);
        const written = await stat(path.join(directory, 'written'));
        assert.deepEqual([written.uid, written.gid, written.mode & 0o777], [1234, 1235, 0o640]);
    });

    test('this node runs inside', async () => {
        const sandbox = make();
        assert.equal(await out(sandbox, `${process.execPath} -p process.version`), process.version);
        // And so does whatever the PATH of this program leads to, or else this one.
        assert.match(await out(sandbox, 'node -p process.version'), /^v\d+\./);
        await fails(sandbox, `touch ${path.dirname(process.execPath)}/written`);
    });

    test('a PATH without anything that is inside finds the system and node', async () => {
        const before = process.env.PATH;
        const sandbox = make();
        process.env.PATH = '/no/such/place';
        try {
            assert.equal(await out(sandbox, 'node -p process.version; command -v env >/dev/null'), process.version);
            assert.ok(!(await out(sandbox, 'echo $PATH')).includes('/no/such/place'));
        } finally {
            process.env.PATH = before;
        }
    });

    test('readOnlyPaths, readWritePaths and readOnly', async () => {
        const [seen, written, work] = [await fresh(), await fresh(), await fresh()];
        await writeFile(path.join(seen, 'file'), 'seen');
        await mkdir(path.join(work, 'inside'));
        const sandbox = make({
            workingDirectory: work,
            isolation: 'bwrap',
            nativeSandbox: { readOnlyPaths: [seen], readWritePaths: [written, path.join(work, 'inside')], readOnly: true },
        });
        assert.equal(await out(sandbox, `cat ${seen}/file; echo x >${written}/file; echo x >inside/file`), 'seen');
        assert.deepEqual(await readdir(written), ['file']);
        await fails(sandbox, `touch ${seen}/other`);
        await fails(sandbox, 'touch other');
        assert.deepEqual(await readdir(work), ['inside']);
    });

    test('a read-only directory within the working directory stays so', async () => {
        const work = await fresh();
        await mkdir(path.join(work, 'keep'));
        const sandbox = make({ workingDirectory: work, nativeSandbox: { readOnlyPaths: [path.join(work, 'keep')] } });
        await out(sandbox, 'touch other');
        await fails(sandbox, 'touch keep/other');
        await fails(sandbox, 'rmdir keep');
    });

    test('nothing else of the host is there', async () => {
        const secret = await fresh();
        await writeFile(path.join(secret, 'secret'), 'se-cr-et');
        const sandbox = make();
        await fails(sandbox, `cat ${secret}/secret`);
        await fails(sandbox, `test -e ${secret}`);
        await fails(sandbox, 'cat /etc/shadow');
        await fails(sandbox, `kill -0 ${process.pid}`);
        // In /tmp there is what leads to the working directory, and to this node where it lies there, too.
        const inTmp = (given) => path.relative('/tmp', given).split(path.sep)[0];
        const expected = new Set([inTmp(top), inTmp(process.execPath)].filter((name) => name !== '..'));
        assert.deepEqual(new Set((await out(sandbox, 'ls -A /tmp')).split('\n')), expected);
    });

    test('what a box has anyway may be named, and changes nothing', async () => {
        const readOnlyPaths = ['/dev/null', '/dev', '/', '/proc', '/proc/cpuinfo', '/sys', '/etc/hosts', '/etc/resolv.conf', '/usr/bin/env', '/usr'];
        const readWritePaths = ['/dev/null', '/dev/shm', '/dev/tty'];
        const sandbox = make({ isolation: 'bwrap', nativeSandbox: { readOnlyPaths, readWritePaths } });
        assert.deepEqual((await sandbox.getInfo()).metadata.isolationConfig.readOnlyPaths, readOnlyPaths);
        assert.equal(await out(sandbox, 'echo lost >/dev/null; echo kept >/dev/shm/x; cat /dev/shm/x; test -r /etc/hosts && test -r /proc/cpuinfo && echo there'),
            'kept\nthere');
        // Of the host it sees no more than another, and nothing more can be written.
        await fails(sandbox, `ls ${await fresh()}`);
        await fails(sandbox, 'ls /root/. /etc/shadow');
        await fails(sandbox, 'touch /usr/x');
        assert.deepEqual(sandbox.native && (await sandbox.native.view()).mounts.map(({ target }) => target).filter((at) => /^\/(dev|proc|sys|etc|$)/.test(at)), []);
        for (const readWritePaths of [['/'], ['/dev'], ['/proc'], ['/sys']])
            assert.throws(() => make({ nativeSandbox: { readWritePaths } }), MountError, readWritePaths[0]);
        for (const readOnlyPaths of [['/dev/mem'], ['/sys/kernel']])
            assert.throws(() => make({ nativeSandbox: { readOnlyPaths } }), MountError, readOnlyPaths[0]);
    });

    test('a directory that is not there is named', async () => {
        const sandbox = make({ nativeSandbox: { readOnlyPaths: ['/no/such/place'] } });
        await assert.rejects(sandbox.start(), (error) => error instanceof MountError && /\/no\/such\/place/.test(error.message));
        const file = path.join(await fresh(), 'file');
        await writeFile(file, '');
        assert.throws(() => make({ nativeSandbox: { readWritePaths: [file] } }), /it is a file/);
        assert.throws(() => make({ nativeSandbox: { readOnlyPaths: [file] } }), /it is a file/);
        assert.throws(() => make({ workingDirectory: '/' }), /the whole host/);
        assert.throws(() => make({ workingDirectory: '/proc/self' }), MountError);
    });

    test('another directory at the same path is another one', async () => {
        const directory = await fresh();
        const first = make({ id: `same-${process.pid}`, workingDirectory: directory });
        await out(first, 'echo first >file');
        await rename(directory, `${directory}.old`);
        await mkdir(directory);
        const second = make({ id: first.id, workingDirectory: directory });
        assert.equal((await second.start()).outcome, 'connected');
        await out(second, 'test ! -e file; echo second >file');
        assert.equal(await readFile(path.join(directory, 'file'), 'utf8'), 'second\n');
        assert.equal(await readFile(`${directory}.old/file`, 'utf8'), 'first\n');
    });

    test('a directory that is removed and made again under its feet is the one that counts', async () => {
        const sandbox = make();
        await out(sandbox, 'echo old >file');
        await rename(sandbox.workingDirectory, `${sandbox.workingDirectory}.old`);
        await mkdir(sandbox.workingDirectory);
        await writeFile(path.join(sandbox.workingDirectory, 'new'), '');
        const seen = await Promise.all(Array.from({ length: 20 }, () => out(sandbox, 'ls')));
        assert.deepEqual(new Set(seen), new Set(['new']));
        await rm(sandbox.workingDirectory, { recursive: true });
        const handle = await sandbox.processes.spawn('pwd; ls');
        assert.equal((await handle.wait()).stdout, `${sandbox.workingDirectory}\n`);
    });

    test('the names of directories that nobody needs make room', async () => {
        const directory = await fresh();
        const probe = make();
        await probe.start();
        const fill = async (first) => {
            for (let i = first; i < 130; i += 4) await probe.cove.registerMount(`cove-local-filler-${i}`, directory);
        };
        await Promise.allSettled([0, 1, 2, 3].map(fill));
        assert.ok((await probe.cove.roots()).mounts.length > 100);
        const sandbox = make();
        assert.equal(await out(sandbox, 'echo works'), 'works');
        assert.ok((await probe.cove.roots()).mounts.length < 100);
        // And whose names were taken away starts again with new ones.
        await probe._stop();
        assert.equal(await out(probe, 'echo works'), 'works');
    });
});

describe('rules', () => {
    test('isolation decides on the network', async () => {
        const modes = [];
        for (const options of [
            {},
            { nativeSandbox: { allowNetwork: false } },
            { isolation: 'bwrap' },
            { isolation: 'seatbelt' },
            { isolation: 'bwrap', nativeSandbox: { allowNetwork: true } },
        ]) {
            const sandbox = make(options);
            await sandbox.start();
            modes.push((await view(sandbox)).network.mode);
        }
        assert.deepEqual(modes, ['public', 'public', 'none', 'none', 'public']);
    });

    test('the host\'s own services are out of reach', async () => {
        const server = createServer((_, response) => response.end('secret')).listen(0, '127.0.0.1');
        try {
            await new Promise((resolve) => server.once('listening', resolve));
            const { port } = server.address();
            const sandbox = make();
            const program = `fetch('http://127.0.0.1:${port}').then(() => console.log('reached'), () => console.log('not'))`;
            assert.equal(await out(sandbox, `${process.execPath} -e "${program}"`), 'not');
        } finally {
            server.close();
        }
    });

    test('what was written for another program is refused', () => {
        for (const nativeSandbox of [{ bwrapArgs: ['--ro-bind', '/', '/'] }, { seatbeltProfilePath: '/tmp/x.sb' }])
            assert.throws(() => new CoveLocalSandbox({ nativeSandbox }), SandboxUnsupportedFeatureError);
        assert.throws(() => new CoveLocalSandbox({ isolation: 'docker' }), IsolationUnavailableError);
    });

    test('options that there are not are refused', () => {
        assert.throws(() => new CoveLocalSandbox({ workingDir: '.' }), /workingDir/);
        assert.throws(() => new CoveLocalSandbox({ nativeSandbox: { allowNet: true } }), /allowNet/);
    });

    test('allowSystemBinaries: false leaves node out', async () => {
        if (/^\/(usr|bin|lib)/.test(process.execPath)) return;
        await fails(make({ nativeSandbox: { allowSystemBinaries: false } }), process.execPath);
    });

    test('detectIsolation() says what came of trying', () => {
        const { backend, available, message } = CoveLocalSandbox.detectIsolation();
        assert.deepEqual([backend, available], ['bwrap', true], message);
        const before = process.env.COVE_BIN;
        process.env.COVE_BIN = '/bin/false';
        try {
            assert.equal(detectIsolation().available, false);
        } finally {
            if (before === undefined) delete process.env.COVE_BIN;
            else process.env.COVE_BIN = before;
        }
    });

    test('detectIsolation() runs nothing that lies in the current directory', async () => {
        const [cwd, root] = [await fresh(), path.resolve(import.meta.dirname, '../../../..')];
        const trap = path.join(cwd, `node_modules/@cove/linux-${process.arch}`);
        await mkdir(trap, { recursive: true });
        await writeFile(path.join(trap, 'index.js'), `require('node:fs').writeFileSync('${cwd}/trapped', '')`);
        const module = JSON.stringify(import.meta.resolve('@cove/mastra'));
        const program = `import(${module}).then((all) => console.log(JSON.stringify(all.detectIsolation())))`;
        const { COVE_BIN: _, ...env } = process.env;
        env.PATH = `${path.dirname(engine.env.COVE_BIN ?? path.join(root, 'build/cove'))}:${env.PATH}`;
        const { stdout } = await promisify(execFile)(process.execPath, ['-e', program], { cwd, env });
        assert.equal(JSON.parse(stdout).available, true, stdout);
        assert.ok(!(await readdir(cwd)).includes('trapped'));
    });

    test('elsewhere than on Linux it says so, and what helps', async () => {
        const before = Object.getOwnPropertyDescriptor(process, 'platform');
        for (const [platform, backend] of [['darwin', 'seatbelt'], ['win32', 'none']]) {
            Object.defineProperty(process, 'platform', { ...before, value: platform });
            try {
                const { available, backend: detected, message } = detectIsolation();
                assert.deepEqual([available, detected], [false, backend]);
                assert.match(message, /Linux/);
                assert.throws(() => new CoveLocalSandbox({ isolation: 'seatbelt' }), IsolationUnavailableError);
                await assert.rejects(make().start(), { name: 'CoveError', code: 'unsupported_platform' });
            } finally {
                Object.defineProperty(process, 'platform', before);
            }
        }
    });

    test('it is this user\'s own engine, whatever COVE_URL says', async () => {
        const before = process.env.COVE_URL;
        process.env.COVE_URL = 'http://127.0.0.1:1';
        try {
            const sandbox = make();
            assert.equal(await out(sandbox, 'echo here'), 'here');
            assert.equal(sandbox.cove.isPrivate(), true);
        } finally {
            if (before === undefined) delete process.env.COVE_URL;
            else process.env.COVE_URL = before;
        }
    });
});

describe('commands', () => {
    test('a relative cwd that leads into the working directory from here is not joined twice', async () => {
        const [directory, before] = [await fresh(), process.cwd()];
        process.chdir(top);
        try {
            await mkdir(path.join(directory, 'src'));
            const sandbox = make({ workingDirectory: `./${path.basename(directory)}` });
            assert.equal(sandbox.workingDirectory, directory);
            assert.equal(await out(sandbox, 'pwd', { cwd: `./${path.basename(directory)}/src` }), `${directory}/src`);
            assert.equal(await out(sandbox, 'pwd', { cwd: 'src' }), `${directory}/src`);
        } finally {
            process.chdir(before);
        }
    });

    test('env: process.env is taken as it is', async () => {
        const sandbox = make({ env: { ...process.env, WITH: 'it' } });
        assert.equal(await out(sandbox, 'echo $WITH $PATH'), `it ${process.env.PATH}`);
        // But for a home that is not inside: programs write to theirs.
        await out(sandbox, 'touch ~/.cache-of-a-program');
        assert.equal(await out(sandbox, 'echo $HOME', { env: { HOME: '/tmp' } }), '/tmp');
    });

    test('who asks again with the same id and directory finds /tmp and what runs', async () => {
        const sandbox = make({ id: `again-${process.pid}` });
        await out(sandbox, 'echo kept >/tmp/kept');
        const handle = await sandbox.processes.spawn('echo ready; exec sleep 60');
        await until(() => handle.stdout === 'ready\n');
        const program = `
            import { CoveLocalSandbox } from '@cove/mastra';
            const [id, workingDirectory, pid] = process.argv.slice(1);
            const sandbox = new CoveLocalSandbox({ id, workingDirectory });
            const { stdout } = await sandbox.executeCommand('cat /tmp/kept');
            const handle = await sandbox.processes.get(pid);
            console.log(JSON.stringify([stdout, handle?.stdout, await sandbox.processes.kill(pid)]));`;
        const args = ['--input-type=module', '-e', program, sandbox.id, sandbox.workingDirectory, handle.pid];
        const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: import.meta.dirname });
        assert.deepEqual(JSON.parse(stdout), ['kept\n', 'ready\n', true]);
    });

    test('of one id, each working directory has a box of its own', async () => {
        const [first, second] = [make({ id: 'twice' }), make({ id: 'twice' })];
        await out(first, 'echo first >/tmp/who; echo first >who');
        await fails(second, 'cat /tmp/who');
        await fails(second, 'cat who');
    });
});

describe('checkpoints', () => {
    const within = async (options) => {
        const directory = await fresh();
        return (name) => make({ workingDirectory: path.join(directory, name), ...options });
    };

    test('snapshot() keeps the directory, and an empty one is filled from it', async () => {
        const at = await within({ checkpointName: 'base' });
        const first = at('one');
        assert.equal(first.supportsCheckpoints, true);
        await out(first, 'mkdir in; echo kept >in/file; ln -s in/file link; chmod 700 in');
        await first.snapshot();
        await out(first, 'echo later >in/later');
        const second = at('two');
        assert.equal(await out(second, 'ls in; cat link'), 'file\nkept');
        assert.equal(await readlink(path.join(second.workingDirectory, 'link')), 'in/file');
        await out(second, 'echo two >in/file');
        await second.snapshot();
        assert.equal(await out(at('three'), 'cat in/file'), 'two');
        assert.deepEqual(await readdir(path.join(path.dirname(first.workingDirectory), '.checkpoints')), ['base']);
    });

    test('one that is not there yet is begun from the seed, which stays', async () => {
        const checkpointsDirectory = await fresh();
        const seed = make({ checkpointName: 'seed', checkpointsDirectory });
        await out(seed, 'echo seed >file');
        await seed.snapshot();
        const first = make({ checkpointName: 'own', seedCheckpointName: 'seed', checkpointsDirectory });
        assert.equal(await out(first, 'cat file; echo own >file'), 'seed');
        await first.snapshot();
        const next = make({ checkpointName: 'own', seedCheckpointName: 'seed', checkpointsDirectory });
        assert.equal(await out(next, 'cat file'), 'own');
        assert.equal(await readFile(path.join(checkpointsDirectory, 'seed/file'), 'utf8'), 'seed\n');
    });

    test('a directory in which something is stays as it is', async () => {
        const at = await within({ checkpointName: 'base' });
        await at('one').writeFiles([{ path: 'file', content: 'x' }]);
        await made.at(-1).snapshot();
        const second = at('two');
        await mkdir(second.workingDirectory, { recursive: true });
        await writeFile(path.join(second.workingDirectory, 'own'), '');
        assert.equal(await out(second, 'ls'), 'own');
    });

    test('snapshots at once do not meet, and a name is no path', async () => {
        const at = await within({ checkpointName: 'base' });
        const first = at('one');
        await out(first, 'for i in 1 2 3 4 5; do echo $i >$i; done');
        await Promise.all([first.snapshot(), first.snapshot(), first.snapshot()]);
        assert.equal(await out(at('two'), 'ls | wc -l'), '5');
        for (const checkpointName of ['../out', '.hidden', 'a/b', ''])
            await assert.rejects(make({ checkpointName }).start(), /checkpoint name/);
        await make().snapshot();
    });
});

describe('its life', () => {
    test('destroy() leaves the directory, and no sandbox', async () => {
        const sandbox = make();
        await out(sandbox, 'echo kept >file');
        const { id } = await view(sandbox);
        await sandbox._destroy();
        assert.equal(await readFile(path.join(sandbox.workingDirectory, 'file'), 'utf8'), 'kept\n');
        await assert.rejects(sandbox.cove.get(id));
        assert.equal((await sandbox.cove.roots()).mounts.filter((name) => name.startsWith('mastra-')).length, 0);
    });

    test('the outcome is that of the directory', async () => {
        const directory = await fresh();
        assert.equal((await make({ workingDirectory: directory }).start()).outcome, 'connected');
        let times = 0;
        const onStart = () => {
            if (++times === 1) throw new Error('no');
        };
        const sandbox = make({ onStart });
        await assert.rejects(sandbox.start(), /no/);
        assert.equal((await sandbox.start()).outcome, 'connected');
    });

    test('a sandbox that is removed behind its back is made again, with the directory', async () => {
        const sandbox = make();
        await out(sandbox, 'echo kept >file');
        await sandbox.native.remove();
        assert.equal(await out(sandbox, 'cat file'), 'kept');
        await sandbox.native.stop();
        assert.equal(await out(sandbox, 'cat file'), 'kept');
    });

    test('a box that has no id ends when it was idle for long, one that has an id does not', async () => {
        const [nameless, named] = [make(), make({ id: `named-${process.pid}` })];
        await Promise.all([nameless.start(), named.start()]);
        const { idle_ms: idle, then } = (await view(nameless)).lifecycle;
        assert.deepEqual([idle, then], [30 * 60_000, 'kill']);
        assert.equal((await view(named)).lifecycle.idle_ms ?? 0, 0);
        // What is stopped cannot be idle.
        const deadlines = [(await view(nameless)).lifecycle.deadline];
        await nameless._stop();
        const stopped = Date.parse((await view(nameless)).lifecycle.deadline) - Date.now();
        assert.ok(stopped > 23 * 3_600_000 && stopped <= 24 * 3_600_000);
        await nameless.start();
        deadlines.push((await view(nameless)).lifecycle.deadline);
        assert.deepEqual(deadlines, [null, null]);
    });

    test('without an id, who runs the program again finds its box; each object of one program has its own', async () => {
        const workingDirectory = await fresh();
        const program = `
            import { CoveLocalSandbox } from '@cove/mastra';
            const sandbox = new CoveLocalSandbox({ workingDirectory: process.argv[1] });
            const other = new CoveLocalSandbox({ workingDirectory: process.argv[1] });
            await sandbox.executeCommand('echo run >>/tmp/runs');
            const { stdout } = await sandbox.executeCommand('cat /tmp/runs');
            await other.start();
            console.log(JSON.stringify([stdout, sandbox.native.id, other.native.id]));`;
        const run = async () => {
            const args = ['--input-type=module', '-e', program, workingDirectory];
            return JSON.parse((await promisify(execFile)(process.execPath, args, { cwd: import.meta.dirname })).stdout);
        };
        const [first, second] = [await run(), await run()];
        assert.deepEqual([first[0], second[0]], ['run\n', 'run\nrun\n']);
        assert.deepEqual(first.slice(1), second.slice(1));
        assert.notEqual(first[1], first[2]);
        // These are the same, too, and end them.
        const here = [make({ workingDirectory }), make({ workingDirectory })];
        for (const sandbox of here) await sandbox.start();
        assert.deepEqual(here.map((sandbox) => sandbox.native.id), first.slice(1));
    });

    test('without an id, the box of a program that runs is nobody else\'s; when it is over, the next one takes it up', async () => {
        const workingDirectory = await fresh();
        const program = `
            import { createInterface } from 'node:readline';
            import { CoveLocalSandbox } from '@cove/mastra';
            const sandbox = new CoveLocalSandbox({ workingDirectory: process.argv[1] });
            await sandbox.executeCommand('echo kept >/tmp/kept');
            console.log(sandbox.native.id);
            for await (const line of createInterface({ input: process.stdin })) {
                const { stdout } = await sandbox.executeCommand(line);
                console.log(stdout.trimEnd() + ' ' + sandbox.native.id);
            }
            process.exit();`;
        const args = ['--input-type=module', '-e', program, workingDirectory];
        const child = spawn(process.execPath, args, { cwd: import.meta.dirname, stdio: ['pipe', 'pipe', 'inherit'] });
        const exited = once(child, 'exit');
        try {
            const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
            const { value: theirs } = await lines.next();
            const stopped = make({ workingDirectory });
            await stopped.start();
            assert.notEqual(stopped.native.id, theirs);
            await stopped._stop();
            const mounting = make({ workingDirectory });
            mounting.mounts.add({ '/mnt/more': new LocalFilesystem({ basePath: await fresh() }) });
            await mounting.start();
            assert.notEqual(mounting.native.id, theirs);
            await mounting._destroy();
            await make({ workingDirectory })._destroy();
            child.stdin.write('cat /tmp/kept\n');
            assert.equal((await lines.next()).value, `kept ${theirs}`);
            child.stdin.end();
            await exited;
            const next = make({ workingDirectory });
            assert.equal(await out(next, 'cat /tmp/kept'), 'kept');
            assert.equal(next.native.id, theirs);
        } finally {
            child.kill('SIGKILL');
            await exited;
        }
    });

    test('an engine that is killed with all its boxes costs nothing but what ran', async () => {
        const sandbox = make();
        await out(sandbox, 'echo kept >file');
        await engine.killAll();
        assert.equal(await out(sandbox, 'cat file'), 'kept');
    });

    test('more directories than a sandbox can have are told', async () => {
        const readOnlyPaths = [];
        for (let i = 0; i < 17; i++) readOnlyPaths.push(await fresh());
        assert.throws(() => make({ nativeSandbox: { readOnlyPaths } }), /it can have 16/);
    });

    test('clone() is of its kind, with its rules', async () => {
        const work = await fresh();
        const sandbox = make({ isolation: 'bwrap', nativeSandbox: { readOnly: true }, env: { A: 'a' }, instructions: 'mine' });
        const copy = sandbox.clone({ workingDirectory: work });
        own(copy);
        assert.ok(copy instanceof CoveLocalSandbox && copy instanceof CoveSandbox);
        assert.deepEqual([copy.isolation, copy.getInstructions(), copy.workingDirectory], ['bwrap', 'mine', work]);
        assert.equal(await out(copy, 'echo $A'), 'a');
        await fails(copy, 'touch file');
    });

    test('getInfo() tells the isolation', async () => {
        const sandbox = make({ isolation: 'bwrap', nativeSandbox: { readOnlyPaths: [top] } });
        const { metadata, provider } = await sandbox.getInfo();
        assert.equal(provider, 'cove-local');
        assert.equal(metadata.workingDirectory, sandbox.workingDirectory);
        assert.equal(metadata.isolation, 'bwrap');
        assert.deepEqual(metadata.isolationConfig, { allowNetwork: false, readOnlyPaths: [top], readWritePaths: [] });
    });

    test('files of a workspace are where its link leads, and at the path of the mount', async () => {
        const files = await fresh();
        await writeFile(path.join(files, 'file'), 'mounted');
        const sandbox = make();
        const workspace = new Workspace({ sandbox, mounts: { '/data': new LocalFilesystem({ basePath: files }) } });
        await workspace.init();
        assert.equal(await out(sandbox, 'cat data/file /data/file; echo x >data/new'), 'mountedmounted');
        assert.deepEqual((await readdir(files)).sort(), ['file', 'new']);
        const link = path.join(sandbox.workingDirectory, 'data');
        assert.equal(await readlink(link), files);
        await workspace.destroy();
        await assert.rejects(lstat(link), { code: 'ENOENT' });
        assert.deepEqual((await readdir(files)).sort(), ['file', 'new']);
    });

    test('the link goes with stop(), and the next start makes it again', async () => {
        const files = await fresh();
        await writeFile(path.join(files, 'file'), 'mounted');
        const sandbox = make();
        sandbox.mounts.add({ '/data': new LocalFilesystem({ basePath: files }) });
        assert.equal(await out(sandbox, 'cat data/file'), 'mounted');
        await sandbox._stop();
        assert.deepEqual(await readdir(sandbox.workingDirectory), []);
        assert.equal(await out(sandbox, 'cat data/file /data/file'), 'mountedmounted');
        assert.equal(sandbox.mounts.get('/data').state, 'mounted');
    });

    test('mount() after a command is in the same box, and in the one that follows a stop', async () => {
        const sandbox = make();
        const late = new LocalFilesystem({ basePath: await fresh() });
        await out(sandbox, 'echo kept >file; echo here >/tmp/of-the-box');
        assert.deepEqual(await sandbox.mount(late, '/late'), { success: true, mountPath: '/late' });
        assert.equal(await out(sandbox, 'echo x >late/new; cat file /tmp/of-the-box /late/new'), 'kept\nhere\nx');
        await sandbox._stop();
        assert.equal(await out(sandbox, 'cat file late/new'), 'kept\nx');
    });

    test('unmount() takes the link and the directory at once; under rules it is an error while a command uses that', async () => {
        for (const isolation of ['none', 'bwrap']) {
            const files = await fresh();
            await writeFile(path.join(files, 'file'), 'mounted');
            const sandbox = make({ isolation });
            sandbox.mounts.add({ '/data': new LocalFilesystem({ basePath: files }) });
            assert.equal(await out(sandbox, 'cat data/file; echo here >/tmp/of-the-box'), 'mounted');
            const user = await sandbox.processes.spawn(`cd ${files} && echo in && exec sleep 1000`);
            await until(() => user.stdout === 'in\n');
            if (isolation === 'none') await sandbox.unmount('/data');
            else await assert.rejects(sandbox.unmount('/data'), { name: 'MountError', message: /a program uses it/ });
            assert.equal(sandbox.mounts.has('/data'), false);
            assert.deepEqual(await readdir(sandbox.workingDirectory), []);
            await user.kill();
            await sandbox.mount(new LocalFilesystem({ basePath: files }), '/data');
            await sandbox.unmount('/data');
            if (isolation !== 'none') assert.equal(await out(sandbox, 'cat /tmp/of-the-box'), 'here');
            await fails(sandbox, 'ls /data/file');
            await fails(sandbox, `ls ${files}/file`);
        }
    });

    test('unmount() of a box that nothing was done in leaves no way to the directory', async () => {
        const files = await fresh();
        await writeFile(path.join(files, 'file'), 'mounted');
        const sandbox = make({ isolation: 'bwrap' });
        sandbox.mounts.add({ '/a': new LocalFilesystem({ basePath: files }), '/b': new LocalFilesystem({ basePath: files }) });
        await sandbox.start();
        await sandbox.unmount('/a');
        await sandbox.unmount('/b');
        await fails(sandbox, `ls /a/file || ls /b/file || ls ${files}/file`);
    });

    test('a box that was made without a mount is made again with it', async () => {
        const files = await fresh();
        const first = make({ id: `mounts-${process.pid}` });
        await out(first, 'echo kept >file');
        const second = make({ id: first.id, workingDirectory: first.workingDirectory });
        second.mounts.add({ '/data': new LocalFilesystem({ basePath: files }) });
        assert.equal(await out(second, 'echo x >data/new; cat file'), 'kept');
        assert.equal(second.mounts.get('/data').state, 'mounted');
        assert.deepEqual(await readdir(files), ['new']);
    });

    test('what somebody else put where a mount should be is left alone', async () => {
        const [files, work] = [await fresh(), await fresh()];
        await mkdir(path.join(work, 'data'));
        await writeFile(path.join(work, 'data/own'), '');
        const sandbox = make({ workingDirectory: work });
        sandbox.mounts.add({ '/data': new LocalFilesystem({ basePath: files }) });
        await sandbox.start();
        assert.equal(sandbox.mounts.get('/data').state, 'error');
        assert.match(sandbox.mounts.get('/data').error, /not empty/);
        assert.deepEqual(await readdir(path.join(work, 'data')), ['own']);
    });
});
