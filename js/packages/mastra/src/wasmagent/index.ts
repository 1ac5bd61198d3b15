// @cove/mastra/wasmagent: the names that programs written for wasmagent import, on kernels and boxes of cove.
export { createMastraSandbox } from "./mastra-sandbox.js";
export type { MastraSandboxExecuteOptions, MastraSandboxExecuteResult, MastraSandboxOptions, MastraSandboxProvider } from "./mastra-sandbox.js";
export { QuickJSKernel } from "./quickjs.js";
export type { QuickJSKernelOptions } from "./quickjs.js";
export { RemoteSandboxKernel } from "./remote.js";
export type { CommandResult, RemoteSandboxOptions } from "./remote.js";
export { KernelRunError } from "./errors.js";
export type { CapabilityManifest, KernelExecutionError, KernelOptions, KernelResult, RunHints, WasmKernel } from "./types.js";
