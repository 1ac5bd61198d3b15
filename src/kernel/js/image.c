/* The image of the JavaScript engine that the build made: see make_image.c. */
#include "kernel/js/js.h"
#include "kernel/parts.h"

extern const unsigned char kernel_js_start[], kernel_js_end[];

int kernel_image_js(struct kernel_image **out, struct error *err)
{
    /* Of one object, which no compiler knows. */
    uintptr_t size = (uintptr_t)kernel_js_end - (uintptr_t)kernel_js_start;

    return image_read(&kernel_guest_js, kernel_js_start, size, out, err);
}
