// Names of hosts, for code that may ask for any. The system's own resolver takes a thread of Node's few for as long as a name
// server likes to keep it: a name that is never answered would keep everybody else's waiting. So names are asked for by Node's
// other one, which takes none and can be called off. The system's is asked only for names without a dot, which only it completes,
// and for one at a time in the process: of Node's threads it never has more than that.
"use strict";

const dns = require("node:dns");
const fs = require("node:fs/promises");
const net = require("node:net");

const ASK = { timeout: 2000, tries: 3 };
const LATER_MS = 250; // for the addresses of the other family, where one has come

async function fromHosts(name) {
    let text;
    try {
        text = await fs.readFile("/etc/hosts", "utf8");
    } catch {
        return [];
    }
    const found = [];
    for (const line of text.split("\n")) {
        const [address, ...names] = line.replace(/#.*/, "").trim().split(/\s+/);
        if (net.isIP(address) !== 0 && names.some((one) => one.toLowerCase() === name)) found.push(address);
    }
    return found;
}

let line = Promise.resolve(); // of those who ask the system

function fromSystem(name, isOver) {
    const asked = line.then(() => (isOver() ? [] : dns.promises.lookup(name, { all: true, hints: dns.ADDRCONFIG })));
    line = asked.catch(() => {});
    return asked;
}

function unknown(host) {
    return Object.assign(new Error(`${host} is not known`), { code: "ENOTFOUND" });
}

class Lookup {
    constructor() {
        this.resolver = new dns.promises.Resolver(ASK);
        this.isOver = false;
    }

    cancel() {
        this.isOver = true;
        this.resolver.cancel();
    }

    // Both families; -> the addresses, none where nobody knows the name.
    async ask(name) {
        const found = { 4: [], 6: [] };
        let timer;
        const one = (family) => this.resolver[`resolve${family}`](name).then((list) => {
            found[family] = list;
            if (timer === undefined) timer = setTimeout(() => this.resolver.cancel(), LATER_MS);
        }, () => {});
        await Promise.all([one(4), one(6)]);
        clearTimeout(timer);
        return [...found[4], ...found[6]];
    }

    // -> [{address, family}]; throws with the code ENOTFOUND.
    async of(host) {
        const name = host.toLowerCase().replace(/\.$/, "");
        let addresses = await fromHosts(name);
        if (addresses.length === 0 && name.includes(".")) addresses = await this.ask(name);
        else if (addresses.length === 0) addresses = (await fromSystem(name, () => this.isOver)).map(({ address }) => address);
        if (addresses.length === 0) throw unknown(host);
        return addresses.map((address) => ({ address, family: net.isIP(address) }));
    }
}

module.exports = { Lookup };
