// writeFiles: section 1.1 of the contract.
import { need, out, refusal } from './kit.mjs';

export const title = 'writeFiles';

// Looked at before a command would start the sandbox: who has no such method says so at once.
async function write(box, files, options) {
    const sandbox = await box.shared();
    await need(sandbox, 'writeFiles')(files, options);
    return sandbox;
}

export const cases = [
    {
        name: 'text and bytes, with the directories above them',
        expected: ['text ä\n', '000102ff'],
        async run(box) {
            const top = box.name();
            const sandbox = await write(box, [
                { path: `${top}/a/text`, content: 'text ä\n' },
                { path: `${top}/b/c/bytes`, content: Buffer.from([0, 1, 2, 255]) },
            ]);
            const bytes = await out(sandbox, `od -An -tx1 ${top}/b/c/bytes`);
            return [await out(sandbox, `cat ${top}/a/text`), bytes.replaceAll(/\s/g, '')];
        },
    },
    {
        name: 'absolute paths are as they are',
        expected: 'here\n',
        async run(box) {
            const path = `${box.absolute(box.name())}/deep/file`;
            return out(await write(box, [{ path, content: 'here\n' }]), `cat ${path}`);
        },
    },
    {
        name: 'a file may lie at the root',
        expected: 'here\n',
        async run(box) {
            const path = box.absolute(`${box.name()}.txt`);
            return out(await write(box, [{ path, content: 'here\n' }]), `cat ${path}`);
        },
    },
    {
        name: 'modes are set exactly',
        expected: ['755 run\n', '600 own\n', '444 read\n'],
        async run(box) {
            const top = box.name();
            const sandbox = await write(box, [
                { path: `${top}/run`, content: '#!/bin/sh\necho ran\n', mode: 0o755 },
                { path: `${top}/own`, content: 'x', mode: 0o600 },
                { path: `${top}/read`, content: 'x', mode: 0o444 },
            ]);
            const stdout = await out(sandbox, `cd ${top} && stat -c '%a %n' run own read`);
            return stdout.split(/(?<=\n)/);
        },
    },
    {
        name: 'what has a mode to run can be run',
        expected: 'ran\n',
        async run(box) {
            const top = box.name();
            const content = '#!/bin/sh\necho ran\n';
            return out(await write(box, [{ path: `${top}/run`, content, mode: 0o755 }]), `./${top}/run`);
        },
    },
    {
        name: 'a file that is there is replaced',
        expected: 'new',
        async run(box) {
            const path = box.name();
            await write(box, [{ path, content: 'old and longer' }]);
            return out(await write(box, [{ path, content: 'new' }]), `cat ${path}`);
        },
    },
    {
        name: 'a mode that is none is refused, and nothing is written',
        expected: ['SandboxError INVALID_ARGUMENT', 'SandboxError INVALID_ARGUMENT', 'SandboxError INVALID_ARGUMENT', false],
        async run(box) {
            const top = box.name();
            const seen = [];
            const sandbox = await box.shared();
            const writeFiles = need(sandbox, 'writeFiles');
            for (const mode of [0, 0o1000, 1.5])
                seen.push(
                    await refusal(() =>
                        writeFiles([
                            { path: `${top}.first`, content: 'x' },
                            { path: `${top}.second`, content: 'x', mode },
                        ]),
                    ),
                );
            return [...seen, (await sandbox.executeCommand(`test -e ${top}.first`)).success];
        },
    },
    {
        name: 'aborted before: refused, and nothing is written',
        expected: ['SandboxAbortError ABORTED', false],
        async run(box) {
            const path = box.name();
            const sandbox = await box.shared();
            const writeFiles = need(sandbox, 'writeFiles');
            const abortSignal = AbortSignal.abort();
            const why = await refusal(() => writeFiles([{ path, content: 'x' }], { abortSignal }));
            return [why, (await sandbox.executeCommand(`test -e ${path}`)).success];
        },
    },
    {
        name: 'no files are no error',
        expected: 'no error',
        run: async (box) => {
            const writeFiles = need(await box.shared(), 'writeFiles');
            return refusal(() => writeFiles([]));
        },
    },
    {
        name: '5 MB come whole',
        expected: 5_000_000,
        async run(box) {
            const path = box.name();
            const content = Buffer.alloc(5_000_000, 'ä');
            const sandbox = await write(box, [{ path, content }]);
            return Number(await out(sandbox, `wc -c <${path}`));
        },
    },
];
