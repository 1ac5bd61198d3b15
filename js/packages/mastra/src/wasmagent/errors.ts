// How a kernel fails. Messages begin with what programs written for wasmagent look for: `KernelError:`, or
// `KernelSerializationError:` for a value that cannot be given.
import type { KernelExecutionError } from "./types.js";

/** What kernels reject with. */
export class KernelRunError extends Error {
    /** What the code threw, where it was the code. */
    readonly error: KernelExecutionError | undefined;
    /** What the code had printed until then. */
    readonly logs: readonly string[];
    /** Whether a limit of time ended the run. */
    readonly timedOut: boolean;

    constructor(message: string, about: { error?: KernelExecutionError; logs?: readonly string[]; timedOut?: boolean; cause?: unknown } = {}) {
        const text = message.startsWith("KernelSerializationError:") ? message : `KernelError: ${message}`;
        super(text, about.cause === undefined ? undefined : { cause: about.cause });
        this.error = about.error;
        this.logs = about.logs ?? [];
        this.timedOut = about.timedOut ?? false;
    }
}
