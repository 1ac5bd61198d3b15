/* The tools as programs: see programs.h. Their bytes are of embed.S, as those of init are. */
#include "box/tool/programs.h"

#include "base/fd.h"
#include "box/embed.h"
#include "box/handle.h"

int tool_programs_open(int programs[TOOL_PROGRAMS], struct error *err)
{
    for (int i = 0; i < TOOL_PROGRAMS; i++)
        programs[i] = -1;
    programs[TOOL_PROGRAM_TOOL] = box_program("cove-tool", embed_tool_start, embed_tool_end, err);
    programs[TOOL_PROGRAM_GREP] = box_program("cove-grep", embed_grep_start, embed_grep_end, err);
    return programs[TOOL_PROGRAM_TOOL] < 0 || programs[TOOL_PROGRAM_GREP] < 0 ? -1 : 0;
}

void tool_programs_close(int programs[TOOL_PROGRAMS])
{
    for (int i = 0; i < TOOL_PROGRAMS; i++)
        fd_close(&programs[i]);
}
