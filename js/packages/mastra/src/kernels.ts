// @cove/node, loaded when the first kernel is needed: it is for Linux, and this package is imported everywhere.
import type * as Node from "@cove/node";

/** Rejects with one sentence where there are no kernels. */
export async function loadKernels(): Promise<typeof Node> {
    try {
        return await import("@cove/node");
    } catch (cause) {
        const { code, message } = cause as { code?: unknown; message?: unknown };
        const isMissing = code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND";
        throw new Error(isMissing
            ? "kernels run by @cove/node, which is not installed here: it is for Linux with glibc; elsewhere use a cove server by its url"
            : String(message), { cause });
    }
}
