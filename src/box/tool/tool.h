/* What is said between the engine and the tools: `cove-tool` (static, musl) and `cove-grep` (static, with
 * PCRE2), which run inside a box, as commands of it, for one verb each.
 *
 * A tool is no wall and has no rights: it is what the user of the box could run himself, so no path, link
 * or race in there leads out, and what it eats is charged to the box. All that it says is hostile to
 * whoever hears it. It is started from a sealed memfd (LINK program), so nothing of it lies in the box.
 *
 * argv says what to do: VERB OPTIONS -- OPERANDS, numbers in decimal, modes in octal. Its standard output
 * is frames: a head and a payload of `size` bytes; its standard input, for verbs that read it, too: so
 * that an input which ends early is never taken for whole. Every verb ends with TOOL_DONE, and then exit
 * status 0; or with TOOL_ERROR and exit status 1. Nothing is ever written to stderr that matters.
 *
 * Numbers are the machine's own: both ends are on one. This may change as it likes: both are of one
 * build, and a tool lives no longer than a request. */
#pragma once

#include <stdint.h>

#define TOOL_FRAME_MAX 65536     /* payload of any frame but TOOL_DATA */
#define TOOL_DATA_MAX (1U << 20) /* payload of TOOL_DATA */
#define TOOL_PATH_MAX 4096       /* with its NUL */
#define TOOL_NAME_MAX 256

enum tool_type {
    TOOL_ENTRY =
        1, /* struct tool_entry, the path, the link's target, user, group: each with its NUL */
    TOOL_ERROR, /* struct tool_error, path with its NUL: of one operand, or (operand -1) the end of all */
    TOOL_DONE,  /* struct tool_done; the end */
    TOOL_BEGIN, /* struct tool_begin; after it `size` bytes stand bare, then TOOL_DONE */
    TOOL_MATCH, /* struct tool_match, path with its NUL, the line */
    TOOL_CHANGE, /* struct tool_change, path with its NUL, and where it moved to (or ""), with its NUL */
    TOOL_ATTRIBUTE, /* name with its NUL, value */
    TOOL_WROTE,     /* struct tool_entry ...: a file of `write` stands where it should */
    TOOL_GONE, /* struct tool_gone, the path with its NUL: an operand of `remove` is there no more */
    /* input */
    TOOL_FILE = 64, /* struct tool_file, path with its NUL: the file that is written next */
    TOOL_DATA,      /* bytes of it, or of the archive, or keys for the terminal */
    TOOL_COMMIT,    /* the file is whole: now it takes its name */
    TOOL_FINISH,    /* no more input */
    TOOL_RESIZE,    /* struct tool_resize: of `term` */
};

struct tool_head {
    uint32_t type;
    uint32_t size; /* of the payload */
};

struct tool_entry {
    uint32_t operand; /* which one of argv, from 0 */
    uint32_t mode;    /* as of stat(2), with the type */
    uint32_t uid, gid;
    uint64_t size, inode, device, links, blocks;
    int64_t modified_ns, changed_ns, accessed_ns;
    uint32_t depth; /* of `list` and `find`: 0 is the operand itself */
    uint32_t pad;
};

struct tool_error {
    int32_t operand; /* -1: the end of all */
    int32_t errnum;  /* 0: see `code` */
    char code
        [32]; /* "" or a word: not_regular, is_directory, limit, bad_archive, bad_pattern, timeout ... */
    char text
        [200]; /* for people. With a code a sentence: why, and what to do about it; without one what
                     * was done ("open it"), and the errno says why */
};

struct tool_gone {
    uint32_t operand, pad;
    uint64_t count, bytes; /* all that went; of files that had no other name */
};

struct tool_done {
    uint64_t count, bytes;
    uint32_t is_truncated; /* by a limit that was asked for */
    uint32_t pad;
};

struct tool_begin {
    uint64_t size;   /* bytes that follow; UINT64_MAX: frames of TOOL_DATA follow instead (tar) */
    uint64_t offset; /* where they begin */
    struct tool_entry entry;
};

struct tool_file {
    uint32_t mode;     /* permission bits; UINT32_MAX: as it was, else 0666 less the umask */
    uint32_t uid, gid; /* UINT32_MAX: as it was, else the tool's own */
    uint32_t flags;    /* enum tool_file_flags */
    uint64_t offset;   /* with TOOL_AT */
    uint64_t size;     /* UINT64_MAX: unknown */
};

enum tool_file_flags {
    TOOL_PARENTS = 1, /* missing directories are made */
    TOOL_AT = 2, /* in place from `offset` on, not atomically; the file is made if it is missing */
    TOOL_APPEND = 4,
    TOOL_NEW = 8,        /* EEXIST if it is there */
    TOOL_DIRECTORY = 16, /* make this directory; no data */
};

