/* Whether a keeper and its engine could start as things are: what `cove serve --check` and `cove doctor` ask, and each
 * program that is to take over. It must change nothing of the host. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct keeper;

/* Reads the configuration that places_find() has found, and the files that it names. */
int check_configuration(struct keeper *keeper, struct error *err);

/* Finds the engine, looks whether it is of this build, and has it judge its part of the configuration. */
int check_engine(struct keeper *keeper, struct error *err);

/* All of it, as a start by these options would find it, and whether it could listen. Prints every fault on standard
 * error, and what a start would put up with; tells whether there is none. */
bool check_start(struct keeper *keeper);
