/* Patterns: see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "box/tool/pattern.h"

#include "box/tool/parts.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A match of a line takes some hundreds; what takes a million does not end. */
#define STEPS_MAX 1000000
#define DEPTH_MAX 100000
#define HEAP_KIB_MAX 16384
#define PATTERN_MAX 65536
#define JIT_STACK_MAX (1U << 20)

struct pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
    char *literal;
    size_t literal_size;
    bool stays_in_line;
};

/* ---- what must be in a match ----
 *
 * The longest run of plain characters outside of all groups. Whatever is not understood gives none: that
 * is slower and never wrong. */

struct run {
    const char *from;
    char best[256], now[256];
    size_t best_size, now_size;
};

static void run_end(struct run *run)
{
    if (run->now_size > run->best_size) {
        memcpy(run->best, run->now, run->now_size);
        run->best_size = run->now_size;
    }
    run->now_size = 0;
}

static void run_add(struct run *run, char c)
{
    if (run->now_size == sizeof(run->now))
        run_end(run);
    run->now[run->now_size++] = c;
}

/* Behind the class that begins at `at`; NULL: not understood. */
static const char *pass_class(const char *at)
{
    at++;
    at += *at == '^';
    at += *at == ']';
    for (; *at != ']'; at++) {
        if (*at == '\0' || *at == '[') /* [:alpha:] and its like */
            return NULL;
        if (*at == '\\' && *++at == '\0')
            return NULL;
    }
    return at + 1;
}

static const char *pass_group(const char *at)
{
    unsigned depth = 0;

    if (at[1] == '?' || at[1] == '*')
        return NULL; /* a look around, a flag, a verb */
    do {
        if (*at == '\0')
            return NULL;
        if (*at == '[') {
            at = pass_class(at);
            if (at == NULL)
                return NULL;
            continue;
        }
        if (*at == '(' && (at[1] == '?' || at[1] == '*') && at[2] != ':')
            return NULL;
        depth += *at == '(';
        depth -= *at == ')';
        if (*at == '\\' && *++at == '\0')
            return NULL;
        at++;
    } while (depth > 0);
    return at;
}

/* A quantifier at `at`: behind it, and whether what stands before may be missing. */
static const char *pass_quantifier(const char *at, bool *is_optional)
{
    *is_optional = false;
    if (*at == '*' || *at == '?' || *at == '{')
        *is_optional = true;
    else if (*at != '+')
        return at;
    if (*at == '{') {
        at = strchr(at, '}');
        if (at == NULL)
            return NULL;
    }
    at++;
    return at + (*at == '?' || *at == '+');
}

/* The character that `\` and the next one stand for alone, or 0. */
static char escaped(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || c >= '{'
               ? c
               : '\0';
}

static bool find_run(struct run *run)
{
    const char *at = run->from;

    while (*at != '\0') {
        bool is_optional;
        char plain = '\0';

        if (*at == '|')
            return false;
        if (*at == '(' || *at == '[') {
            run_end(run);
            at = *at == '(' ? pass_group(at) : pass_class(at);
        } else if (*at == '\\') {
            plain = escaped(at[1]);
            if (plain == '\0' && strchr("wWdDsSbBnt", at[1]) == NULL)
                return false;
            at += 2;
        } else {
            if (strchr(".^$", *at) == NULL)
                plain = *at;
            at++;
        }
        if (at == NULL || ((unsigned char)plain & 0x80) != 0)
            return false; /* a character of several bytes is quantified as a whole */
        if (plain == '\0')
            run_end(run);
        if (*at == '*' || *at == '?' || *at == '+' || *at == '{') {
            at = pass_quantifier(at, &is_optional);
            if (at == NULL)
                return false;
            if (plain != '\0' && !is_optional)
                run_add(run, plain);
            run_end(run);
        } else if (plain != '\0') {
            run_add(run, plain);
        }
    }
    run_end(run);
    return run->best_size > 0;
}

/* A class that names what it takes; "[^a]" and "[\\s]" take the end of a line, too. Behind it, or NULL. */
static const char *pass_plain_class(const char *at)
{
    const char *end = at[1] == '^' ? NULL : pass_class(at);

    for (const char *in = at; end != NULL && in < end; in++)
        if (*in == '\n' || *in < ' ' || (*in == '\\' && strchr("wd\\].-[^/", *++in) == NULL))
            return NULL;
    return end;
}

/* Only what is known to take no end of a line: plain characters, ".", named classes, groups without a
 * question, quantifiers, \w, \d, \b, and the ends of a line themselves. */
static bool is_bound(const char *at)
{
    while (*at != '\0') {
        if (*at == '[') {
            at = pass_plain_class(at);
            if (at == NULL)
                return false;
            continue;
        }
        if (*at == '\n' || *at == '\r')
            return false;
        if (*at == '\\') {
            at++;
            if (*at == '\0' || (escaped(*at) == '\0' && strchr("wdb", *at) == NULL))
                return false;
        } else if (*at == '(' && (at[1] == '*' || (at[1] == '?' && at[2] != ':'))) {
            return false;
        }
        at++;
    }
    return true;
}

bool pattern_stays_in_line(const struct pattern *pattern)
{
    return pattern->stays_in_line;
}

