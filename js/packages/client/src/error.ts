// The one error of this client. `code` is what programs match on; the texts are for people and never hold a key.

/** What the server says of a request that came to nothing (RFC 9457). */
export interface Problem {
    readonly code: string;
    readonly status: number;
    readonly title?: string;
    readonly detail?: string;
    readonly remedy?: string;
}

export interface CoveErrorOptions {
    status?: number;
    remedy?: string;
    cause?: unknown;
    begun?: boolean;
}

/**
 * `code` is that of the server's problem (`sandbox_stopped`, `file_not_found`, ...), or of this client: `unreachable`
 * (nobody answers, or no more), `no_cove` (there is no cove program to start an engine with, or it cannot),
 * `unsupported_platform`, `aborted`, `lost` (the answer did not come, and nobody knows whether it was done),
 * `bad_option`, `bad_answer`, `no_key` (a container's server is there, and its key is not), `not_private`.
 */
export class CoveError extends Error {
    override readonly name = "CoveError";
    readonly code: string;
    /** Of HTTP; 0 when no answer came. */
    readonly status: number;
    readonly detail: string;
    readonly remedy: string | undefined;
    /**
     * It came after what was asked for had been begun, or may have been: a command that fails so must not simply be run
     * again, whatever the code is.
     */
    readonly begun: boolean;

    constructor(code: string, detail: string, options: CoveErrorOptions = {}) {
        super(options.remedy ? `${detail}; ${options.remedy}` : detail, { cause: options.cause });
        this.code = code;
        this.status = options.status ?? 0;
        this.detail = detail;
        this.remedy = options.remedy;
        this.begun = options.begun ?? false;
    }
}

/** The same error, of something that had been begun. A copy, for several calls may have failed with one error. */
export function asBegun(error: unknown): unknown {
    if (!(error instanceof CoveError) || error.begun) return error;
    const { code, detail, status, remedy, cause, stack } = error;
    const copy = new CoveError(code, detail, { status, cause, begun: true, ...(remedy === undefined ? undefined : { remedy }) });
    if (stack !== undefined) copy.stack = stack;
    return copy;
}
