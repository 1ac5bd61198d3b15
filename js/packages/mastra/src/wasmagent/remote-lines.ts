// Lines of what an interpreter printed, of bytes that come in pieces. A line has a longest length: what is longer is told to be so
// and not kept, for whoever prints has no say in how much memory its host has.

/** Of a line, and so of an answer; and of all that a run has logged. */
export const TEXT_MAX = 16 * 1024 * 1024;

const NEWLINE = 10;

export class Lines {
    #pieces: Buffer[] = [];
    #bytes = 0;
    #isSkipped = false;

    /** The lines that end in these bytes; undefined for each that is too long. */
    *take(bytes: Buffer): Generator<string | undefined> {
        let from = 0;
        for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, from)) {
            this.#add(bytes.subarray(from, end));
            const isSkipped = this.#isSkipped, isTooLong = this.#bytes > TEXT_MAX;
            const line = isSkipped || isTooLong ? undefined : Buffer.concat(this.#pieces).toString("utf8");
            this.#begin();
            from = end + 1;
            if (!isSkipped) yield line;
        }
        this.#add(bytes.subarray(from));
    }

    /** What follows did not come behind what was taken: both are parts of lines that nobody has as a whole. */
    gap(): void {
        this.#begin();
        this.#isSkipped = true;
    }

    #begin(): void {
        this.#pieces = [];
        this.#bytes = 0;
        this.#isSkipped = false;
    }

    #add(piece: Buffer): void {
        this.#bytes += piece.length;
        if (this.#isSkipped || this.#bytes > TEXT_MAX) this.#pieces = [];
        else if (piece.length > 0) this.#pieces.push(piece);
    }
}
