// What a request of this client can say, and how its query is written.

export type QueryValue = string | number | boolean | readonly (string | number)[] | undefined | null;

/** The bytes of a body; a stream is sent as it comes and cannot be sent twice. */
export type Body = string | Uint8Array | AsyncIterable<Uint8Array | string>;

export interface RequestOptions {
    query?: { readonly [name: string]: QueryValue } | undefined;
    /** A body that is JSON. */
    json?: unknown;
    /** A body that is not. */
    body?: Body | undefined;
    headers?: { readonly [name: string]: string } | undefined;
    signal?: AbortSignal | undefined;
    /**
     * Whether it may be sent again where the connection broke before its answer was there. Without it: a GET, HEAD,
     * PUT or DELETE, and a POST with an `Idempotency-Key` may; what never reached the server always may.
     */
    repeat?: boolean | undefined;
}

export function queryText(query: RequestOptions["query"]): string {
    let text = "";
    if (query)
        for (const name in query) {
            const value = query[name];
            if (value === undefined || value === null) continue;
            for (const each of Array.isArray(value) ? (value as readonly (string | number)[]) : [value as string])
                text += `${text === "" ? "?" : "&"}${name}=${encodeURIComponent(each)}`;
        }
    return text;
}
