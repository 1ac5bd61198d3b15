// A program that a user of openapi-typescript and openapi-fetch would write: it calls each operation once, with the
// types that were made of openapi.yaml and no cast but where the document itself says that anything may be there.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const baseUrl = process.env.COVE_URL ?? "";
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${process.env.COVE_API_KEY}` } });

interface Outcome {
    data?: unknown;
    error?: unknown;
    response: Response;
}

/** What a call answered, which must be a success. */
function good<T extends Outcome>(outcome: T): NonNullable<T["data"]> {
    if (!outcome.response.ok)
        throw new Error(`${outcome.response.status} of ${outcome.response.url}: ${JSON.stringify(outcome.error)}`);
    return outcome.data as NonNullable<T["data"]>;
}

/** The status of an upgrade that fetch cannot ask for: the server says so. */
function refused(outcome: Outcome): void {
    if (outcome.response.status !== 426) throw new Error(`${outcome.response.status} of ${outcome.response.url}`);
}

function same(is: unknown, wanted: unknown): void {
    if (is !== wanted) throw new Error(`${JSON.stringify(is)} is not ${JSON.stringify(wanted)}`);
}

const text = { parseAs: "text" } as const;
const bytes = { parseAs: "arrayBuffer" } as const;
/** The generator says of bytes that they are a string; what is sent is the body as it is. */
const raw = { bodySerializer: (body: unknown) => body as BodyInit };
const octets = { ...raw, headers: { "Content-Type": "application/octet-stream" } };

// ---- the host ----
same(good(await client.GET("/healthz")).status, "ok");
same(good(await client.GET("/readyz")).status, "ok");
good(await client.GET("/metrics", text));
same(good(await client.GET("/v1/version")).api, "v1");
good(await client.GET("/v1/openapi.yaml", text));
good(await client.GET("/v1/roots")).roots.length;
good(await client.GET("/v1/capacity"));

// ---- a sandbox ----
const made = good(
    await client.POST("/v1/sandboxes", {
        params: { header: { "Idempotency-Key": "one" } },
        body: { name: "typed", labels: { made: "by" }, lifecycle: { idle_ms: 600000, then: "stop" }, network: { mode: "none" } },
    }),
);
same(made.created, true);
const path = { id: made.id };
const found = good(await client.GET("/v1/sandboxes", { params: { query: { label: ["made=by"], limit: 10 } } }));
same(found.sandboxes[0]?.id, made.id);
same(good(await client.GET("/v1/sandboxes/{id}", { params: { path } })).state, "running");
same(good(await client.PATCH("/v1/sandboxes/{id}", { params: { path }, body: { lifecycle: { idle_ms: 700000 } } })).lifecycle.then, "stop");
good(await client.POST("/v1/sandboxes/{id}/stop", { params: { path } }));
good(await client.POST("/v1/sandboxes/{id}/start", { params: { path } }));
same(good(await client.GET("/v1/sandboxes/{id}/usage", { params: { path } })).state, "running");
same(good(await client.GET("/v1/sandboxes/{id}/network", { params: { path } })).policy.mode, "none");

// ---- commands ----
const ran = good(await client.POST("/v1/sandboxes/{id}/exec", { params: { path }, body: { command: "echo out", env: { A: "b" } } }));
same(ran.stdout, "out\n");
same(ran.process.exit_code, 0);
const started = good(await client.POST("/v1/sandboxes/{id}/processes", { params: { path }, body: { argv: ["cat"], open_stdin: true } }));
const process_ = { ...path, pid: started.id };
const one = { params: { path: process_ } };
same(good(await client.GET("/v1/sandboxes/{id}/processes", { params: { path } })).processes.length, 2);
same(good(await client.GET("/v1/sandboxes/{id}/processes/{pid}", one)).state, "running");
good(await client.POST("/v1/sandboxes/{id}/processes/{pid}/signal", { ...one, body: { signal: "CONT" } }));
good(await client.POST("/v1/sandboxes/{id}/processes/{pid}/stdin", { params: { path: process_, query: { close: true } }, body: "typed\n", ...octets }));
same(good(await client.GET("/v1/sandboxes/{id}/processes/{pid}/wait", one)).exit_code, 0);
same(good(await client.GET("/v1/sandboxes/{id}/processes/{pid}/output", { ...one, ...text })), "typed\n");
const followed = good(await client.GET("/v1/sandboxes/{id}/processes/{pid}/follow", { ...one, parseAs: "stream" }));
same((await new Response(followed as ReadableStream).text()).trim().split("\n").map((line) => JSON.parse(line).type).join(), "stdout,exit");
good(await client.DELETE("/v1/sandboxes/{id}/processes/{pid}", one));
const terminal = good(await client.POST("/v1/sandboxes/{id}/processes", { params: { path }, body: { argv: ["cat"], terminal: { rows: 24, columns: 80 } } }));
refused(await client.GET("/v1/sandboxes/{id}/processes/{pid}/terminal", { params: { path: { ...path, pid: terminal.id } } }));

// ---- mounts ----
const mounted = good(await client.POST("/v1/sandboxes/{id}/mounts", { params: { path }, body: { name: "notes", target: "/notes", read_only: true } }));
same(mounted.mounts[0]?.target, "/notes");
good(await client.DELETE("/v1/sandboxes/{id}/mounts", { params: { path, query: { target: "/notes" } } }));

// ---- ports ----
good(await client.POST("/v1/sandboxes/{id}/processes", { params: { path }, body: { command: "cd /etc && python3 -m http.server 8080 --bind 127.0.0.1" } }));
const port = { ...path, port: 8080 };
for (;;) {
    const listed = good(await client.GET("/v1/sandboxes/{id}/ports", { params: { path } }));
    if (listed.ports.some((each) => each.listening)) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
}
same(good(await client.POST("/v1/sandboxes/{id}/ports", { params: { path }, body: { port: 8080 } })).open, true);
same(good(await client.GET("/v1/sandboxes/{id}/ports/{port}/{path}", { params: { path: { ...port, path: "hostname" } }, ...text })), "box\n");
refused(await client.GET("/v1/sandboxes/{id}/tunnels/{port}", { params: { path: port } }));
good(await client.DELETE("/v1/sandboxes/{id}/ports/{port}", { params: { path: port } }));

// ---- files ----
const file = { path: "/tmp/a" };
const at = { params: { path, query: file } };
same(good(await client.PUT("/v1/sandboxes/{id}/files", { ...at, body: "a line\n", ...octets })).size, 7);
same(new TextDecoder().decode(good(await client.GET("/v1/sandboxes/{id}/files", { ...at, ...bytes }))), "a line\n");
const form = new FormData();
form.append("file", new Blob(["in a form"]), "formed");
same(
    good(await client.POST("/v1/sandboxes/{id}/files", { params: { path, query: { path: "/tmp" } }, body: {}, bodySerializer: () => form })).files?.length,
    1,
);
same(good(await client.GET("/v1/sandboxes/{id}/files/stat", at)).type, "file");
good(await client.POST("/v1/sandboxes/{id}/files/stat", { params: { path }, body: { paths: ["/tmp/a", "/tmp/none"] } }));
good(await client.GET("/v1/sandboxes/{id}/files/list", { params: { path, query: { path: "/tmp", glob: ["*"] } } }));
good(await client.POST("/v1/sandboxes/{id}/files/mkdir", { params: { path }, body: { path: "/tmp/d/e", parents: true } }));
good(await client.POST("/v1/sandboxes/{id}/files/copy", { params: { path }, body: { from: "/tmp/a", to: "/tmp/d/b" } }));
good(await client.POST("/v1/sandboxes/{id}/files/move", { params: { path }, body: { from: "/tmp/d/b", to: "/tmp/d/c" } }));
good(await client.POST("/v1/sandboxes/{id}/files/chmod", { params: { path }, body: { path: "/tmp/d/c", mode: "0600" } }));
good(await client.POST("/v1/sandboxes/{id}/files/chown", { params: { path }, body: { path: "/tmp/d/c", owner: "0:0" } }));
good(await client.POST("/v1/sandboxes/{id}/files/symlink", { params: { path }, body: { path: "/tmp/l", target: "a" } }));
const attribute = { params: { path, query: { ...file, name: "user.origin" } } };
good(await client.PUT("/v1/sandboxes/{id}/files/xattr", { ...attribute, body: "here", ...octets }));
same(new TextDecoder().decode(good(await client.GET("/v1/sandboxes/{id}/files/xattr", { ...attribute, ...bytes }))), "here");
good(await client.DELETE("/v1/sandboxes/{id}/files/xattr", attribute));
const names = good(await client.POST("/v1/sandboxes/{id}/files/find", { params: { path }, body: { path: "/tmp", globs: ["c"], stream: false } }));
same("entries" in names && names.entries.length, 1);
const lines = good(await client.POST("/v1/sandboxes/{id}/files/grep", { params: { path }, body: { path: "/tmp", pattern: "line", stream: false } }));
same("matches" in lines && lines.matches.length, 2);
good(await client.GET("/v1/sandboxes/{id}/files/watch", { params: { path, query: { path: "/tmp", for_ms: 50 } }, ...text }));
const tar = good(await client.GET("/v1/sandboxes/{id}/tar", { params: { path, query: { path: ["/tmp/d"] } }, ...bytes }));
same(
    good(
        await client.PUT("/v1/sandboxes/{id}/tar", {
            params: { path, query: { path: "/tmp/again" } },
            body: "",
            bodySerializer: () => tar,
            headers: { "Content-Type": "application/x-tar" },
        }),
    ).count > 0,
    true,
);
good(await client.POST("/v1/sandboxes/{id}/files/remove", { params: { path }, body: { path: "/tmp/d", recursive: true } }));

// ---- access ----
same(good(await client.POST("/v1/sandboxes/{id}/tokens", { params: { path }, body: { verbs: ["look"] } })).verbs[0], "look");
good(await client.POST("/v1/sandboxes/{id}/urls", { params: { path }, body: { method: "GET", ...file } }));
good(await client.DELETE("/v1/sandboxes/{id}/tokens", { params: { path } }));
const key = good(await client.POST("/v1/keys", { body: { label: "made", scopes: ["read"] } }));
same(good(await client.GET("/v1/keys")).keys.some((each) => each.id === key.id), true);
good(await client.DELETE("/v1/keys/{id}", { params: { path: { id: key.id } } }));
good(await client.PUT("/v1/tenants/{name}/quota", { params: { path: { name: "team" } }, body: { sandboxes: 10 } }));
same(good(await client.GET("/v1/tenants/{name}/quota", { params: { path: { name: "team" } } })).quota.sandboxes, 10);

// ---- kernels ----
same(good(await client.POST("/v1/kernels/run", { body: { language: "ts", code: "const n: number = 6; n * 7" } })).value, 42);
const kernel = { id: good(await client.POST("/v1/kernels", { body: { name: "typed" } })).id };
good(await client.GET("/v1/kernels"));
same(good(await client.POST("/v1/kernels/{id}/run", { params: { path: kernel }, body: { code: "globalThis.n = 1" } })).value, 1);
const fork = { id: good(await client.POST("/v1/kernels/{id}/fork", { params: { path: kernel } })).id };
const snapshot = good(await client.POST("/v1/kernels/{id}/snapshot", { params: { path: kernel }, ...bytes }));
good(
    await client.POST("/v1/kernels/restore", {
        params: { header: { "Cove-Manifest": JSON.stringify({ name: "restored" }) } },
        body: "",
        bodySerializer: () => snapshot,
        headers: { "Content-Type": "application/octet-stream" },
    }),
);
good(await client.POST("/v1/kernels/{id}/reset", { params: { path: kernel } }));
same(good(await client.GET("/v1/kernels/{id}", { params: { path: kernel } })).state, "idle");
good(await client.DELETE("/v1/kernels/{id}", { params: { path: fork } }));
refused(await client.GET("/v1/kernels/connect"));

// ---- the end ----
const events = good(await client.GET("/v1/events", { params: { query: { from: 1, for_ms: 300 } }, ...text }));
same(String(events).includes("sandbox.created"), true);
good(await client.DELETE("/v1/sandboxes/{id}", { params: { path } }));
