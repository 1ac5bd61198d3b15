// What is held against the contract: a column for each kind of sandbox. Each case is given one of these.
import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { LocalSandbox } from '@mastra/core/workspace';
import { CoveLocalSandbox, CoveSandbox } from '@cove/mastra';

let numbers = 0;

/** Whether bwrap can make a sandbox here; that its file is there says nothing. */
function bwrapWorks() {
    try {
        execFileSync('bwrap', ['--ro-bind', '/', '/', '--unshare-pid', 'true'], { stdio: 'ignore' });
        return true;
    } catch {
        return false;
    }
}

/** What a case is given: sandboxes of one kind, which end with the case. */
class Box {
    #made = new Set();

    constructor(column) {
        this.column = column;
    }

    id() {
        return `contract-${process.pid}-${++numbers}`;
    }

    /** A name that no other case has. */
    name() {
        return `n${++numbers}`;
    }

    /** A new directory of the host, for a sandbox that works in one. */
    directory() {
        return this.column.directory();
    }

    /** A directory of the host, to be mounted. */
    async host() {
        return this.column.directory();
    }

    /** Where a mount is inside. */
    mounted(sandbox, target) {
        return this.column.mounted(sandbox, target);
    }

    /** A path from the root, which is the sandbox's own; of the others it is the host's, and stays as it is. */
    absolute(name) {
        return this.column.ours ? `/${name}` : path.join(os.tmpdir(), name);
    }

    keep(sandbox) {
        this.#made.add(sandbox);
        return sandbox;
    }

    make(options = {}) {
        return this.keep(this.column.construct({ id: this.id(), ...options }, this.column));
    }

    /** Another object for the sandbox that `first` stands for. */
    again(first) {
        return this.make({ id: first.id, workingDirectory: first.workingDirectory });
    }

    /** What another program needs to make an object for the sandbox that `first` stands for: its module, class, options. */
    elsewhere(first) {
        const { from, options } = this.column;
        return [...from, { id: first.id, workingDirectory: first.workingDirectory, ...options }];
    }

    /** How long to wait for what has to come; of the others nobody expects it. */
    get patience() {
        return this.column.ours ? 30_000 : 5000;
    }

    /** The one that cases share which leave it as it is. */
    shared() {
        return this.column.shared();
    }

    async end() {
        await Promise.all([...this.#made].map(destroy));
    }
}

/** A hook that throws does so once. */
async function destroy(sandbox) {
    for (let i = 0; i < 2 && sandbox.status !== 'destroyed'; i++) await sandbox._destroy().catch(() => undefined);
}

class Column {
    #directories = [];
    #shared;

    /** `construct` makes one of its sandboxes; `ours` are held to what the contract expects. */
    constructor(title, { ours, construct, mounted, absent, from, options = {} }) {
        Object.assign(this, { title, ours, absent, construct, mounted, from, options });
    }

    directory() {
        const directory = mkdtempSync(path.join(os.tmpdir(), 'contract-'));
        this.#directories.push(directory);
        return directory;
    }

    async shared() {
        this.#shared ??= (async () => {
            const sandbox = this.construct({ id: `contract-${process.pid}-shared` }, this);
            await sandbox.start();
            return sandbox;
        })();
        return this.#shared;
    }

    box() {
        return new Box(this);
    }

    async end() {
        if (this.#shared) await destroy(await this.#shared);
        await Promise.all(this.#directories.map((directory) => rm(directory, { recursive: true, force: true })));
    }
}

const inWorkingDirectory = (sandbox, target) => path.join(sandbox.workingDirectory, target);

const local = (Sandbox, more) => (options, column) => {
    // Somewhere that is not there yet: who finds a directory says that it was connected.
    const workingDirectory = options.workingDirectory ?? path.join(column.directory(), 'work');
    return new Sandbox({ ...options, workingDirectory, ...more });
};

export const columns = () => [
    new Column('CoveSandbox', {
        ours: true,
        construct: (options) => new CoveSandbox(options),
        mounted: (_, target) => target,
        from: ['@cove/mastra', 'CoveSandbox'],
    }),
    new Column('CoveLocalSandbox', {
        ours: true,
        construct: local(CoveLocalSandbox),
        mounted: inWorkingDirectory,
        from: ['@cove/mastra', 'CoveLocalSandbox'],
    }),
    new Column('LocalSandbox', {
        ours: false,
        construct: local(LocalSandbox),
        mounted: inWorkingDirectory,
        from: ['@mastra/core/workspace', 'LocalSandbox'],
    }),
    new Column('LocalSandbox, bwrap', {
        ours: false,
        construct: local(LocalSandbox, { isolation: 'bwrap' }),
        mounted: inWorkingDirectory,
        from: ['@mastra/core/workspace', 'LocalSandbox'],
        options: { isolation: 'bwrap' },
        absent: bwrapWorks() ? undefined : 'bwrap is not here: scripts/setup.sh test installs it',
    }),
];
