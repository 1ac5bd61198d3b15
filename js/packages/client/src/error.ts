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
}

/**
 * `code` is that of the server's problem (`sandbox_stopped`, `file_not_found`, ...), or of this client: `unreachable`
 * (nobody answers, or no more), `no_cove` (there is no cove program to start an engine with, or it cannot),
 * `unsupported_platform`, `aborted`, `lost` (the answer did not come, and nobody knows whether it was done),
 * `bad_option`, `bad_answer`, `not_private`.
 */
export class CoveError extends Error {
    override readonly name = "CoveError";
    readonly code: string;
    /** Of HTTP; 0 when no answer came. */
    readonly status: number;
    readonly detail: string;
    readonly remedy: string | undefined;

    constructor(code: string, detail: string, options: CoveErrorOptions = {}) {
        super(options.remedy ? `${detail}; ${options.remedy}` : detail, { cause: options.cause });
        this.code = code;
        this.status = options.status ?? 0;
        this.detail = detail;
        this.remedy = options.remedy;
    }
}