static void keep_literal(struct pattern *pattern, const struct pattern_how *how)
{
    struct run run = {.from = how->text};

    /* What is before and behind a word is not of it. */
    pattern->stays_in_line = how->is_fixed ? strchr(how->text, '\n') == NULL : is_bound(how->text);
    if (how->ignores_case)
        return;
    if (how->is_fixed)
        pattern->literal = strdup(how->text);
    else if (find_run(&run))
        pattern->literal = strndup(run.best, run.best_size);
    pattern->literal_size = pattern->literal == NULL ? 0 : strlen(pattern->literal);
}

const char *pattern_literal(const struct pattern *pattern, size_t *size)
{
    *size = pattern->literal_size;
    return pattern->literal_size == 0 ? NULL : pattern->literal;
}

/* ---- compiling ---- */

/* What a fixed text is as an expression. */
static char *quote(const char *text)
{
    char *quoted = malloc(2 * strlen(text) + 1), *to = quoted;

    if (quoted == NULL)
        return NULL;
    for (; *text != '\0'; text++) {
        if (escaped(*text) != '\0' && ((unsigned char)*text & 0x80) == 0)
            *to++ = '\\';
        *to++ = *text;
    }
    *to = '\0';
    return quoted;
}

static char *expression_of(const struct pattern_how *how)
{
    char *text = how->is_fixed ? quote(how->text) : strdup(how->text), *wrapped;

    if (text == NULL || !how->is_word)
        return text;
    if (asprintf(&wrapped, "(?<!\\w)(?:%s)(?!\\w)", text) < 0)
        wrapped = NULL;
    free(text);
    return wrapped;
}

static int compile(struct pattern *pattern, const struct pattern_how *how, const char *text,
                   struct error *err)
{
    uint32_t options = PCRE2_NEVER_BACKSLASH_C | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF |
                       PCRE2_MULTILINE;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    PCRE2_UCHAR message[160];
    size_t offset = 0;
    int code = PCRE2_ERROR_NOMEMORY;

    options |= how->ignores_case ? PCRE2_CASELESS : 0;
    if (context != NULL) {
        (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code,
                                      &offset, context);
        /* Bytes that are no UTF-8 are looked for as such. */
        if (pattern->code == NULL && code < 0)
            pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                          options & ~(PCRE2_UTF | PCRE2_MATCH_INVALID_UTF), &code,
                                          &offset, context);
    }
    pcre2_compile_context_free(context);
    if (pattern->code != NULL)
        return 0;
    (void)pcre2_get_error_message(code, message, sizeof(message));
    return fail(err, 0, "bad_pattern",
                "the pattern has a mistake at byte %zu: %.100s; correct it, or look for plain text "
                "by \"fixed\"",
                offset, (char *)message);
}

/* With MATCH_INVALID_UTF the machine code of PCRE2 10.42 finds no letter beyond ASCII by \W, \S and \D. */
static bool may_be_compiled(const char *text)
{
    while ((text = strchr(text, '\\')) != NULL && text[1] != '\0') {
        if (strchr("WSD", text[1]) != NULL)
            return false;
        text += 2;
    }
    return true;
}

static int prepare(struct pattern *pattern, const char *text)
{
    pcre2_jit_stack *stack;

    pattern->context = pcre2_match_context_create(NULL);
    pattern->data = pcre2_match_data_create(1, NULL);
    if (pattern->context == NULL || pattern->data == NULL)
        return -1;
    (void)pcre2_set_match_limit(pattern->context, STEPS_MAX);
    (void)pcre2_set_depth_limit(pattern->context, DEPTH_MAX);
    (void)pcre2_set_heap_limit(pattern->context, HEAP_KIB_MAX);
    /* Where memory must not be executable it goes without. */
    if (may_be_compiled(text) && pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0) {
        stack = pcre2_jit_stack_create(32768, JIT_STACK_MAX, NULL);
        if (stack != NULL)
            pcre2_jit_stack_assign(pattern->context, NULL, stack);
    }
    return 0;
}

struct pattern *pattern_new(const struct pattern_how *how, struct error *err)
{
    struct pattern *pattern = calloc(1, sizeof(*pattern));
    _cleanup_free_ char *text = NULL;

    if (strnlen(how->text, PATTERN_MAX) == PATTERN_MAX) {
        (void)fail(err, 0, "bad_pattern", "the pattern is longer than %d bytes; take a shorter one",
                   PATTERN_MAX - 1);
        free(pattern);
        return NULL;
    }
    text = expression_of(how);
    if (pattern == NULL || text == NULL) {
        (void)fail(err, 0, "bad_pattern", "there is no memory for the pattern; take a simpler one");
        free(pattern);
        return NULL;
    }
    if (compile(pattern, how, text, err) < 0)
        return NULL; /* the program ends */
    if (prepare(pattern, text) < 0) {
        (void)fail(err, 0, "bad_pattern", "there is no memory for the pattern; take a simpler one");
        return NULL;
    }
    keep_literal(pattern, how);
    return pattern;
}

int pattern_match(struct pattern *pattern, const char *subject, size_t size, size_t start,
                  size_t *from, size_t *to, struct error *err)
{
    int got = pcre2_match(pattern->code, (PCRE2_SPTR)subject, size, start, 0, pattern->data,
                          pattern->context);
    const size_t *at = pcre2_get_ovector_pointer(pattern->data);

    if (got == PCRE2_ERROR_NOMATCH)
        return 0;
    if (got < 0)
        return fail(err, 0, "limit",
                    "the pattern takes too many steps on a line of it; make it simpler");
    /* \K can end a match before it begins. */
    *from = at[0] < at[1] ? at[0] : at[1];
    *to = at[1];
    return 1;
}
