// Names that the system completes: it is asked by a thread of Node's few, so by one at a time.
"use strict";

const assert = require("node:assert/strict");
const dns = require("node:dns");
const fs = require("node:fs/promises");
const { test } = require("node:test");
const { setTimeout: sleep } = require("node:timers/promises");
const { Lookup } = require("../lib/lookup.js");

test("a short name that is not answered has one of Node's threads, and who gives up asks no more", async (t) => {
    const asked = [], { lookup } = dns.promises, { readFile } = fs;
    t.after(() => { Object.assign(dns.promises, { lookup }); Object.assign(fs, { readFile }); });
    // Else who comes first to the system is whose /etc/hosts is read first.
    fs.readFile = async () => "";
    // A system that answers when it is told to.
    dns.promises.lookup = (name) => new Promise((resolve, reject) => { asked.push({ name, resolve, reject }); });
    const until = async (count) => {
        while (asked.length < count) await sleep(5);
    };
    const first = new Lookup().of("no-such-one");
    await until(1);
    const impatient = new Lookup(), second = impatient.of("no-such-two"), third = new Lookup().of("no-such-three");
    await sleep(30);
    assert.equal(asked.length, 1);
    impatient.cancel();
    asked[0].reject(Object.assign(new Error(), { code: "ENOTFOUND" }));
    await Promise.all([first, second].map((one) => assert.rejects(one, { code: "ENOTFOUND" })));
    await until(2);
    asked[1].resolve([{ address: "192.0.2.1", family: 4 }]);
    assert.deepEqual(await third, [{ address: "192.0.2.1", family: 4 }]);
    assert.deepEqual(asked.map(({ name }) => name), ["no-such-one", "no-such-three"]);
});

test("a name with a dot is not asked of the system", async (t) => {
    const { lookup } = dns.promises;
    t.after(() => { dns.promises.lookup = lookup; });
    dns.promises.lookup = () => { throw new Error("the system was asked"); };
    const one = new Lookup();
    // Nobody answers: it is given up at once.
    const found = assert.rejects(one.of("nothing.invalid"), { code: "ENOTFOUND" });
    const give = setInterval(() => one.cancel(), 5);
    await found;
    clearInterval(give);
});
