/* Any bytes as frames of a client: the same messages whether they come at once or byte by byte, none
 * larger than the limit, and texts that are UTF-8. */
#include "base/utf8.h"
#include "http/frames.h"
#include "seen.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 1000

static void check(enum http_frame found, const struct http_framed *framed)
{
    bool is_message = found == HTTP_FRAME_TEXT || found == HTTP_FRAME_BINARY;

    must(framed->size <= (is_message ? MESSAGE_MAX : HTTP_CONTROL_MAX));
    must(found != HTTP_FRAME_TEXT || utf8_is_valid(framed->data, framed->size));
    must(!is_message || ((const char *)framed->data)[framed->size] == '\0');
    must(found != HTTP_FRAME_CLOSE || framed->code == HTTP_CLOSE_NO_CODE ||
         http_close_is_sane(framed->code));
    must(found != HTTP_FRAME_BAD || http_close_is_sane(framed->code));
}

static void read_frames(const char *data, size_t size, size_t step, struct seen *seen)
{
    struct http_frames frames = {.message_max = MESSAGE_MAX};
    const char *at = data, *end = data + size;
    enum http_frame found = HTTP_FRAME_MORE;

    seen->size = 0;
    while (at < end && found != HTTP_FRAME_BAD && found != HTTP_FRAME_CLOSE) {
        size_t left = (size_t)(end - at) < step ? (size_t)(end - at) : step;
        const char *before = at;
        struct http_framed framed;

        found = http_frame_next(&frames, &at, &left, &framed);
        must(at > before && at <= end);
        must(frames.message.size <= MESSAGE_MAX && frames.message.capacity <= 4 * MESSAGE_MAX);
        if (found != HTTP_FRAME_MORE) {
            unsigned char mark[2] = {(unsigned char)found, (unsigned char)framed.code};
            check(found, &framed);
            note(seen, mark, sizeof(mark));
            note(seen, framed.data, framed.size);
        }
    }
    http_frames_free(&frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct seen one, other;
    const char *bytes = (const char *)data;

    if (size == 0 || size > INPUT_MAX)
        return 0;
    read_frames(bytes, size, size, &one);
    read_frames(bytes, size, 1, &other);
    must(seen_same(&one, &other));
    read_frames(bytes, size, 3, &other);
    must(seen_same(&one, &other));
    return 0;
}
