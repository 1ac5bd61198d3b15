/* The programs that run inside a box, as bytes of this one.
 *
 * They are copied into a sealed memfd when a box is made, so that nothing of the host has to be
 * visible in the box and nothing in it can change them. The build passes the paths as EMBED_INIT
 * and EMBED_ZYGOTE, and for another object, which only the engine links, as
 * EMBED_TOOL and EMBED_GREP. Read-only data: this must never become part of a writable section. */
#ifdef __CET__
#include <cet.h>
#endif

    .section .rodata.embed, "a"

    .macro embed name, path
    .balign 4096
    .global embed_\name\()_start
    .hidden embed_\name\()_start
    .type embed_\name\()_start, %object
embed_\name\()_start:
    .incbin "\path"
    .global embed_\name\()_end
    .hidden embed_\name\()_end
    .type embed_\name\()_end, %object
embed_\name\()_end:
    .byte 0
    .endm

#ifdef EMBED_INIT
    embed init, EMBED_INIT
    embed zygote, EMBED_ZYGOTE
#endif
#ifdef EMBED_TOOL
    embed tool, EMBED_TOOL
    embed grep, EMBED_GREP
#endif

    .section .note.GNU-stack, "", %progbits