struct tool_match {
    uint64_t line;               /* from 1; 0 where the file is not text */
    uint64_t offset;             /* of the line, in bytes */
    uint32_t column, length;     /* of the first match in it, in bytes; from 0 */
    uint32_t column16, length16; /* the same in UTF-16 units */
    uint32_t is_cut;             /* the line is longer than what is sent */
    uint32_t is_context;         /* no match, but near one; `column` and `length` say nothing */
};

struct tool_change {
    uint64_t sequence;
    uint32_t kind; /* enum tool_change_kind */
    uint32_t is_directory;
};

enum tool_change_kind {
    TOOL_CREATED = 1,
    TOOL_MODIFIED,
    TOOL_REMOVED,
    TOOL_MOVED, /* with both paths */
    TOOL_ATTRIBUTES,
    TOOL_OVERFLOW,  /* some were lost: look again */
    TOOL_WATCHING,  /* said once, when all is watched: what happens from now on is told */
    TOOL_UNWATCHED, /* what was watched is gone, or too many directories (the text says which) */
};

struct tool_resize {
    uint16_t rows, columns;
};

/* The verbs. cove-tool:
 *   stat [--follow] -- PATH...                        ENTRY or ERROR for each
 *   list [--depth N] [--limit N] [--after PATH] [--glob G]... [--hidden 0|1] -- PATH    ENTRY...
 *   read [--offset N] [--length N] -- PATH            BEGIN, bytes
 *   write                                             reads FILE DATA... COMMIT ... FINISH; WROTE or ERROR for each
 *   mkdir [--parents] [--mode M] -- PATH...           ENTRY for each
 *   move [--replace] [--parents] -- FROM TO           ENTRY
 *   copy [--recursive] [--replace] [--parents] -- FROM TO    ENTRY
 *   remove [--recursive] [--missing-ok] -- PATH...    GONE for each; DONE counts
 *   chmod [--recursive] [--no-follow] --mode M -- PATH...    ENTRY
 *   chown [--recursive] [--no-follow] --owner USER[:GROUP] -- PATH...   ENTRY; names as of the box's own files
 *   symlink [--parents] -- TARGET PATH                ENTRY
 *   getxattr [--name N] -- PATH                       ATTRIBUTE...
 *   setxattr --name N --value HEX -- PATH ; removexattr --name N -- PATH    ENTRY
 *   tar-out [--follow] -- PATH...                     BEGIN, DATA...
 *   tar-in [--strip N] [--owner USER[:GROUP]] [--parents] [--limit-bytes N] [--limit-entries N] -- DIRECTORY
 *                                                     reads DATA... FINISH; DONE counts
 *   watch [--recursive] -- PATH                       CHANGE...; until its input ends
 *   find [--depth N] [--limit N] [--glob G]... [--type fdlpscb] [--hidden 0|1] [--time-limit-ms N] -- PATH...   ENTRY...
 *   usage -- PATH                                     DONE counts files, and bytes on the disk
 *   term ROWS COLUMNS -- ARGV...                      a terminal: see term.c; input DATA, RESIZE, FINISH; output bare
 * cove-grep:
 *   grep --pattern P [--fixed] [--ignore-case] [--word] [--before N] [--after N] [--limit N] [--per-file N] [--glob G]...
 *        [--hidden 0|1] [--depth N] [--max-file-bytes N] [--multiline] [--time-limit-ms N] -- PATH...    MATCH...
 *   find with --pattern P (a regular expression on what is below the operand)
 *
 * --beneath DIR, with any verb but `term`: all operands, and paths of the input, lie below DIR, to which
 * relative ones are relative and with which absolute ones begin; one that leads out by ".." or a link is
 * refused ("outside", EXDEV), and so is all while a part of DIR itself is a link. Without it a relative
 * path is relative to the working directory.
 *
 * What holds for all:
 * - A link that is the operand: stat, remove, move, copy, symlink and tar-out take it as the link it is; the
 *   others follow it. A link that is met below an operand is never followed.
 * - list, find, tar-out and grep go by the bytes of the names in each directory, a directory before what is in
 *   it. `--after` is the path of the last entry of a page: what stays meanwhile is told exactly once, in pages
 *   too. `list` does not tell the operand itself, unless it is no directory or --depth is 0.
 * - A glob (base/glob.h) without '/' is for the last part of a path, else for all that is below the operand;
 *   one that begins with '!' leaves out, with all that is in it.
 * - What fails below an operand is an ERROR with its own path, and the rest goes on; but copy, move and tar
 *   are of all or nothing (tar-in leaves what it unpacked until then).
 * - write, copy and move onto another file system make a temporary file or tree beside the target, which takes
 *   its name when it is whole. Sockets and devices are not copied, and said so.
 * Codes: bad_option, bad_input, input_ended, bad_pattern, bad_archive, not_regular, is_directory, outside,
 * unknown_user, limit, timeout, moved (under the hands of the tool, by somebody else). */
