/* What the scenarios of driver_procs.c share: an engine of one sandbox, and the functions that wait for
 * what it does. */
#pragma once

#include "base/fd.h"
#include "box/handle.h"
#include "engine/procs_parts.h"

/* As CHECK of check.h, which counts in one file only. */
void driver_check(bool holds, const char *file, int line, const char *condition, const char *fmt,
                  ...) __attribute__((format(printf, 5, 6)));
#define CHECK(condition, ...) driver_check((condition), __FILE__, __LINE__, #condition, __VA_ARGS__)

#define PATIENCE_MS 60000 /* for what must come */

extern const char *directory;
extern struct box *box;
extern uv_loop_t loop;
extern struct procs *procs;
extern unsigned gone, ended;
extern int answers_oom;

struct outcome {
    bool told;
    struct proc *proc;
    struct error err;
};

void die(const char *what, const struct error *err);
void open_procs(uint64_t keep_ms);
void attach(bool anew);
void make_box(void);
void loop_begin(void);
void engine_begin(uint64_t keep_ms);
void turn_for(uint64_t ms);
bool turn_until(const volatile bool *flag);
void turn_until_printed(struct proc *proc, enum proc_stream stream, uint64_t bytes);
void on_done(void *arg, struct proc *proc, const struct error *err);
struct outcome start_spec(const struct proc_spec *spec);
struct proc *start(const char *line);
struct proc_view wait_end(struct proc *proc);
struct proc_view run(const char *line);
size_t read_all(struct proc *proc, enum proc_stream stream, uint64_t from, char **text);
bool prints(struct proc *proc, enum proc_stream stream, const char *expected);
size_t files(void);
size_t seq(char *text, unsigned from, unsigned to);

/* ---- scenarios ---- */

void exact_bytes(void);
void statuses(void);
void out_of_memory(void);
void users(void);
void other_root(void);
void hostile_accounts(void);
void daemon_keeps_pipe(void);
void daemon_floods(void);
void timeout_kills_tree(void);
void gap_beyond_limit(void);
void shared_limit(void);
void disk_full(void);
void thousand_followers(void);
void stdin_to_cat_and_back(void);
void stdin_that_nobody_reads(void);
void killed_engine(void);
void restart_keeps_timeout(void);
void closed_in_callbacks(void);
void init_that_lies(void);
void box_dies(void);
void ended_are_forgotten(void);
void many_ended(void);
void floods_starve_nobody(void);
void true_after_true(void);
void tools(void);
void tools_cancelled(void);
void tools_without_pids(void);
void tools_of_killed_engine(void);
