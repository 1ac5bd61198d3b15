/* What people write for sizes, times and counts: see parse.h.
 *
 * Everything is integer arithmetic on a whole part and a fraction, so that "1.5G" is exact and a
 * number that does not fit is refused instead of wrapped. Must never accept half of a text: no
 * sign, no space, no exponent, no hexadecimal. */
#include "base/parse.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Nine digits after the point count; programs that divide write 0.30000000000000004. */
#define FRACTION_ONE 1000000000U

/* A text from a command line is shown in an error up to this length, a hostile one is cut. */
#define SHOWN_MAX 64

struct number {
    uint64_t whole;
    uint32_t fraction; /* in parts of FRACTION_ONE */
};

struct unit {
    const char *suffix;
    uint64_t factor;
};

/* In capitals or not: people write both. */
static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"K", 1ULL << 10},
    {"KB", 1ULL << 10},
    {"KiB", 1ULL << 10},
    {"Ki", 1ULL << 10},
    {"M", 1ULL << 20},
    {"MB", 1ULL << 20},
    {"MiB", 1ULL << 20},
    {"Mi", 1ULL << 20},
    {"G", 1ULL << 30},
    {"GB", 1ULL << 30},
    {"GiB", 1ULL << 30},
    {"Gi", 1ULL << 30},
    {"T", 1ULL << 40},
    {"TB", 1ULL << 40},
    {"TiB", 1ULL << 40},
    {"Ti", 1ULL << 40},
};

static const struct unit duration_units[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

static const struct unit cpu_units[] = {
    {"", 1000},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool digits_read(const char **at, uint64_t *value)
{
    if (!is_digit(**at))
        return false;
    for (*value = 0; is_digit(**at); (*at)++)
        if (__builtin_mul_overflow(*value, 10U, value) ||
            __builtin_add_overflow(*value, (unsigned)(**at - '0'), value))
            return false;
    return true;
}

/* Digits, and with a point at least one digit on either side. */
static bool number_read(const char **at, struct number *number)
{
    uint32_t place = FRACTION_ONE / 10;

    number->fraction = 0;
    if (!digits_read(at, &number->whole))
        return false;
    if (**at != '.')
        return true;
    (*at)++;
    if (!is_digit(**at))
        return false;
    for (; is_digit(**at); (*at)++) {
        number->fraction += place * (uint32_t)(**at - '0');
        if (place == 0 && **at != '0' && number->fraction == 0)
            number->fraction = 1; /* next to nothing is not nothing */
        place /= 10;
    }
    return true;
}

/* Rounds down to a whole number of the smallest unit; what is more than nothing must not become
 * nothing, for that often means "no limit". */
static bool number_scale(const struct number *number, uint64_t factor, uint64_t *value)
{
    /* factor is at most 2^40 and the fraction below 2^30, so this needs more than 64 bits. */
    uint64_t part = (uint64_t)((unsigned __int128)number->fraction * factor / FRACTION_ONE);

    if (__builtin_mul_overflow(number->whole, factor, value) ||
        __builtin_add_overflow(*value, part, value))
        return false;
    return *value != 0 || (number->whole == 0 && number->fraction == 0);
}

static bool measure_read(const char *text, const struct unit *units, size_t units_count,
                         int (*compare)(const char *, const char *), uint64_t *value)
{
    struct number number;
    uint64_t scaled;

    if (text == NULL || !number_read(&text, &number))
        return false;
    for (size_t i = 0; i < units_count; i++) {
        if (compare(text, units[i].suffix) != 0)
            continue;
        if (!number_scale(&number, units[i].factor, &scaled))
            return false;
        *value = scaled;
        return true;
    }
    return false;
}

static int refuse(const char *what, const char *text, const char *wanted, struct error *err)
{
    if (text == NULL)
        text = "";
    return error_set(err, "bad_value", 0, "%s: \"%.*s%s\" is not %s", what, SHOWN_MAX, text,
                     strlen(text) > SHOWN_MAX ? "..." : "", wanted);
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

int parse_size(const char *what, const char *text, uint64_t *bytes, struct error *err)
{
    if (!measure_read(text, size_units, COUNT_OF(size_units), strcasecmp, bytes))
        return refuse(what, text, "a size such as 512M or 1.5G", err);
    return 0;
}

int parse_duration(const char *what, const char *text, uint64_t *ms, struct error *err)
{
    if (!measure_read(text, duration_units, COUNT_OF(duration_units), strcmp, ms))
        return refuse(what, text, "a time such as 90s, 1.5m, 250ms or 1d", err);
    return 0;
}

int parse_cpus(const char *what, const char *text, uint32_t *milli, struct error *err)
{
    uint64_t value = 0;

    if (!measure_read(text, cpu_units, COUNT_OF(cpu_units), strcmp, &value) || value == 0 ||
        value > UINT32_MAX)
        return refuse(what, text, "a number of CPUs such as 2 or 0.5", err);
    *milli = (uint32_t)value;
    return 0;
}

int parse_count(const char *what, const char *text, uint64_t low, uint64_t high, uint64_t *value,
                struct error *err)
{
    const char *at = text;
    uint64_t number = 0;

    if (text == NULL || !digits_read(&at, &number) || *at != '\0' || number < low ||
        number > high) {
        char wanted[96];

        (void)snprintf(wanted, sizeof(wanted), "a whole number from %llu to %llu, such as %llu",
                       (unsigned long long)low, (unsigned long long)high, (unsigned long long)low);
        return refuse(what, text, wanted, err);
    }
    *value = number;
    return 0;
}
