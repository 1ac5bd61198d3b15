// @cove/mastra: sandboxes of cove for Mastra. Everything that is for users is named here.
export { CoveSandbox } from "./sandbox.js";
export type { CoveLifecycle, CoveNetworkPolicy, CovePort, CoveResources, CoveSandboxOptions } from "./options.js";
export { CoveLocalSandbox } from "./local.js";
export { detectIsolation } from "./local-detect.js";
export type { CoveLocalSandboxOptions } from "./local-options.js";
export { CoveNetworking } from "./networking.js";
export { CoveProcessHandle } from "./handle.js";
export { CoveProcessManager } from "./processes.js";
export { CoveFilesystem } from "./filesystem.js";
export type { CoveFilesystemOptions } from "./filesystem.js";
export { createCoveWorkspace } from "./workspace.js";
export type { CoveWorkspaceOptions } from "./workspace.js";
export { CoveCodeModeTransport } from "./code-mode.js";
export type { CodeModeOptions } from "./code-mode.js";
export { coveSandboxProvider, createCoveSandboxProvider } from "./provider.js";
export type { CoveSandboxConfig, CoveSandboxProviderOptions } from "./provider.js";
export * from "./wasmagent/index.js";
