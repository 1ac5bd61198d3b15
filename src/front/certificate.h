/* The API's certificate, as the keeper hands it on. */
#pragma once

#include "base/err.h"
#include "front/settings.h"
#include "http/http.h"

/* `fd` is taken. What can be used but should be looked after is logged. */
int certificate_read(int fd, const struct settings *settings, struct http_certificate **out,
                     struct error *err);
