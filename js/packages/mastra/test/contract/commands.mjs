// executeCommand: the shell, arguments, environment, directories, time limits and aborts (section 1.2).
import { getEventListeners } from 'node:events';
import { begun, beating, life, out, refusal, refused, until, within } from './kit.mjs';

export const title = 'commands';

const tricky = [
    'plain', 'two words', '', "it's", '"double"', '$HOME', '*', 'a\\b', 'new\nline', '`id`', 'ä→😀', '-n', ';', '~',
];

const short = ({ success, exitCode, stdout, stderr }) => ({ success, exitCode, stdout, stderr });

export const cases = [
    {
        name: 'what a result is',
        expected: { success: true, exitCode: 0, stdout: 'out\n', stderr: 'err\n', time: true, command: 'echo out; echo err >&2' },
        async run(box) {
            const result = await (await box.shared()).executeCommand('echo out; echo err >&2');
            const time = Number.isFinite(result.executionTimeMs) && result.executionTimeMs >= 0;
            return { ...short(result), time, command: result.command };
        },
    },
    {
        name: 'exit codes are told, and are no errors',
        expected: [0, 1, 3, 124, 255],
        async run(box) {
            const seen = [];
            for (const code of [0, 1, 3, 124, 255]) {
                const result = await (await box.shared()).executeCommand(`exit ${code}`);
                if (result.success === (code === 0) && !result.timedOut) seen.push(result.exitCode);
            }
            return seen;
        },
    },
    {
        name: 'a command that there is not is 127, with the shell\'s words',
        expected: { exitCode: 127, says: true },
        async run(box) {
            const result = await (await box.shared()).executeCommand('no-such-command-here');
            return { exitCode: result.exitCode, says: result.stderr.includes('not found') };
        },
    },
    {
        name: 'a signal is no success',
        expected: { success: false, killed: true, over: true },
        async run(box) {
            const result = await (await box.shared()).executeCommand('kill -KILL $$');
            return { success: result.success, killed: result.killed === true, over: result.exitCode >= 128 };
        },
    },
    {
        name: 'a command is a line of shell',
        expected: '42 a b\n2\n',
        run: async (box) => out(await box.shared(), 'echo $((6 * 7)) "a b" && printf "1\\n2\\n" | tail -n 1'),
    },
    {
        name: 'arguments are quoted, whatever is in them',
        expected: tricky,
        async run(box) {
            const stdout = await out(await box.shared(), 'printf', ['%s\\0', ...tricky]);
            return stdout.split('\0').slice(0, -1);
        },
    },
    {
        name: 'the command is shell also with arguments',
        expected: '4 $((2 + 2))\n',
        run: async (box) => out(await box.shared(), 'echo $((2 + 2))', ['$((2 + 2))']),
    },
    {
        name: 'a result tells the command with its arguments quoted',
        expected: "echo plain 'two words' '' 'it'\\''s'",
        async run(box) {
            const result = await (await box.shared()).executeCommand('echo', ['plain', 'two words', '', "it's"]);
            return result.command;
        },
    },
    {
        name: 'each command has a shell of its own',
        expected: ['', true],
        async run(box) {
            const sandbox = await box.shared();
            const before = await out(sandbox, 'pwd');
            await out(sandbox, 'LEFT=over; export LEFT; cd /');
            return [(await out(sandbox, 'echo "$LEFT"')).trim(), (await out(sandbox, 'pwd')) === before];
        },
    },
    {
        name: '/tmp stays between commands',
        expected: 'still here\n',
        async run(box) {
            const sandbox = await box.shared();
            const file = `/tmp/contract-${box.name()}`;
            await out(sandbox, `echo still here >${file}`);
            const result = await sandbox.executeCommand(`cat ${file}; rm -f ${file}`);
            return result.stdout;
        },
    },
    {
        name: 'an absolute cwd holds',
        expected: '/usr\n',
        run: async (box) => out(await box.shared(), 'pwd', [], { cwd: '/usr' }),
    },
    {
        name: 'a directory at the root is made, and commands start there',
        expected: ['x\n', true],
        async run(box) {
            const sandbox = await box.shared();
            const workspace = box.absolute(`workspace-${box.name()}`);
            await out(sandbox, `mkdir -p ${workspace} && echo x >${workspace}/file`);
            const said = await out(sandbox, 'cat file; pwd', [], { cwd: workspace });
            return [said.slice(0, 2), said.trim().endsWith(`/${workspace.split('/').pop()}`)];
        },
    },
    {
        name: 'a relative cwd is below the working directory',
        expected: true,
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            const top = (await out(sandbox, `mkdir -p ${name}/in; pwd`)).trim();
            return (await out(sandbox, 'pwd', [], { cwd: `${name}/in` })).trim() === `${top}/${name}/in`;
        },
    },
    {
        name: 'a cwd that there is not is refused',
        expected: 'an error',
        run: async (box) => {
            const sandbox = await box.shared();
            return refused(() => sandbox.executeCommand('true', [], { cwd: '/no/such/place' }));
        },
    },
    {
        name: 'what is refused tells no value of the environment',
        expected: false,
        async run(box) {
            const sandbox = await box.shared();
            const options = { cwd: '/no/such/place', env: { TOKEN: 'se-cr-et' } };
            const error = await sandbox.executeCommand('true', [], options).catch((refused) => refused);
            return `${error.message} ${error.stack} ${JSON.stringify(error)}`.includes('se-cr-et');
        },
    },
    {
        name: 'environment: of the options, over it setEnv(), over that the call',
        expected: ['options options options', 'options overlay overlay', 'options overlay call', 'options options options'],
        async run(box) {
            const made = box.make({ env: { A: 'options', B: 'options', C: 'options' } });
            const show = (options) => out(made, 'echo $A $B $C', [], options).then((text) => text.trim());
            const seen = [await show()];
            made.setEnv((env) => ({ ...env, B: 'overlay', C: 'overlay' }));
            seen.push(await show(), await show({ env: { C: 'call' } }));
            made.setEnv(({ B, C, ...env }) => ({ ...env, B: 'options', C: 'options' }));
            seen.push(await show());
            return seen;
        },
    },
    {
        name: 'setEnv() adds, and takes away again',
        expected: ['-', 'on', '-'],
        async run(box) {
            const made = box.make();
            const show = () => out(made, 'echo ${ADDED:--}').then((text) => text.trim());
            const seen = [await show()];
            made.setEnv((env) => ({ ...env, ADDED: 'on' }));
            seen.push(await show());
            made.setEnv(({ ADDED, ...env }) => env);
            seen.push(await show());
            return seen;
        },
    },
    {
        name: 'getEnv() is a copy',
        expected: 'on',
        async run(box) {
            const made = box.make();
            made.setEnv(() => ({ KEPT: 'on' }));
            made.getEnv().KEPT = 'changed';
            return made.getEnv().KEPT;
        },
    },
    {
        name: 'values of the environment may be anything',
        expected: ['', ' two  words ', 'a=b', "it's \"so\"", 'new\nline', '$HOME `id`', 'ä→😀'],
        async run(box) {
            const values = ['', ' two  words ', 'a=b', "it's \"so\"", 'new\nline', '$HOME `id`', 'ä→😀'];
            const env = Object.fromEntries(values.map((value, i) => [`V${i}`, value]));
            const names = values.map((_, i) => `"$V${i}"`).join(' ');
            const stdout = await out(await box.shared(), `printf '%s\\0' ${names}`, [], { env });
            return stdout.split('\0').slice(0, -1);
        },
    },
    {
        name: 'an undefined value of the environment is none',
        expected: 'unset\n',
        run: async (box) => out(await box.shared(), 'echo ${A-unset}', [], { env: { A: undefined } }),
    },
    {
        name: 'the environment of the host stays outside',
        expected: '-\n',
        async run(box) {
            process.env.CONTRACT_SECRET = 'se-cr-et';
            try {
                return await out(await box.shared(), 'echo ${CONTRACT_SECRET:--}');
            } finally {
                delete process.env.CONTRACT_SECRET;
            }
        },
    },
    {
        name: 'PATH finds what the system has',
        expected: '/',
        run: async (box) => (await out(await box.shared(), 'command -v env')).slice(0, 1),
    },
    {
        name: 'who reads standard input reads its end',
        expected: { exitCode: 0, stdout: 'done\n' },
        async run(box) {
            const sandbox = await box.shared();
            const result = await within(box.patience, sandbox.executeCommand('cat; echo done'));
            return { exitCode: result.exitCode, stdout: result.stdout };
        },
    },
    {
        name: 'it returns when the command exits, not when all have closed its output',
        expected: 'x\n',
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            const call = sandbox.executeCommand(`(while [ ! -e ${name}.stop ]; do sleep 0.1; done) & echo x`);
            const result = await within(box.patience, call);
            await sandbox.executeCommand(`touch ${name}.stop`);
            await call;
            return result.stdout ?? result;
        },
    },
    {
        name: 'a time limit is a result: 124, timedOut, and what was printed',
        expected: { success: false, exitCode: 124, timedOut: true, stdout: 'before\n' },
        async run(box) {
            const sandbox = await box.shared();
            const result = await sandbox.executeCommand('echo before; exec sleep 60', [], { timeout: 5_000 });
            const { success, exitCode, timedOut, stdout } = result;
            return { success, exitCode, timedOut, stdout };
        },
    },
    {
        name: 'a time limit that is not reached changes nothing',
        expected: { exitCode: 0, timedOut: false },
        async run(box) {
            const result = await (await box.shared()).executeCommand('true', [], { timeout: 60_000 });
            return { exitCode: result.exitCode, timedOut: result.timedOut === true };
        },
    },
    {
        name: 'the time limit of the options holds',
        expected: { exitCode: 124, timedOut: true },
        async run(box) {
            const made = box.make({ timeout: 2000 });
            await made.start();
            const result = await made.executeCommand('sleep 6');
            return { exitCode: result.exitCode, timedOut: result.timedOut === true };
        },
    },
    {
        name: 'a time limit kills who does not want to end',
        expected: 'ended',
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            const line = `trap '' TERM; while [ ! -e ${name}.stop ]; do sleep 0.1; done`;
            const call = sandbox.executeCommand(line, [], { timeout: 2000 });
            const result = await within(box.patience, call);
            await sandbox.executeCommand(`touch ${name}.stop`);
            await call;
            return result === 'still waiting' ? result : 'ended';
        },
    },
    {
        name: 'a time limit takes along what has left the session',
        needs: 'cgroup',
        expected: { begun: true, after: 'dead' },
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            await sandbox.executeCommand(`${beating(name)} & sleep 60`, [], { timeout: 5000 });
            const was = await begun(sandbox, name);
            return { begun: was, after: await life(sandbox, name) };
        },
    },
    {
        name: 'an abort kills the command and gives what was printed',
        expected: { success: false, killed: true, stdout: 'before\n' },
        async run(box) {
            const abort = new AbortController();
            const sandbox = await box.shared();
            const result = await sandbox.executeCommand('echo before; exec sleep 60', [], {
                abortSignal: abort.signal,
                onStdout: () => abort.abort(),
            });
            return { success: result.success, killed: result.killed === true, stdout: result.stdout };
        },
    },
    {
        name: 'an abort takes along what has left the session',
        needs: 'cgroup',
        expected: { begun: true, after: 'dead' },
        async run(box) {
            const abort = new AbortController();
            const sandbox = await box.shared();
            const name = box.name();
            const call = sandbox.executeCommand(`${beating(name)} & sleep 60`, [], { abortSignal: abort.signal });
            const was = await begun(sandbox, name);
            abort.abort();
            await call.catch(() => undefined);
            return { begun: was, after: await life(sandbox, name) };
        },
    },
    {
        name: 'what was aborted before does not succeed, and does nothing',
        expected: { succeeded: false, touched: false },
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            const options = { abortSignal: AbortSignal.abort() };
            const result = await sandbox
                .executeCommand(`sleep 0.2; touch ${name}.made`, [], options)
                .catch(() => ({ success: false }));
            const there = await sandbox.executeCommand(`sleep 0.4; test -e ${name}.made`);
            return { succeeded: result.success, touched: there.success };
        },
    },
    {
        name: 'a signal that lives long is not held on to',
        expected: 0,
        async run(box) {
            const { signal } = new AbortController();
            const sandbox = await box.shared();
            for (let i = 0; i < 3; i++) await sandbox.executeCommand('true', [], { abortSignal: signal });
            await until(() => getEventListeners(signal, 'abort').length === 0, 2000);
            return getEventListeners(signal, 'abort').length;
        },
    },
    {
        name: 'a line may be long',
        expected: 100_000,
        async run(box) {
            const stdout = await out(await box.shared(), `printf %s ${'x'.repeat(100_000)}`);
            return stdout.length;
        },
    },
    {
        name: '200 commands at once, each with its own output',
        expected: 200,
        async run(box) {
            const sandbox = await box.shared();
            const numbers = Array.from({ length: 200 }, (_, i) => i);
            const all = await Promise.all(numbers.map((i) => sandbox.executeCommand(`echo ${i}`)));
            return numbers.filter((i) => all[i].success && all[i].stdout === `${i}\n`).length;
        },
    },
    {
        name: 'a limit of what is kept that is none is refused',
        expected: ['RangeError', 'RangeError', 'RangeError'],
        async run(box) {
            const sandbox = await box.shared();
            const seen = [];
            for (const maxRetainedBytes of [-1, 1.5, NaN])
                seen.push(await refusal(() => sandbox.executeCommand('true', [], { maxRetainedBytes })));
            return seen;
        },
    },
];
