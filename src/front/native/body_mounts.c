/* See body_mounts.h. */
#include "front/native/body_mounts.h"

#include "front/native/body.h"

#include <stdio.h>
#include <string.h>

const struct read_field body_mount_fields[] = {
    {.name = "name",
     .kind = READ_LINE,
     AT(body_mount_text, name),
     .low = 1,
     .high = KEEPER_NAME_MAX - 1,
     .is_needed = true},
    {.name = "target",
     .kind = READ_LINE,
     AT(body_mount_text, target),
     .low = 1,
     .high = KEEPER_TARGET_MAX - 1,
     .is_needed = true},
    {.name = "read_only", .kind = READ_BOOL, AT(body_mount_text, read_only)},
    {.name = NULL},
};

int body_check_registered(const char *name, const char *code, struct error *err)
{
    if (name == NULL || (name[0] != '.' && name[0] != '-' &&
                         name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0'))
        return 0;
    return error_set(err, code, 0,
                     "\"%s\" cannot be registered: such names are lower-case letters, digits, "
                     "\".\", \"_\" and \"-\"; GET /v1/roots lists what there is",
                     name);
}

static bool has_parent_step(const char *path)
{
    for (const char *step = path; step != NULL; step = strchr(step, '/')) {
        step += *step == '/';
        if (strncmp(step, "..", 2) == 0 && (step[2] == '/' || step[2] == '\0'))
            return true;
    }
    return false;
}

int body_fill_mounts(const struct read_objects *text, struct keeper_mount *mounts,
                     struct error *err)
{
    const struct body_mount_text *list = text->list;

    for (size_t i = 0; i < text->count; i++) {
        if (body_check_registered(list[i].name, "unknown_mount", err) < 0)
            return -1;
        if (list[i].target[0] != '/' || has_parent_step(list[i].target))
            return error_set(err, "bad_request", 0,
                             "field \"mounts[%zu].target\" must be an absolute path without \"..\"",
                             i);
        (void)snprintf(mounts[i].name, sizeof(mounts[i].name), "%s", list[i].name);
        (void)snprintf(mounts[i].target, sizeof(mounts[i].target), "%s", list[i].target);
        mounts[i].read_only = list[i].read_only;
    }
    return 0;
}

int body_mount(struct read_body from, struct keeper_mount *mount, struct error *err)
{
    struct body_mount_text text = {.name = NULL};
    const struct read_objects one = {.list = &text, .count = 1};
    struct read_owner owner = {0};
    int status = read_object("a mount", from, false, body_mount_fields, &text, &owner, err);

    *mount = (struct keeper_mount){.read_only = 0};
    if (status == 0)
        status = body_fill_mounts(&one, mount, err);
    read_free(&owner);
    return status;
}
