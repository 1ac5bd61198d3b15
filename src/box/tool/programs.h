/* The tools as programs that a box can be asked to run: link.h, `program`. Linked into the engine alone. */
#pragma once

#include "base/err.h"

enum tool_program { TOOL_PROGRAM_TOOL, TOOL_PROGRAM_GREP, TOOL_PROGRAMS };

/* Sealed memfds that can be executed and not read; -1 where there is none. */
int tool_programs_open(int programs[TOOL_PROGRAMS], struct error *err);
void tool_programs_close(int programs[TOOL_PROGRAMS]);
