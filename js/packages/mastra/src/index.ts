// @cove/mastra: sandboxes, files, Code Mode and kernels of cove for Mastra.
export { CoveCodeModeTransport } from "./code-mode.js";
export type { CodeModeOptions } from "./code-mode.js";
export * from "./wasmagent/index.js";
