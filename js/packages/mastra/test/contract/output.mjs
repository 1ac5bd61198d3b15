// What a command prints: live, as text, and how much of it is kept (section 1.2).
import { out, until } from './kit.mjs';

export const title = 'output';

const kept = ({ stdout, stdoutTruncated, stdoutDroppedBytes }) => ({
    stdout,
    truncated: stdoutTruncated,
    dropped: stdoutDroppedBytes,
});

export const cases = [
    {
        name: 'chunks come while the command runs',
        expected: { live: true, whole: 'a\nb\n' },
        async run(box) {
            const sandbox = await box.shared();
            const name = box.name();
            let whole = '';
            let live = false;
            const call = sandbox.executeCommand(
                `echo a; i=0; while [ ! -e ${name}.go ] && [ $i -lt 200 ]; do i=$((i + 1)); sleep 0.05; done; echo b`,
                [],
                { onStdout: (chunk) => (whole += chunk) },
            );
            await until(() => whole.includes('a'), 8000);
            live = whole === 'a\n';
            await sandbox.executeCommand(`touch ${name}.go`);
            await call;
            return { live, whole };
        },
    },
    {
        name: 'chunks are the streams, each its own, as text',
        expected: { out: '1\n3\n', err: '2\n', text: true, same: true },
        async run(box) {
            const seen = { out: '', err: '', text: true };
            const take = (stream) => (chunk) => {
                seen.text &&= typeof chunk === 'string';
                seen[stream] += chunk;
            };
            const result = await (await box.shared()).executeCommand('echo 1; echo 2 >&2; echo 3', [], {
                onStdout: take('out'),
                onStderr: take('err'),
            });
            return { ...seen, same: result.stdout === seen.out && result.stderr === seen.err };
        },
    },
    {
        name: 'a character that comes in pieces is one',
        expected: { whole: 'é→😀\n', broken: false },
        async run(box) {
            // Each byte by a write of its own.
            const bytes = [...Buffer.from('é→😀')].map((byte) => `printf '\\${byte.toString(8)}'; sleep 0.02`);
            let whole = '';
            await out(await box.shared(), `${bytes.join('; ')}; echo`, [], { onStdout: (chunk) => (whole += chunk) });
            return { whole, broken: whole.includes('\ufffd') };
        },
    },
    {
        name: 'what is no UTF-8 is U+FFFD',
        expected: ['a\ufffdb', 'a\ufffd'],
        async run(box) {
            const sandbox = await box.shared();
            return [await out(sandbox, "printf 'a\\377b'"), await out(sandbox, "printf 'a\\303'")];
        },
    },
    {
        name: 'NUL, CR and missing ends of lines are as they were',
        expected: ['a\0b', 'a\r\nb', '\n\n'],
        async run(box) {
            const sandbox = await box.shared();
            const seen = [];
            for (const text of ['a\\0b', 'a\\r\\nb', '\\n\\n']) seen.push(await out(sandbox, `printf '${text}'`));
            return seen;
        },
    },
    {
        name: 'nothing is missing at the end',
        expected: { lines: 100_000, last: '100000' },
        async run(box) {
            const lines = (await out(await box.shared(), 'seq 1 100000')).trimEnd().split('\n');
            return { lines: lines.length, last: lines.at(-1) };
        },
    },
    // An engine keeps 64 MiB of what nobody fetches.
    {
        name: 'without a limit all of it is kept: 70 MB',
        expected: { length: 70_000_000, truncated: false, dropped: 0 },
        async run(box) {
            const result = await (await box.shared()).executeCommand("head -c 70000000 /dev/zero | tr '\\0' x");
            const { stdout, ...rest } = kept(result);
            return { length: stdout.length, ...rest };
        },
    },
    {
        name: '70 MB pass by, the newest are kept',
        expected: { seen: 70_000_000, length: 1000, end: 'xx.', dropped: 69_999_000 },
        async run(box) {
            let seen = 0;
            const result = await (
                await box.shared()
            ).executeCommand("head -c 69999999 /dev/zero | tr '\\0' x; printf .", [], {
                maxRetainedBytes: 1000,
                onStdout: (chunk) => void (seen += chunk.length),
            });
            const { stdout, stdoutDroppedBytes: dropped } = result;
            return { seen, length: stdout.length, end: stdout.slice(-3), dropped };
        },
    },
    {
        name: 'the newest bytes are kept, and what went is counted',
        expected: { stdout: '6789', truncated: true, dropped: 6 },
        run: async (box) =>
            kept(await (await box.shared()).executeCommand('printf 0123456789', [], { maxRetainedBytes: 4 })),
    },
    {
        name: 'no character is cut',
        expected: { stdout: 'éé', truncated: true, dropped: 16 },
        run: async (box) =>
            kept(await (await box.shared()).executeCommand('printf éééééééééé', [], { maxRetainedBytes: 5 })),
    },
    {
        name: 'a limit of 0 keeps nothing, and counts all',
        expected: { stdout: '', truncated: true, dropped: 10 },
        run: async (box) =>
            kept(await (await box.shared()).executeCommand('printf 0123456789', [], { maxRetainedBytes: 0 })),
    },
    {
        name: 'what is not kept is told to callbacks all the same',
        expected: '0123456789',
        async run(box) {
            let whole = '';
            const options = { maxRetainedBytes: 0, onStdout: (chunk) => void (whole += chunk) };
            await (await box.shared()).executeCommand('printf 0123456789', [], options);
            return whole;
        },
    },
    {
        name: 'each stream has a limit of its own',
        expected: ['23', 'bc', true, true, 2, 1],
        async run(box) {
            const result = await (
                await box.shared()
            ).executeCommand('printf 0123; printf abc >&2', [], { maxRetainedBytes: 2 });
            const { stdout, stderr, stdoutTruncated, stderrTruncated, stdoutDroppedBytes, stderrDroppedBytes } = result;
            return [stdout, stderr, stdoutTruncated, stderrTruncated, stdoutDroppedBytes, stderrDroppedBytes];
        },
    },
    {
        name: 'where nothing went, that is said',
        expected: [false, false, 0, 0],
        async run(box) {
            const result = await (await box.shared()).executeCommand('echo');
            const { stdoutTruncated, stderrTruncated, stdoutDroppedBytes, stderrDroppedBytes } = result;
            return [stdoutTruncated, stderrTruncated, stdoutDroppedBytes, stderrDroppedBytes];
        },
    },
];
