/* cove-worker, as bytes of the engine. Read-only data; the build passes the path. */
#ifdef __CET__
#include <cet.h>
#endif

    .section .rodata.worker, "a"
    .balign 4096
    .global kernel_worker_start
    .hidden kernel_worker_start
    .type kernel_worker_start, %object
kernel_worker_start:
    .incbin KERNEL_WORKER
    .global kernel_worker_end
    .hidden kernel_worker_end
    .type kernel_worker_end, %object
kernel_worker_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
