/* The programs that run inside a box, as bytes of this one: see embed.S. */
#pragma once

extern const unsigned char embed_init_start[], embed_init_end[];
extern const unsigned char embed_zygote_start[], embed_zygote_end[];

/* Of the engine alone. */
extern const unsigned char embed_tool_start[], embed_tool_end[];
extern const unsigned char embed_grep_start[], embed_grep_end[];
