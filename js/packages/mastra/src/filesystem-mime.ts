// What kind of file it is: by its extension, else by its first bytes. read_file of an agent decides by this whether
// it shows text, hands over a picture, or says no more than the size.

const BY_EXTENSION: Record<string, string> = {};
for (const [type, extensions] of Object.entries({
    "text/plain": "txt text log ini env conf cfg properties sas diff patch lock",
    "text/markdown": "md mdx markdown",
    "text/html": "html htm xhtml",
    "text/css": "css",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "text/yaml": "yaml yml",
    "text/toml": "toml",
    "text/x-python": "py pyi",
    "text/x-ruby": "rb",
    "text/x-go": "go",
    "text/x-rust": "rs",
    "text/x-java": "java",
    "text/x-c": "c h",
    "text/x-c++": "cpp hpp cc cxx hh",
    "text/x-csharp": "cs",
    "text/x-sh": "sh bash zsh",
    "text/x-sql": "sql",
    "text/x-vue": "vue",
    "text/x-svelte": "svelte",
    "text/x-scss": "scss",
    "text/x-sass": "sass",
    "text/x-less": "less",
    "text/x-swift": "swift",
    "text/x-kotlin": "kt kts",
    "text/x-lua": "lua",
    "text/x-r": "r",
    "text/x-terraform": "tf tfvars",
    "text/x-php": "php",
    "text/x-perl": "pl pm",
    "text/x-dart": "dart",
    "text/x-tex": "tex",
    "application/json": "json map webmanifest",
    "text/x-jsonl": "jsonl ndjson",
    "application/javascript": "js mjs cjs jsx",
    "application/typescript": "ts tsx mts cts",
    "application/graphql": "graphql gql",
    "application/xml": "xml xsd xsl",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpg jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/tiff": "tif tiff",
    "image/heic": "heic",
    "image/x-icon": "ico",
    "application/pdf": "pdf",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/quicktime": "mov",
    "application/zip": "zip",
    "application/x-tar": "tar",
    "application/gzip": "gz tgz",
    "application/x-bzip2": "bz2",
    "application/x-xz": "xz",
    "application/zstd": "zst",
    "application/x-7z-compressed": "7z",
    "application/x-sharedlib": "so dylib",
    "application/x-binary": "bin dat o a",
    "application/vnd.sqlite3": "sqlite sqlite3 db",
    "application/wasm": "wasm",
    "application/java-vm": "class",
    "application/x-python-code": "pyc",
    "font/ttf": "ttf",
    "font/otf": "otf",
    "font/woff": "woff",
    "font/woff2": "woff2",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
}))
    for (const extension of extensions.split(" ")) BY_EXTENSION[extension] = type;

/** How such files begin. */
const BY_BYTES: readonly [type: string, offset: number, bytes: string][] = [
    ["image/png", 0, "\x89PNG\r\n\x1a\n"],
    ["image/jpeg", 0, "\xff\xd8\xff"],
    ["image/gif", 0, "GIF8"],
    ["image/webp", 8, "WEBP"],
    ["application/pdf", 0, "%PDF-"],
    ["application/zip", 0, "PK\x03\x04"],
    ["application/gzip", 0, "\x1f\x8b"],
    ["application/x-executable", 0, "\x7fELF"],
    ["application/vnd.sqlite3", 0, "SQLite format 3\0"],
    ["application/wasm", 0, "\0asm"],
];

/** How much of a file `typeOfBytes` looks at. */
export const SNIFFED_BYTES = 4096;

/** By the name; undefined: its bytes must say. */
export function typeOfName(name: string): string | undefined {
    const dot = name.lastIndexOf(".");
    const extension = dot > 0 ? name.slice(dot + 1).toLowerCase() : "";
    return Object.hasOwn(BY_EXTENSION, extension) ? BY_EXTENSION[extension] : undefined;
}

/** By its first bytes. Text may break off in the middle of a character. */
export function typeOfBytes(bytes: Buffer): string {
    for (const [type, offset, begin] of BY_BYTES)
        if (bytes.subarray(offset, offset + begin.length).equals(Buffer.from(begin, "latin1"))) return type;
    if (bytes.includes(0)) return "application/x-binary";
    try {
        new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
        return "text/plain";
    } catch {
        // Of another encoding, perhaps; text has no control characters but these.
        return bytes.some((byte) => byte < 32 && !(byte >= 7 && byte <= 13) && byte !== 27)
            ? "application/x-binary"
            : "text/plain";
    }
}
