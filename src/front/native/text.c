/* Text: see text.h. Pure functions; hostile bytes of any length are fine. */
#include "front/native/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

bool text_is_line(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

/* A number of exactly `digits` digits at *at. */
static bool take_digits(const char **at, int digits, int low, int high, int *value)
{
    *value = 0;
    for (; digits > 0; digits--, ++*at) {
        if (**at < '0' || **at > '9')
            return false;
        *value = *value * 10 + (**at - '0');
    }
    return *value >= low && *value <= high;
}

static bool take_letter(const char **at, const char *letters)
{
    if (**at == '\0' || strchr(letters, **at) == NULL)
        return false;
    ++*at;
    return true;
}

/* ".5", ".123456": the part of a second, in milliseconds; what is smaller is dropped. */
static bool take_fraction(const char **at, int *ms)
{
    int unit = 100;

    *ms = 0;
    if (**at != '.')
        return true;
    ++*at;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; ++*at, unit /= 10)
        *ms += unit * (**at - '0');
    return true;
}

/* "Z" or "+02:00": minutes before UTC. */
static bool take_zone(const char **at, int *minutes)
{
    int hours, rest;
    bool is_west = **at == '-';

    *minutes = 0;
    if (take_letter(at, "Zz"))
        return true;
    if (!take_letter(at, "+-") || !take_digits(at, 2, 0, 23, &hours) || !take_letter(at, ":") ||
        !take_digits(at, 2, 0, 59, &rest))
        return false;
    *minutes = (hours * 60 + rest) * (is_west ? -1 : 1);
    return true;
}

bool text_to_time(const char *text, uint64_t *ms)
{
    struct tm tm = {0};
    struct tm read;
    int part, minutes;
    time_t seconds;

    if (!take_digits(&text, 4, 1970, 9999, &tm.tm_year) || !take_letter(&text, "-") ||
        !take_digits(&text, 2, 1, 12, &tm.tm_mon) || !take_letter(&text, "-") ||
        !take_digits(&text, 2, 1, 31, &tm.tm_mday) || !take_letter(&text, "Tt ") ||
        !take_digits(&text, 2, 0, 23, &tm.tm_hour) || !take_letter(&text, ":") ||
        !take_digits(&text, 2, 0, 59, &tm.tm_min) || !take_letter(&text, ":") ||
        !take_digits(&text, 2, 0, 60, &tm.tm_sec) || !take_fraction(&text, &part) ||
        !take_zone(&text, &minutes) || *text != '\0')
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    read = tm;
    seconds = timegm(&tm);
    if (tm.tm_mday != read.tm_mday) /* the 31st of a month that has 30 */
        return false;
    seconds -= (time_t)minutes * 60;
    if (seconds < 0)
        return false;
    *ms = (uint64_t)seconds * 1000 + (uint64_t)part;
    return true;
}

void text_from_time(uint64_t ms, char into[TEXT_TIME_MAX])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    size_t used;

    /* A year that does not fit is no time that anybody was told. */
    if (ms / 1000 > 253402300799ULL || gmtime_r(&seconds, &tm) == NULL) {
        (void)snprintf(into, TEXT_TIME_MAX, "9999-12-31T23:59:59.999Z");
        return;
    }
    used = strftime(into, TEXT_TIME_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(into + used, TEXT_TIME_MAX - used, ".%03uZ", (unsigned)(ms % 1000));
}
