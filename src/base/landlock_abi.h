/* Landlock, from the kernel's interface: headers of this age lack half of it. */
#pragma once

#include <stdint.h>

#define LANDLOCK_CREATE_VERSION 1U
#define LANDLOCK_PATH_BENEATH 1

#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_REMOVE_DIR (1ULL << 4)
#define FS_REMOVE_FILE (1ULL << 5)
#define FS_MAKE_CHAR (1ULL << 6)
#define FS_MAKE_DIR (1ULL << 7)
#define FS_MAKE_REG (1ULL << 8)
#define FS_MAKE_SOCK (1ULL << 9)
#define FS_MAKE_FIFO (1ULL << 10)
#define FS_MAKE_BLOCK (1ULL << 11)
#define FS_MAKE_SYM (1ULL << 12)
#define FS_FIRST ((1ULL << 13) - 1) /* all of ABI 1 */
#define FS_REFER (1ULL << 13)       /* ABI 2 */
#define FS_TRUNCATE (1ULL << 14)    /* ABI 3 */
#define NET_BIND_TCP 1ULL           /* ABI 4 */
#define FS_IOCTL_DEV (1ULL << 15)   /* ABI 5 */
#define SCOPE_ABSTRACT_UNIX_SOCKET 1ULL
#define SCOPE_SIGNAL 2ULL /* both ABI 6 */

struct ruleset {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

struct rule {
    uint64_t access;
    int32_t parent;
} __attribute__((packed));
