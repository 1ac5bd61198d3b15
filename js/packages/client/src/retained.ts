// What a stream printed, as it comes: the newest bytes of it, up to a limit.

export class Retained {
    #parts: Buffer[] = [];
    #bytes = 0;
    #from = 0;

    constructor(private readonly most: number) {}

    add(data: Buffer, to: number): void {
        if (data.length >= this.most) {
            this.#parts = this.most === 0 ? [] : [data.subarray(data.length - this.most)];
            this.#bytes = this.most;
            this.#from = to - this.most;
            return;
        }
        this.#parts.push(data);
        this.#bytes += data.length;
        // Whole parts go first; what is too much of the rest goes at the end.
        let gone = 0;
        while (this.#bytes - (this.#parts[gone] as Buffer).length >= this.most) this.#bytes -= (this.#parts[gone++] as Buffer).length;
        if (gone > 0) this.#parts.splice(0, gone);
        this.#from = to - this.#bytes;
    }

    /** What was before it is gone: only what follows is the newest. */
    gap(to: number): void {
        this.#parts = [];
        this.#bytes = 0;
        this.#from = to;
    }

    /** The bytes, and the offset of the first of them. */
    take(): { data: Buffer; from: number } {
        const all = Buffer.concat(this.#parts);
        const over = Math.max(0, all.length - this.most);
        return { data: all.subarray(over), from: this.#from + over };
    }
}
