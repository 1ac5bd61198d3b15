// @cove/client: the native API of cove. Everything that is for users is named here.
export { Cove } from "./cove.js";
export { CoveError } from "./error.js";
export type { CoveErrorOptions, Problem } from "./error.js";
export type { RegisteredMount } from "./mounts.js";
export type { CoveOptions } from "./options.js";
export type { Body, QueryValue, RequestOptions } from "./request.js";
export { findProgram } from "./program.js";
export { Sandbox } from "./sandbox.js";
export type { ExecOptions } from "./exec.js";
export { Processes } from "./processes.js";
export type { Followed, FollowOptions, Output, OutputOptions, StreamName } from "./processes.js";
export { Files } from "./files.js";
export type { FileOptions, Found, ReadOptions, Removed, WriteOptions } from "./files.js";
export { Ports } from "./ports.js";
export { Kernel, Kernels } from "./kernels.js";
export type { KernelSession, Tool, Tools } from "./session.js";
export type * from "./types.js";
export type { components, operations, paths } from "./api.js";
