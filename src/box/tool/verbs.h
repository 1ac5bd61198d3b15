/* What cove-tool can do, a function for each verb: see tool.h for what is said to whom.
 *
 * Each is run as a whole program, for one request. */
#pragma once

#include "box/tool/parts.h"

/* A terminal, of which nothing is framed: argv[0] is the verb. Returns the exit status of the program. */
int term_main(int argc, char **argv);

int verb_stat(struct tool *tool, struct error *err);
int verb_usage(struct tool *tool, struct error *err);
int verb_read(struct tool *tool, struct error *err);
int verb_write(struct tool *tool, struct error *err);
int verb_mkdir(struct tool *tool, struct error *err);
int verb_symlink(struct tool *tool, struct error *err);
int verb_move(struct tool *tool, struct error *err);
int verb_copy(struct tool *tool, struct error *err);
int verb_remove(struct tool *tool, struct error *err);
int verb_chmod(struct tool *tool, struct error *err);
int verb_chown(struct tool *tool, struct error *err);
int verb_getxattr(struct tool *tool, struct error *err);
int verb_setxattr(struct tool *tool, struct error *err);
int verb_removexattr(struct tool *tool, struct error *err);
int verb_tar_out(struct tool *tool, struct error *err);
int verb_tar_in(struct tool *tool, struct error *err);
int verb_watch(struct tool *tool, struct error *err);
