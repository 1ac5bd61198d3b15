/* What commands show to people: see show.h. */
#include "cmd/show.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CELL_MAX 1024 /* bytes that are kept of one */
#define COLUMN_MAX 48 /* characters; the last column has no limit */
#define SPACE_BETWEEN 2

/* ---- texts ---- */

/* Whether a character may reach a terminal: none that steers it, and none that turns the direction of
 * what is around it. */
static bool character_is_shown(uint32_t c)
{
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0x200b && c <= 0x200f) &&
           !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff &&
           !(c >= 0xfff9 && c <= 0xfffb) && c < 0xe0000;
}

void show_escape(char *into, size_t size, const char *text)
{
    size_t left = strlen(text);
    size_t used = 0;

    while (left > 0) {
        const unsigned char *at = (const unsigned char *)text;
        char piece[16];
        size_t bad;
        size_t length = utf8_length(at, left, &bad);
        uint32_t value = length == 0 ? at[0] : utf8_value(at, length);
        int piece_size;

        if (length > 0 && character_is_shown(value))
            piece_size = snprintf(piece, sizeof(piece), "%.*s", (int)length, text);
        else if (value < 0x100)
            piece_size = snprintf(piece, sizeof(piece), "\\x%02x", (unsigned)value);
        else
            piece_size = snprintf(piece, sizeof(piece), "\\u{%x}", (unsigned)value);
        if (used + (size_t)piece_size >= size)
            break;
        memcpy(into + used, piece, (size_t)piece_size);
        used += (size_t)piece_size;
        length = length == 0 ? 1 : length;
        text += length;
        left -= length;
    }
    into[used] = '\0';
}

/* ---- tables ---- */

/* How a terminal is told; in the order of enum show_colour. */
static const char *const colours[] = {"", "\033[1m", "\033[32m", "\033[33m", "\033[31m", "\033[2m"};

/* Each begins with its colour, as a character that no shown text has, and ends with a NUL. */
static void cell_add(struct show_table *table, enum show_colour colour, const char *text)
{
    if (table->cells != NULL) { /* what failed is told at its end */
        (void)fputc((int)colour + 1, table->cells);
        (void)fwrite(text, 1, strlen(text) + 1, table->cells);
    }
    table->count++;
}

void show_table_begin(struct show_table *table, size_t columns, const char *const *headings)
{
    *table = (struct show_table){.columns = columns};
    table->cells = open_memstream(&table->text, &table->size);
    for (size_t i = 0; headings != NULL && i < columns; i++)
        cell_add(table, SHOW_BOLD, headings[i]);
}

void show_cell_in(struct show_table *table, enum show_colour colour, const char *text)
{
    char shown[CELL_MAX];

    show_escape(shown, sizeof(shown), text == NULL ? "-" : text);
    cell_add(table, colour, shown);
}

void show_cell(struct show_table *table, const char *text)
{
    show_cell_in(table, SHOW_PLAIN, text);
}

void show_cell_state(struct show_table *table, const char *state)
{
    static const struct {
        const char *state;
        enum show_colour colour;
    } known[] = {
        {"running", SHOW_GREEN}, {"creating", SHOW_YELLOW}, {"starting", SHOW_YELLOW},
        {"error", SHOW_RED},     {"stopped", SHOW_DIM},     {"exited", SHOW_DIM},
    };
    enum show_colour colour = SHOW_PLAIN;

    for (size_t i = 0; state != NULL && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(state, known[i].state) == 0)
            colour = known[i].colour;
    show_cell_in(table, colour, state);
}

void show_cell_number(struct show_table *table, uint64_t number)
{
    char text[SHOW_VALUE_MAX];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    cell_add(table, SHOW_PLAIN, text);
}

/* Characters of a text that is UTF-8. */
static size_t text_width(const char *text)
{
    size_t width = 0;

    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0U) != 0x80U;
    return width;
}

