/* Hears what a child says: see hear.h. */
#include "base/hear.h"

#include "base/clock.h"

#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

void hear_all(int fd, char *text, size_t size, unsigned limit_ms)
{
    uint64_t now = clock_monotonic_ns() / 1000000, until = now + limit_ms;
    size_t used = 0;
    ssize_t got = 1;

    for (; got > 0 && now < until; now = clock_monotonic_ns() / 1000000) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        if (used == size - 1) {
            memmove(text, text + size / 2, used - size / 2);
            used -= size / 2;
        }
        if (poll(&ready, 1, (int)(until - now)) <= 0)
            break;
        got = read(fd, text + used, size - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    while (used > 0 && text[used - 1] == '\n')
        used--;
    text[used] = '\0';
}
