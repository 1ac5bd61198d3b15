// What the server says of a file, as the error classes of @mastra/core: by its code, never by its text.
import { CoveError, type FileErrorsBelow } from "@cove/client";
import {
    DirectoryNotEmptyError, DirectoryNotFoundError, FileExistsError, FileNotFoundError, FilesystemError, IsDirectoryError,
    NotDirectoryError, PermissionError,
} from "@mastra/core/workspace";

/** Codes that core has no class for, with the errno that programs know them by. */
const ERRNO: Record<string, string> = {
    file_busy: "EBUSY",
    not_regular: "EINVAL",
    name_too_long: "ENAMETOOLONG",
    disk_full: "ENOSPC",
    too_many_files: "EFBIG",
    file_failed: "EIO",
    timeout: "ETIMEDOUT",
};

/** The code of the server's problem, if it is one. */
export function codeOf(error: unknown): string | undefined {
    return error instanceof CoveError ? error.code : undefined;
}

/** `operation` is a method's name; `isDirectory`: what is missing is a directory. What is not of files stays as it is. */
export function fileError(error: unknown, path: string, operation: string, isDirectory = false): unknown {
    if (!(error instanceof CoveError)) return error;
    const made = make(error.code, error.detail, path, operation, isDirectory);
    if (made === undefined) return error;
    made.cause = error;
    return made;
}

function make(
    code: string,
    detail: string,
    path: string,
    operation: string,
    isDirectory: boolean,
): FilesystemError | undefined {
    switch (code) {
        case "file_not_found":
            return isDirectory ? new DirectoryNotFoundError(path) : new FileNotFoundError(path);
        case "file_forbidden":
            return new PermissionError(path, operation);
        case "file_exists":
            return new FileExistsError(path);
        case "is_a_directory":
            return new IsDirectoryError(path);
        case "not_a_directory":
            return new NotDirectoryError(path);
        case "directory_not_empty":
            return new DirectoryNotEmptyError(path);
        default:
            return ERRNO[code] === undefined ? undefined : new FilesystemError(detail, ERRNO[code], path);
    }
}

/** What failed below a directory is told in an answer that is none of failure. */
export function notInPart({ errors }: FileErrorsBelow, operation: string): void {
    const first = errors?.[0];
    if (first === undefined) return;
    const { code, detail } = first.error as { code?: string; detail?: string };
    throw fileError(new CoveError(code ?? "file_failed", detail ?? `${first.path}: it failed`), first.path, operation);
}
