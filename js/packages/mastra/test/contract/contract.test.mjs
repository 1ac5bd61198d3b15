// The contract of Mastra's sandboxes, case by case, on the real @mastra/core: ours have to do what it says. Its own
// LocalSandbox does the same cases, with and without bwrap; what it gets wrong is printed, and fails nothing.
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import * as commands from './commands.mjs';
import * as files from './files.mjs';
import * as info from './info.mjs';
import * as lifecycle from './lifecycle.mjs';
import * as mounts from './mounts.mjs';
import * as output from './output.mjs';
import * as processes from './processes.mjs';
import { Unsupported, within } from './kit.mjs';
import { startEngine } from '../../../client/test/engine.mjs';
import { table } from './table.mjs';

const LIMIT_MS = 60_000;
const OURS_MS = 180_000;
const sections = [lifecycle, info, commands, output, processes, files, mounts];
// In the order of the cases, whichever ends first.
const rows = sections.flatMap(({ title, cases }) => cases.map((one) => ({ title, ...one })));
let columns;
let engine;
let limits;

before(async () => {
    // Both find it by the environment, as they do for a user: no option names it.
    engine = await startEngine();
    Object.assign(process.env, engine.env);
    ({ limits } = await engine.cove.version());
    // LocalSandbox leaves marks of its mounts there.
    process.env.TMPDIR = path.join(engine.dir, 'tmp');
    await mkdir(process.env.TMPDIR);
    columns = (await import('./columns.mjs')).columns();
});

after(async () => {
    for (const column of columns ?? []) await column.end();
    await engine?.end();
    console.log(table(rows.filter((row) => row.cells), columns));
});

/** What a sandbox gives, as a verdict. */
async function look(column, one) {
    if (column.absent) return { verdict: 'absent', seen: column.absent };
    const box = column.box();
    try {
        const seen = await within(column.ours ? OURS_MS : LIMIT_MS, one.run(box));
        return { verdict: isDeepStrictEqual(seen, one.expected) ? 'ok' : 'differs', seen };
    } catch (error) {
        if (error instanceof Unsupported) return { verdict: 'unsupported', seen: error.message };
        return { verdict: 'differs', seen: error };
    } finally {
        await box.end();
    }
}

for (const title of new Set(rows.map((row) => row.title)))
    describe(title, { concurrency: 4 }, () => {
        for (const row of rows.filter((each) => each.title === title))
            test(row.name, async (t) => {
                const cells = await Promise.all(columns.map((column) => look(column, row)));
                row.cells = cells;
                // Without cgroups (an ordinary user on some hosts) the engine says that it cannot do this.
                if (row.needs !== undefined && row.needs !== limits) return t.skip(`limits by ${limits} here`);
                columns.forEach((column, i) => {
                    if (!column.ours) return;
                    if (cells[i].seen instanceof Error) throw cells[i].seen;
                    assert.deepStrictEqual(cells[i].seen, row.expected, column.title);
                });
            });
    });
