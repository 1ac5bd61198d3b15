/* Mounts in bodies: of a sandbox that is created, and one by itself. */
#pragma once

#include "keeper/request.h"

#include "front/native/read.h"

#include <stddef.h>

/* Where the field of a table goes. */
#define AT(type, member) .at = offsetof(struct type, member)

struct body_mount_text {
    const char *name, *target;
    bool read_only;
};

extern const struct read_field body_mount_fields[];

/* Registered names have few letters: another one could not be there, and says so the same way. */
int body_check_registered(const char *name, const char *code, struct error *err);

int body_fill_mounts(const struct read_objects *text, struct keeper_mount *mounts,
                     struct error *err);
