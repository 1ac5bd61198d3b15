/* `Range: bytes=a-b` (RFC 9110, section 14): which bytes of how many are wanted. */
#pragma once

#include <stdint.h>

enum http_range_kind {
    HTTP_RANGE_WHOLE, /* none is asked for, or none that is understood: answer 200 with all of it */
    HTTP_RANGE_PART,  /* 206 */
    HTTP_RANGE_NONE,  /* none of it lies in there: 416 */
};

struct http_range {
    uint64_t offset;
    uint64_t length; /* never beyond the end */
};

/* `value` may be NULL. Several ranges in one field are answered with all of it, as the RFC allows. */
enum http_range_kind http_range_parse(const char *value, uint64_t size, struct http_range *range);
