// What the tests of CoveLocalSandbox share: an engine, directories of their own, and sandboxes that go after each test.
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, afterEach, before } from 'node:test';
import { CoveLocalSandbox } from '@cove/mastra';
import { startEngine } from '../../client/test/engine.mjs';

export const made = [];
let numbers = 0;

export let engine;
export let top;

before(async () => {
    top = await mkdtemp(path.join(os.tmpdir(), 'local-'));
    engine = await startEngine();
    Object.assign(process.env, engine.env);
});

afterEach(async () => {
    for (const sandbox of made.splice(0)) await sandbox._destroy().catch(() => undefined);
});

after(async () => {
    await engine?.end();
    await rm(top, { recursive: true, force: true });
});

/** A path that nothing is at. */
export const free = () => path.join(top, `d${++numbers}`);

export const fresh = async () => {
    const directory = free();
    await mkdir(directory);
    return directory;
};

/** Goes after the test, as those of make() do. */
export const own = (sandbox) => (made.push(sandbox), sandbox);

export const make = (options = {}) => own(new CoveLocalSandbox({ workingDirectory: free(), ...options }));
