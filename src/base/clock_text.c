/* Time as text: see clock.h. Strict: a time that means nothing (30 February) is refused, not bent. */
#include "base/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LAST_MS 253402300799999ULL /* 9999-12-31T23:59:59.999Z */

void clock_format(uint64_t wall_ms, char text[CLOCK_TEXT_SIZE])
{
    uint64_t ms = wall_ms > LAST_MS ? LAST_MS : wall_ms;
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm = {0};

    (void)gmtime_r(&seconds, &tm);
    /* The remainders say to the compiler how wide the numbers get. */
    (void)snprintf(text, CLOCK_TEXT_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
                   (unsigned)(tm.tm_year + 1900) % 10000U, (unsigned)(tm.tm_mon + 1) % 100U,
                   (unsigned)tm.tm_mday % 100U, (unsigned)tm.tm_hour % 100U,
                   (unsigned)tm.tm_min % 100U, (unsigned)tm.tm_sec % 100U, (unsigned)(ms % 1000));
}

static bool digits(const char **at, unsigned count, int *value)
{
    *value = 0;
    for (; count > 0; count--, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        *value = *value * 10 + (**at - '0');
    }
    return true;
}

static bool letter(const char **at, const char *either)
{
    if (**at == '\0' || strchr(either, **at) == NULL)
        return false;
    (*at)++;
    return true;
}

static bool fraction(const char **at, int *ms)
{
    int place = 100;

    *ms = 0;
    if (**at != '.')
        return true;
    (*at)++;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++, place /= 10)
        *ms += (**at - '0') * place;
    return true;
}

static bool offset(const char **at, int *minutes)
{
    bool is_west = **at == '-';
    int hours, rest;

    *minutes = 0;
    if (letter(at, "Zz"))
        return true;
    if (!letter(at, "+-") || !digits(at, 2, &hours) || !letter(at, ":") || !digits(at, 2, &rest) ||
        hours > 23 || rest > 59)
        return false;
    *minutes = (hours * 60 + rest) * (is_west ? -1 : 1);
    return true;
}

static bool is_day(const struct tm *tm)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = tm->tm_year + 1900;
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    if (tm->tm_mon < 0 || tm->tm_mon > 11 || tm->tm_mday < 1)
        return false;
    return tm->tm_mday <= days[tm->tm_mon] + (tm->tm_mon == 1 && is_leap ? 1 : 0);
}

bool clock_parse(const char *text, uint64_t *wall_ms)
{
    struct tm tm = {0};
    int ms, minutes;
    int64_t value;

    if (!digits(&text, 4, &tm.tm_year) || !letter(&text, "-") || !digits(&text, 2, &tm.tm_mon) ||
        !letter(&text, "-") || !digits(&text, 2, &tm.tm_mday) || !letter(&text, "Tt ") ||
        !digits(&text, 2, &tm.tm_hour) || !letter(&text, ":") || !digits(&text, 2, &tm.tm_min) ||
        !letter(&text, ":") || !digits(&text, 2, &tm.tm_sec) || !fraction(&text, &ms) ||
        !offset(&text, &minutes) || *text != '\0')
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    /* A leap second is the first moment of the next minute here, as the kernel's clock has it. */
    if (!is_day(&tm) || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
        return false;
    value = ((int64_t)timegm(&tm) - (int64_t)minutes * 60) * 1000 + ms;
    if (value < 0 || value > (int64_t)LAST_MS)
        return false;
    *wall_ms = (uint64_t)value;
    return true;
}
