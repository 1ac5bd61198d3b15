/* Listing a directory that is named by an fd. */
#pragma once

#include <dirent.h>

/* Opens `name` below `dir` for readdir(3), never through a link; NULL on error. */
DIR *list_open(int dir, const char *name);
