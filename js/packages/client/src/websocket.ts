// A WebSocket client (RFC 6455), as small as the server's text messages allow. Node's own knows no unix sockets.
// Frames that we send are masked, as they must be; what we get is bounded, and must be what a server may send.
import { createHash, randomBytes, randomFillSync } from "node:crypto";
import type { Socket } from "node:net";
import { CoveError } from "./error.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const MESSAGE_MOST = 64 * 1024 * 1024;
const TEXT = 1;
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

export const CLOSED_WELL = 1000;
const CLOSED_BADLY = 1006;

/** The headers that ask for one, and what the server must answer to them. */
export function upgradeHeaders(): { headers: string[]; accept: string } {
    const key = randomBytes(16).toString("base64");
    return {
        headers: ["Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", key],
        accept: createHash("sha1")
            .update(key + GUID)
            .digest("base64"),
    };
}

export interface SocketCalls {
    message(text: string): void;
    /** Once, and nothing follows. `code` 1006: the connection broke. */
    closed(code: number, reason: string): void;
}

export class WebSocketClient {
    readonly #socket: Socket;
    readonly #calls: SocketCalls;
    #input: Buffer[] = [];
    #inputBytes = 0;
    #parts: Buffer[] = [];
    #partsBytes = 0;
    #type = 0;
    #isOver = false;

    constructor(socket: Socket, head: Buffer, calls: SocketCalls) {
        this.#socket = socket;
        this.#calls = calls;
        socket.setNoDelay(true);
        socket.setTimeout(0);
        socket.on("data", (data: Buffer) => this.#take(data));
        socket.on("error", () => this.#over(CLOSED_BADLY, "the connection broke"));
        socket.on("close", () => this.#over(CLOSED_BADLY, "the connection broke"));
        if (head.length > 0) queueMicrotask(() => this.#take(head));
    }

    send(text: string): void {
        if (!this.#isOver) this.#frame(TEXT, Buffer.from(text));
    }

    /** Whether this connection keeps the program running. */
    hold(holds: boolean): void {
        if (holds) this.#socket.ref();
        else this.#socket.unref();
    }

    close(code = CLOSED_WELL): void {
        if (this.#isOver) return;
        this.#frame(CLOSE, Buffer.from([code >> 8, code & 255]));
        this.#socket.end();
        this.#over(code, "");
    }

    #over(code: number, reason: string): void {
        if (this.#isOver) return;
        this.#isOver = true;
        this.#calls.closed(code, reason);
        // It has the time that it needs to send what was said, and no more.
        setTimeout(() => this.#socket.destroy(), 1000).unref();
    }

    #fail(why: string): void {
        if (this.#isOver) return;
        this.#frame(CLOSE, Buffer.from([1002 >> 8, 1002 & 255]));
        this.#socket.end();
        this.#over(1002, why);
    }

    #frame(type: number, data: Buffer): void {
        const extra = data.length < 126 ? 0 : data.length < 65_536 ? 2 : 8;
        const frame = Buffer.allocUnsafe(6 + extra + data.length);
        frame[0] = 0x80 | type;
        frame[1] = 0x80 | (extra === 0 ? data.length : extra === 2 ? 126 : 127);
        if (extra === 2) frame.writeUInt16BE(data.length, 2);
        else if (extra === 8) frame.writeBigUInt64BE(BigInt(data.length), 2);
        const mask = frame.subarray(2 + extra, 6 + extra);
        randomFillSync(mask);
        const to = 6 + extra;
        for (let i = 0; i < data.length; i++) frame[to + i] = (data[i] as number) ^ (mask[i & 3] as number);
        this.#socket.write(frame);
    }

    #take(data: Buffer): void {
        if (this.#isOver) return;
        this.#input.push(data);
        this.#inputBytes += data.length;
        while (!this.#isOver && this.#next());
    }

    /** One frame, if all of it is there. Until then its parts stay apart, so that a large one is not copied over and over. */
    #next(): boolean {
        if (this.#inputBytes < 2) return false;
        if ((this.#input[0] as Buffer).length < 10 && this.#input.length > 1) this.#join();
        let first = this.#input[0] as Buffer;
        const short = (first[1] as number) & 0x7f;
        const head = short < 126 ? 2 : short === 126 ? 4 : 10;
        if (this.#inputBytes < head) return false;
        const size = short < 126 ? short : short === 126 ? first.readUInt16BE(2) : Number(first.readBigUInt64BE(2));
        if (((first[1] as number) & 0x80) !== 0 || ((first[0] as number) & 0x70) !== 0) {
            this.#fail("a frame of the server is none");
            return false;
        }
        if (size + this.#partsBytes > MESSAGE_MOST) {
            this.#fail("a message of the server is too large");
            return false;
        }
        if (this.#inputBytes < head + size) return false;
        if (this.#input.length > 1) this.#join();
        first = this.#input[0] as Buffer;
        const rest = first.subarray(head + size);
        this.#input = rest.length > 0 ? [rest] : [];
        this.#inputBytes = rest.length;
        this.#heard(first[0] as number, first.subarray(head, head + size));
        return true;
    }

    #join(): void {
        this.#input = [Buffer.concat(this.#input)];
    }

    #heard(byte: number, data: Buffer): void {
        const type = byte & 0x0f;
        const isLast = (byte & 0x80) !== 0;
        if (type >= CLOSE && (!isLast || data.length > 125)) this.#fail("a control frame of the server is none");
        else if (type === PING) this.#frame(PONG, data);
        else if (type === CLOSE) {
            const code = data.length >= 2 ? data.readUInt16BE(0) : 1005;
            this.#frame(CLOSE, data.subarray(0, 2));
            this.#socket.end();
            this.#over(code, data.subarray(2).toString("utf8"));
        } else if (type === TEXT || type === BINARY || type === 0) {
            if ((type === 0) === (this.#type === 0)) return this.#fail("a message of the server is in parts that are none");
            if (type !== 0) this.#type = type;
            this.#parts.push(data);
            this.#partsBytes += data.length;
            if (!isLast) return;
            const text = this.#parts.length === 1 ? data : Buffer.concat(this.#parts);
            const isText = this.#type === TEXT;
            this.#parts = [];
            this.#partsBytes = this.#type = 0;
            if (isText) this.#calls.message(text.toString("utf8"));
            else this.#fail("a message of the server is no text");
        } else if (type !== PONG) this.#fail("a frame of the server is of an unknown kind");
    }
}

/** What a connection that ended in the middle of something says. */
export function closedError(code: number, reason: string): CoveError {
    return new CoveError("lost", `the connection ended (${code})${reason ? `: ${reason}` : ""}, and what ran over it was stopped`, {
        remedy: "run it again, if that does no harm",
    });
}
