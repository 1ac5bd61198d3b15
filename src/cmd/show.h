/* What commands show to people: tables, sizes, ages; and texts of others, made harmless.
 *
 * A name or a command line comes from whoever made it. Shown as it is, an escape sequence in it could
 * rewrite what a terminal shows, or type into it; so what is no printable character is shown by its
 * number. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes `text` so that it is one line that steers nothing, cut to fit. */
void show_escape(char *into, size_t size, const char *text);

/* ---- tables ---- */

#define SHOW_COLUMNS_MAX 10

/* Seen on terminals alone. */
enum show_colour { SHOW_PLAIN, SHOW_BOLD, SHOW_GREEN, SHOW_YELLOW, SHOW_RED, SHOW_DIM };

struct show_table {
    size_t columns;
    size_t count; /* of cells */
    FILE *cells;  /* row by row, each with its NUL; NULL: no memory */
    char *text;   /* what is in it, once it is closed; ours */
    size_t size;
};

/* The first row: `headings` of `columns` words, or NULL for a table without. */
void show_table_begin(struct show_table *table, size_t columns, const char *const *headings);

/* The next cell; NULL is "-". Anybody's text. */
void show_cell(struct show_table *table, const char *text);
void show_cell_in(struct show_table *table, enum show_colour colour, const char *text);
void show_cell_state(struct show_table *table, const char *state); /* in its colour */
void show_cell_number(struct show_table *table, uint64_t number);

void show_table_free(struct show_table *table);

/* Prints it aligned, and frees it; a table that has only headings, too. */
int show_table_print(struct show_table *table, struct error *err);

/* The same into a text, to be freed. */
int show_table_text(struct show_table *table, char **text, size_t *size, struct error *err);

/* ---- values ---- */

#define SHOW_VALUE_MAX 32

/* "512M", "1.5G", "17" */
const char *show_size(uint64_t bytes, char buffer[SHOW_VALUE_MAX]);

/* "3s", "12m", "5h", "9d" */
const char *show_span(uint64_t ms, char buffer[SHOW_VALUE_MAX]);

/* How long ago a time of the API was; "-" where it is none. */
const char *show_age(const char *time, char buffer[SHOW_VALUE_MAX]);