/* Writes a cell, which begins with its colour; too long ones lose their end, which is then said. */
static void cell_write(FILE *out, const char *cell, bool has_colours, size_t width, bool is_last)
{
    const char *text = cell + 1;
    const char *colour = has_colours ? colours[cell[0] - 1] : "";
    size_t own = text_width(text);
    size_t bytes = strlen(text);
    bool is_cut = !is_last && own > width;

    if (is_cut) {
        bytes = 0;
        for (size_t characters = 0; characters < width - 3; characters++)
            do
                bytes++;
            while (((unsigned char)text[bytes] & 0xc0U) == 0x80U);
        own = width;
    }
    (void)fprintf(out, "%s%.*s%s%s", colour, (int)bytes, text, is_cut ? "..." : "",
                  colour[0] == '\0' ? "" : "\033[0m");
    if (!is_last)
        (void)fprintf(out, "%*s", (int)(width - own + SPACE_BETWEEN), "");
}

static void table_write(const struct show_table *table, FILE *out)
{
    bool has_colours = cmd_has_colours(STDOUT_FILENO);
    size_t widths[SHOW_COLUMNS_MAX] = {0};
    const char *cell = table->text;

    for (size_t i = 0; i < table->count; i++, cell += strlen(cell) + 1) {
        size_t *width = &widths[i % table->columns];
        size_t own = text_width(cell + 1);

        if (own > *width)
            *width = own > COLUMN_MAX ? COLUMN_MAX : own;
    }
    cell = table->text;
    for (size_t i = 0; i < table->count; i++, cell += strlen(cell) + 1) {
        bool is_last = i % table->columns == table->columns - 1;

        cell_write(out, cell, has_colours, widths[i % table->columns], is_last);
        if (is_last)
            (void)fputc('\n', out);
    }
}

/* Closes the cells; false where one of them did not get there. */
static bool cells_close(struct show_table *table)
{
    bool is_whole = table->cells != NULL && ferror(table->cells) == 0;

    if (table->cells != NULL && fclose(table->cells) != 0)
        is_whole = false;
    table->cells = NULL;
    return is_whole;
}

void show_table_free(struct show_table *table)
{
    (void)cells_close(table);
    free(table->text);
    *table = (struct show_table){0};
}

int show_table_text(struct show_table *table, char **text, size_t *size, struct error *err)
{
    FILE *out = cells_close(table) ? open_memstream(text, size) : NULL;
    bool is_made = false;

    if (out != NULL) {
        table_write(table, out);
        is_made = fclose(out) == 0;
    }
    show_table_free(table);
    return is_made ? 0 : option_no_memory(err);
}

int show_table_print(struct show_table *table, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t size = 0;

    if (show_table_text(table, &text, &size, err) < 0)
        return -1;
    return cmd_out(text, size, err);
}

/* ---- values ---- */

const char *show_size(uint64_t bytes, char buffer[SHOW_VALUE_MAX])
{
    static const char units[] = {0, 'K', 'M', 'G', 'T', 'P', 'E'};
    size_t unit = 0;
    uint64_t rest = 0;

    while (bytes >= 1024 && unit + 1 < sizeof(units)) {
        rest = bytes % 1024;
        bytes /= 1024;
        unit++;
    }
    if (unit == 0)
        (void)snprintf(buffer, SHOW_VALUE_MAX, "%u", (unsigned)bytes);
    else if (bytes < 10 && rest * 10 / 1024 > 0)
        (void)snprintf(buffer, SHOW_VALUE_MAX, "%u.%u%c", (unsigned)bytes,
                       (unsigned)(rest * 10 / 1024), units[unit]);
    else
        (void)snprintf(buffer, SHOW_VALUE_MAX, "%u%c", (unsigned)bytes, units[unit]);
    return buffer;
}

const char *show_span(uint64_t ms, char buffer[SHOW_VALUE_MAX])
{
    uint64_t s = ms / 1000;

    if (s < 120)
        (void)snprintf(buffer, SHOW_VALUE_MAX, "%llus", (unsigned long long)s);
    else if (s < 7200)
        (void)snprintf(buffer, SHOW_VALUE_MAX, "%llum", (unsigned long long)s / 60);
    else if (s < 172800)
        (void)snprintf(buffer, SHOW_VALUE_MAX, "%lluh", (unsigned long long)s / 3600);
    else
        (void)snprintf(buffer, SHOW_VALUE_MAX, "%llud", (unsigned long long)s / 86400);
    return buffer;
}

const char *show_age(const char *time_text, char buffer[SHOW_VALUE_MAX])
{
    uint64_t then, now = clock_wall_ms();

    if (time_text == NULL || !clock_parse(time_text, &then))
        return "-";
    /* The server's clock may be a little ahead of ours. */
    return show_span(now > then ? now - then : 0, buffer);
}
