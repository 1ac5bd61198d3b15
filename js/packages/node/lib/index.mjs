import cove from "./index.js";

export const { createKernel, restoreKernel, run, Kernel, KernelError } = cove;
