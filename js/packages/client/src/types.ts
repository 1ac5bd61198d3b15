// What is asked and answered, by its name here. All of it comes from the server's openapi.yaml (api.d.ts).
import type { components, operations } from "./api.js";

type Schemas = components["schemas"];

export type SandboxSpec = Schemas["SandboxSpec"];
export type SandboxChange = Schemas["SandboxChange"];
export type MountSpec = Schemas["MountSpec"];
export type SandboxView = Schemas["Sandbox"];
export type Usage = Schemas["Usage"];
export type Version = Schemas["Version"];
export type Roots = Schemas["Roots"];
export type NetworkTraffic = Schemas["NetworkTraffic"];
export type Port = Schemas["Port"];
export type Process = Schemas["Process"];
export type ExecResult = Schemas["ExecResult"];
export type FollowLine = Schemas["FollowLine"];
export type Entry = Schemas["Entry"];
export type FileFailure = Schemas["FileFailure"];
export type FileOutcome = Schemas["FileOutcome"];
export type FileGone = Schemas["FileGone"];
export type FileErrorsBelow = Schemas["FileErrorsBelow"];
export type FileCounts = Schemas["FileCounts"];
export type Match = Schemas["Match"];
export type SearchEnd = Schemas["SearchEnd"];
export type ChangeLine = Schemas["ChangeLine"];
export type Token = Schemas["Token"];
export type TokenSpec = Schemas["TokenSpec"];
export type Url = Schemas["Url"];
export type UrlSpec = Schemas["UrlSpec"];
export type KernelSpec = Schemas["KernelSpec"];
export type KernelView = Schemas["Kernel"];
export type KernelRunSpec = Schemas["KernelRunSpec"];
export type KernelRunInSpec = Schemas["KernelRunInSpec"];
export type KernelResult = Schemas["KernelResult"];
export type Event = Schemas["Event"];
export type EventLine = Exclude<Schemas["EventLine"], Schemas["Keepalive"]>;

/** A program and its arguments, or a line for the sandbox's shell. */
type WhatToRun = { argv: readonly string[]; command?: undefined } | { command: string; argv?: undefined };

type Command = WhatToRun & Omit<Schemas["CommandSpec"], "argv" | "command" | "stdin" | "stdin_base64">;

/** Standard input is given beside it, as text or bytes. */
export type ExecSpec = Command & Pick<Schemas["ExecSpec"], "timeout_ms" | "output_limit" | "detach_on_disconnect">;
export type ProcessSpec = Command &
    Pick<Schemas["ProcessSpec"], "timeout_ms" | "open_stdin" | "terminal"> & { stdin?: string | Uint8Array };

export type SandboxQuery = Omit<NonNullable<operations["listSandboxes"]["parameters"]["query"]>, "cursor">;

type RequestOf<O extends keyof operations> = operations[O] extends {
    requestBody: { content: { "application/json": infer B } };
}
    ? B
    : never;

/** What can be asked of files/find and files/grep, beside where. */
export type FindSpec = Partial<
    Pick<RequestOf<"findFiles">, "globs" | "user" | "hidden" | "limit" | "time_limit_ms" | "depth" | "type" | "pattern">
>;
export type GrepSpec = { pattern: string } & Partial<
    Pick<
        RequestOf<"searchFiles">,
        | "globs" | "user" | "hidden" | "limit" | "time_limit_ms" | "fixed" | "ignore_case" | "word" | "multiline"
        | "utf16" | "before" | "after" | "per_file" | "max_file_bytes"
    >
>;

/** A call that can be given up: the promise then rejects with the code `aborted`. */
export interface CallOptions {
    signal?: AbortSignal | undefined;
}
