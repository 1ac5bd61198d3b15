// The descriptor for Mastra's editor: what its form offers is what a CoveSandbox takes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CoveSandbox, coveSandboxProvider } from "@cove/mastra";

// A value of each kind that a field of the form may have.
function samples(schema) {
    if (schema.anyOf) return schema.anyOf.flatMap(samples);
    if (schema.enum) return schema.enum;
    return [].concat(schema.type).flatMap((type) => {
        switch (type) {
        case "string": return [schema.description?.includes('"512M"') ? "64M" : schema.description?.includes("absolute path") ? "/tmp" : schema.description?.includes("unix:/PATH") ? "unix:/nowhere/cove.sock" : "text"];
        case "number": return [1.5];
        case "integer": return [1];
        case "boolean": return [true, false];
        case "array": return [[], samples(schema.items)];
        case "object": return [schema.properties ? Object.fromEntries(Object.entries(schema.properties).map(([name, of]) => [name, samples(of)[0]])) : { A: "1" }];
        default: throw new Error(`a type that is not known: ${type}`);
        }
    });
}

test("it names itself", () => {
    const { id, name, description, configSchema } = coveSandboxProvider;
    assert.deepEqual([id, typeof name, typeof description, configSchema.type, configSchema.additionalProperties], ["cove", "string", "string", "object", false]);
    assert.deepEqual(JSON.parse(JSON.stringify(configSchema)), configSchema);
});

test("a sandbox is made of nothing, and of each field of the form", async () => {
    assert.ok(await coveSandboxProvider.createSandbox({}) instanceof CoveSandbox);
    for (const [field, schema] of Object.entries(coveSandboxProvider.configSchema.properties)) {
        for (const value of samples(schema)) {
            const made = await coveSandboxProvider.createSandbox({ [field]: value });
            assert.ok(made instanceof CoveSandbox, `${field}: ${JSON.stringify(value)}`);
            assert.equal(made.status, "pending");
        }
    }
});

test("what the form does not have is refused", () => {
    assert.throws(() => coveSandboxProvider.createSandbox({ rot: "x" }), /"rot"/);
});
