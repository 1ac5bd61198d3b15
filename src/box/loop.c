/* Loop devices: see loop.h. */
#include "box/loop.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>

int loop_attach(int file, bool read_only, char *path, size_t size, struct error *err)
{
    _cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config config = {
        .fd = (unsigned)file,
        .info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0),
    };

    if (control < 0)
        return error_set(err, "no_loop", errno,
                         "cannot open /dev/loop-control; load the loop module, or use a directory");
    /* Another process may take the free one first. */
    for (int tries = 0; tries < 64; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        _cleanup_close_ int device = -1;

        if (number < 0)
            break;
        (void)snprintf(path, size, "/dev/loop%d", number);
        device = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
        if (device < 0)
            return error_set(err, "no_loop", errno, "cannot open %s", path);
        if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
            return fd_take(&device);
        if (errno != EBUSY)
            break;
    }
    return error_set(err, "no_loop", errno, "cannot set up a loop device");
}
