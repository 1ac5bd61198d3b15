// What runs in the background: section 1.3 of the contract.
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import { begun, beating, life, out, refusal, refused, until, within } from './kit.mjs';

export const title = 'processes';

const spawn = async (box, command, options) => (await box.shared()).processes.spawn(command, options);

export const cases = [
    {
        name: 'a handle has a pid, its command, and no exit code while it runs',
        expected: { pid: 'string', command: 'sleep 60', exitCode: undefined },
        async run(box) {
            const handle = await spawn(box, 'sleep 60');
            const { pid, command, exitCode } = handle;
            await handle.kill();
            await handle.wait();
            return { pid: typeof pid, command, exitCode };
        },
    },
    {
        name: 'wait() gives the result, as often as it is asked',
        expected: [3, 'out\n', 'err\n', false, 3, 'out\n', 3],
        async run(box) {
            const handle = await spawn(box, 'echo out; echo err >&2; exit 3');
            const one = await handle.wait();
            const two = await handle.wait();
            return [one.exitCode, one.stdout, one.stderr, one.success, two.exitCode, two.stdout, handle.exitCode];
        },
    },
    {
        name: 'list() shows it while it runs, and that it ended',
        expected: { pid: true, running: true, later: true },
        async run(box) {
            const { processes } = await box.shared();
            const handle = await processes.spawn('sleep 60');
            const mine = async () => (await processes.list()).find(({ pid }) => pid === handle.pid);
            const info = await mine();
            await handle.kill();
            await handle.wait();
            const later = await mine();
            return {
                pid: info !== undefined,
                running: info?.running,
                later: later === undefined || (later.running === false && later.exitCode !== undefined),
            };
        },
    },
    {
        name: 'list() after a stop knows nothing of what was before',
        expected: [0, ['sleep 61']],
        async run(box) {
            const made = box.make();
            await made.start();
            await (await made.processes.spawn('echo ended')).wait();
            await made.processes.spawn('sleep 60');
            await made._stop();
            const before = (await made.processes.list()).length;
            const handle = await made.processes.spawn('sleep 61');
            const listed = (await made.processes.list()).map(({ pid }) => (pid === handle.pid ? handle.command : pid));
            return [before, listed];
        },
    },
    {
        name: 'get() at once after the start has what it printed, if that took no time',
        expected: true,
        async run(box) {
            const { processes } = await box.shared();
            const handle = await processes.spawn('echo ready; exec sleep 60');
            const asked = Date.now();
            const { stdout } = await processes.get(handle.pid);
            // On a machine that is busy with other things it is not waited for long.
            const hasWaited = Date.now() - asked >= 150;
            await processes.kill(handle.pid);
            return stdout === 'ready\n' || hasWaited;
        },
    },
    {
        name: 'get() finds what runs, and its output',
        expected: ['ready\n', undefined],
        async run(box) {
            const { processes } = await box.shared();
            const handle = await processes.spawn('echo ready; exec sleep 60');
            await until(() => handle.stdout === 'ready\n');
            const again = await processes.get(handle.pid);
            await until(() => again.stdout === 'ready\n');
            const seen = [again.stdout, again.exitCode];
            await processes.kill(handle.pid);
            return seen;
        },
    },
    {
        name: 'get() of what ended gives it once',
        expected: [0, 'x\n', undefined],
        async run(box) {
            const { processes } = await box.shared();
            const handle = await processes.spawn('echo x');
            await handle.wait();
            const one = await processes.get(handle.pid);
            return [one?.exitCode, one?.stdout, await processes.get(handle.pid)];
        },
    },
    {
        name: 'get() and kill() of what there is not',
        expected: [undefined, false],
        async run(box) {
            const { processes } = await box.shared();
            return [await processes.get('4000000000'), await processes.kill('4000000000')];
        },
    },
    {
        name: 'kill() ends it, and forgets it',
        expected: { killed: true, code: true, got: undefined, again: false },
        async run(box) {
            const { processes } = await box.shared();
            const handle = await processes.spawn('sleep 60');
            const killed = await processes.kill(handle.pid);
            const code = handle.exitCode !== undefined && handle.exitCode !== 0;
            const got = await processes.get(handle.pid);
            return { killed, code, got, again: await processes.kill(handle.pid) };
        },
    },
    {
        name: 'kill() of a handle: true, then false; the wait ends with killed',
        expected: [true, { success: false, killed: true }, false],
        async run(box) {
            const handle = await spawn(box, "trap '' TERM INT HUP; sleep 60 & wait; wait");
            const first = await handle.kill();
            const { success, killed } = await handle.wait();
            return [first, { success, killed: killed === true }, await handle.kill()];
        },
    },
    {
        name: 'kill() takes along what has left the session',
        needs: 'cgroup',
        expected: { begun: true, after: 'dead' },
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            const handle = await sandbox.processes.spawn(`${beating(name)} & exec sleep 60`);
            const was = await begun(sandbox, name);
            await handle.kill();
            await handle.wait();
            return { begun: was, after: await life(sandbox, name) };
        },
    },
    {
        name: 'release() forgets what has ended',
        expected: undefined,
        async run(box) {
            const { processes } = await box.shared();
            const handle = await processes.spawn('true');
            await handle.wait();
            processes.release(handle.pid);
            return processes.get(handle.pid);
        },
    },
    {
        name: 'standard input is written and closed',
        expected: ['a\nb\n', 0],
        async run(box) {
            const handle = await spawn(box, 'cat');
            await handle.sendStdin('a\n');
            await handle.sendStdin('b\n');
            await handle.closeStdin();
            const result = await handle.wait();
            return [result.stdout, result.exitCode];
        },
    },
    {
        name: 'what is sent is read at once',
        expected: 'got one\n',
        async run(box) {
            const handle = await spawn(box, 'while read -r line; do echo "got $line"; done');
            await handle.sendStdin('one\n');
            await until(() => handle.stdout !== '');
            const seen = handle.stdout;
            await handle.closeStdin();
            await handle.wait();
            return seen;
        },
    },
    {
        name: 'standard input takes any text, and much of it',
        expected: true,
        async run(box) {
            const text = 'ä→😀\n'.repeat(100_000);
            const handle = await spawn(box, 'wc -c');
            await handle.sendStdin(text);
            await handle.closeStdin();
            const { stdout } = await handle.wait();
            return Number(stdout) === Buffer.byteLength(text);
        },
    },
    {
        name: 'to close standard input twice is nothing',
        expected: ['no error', 'no error'],
        async run(box) {
            const handle = await spawn(box, 'cat; exec sleep 60');
            const seen = [await refused(() => handle.closeStdin()), await refused(() => handle.closeStdin())];
            await handle.kill();
            await handle.wait();
            return seen;
        },
    },
    {
        name: 'to send to what has ended is an error',
        expected: ['an error', 'an error'],
        async run(box) {
            const handle = await spawn(box, 'true');
            await handle.wait();
            return [await refused(() => handle.sendStdin('x')), await refused(() => handle.closeStdin())];
        },
    },
    {
        name: 'stdinMode "ignore": an end of file, and nothing can be sent',
        expected: ['done\n', 'an error'],
        async run(box) {
            const handle = await spawn(box, 'cat; echo done; exec sleep 60', { stdinMode: 'ignore' });
            await until(() => handle.stdout !== '');
            const seen = [handle.stdout, await refused(() => handle.sendStdin('x'))];
            await handle.kill();
            await handle.wait();
            return seen;
        },
    },
    {
        name: 'writer and reader are streams of it',
        expected: 'THROUGH\n',
        async run(box) {
            const handle = await spawn(box, 'tr a-z A-Z');
            const chunks = [];
            const read = (async () => {
                for await (const chunk of handle.reader) chunks.push(chunk);
            })();
            await pipeline(Readable.from(['thr', 'ough\n']), handle.writer);
            await within(box.patience, read);
            return chunks.join('');
        },
    },
    {
        name: 'output can be looked at while it runs',
        expected: ['one\n', 'err\n'],
        async run(box) {
            const handle = await spawn(box, 'echo one; echo err >&2; exec sleep 60');
            await until(() => handle.stdout !== '' && handle.stderr !== '');
            const seen = [handle.stdout, handle.stderr];
            await handle.kill();
            await handle.wait();
            return seen;
        },
    },
    {
        name: 'callbacks of spawn() and of wait() hear it; those of wait() go with it',
        expected: { spawned: 'a\n', waited: true },
        async run(box) {
            let spawned = '';
            let waited = '';
            const handle = await spawn(box, 'read -r _; echo a', { onStdout: (chunk) => (spawned += chunk) });
            const wait = handle.wait({ onStdout: (chunk) => (waited += chunk) });
            await handle.sendStdin('\n');
            await wait;
            return { spawned, waited: waited === spawned };
        },
    },
    {
        name: 'of a process 1 MiB of each stream is kept, unless it is said',
        expected: { length: 1_048_576, truncated: true, dropped: 1_951_424, of: 10 },
        async run(box) {
            const sandbox = await box.shared();
            const handle = await sandbox.processes.spawn("head -c 3000000 /dev/zero | tr '\\0' x");
            const result = await handle.wait();
            const other = await sandbox.processes.spawn('printf 0123456789abc', { maxRetainedBytes: 10 });
            await other.wait();
            return {
                length: result.stdout.length,
                truncated: result.stdoutTruncated,
                dropped: result.stdoutDroppedBytes,
                of: other.stdout.length,
            };
        },
    },
    {
        name: 'a limit of what is kept that is none is refused, before anything runs',
        expected: 'RangeError',
        run: async (box) => refusal(() => spawn(box, 'true', { maxRetainedBytes: -1 })),
    },
    {
        name: 'environment and directory of a process',
        expected: 'here /usr\n',
        async run(box) {
            const handle = await spawn(box, 'echo $WHERE $(pwd)', { env: { WHERE: 'here' }, cwd: '/usr' });
            return (await handle.wait()).stdout;
        },
    },
    {
        name: 'setEnv() counts for processes',
        expected: 'overlay call\n',
        async run(box) {
            const made = box.make({ env: { A: 'options', B: 'options' } });
            made.setEnv(() => ({ A: 'overlay', B: 'overlay' }));
            const handle = await made.processes.spawn('echo $A $B', { env: { B: 'call' } });
            return (await handle.wait()).stdout;
        },
    },
    {
        name: 'a directory that there is not is refused',
        expected: 'an error',
        run: async (box) => refused(() => spawn(box, 'true', { cwd: '/no/such/place' })),
    },
    {
        name: 'a time limit of a process',
        expected: { exitCode: 124, timedOut: true, success: false, stdout: 'before\n' },
        async run(box) {
            const handle = await spawn(box, 'echo before; exec sleep 60', { timeout: 5_000 });
            const { exitCode, timedOut, success, stdout } = await handle.wait();
            return { exitCode, timedOut, success, stdout };
        },
    },
    {
        name: 'an abort of spawn() kills it',
        expected: { success: false, killed: true },
        async run(box) {
            const abort = new AbortController();
            const handle = await spawn(box, 'sleep 60', { abortSignal: abort.signal });
            abort.abort();
            const { success, killed } = await handle.wait();
            return { success, killed: killed === true };
        },
    },
    {
        name: 'an abort of wait() kills it',
        expected: { success: false, killed: true },
        async run(box) {
            const abort = new AbortController();
            const handle = await spawn(box, 'sleep 60');
            const wait = handle.wait({ abortSignal: abort.signal });
            abort.abort();
            const { success, killed } = await wait;
            return { success, killed: killed === true };
        },
    },
    {
        name: 'a process without an abort signal goes on',
        expected: true,
        async run(box) {
            const handle = await spawn(box, 'sleep 60', { abortSignal: undefined });
            const { processes } = await box.shared();
            const runs = (await processes.list()).some(({ pid, running }) => pid === handle.pid && running);
            await processes.kill(handle.pid);
            return runs;
        },
    },
    {
        name: '50 processes at once',
        expected: 50,
        async run(box) {
            const { processes } = await box.shared();
            const numbers = Array.from({ length: 50 }, (_, i) => i);
            const handles = await Promise.all(numbers.map((i) => processes.spawn(`echo ${i}`)));
            const results = await Promise.all(handles.map((handle) => handle.wait()));
            handles.forEach((handle) => processes.release(handle.pid));
            return numbers.filter((i) => results[i].stdout === `${i}\n`).length;
        },
    },
    {
        name: 'a process goes on while commands come and go',
        expected: ['1\n2\n', 0],
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            const line = `i=0; echo 1; while [ ! -e ${name}.go ] && [ $i -lt 400 ]; do i=$((i + 1)); sleep 0.05; done; echo 2`;
            const handle = await sandbox.processes.spawn(line);
            await out(sandbox, `touch ${name}.go`);
            const { stdout, exitCode } = await handle.wait();
            return [stdout, exitCode];
        },
    },
];
