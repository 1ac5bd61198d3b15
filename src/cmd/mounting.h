/* `cove mount attach` and `detach`: directories that come to a sandbox that is there, and leave it. */
#pragma once

#include "cmd/cmd.h"
#include "cmd/doc.h"
#include "cmd/options.h"

/* docker's "type=bind,source=SRC,target=DST[,readonly]" as SRC:DST[:ro], of our own memory; else a copy of `value`. */
int mounting_spell(const char *value, char **out, struct error *err);

/* NAME:/TARGET[:ro] as a mount of the API; `option` is what it was said with. */
int mounting_parse(const char *option, const char *value, struct doc **out, struct error *err);

int mount_attach(const struct cmd *cmd, int argc, char **argv);
int mount_detach(const struct cmd *cmd, int argc, char **argv);
extern const struct option_table mount_attach_table, mount_detach_table;
