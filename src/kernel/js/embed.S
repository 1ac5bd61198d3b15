/* The image of the booted engine, as bytes of the program. Read-only data; the build passes the path. */
#ifdef __CET__
#include <cet.h>
#endif

    .section .rodata.kernel, "a"
    .balign 4096
    .global kernel_js_start
    .hidden kernel_js_start
    .type kernel_js_start, %object
kernel_js_start:
    .incbin KERNEL_IMAGE
    .global kernel_js_end
    .hidden kernel_js_end
    .type kernel_js_end, %object
kernel_js_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
