/* How the database is laid out, and how one of an earlier layout becomes one of today's. */
#pragma once

#include "store/db.h"

/* Step N, SQL, leads from schema N to N + 1; an empty database has schema 0. */
struct schema {
    const char *const *steps;
    unsigned count;
};

extern const struct schema schema_now;

/* Checks the database, keeps a copy of it if a step has to be taken ("store.db.schema-N"), and takes
 * the steps in one transaction. "store_too_new", "store_corrupt", "store_failed". */
int schema_bring(struct db *db, const char *directory, const struct schema *schema,
                 struct error *err);
