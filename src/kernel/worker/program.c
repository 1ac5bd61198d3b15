/* The worker as a program that a box can be asked to run. Linked into the engine alone. */
#include "box/handle.h"
#include "kernel/remote.h"

extern const unsigned char kernel_worker_start[], kernel_worker_end[];

int kernel_worker_program(struct error *err)
{
    return box_program("cove-worker", kernel_worker_start, kernel_worker_end, err);
}
