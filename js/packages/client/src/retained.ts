// What a stream printed, as it comes: the newest bytes of it, up to a limit.

const NOTHING = Buffer.alloc(0);

export class Retained {
    #parts: Buffer[] = [];
    /** Those before it are gone. */
    #first = 0;
    #bytes = 0;
    #from = 0;

    constructor(private readonly most: number) {}

    add(data: Buffer, to: number): void {
        if (data.length >= this.most) {
            this.#parts = this.most === 0 ? [] : [data.subarray(data.length - this.most)];
            this.#first = 0;
            this.#bytes = this.most;
            this.#from = to - this.most;
            return;
        }
        this.#parts.push(data);
        this.#bytes += data.length;
        // Whole parts go first; what is too much of the rest goes at the end.
        while (this.#bytes - (this.#parts[this.#first] as Buffer).length >= this.most) {
            this.#bytes -= (this.#parts[this.#first] as Buffer).length;
            this.#parts[this.#first++] = NOTHING;
        }
        // Of many small ones each would move all the others.
        if (this.#first > 1024 && this.#first * 2 > this.#parts.length) {
            this.#parts.splice(0, this.#first);
            this.#first = 0;
        }
        this.#from = to - this.#bytes;
    }

    /** What was before it is gone: only what follows is the newest. */
    gap(to: number): void {
        this.#parts = [];
        this.#first = 0;
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
