/* The system call filter of a box.
 *
 * What it lets through is written in policy.txt; gen.py compiles and proves it at build time, so
 * that nothing is built while a box is made. No allocation and no libc state: this runs in the
 * set-up child and in init. The key is all that opens clone3() and any watch to init, and openat2() in every box;
 * it must be random, of one box, and wiped by all but init, whose memory the box cannot read. */
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#define FILTER_MAX 320
#define FILTER_KEY_WORDS 4

/* For a box with a writable bind: no call may leave a set-id file. The box must then also lack
 * CAP_SETFCAP, because a filter does not see that an extended attribute is a file capability. */
#define FILTER_NO_SETID 1U

/* For a box that a watchdog limits and no cgroup: what it could not see or hold is not there. */
#define FILTER_WATCHED 2U

/* Copies the program that `flags` ask for, with the key in it; how many instructions it has. */
size_t filter_program(struct sock_filter out[FILTER_MAX], unsigned flags,
                      const uint32_t key[FILTER_KEY_WORDS]);

/* The kernel's ENOTSUPP, for which libc has no word: the memory that the host has for compiled BPF
 * (net.core.bpf_jit_limit) is used up. */
#define FILTER_NO_ROOM 524

/* Puts the program on this thread for good: 0 or -errno. The caller has no_new_privs, or
 * CAP_SYS_ADMIN in its user namespace. `listener` (or NULL) becomes the fd that hears of the calls that init makes in
 * the caller's place; -1 where another filter around us has such an fd already: the kernel takes one. */
int filter_load(const struct sock_filter *program, size_t count, int *listener);

/* clone3(2) as init calls it, with the key where the filter looks for it: as the system call. */
long filter_clone3(void *args, size_t size, const uint32_t key[FILTER_KEY_WORDS]);

/* inotify_add_watch(2) likewise. */
int filter_add_watch(int inotify, const char *path, uint32_t mask,
                     const uint32_t key[FILTER_KEY_WORDS]);

/* fd_openat2() likewise. Whoever has the key takes care of set-id bits himself. */
struct open_how;
int filter_openat2(int directory, const char *path, const struct open_how *how,
                   const uint32_t key[FILTER_KEY_WORDS]);
