/* Globs: see glob.h.
 *
 * A glob becomes a small program, which runs in all its states at once over the path: no way of writing one
 * makes it go back. Both are taken by characters of UTF-8; a byte that is none is a character of its own. */
#include "base/glob.h"

#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

#define DEPTH_MAX 16
#define CODE_MAX (3 * GLOB_MAX + 8)
#define WORDS ((CODE_MAX + 63) / 64)

enum op {
    ONE,      /* the character */
    ANY,      /* any but '/' */
    CLASS,    /* one of the class at `from` of the text */
    STAR,     /* any number, but no '/' */
    ALL,      /* any number of anything */
    SPLIT,    /* goes on at `x` and at `y` */
    JUMP,     /* goes on at `x` */
    ACCEPTED, /* the end */
};

struct code {
    uint8_t op;
    uint16_t x, y;
    uint32_t from; /* a character, or an offset */
};

struct program {
    const char *text;
    size_t count;
    struct code code[CODE_MAX];
};

/* ---- characters ---- */

#define BYTE 0x110000U /* added to a byte that is no UTF-8 */

static uint32_t take(const char **at)
{
    const unsigned char *s = (const unsigned char *)*at;
    size_t bad, length = s[0] < 0x80 ? 1 : utf8_length(s, strnlen(*at, 4), &bad);

    *at += length > 0 ? length : 1;
    return length > 0 ? utf8_value(s, length) : BYTE + s[0];
}

/* One of a class or of the text: what stands behind '\' is itself. */
static uint32_t take_escaped(const char **at)
{
    if (**at == '\\' && (*at)[1] != '\0')
        (*at)++;
    return take(at);
}

/* ---- classes; `at` is behind the '[' ---- */

/* Goes behind the ']'; false: there is none. */
static bool class_pass(const char **at)
{
    const char *s = *at;

    if (*s == '!' || *s == '^')
        s++;
    do {
        if (*s == '\0')
            return false;
        (void)take_escaped(&s);
    } while (*s != ']');
    *at = s + 1;
    return true;
}

static bool class_has(const char *at, uint32_t character)
{
    bool is_not = *at == '!' || *at == '^', has = false, is_first = true;

    if (character == '/')
        return false;
    if (is_not)
        at++;
    for (; is_first || *at != ']'; is_first = false) {
        uint32_t low = take_escaped(&at), high = low;

        if (at[0] == '-' && at[1] != ']' && at[1] != '\0') {
            at++;
            high = take_escaped(&at);
        }
        has |= character >= low && character <= high;
    }
    return has != is_not;
}

/* ---- compiling ---- */

struct group {
    uint16_t split; /* of the alternative that is being read */
    uint16_t jumps; /* the last of a chain of jumps to the end; UINT16_MAX: none */
};

struct compiler {
    struct program *program;
    const char *begin, *at;
    struct group groups[DEPTH_MAX];
    unsigned depth;
};

static struct code *emit(struct compiler *compiler, enum op op)
{
    struct code *code = &compiler->program->code[compiler->program->count++];

    *code = (struct code){.op = (uint8_t)op};
    return code;
}

static uint16_t here(const struct compiler *compiler)
{
    return (uint16_t)compiler->program->count;
}

static void begin_alternative(struct compiler *compiler, struct group *group)
{
    struct code *code;

    group->split = here(compiler);
    code = emit(compiler, SPLIT);
    code->x = here(compiler);
}

static void end_alternative(struct compiler *compiler, struct group *group)
{
    uint16_t at = here(compiler);

    emit(compiler, JUMP)->x = group->jumps;
    group->jumps = at;
}

static const char *open_group(struct compiler *compiler)
{
    struct group *group;

    if (compiler->depth == DEPTH_MAX)
        return "braces in braces in braces, deeper than anybody needs";
    group = &compiler->groups[compiler->depth++];
    group->jumps = UINT16_MAX;
    begin_alternative(compiler, group);
    return NULL;
}

static void next_alternative(struct compiler *compiler)
{
    struct group *group = &compiler->groups[compiler->depth - 1];

    end_alternative(compiler, group);
    compiler->program->code[group->split].y = here(compiler);
    begin_alternative(compiler, group);
}

static void close_group(struct compiler *compiler)
{
    struct group *group = &compiler->groups[--compiler->depth];
    struct code *code = compiler->program->code;

    code[group->split].op = JUMP; /* there is no further one */
    while (group->jumps != UINT16_MAX) {
        uint16_t next = code[group->jumps].x;

        code[group->jumps].x = here(compiler);
        group->jumps = next;
    }
}

/* Stars from `at` on: two that are a whole part stand for any number of parts. */
static void compile_stars(struct compiler *compiler)
{
    const char *from = compiler->at;
    size_t stars = strspn(from, "*");
    char before = from == compiler->begin ? '/' : from[-1], after = from[stars];
    bool is_begun = before == '/' || (compiler->depth > 0 && (before == '{' || before == ','));
    bool is_ended = after == '\0' || (compiler->depth > 0 && (after == '}' || after == ','));

    compiler->at += stars;
    if (stars < 2 || !is_begun || (after != '/' && !is_ended)) {
        (void)emit(compiler, STAR);
    } else if (is_ended) {
        (void)emit(compiler, ALL);
    } else {
        /* As many parts as there are, each with its '/'; or none. */
        struct code *split = emit(compiler, SPLIT);

        split->x = here(compiler);
        (void)emit(compiler, ALL);
        emit(compiler, ONE)->from = '/';
        split->y = here(compiler);
        compiler->at++;
    }
}

static const char *compile_one(struct compiler *compiler)
{
    const char *behind;

    switch (*compiler->at) {
    case '*':
        compile_stars(compiler);
        return NULL;
    case '?':
        (void)emit(compiler, ANY);
        break;
    case '[':
        behind = compiler->at + 1;
        if (!class_pass(&behind))
            return "a '[' without its ']'";
        emit(compiler, CLASS)->from = (uint32_t)(compiler->at + 1 - compiler->program->text);
        compiler->at = behind;
        return NULL;
    case '{':
        compiler->at++;
        return open_group(compiler);
    case ',':
        if (compiler->depth == 0)
            goto plain;
        next_alternative(compiler);
        break;
    case '}':
        if (compiler->depth == 0)
            goto plain;
        close_group(compiler);
        break;
    case '\\':
        if (compiler->at[1] == '\0')
            return "a '\\' with nothing behind it";
        /* fall through */
    default:
plain:
        emit(compiler, ONE)->from = take_escaped(&compiler->at);
        return NULL;
    }
    compiler->at++;
    return NULL;
}

static const char *compile(const char *glob, struct program *program)
{
    struct compiler compiler = {.program = program, .begin = glob, .at = glob};
    size_t length = strnlen(glob, GLOB_MAX);

    program->text = glob;
    program->count = 0;
    if (length == GLOB_MAX)
        return "more than 1023 bytes";
    if (length == 0)
        return "nothing in it";
    while (*compiler.at != '\0') {
        const char *flaw = compile_one(&compiler);

        if (flaw != NULL)
            return flaw;
    }
    (void)emit(&compiler, ACCEPTED);
    return compiler.depth > 0 ? "a '{' without its '}'" : NULL;
}

/* ---- running ---- */

struct states {
    uint64_t bits[WORDS];
};

static bool has(const struct states *states, uint16_t at)
{
    return (states->bits[at / 64] >> (at % 64) & 1) != 0;
}

/* The state, and all that are reached from it without a character. */
static void enter(const struct program *program, struct states *states, uint16_t first)
{
    uint16_t waiting[CODE_MAX];
    size_t count = 0;

    waiting[count++] = first;
    while (count > 0) {
        uint16_t at = waiting[--count];
        const struct code *code = &program->code[at];
        uint16_t next[2] = {UINT16_MAX, UINT16_MAX};

        if (has(states, at))
            continue;
        states->bits[at / 64] |= UINT64_C(1) << (at % 64);
        if (code->op == SPLIT || code->op == JUMP)
            next[0] = code->x;
        if (code->op == SPLIT)
            next[1] = code->y;
        if (code->op == STAR || code->op == ALL)
            next[0] = (uint16_t)(at + 1);
        for (int i = 0; i < 2; i++)
            if (next[i] != UINT16_MAX && !has(states, next[i]))
                waiting[count++] = next[i];
    }
}

static void step(const struct program *program, uint16_t at, uint32_t character,
                 struct states *into)
{
    const struct code *code = &program->code[at];

    switch (code->op) {
    case ONE:
        if (character == code->from)
            enter(program, into, (uint16_t)(at + 1));
        break;
    case ANY:
        if (character != '/')
            enter(program, into, (uint16_t)(at + 1));
        break;
    case CLASS:
        if (class_has(program->text + code->from, character))
            enter(program, into, (uint16_t)(at + 1));
        break;
    case STAR:
        if (character != '/')
            enter(program, into, at);
        break;
    case ALL:
        enter(program, into, at);
        break;
    default:
        break;
    }
}

static bool run(const struct program *program, const char *path)
{
    struct states states[2], *now = &states[0], *next = &states[1];
    size_t words = (program->count + 63) / 64;

    memset(now->bits, 0, words * sizeof(now->bits[0]));
    enter(program, now, 0);
    while (*path != '\0') {
        uint32_t character = take(&path);
        uint64_t any = 0;

        memset(next->bits, 0, words * sizeof(next->bits[0]));
        for (size_t word = 0; word < words; word++)
            for (uint64_t bits = now->bits[word]; bits != 0; bits &= bits - 1) {
                any = 1;
                step(program, (uint16_t)(word * 64 + (size_t)__builtin_ctzll(bits)), character,
                     next);
            }
        if (any == 0)
            return false;
        now = next;
        next = now == &states[0] ? &states[1] : &states[0];
    }
    return has(now, (uint16_t)(program->count - 1));
}

bool glob_match(const char *glob, const char *path)
{
    bool is_whole = strchr(glob, '/') != NULL;
    const char *last = strrchr(path, '/');
    struct program program;

    if (*glob == '/')
        glob++;
    if (!is_whole && last != NULL)
        path = last + 1;
    return compile(glob, &program) == NULL && run(&program, path);
}

const char *glob_flaw(const char *glob)
{
    struct program program;

    return compile(glob + (*glob == '!'), &program);
}

enum globs_answer globs_match(const char *const *globs, unsigned count, const char *path)
{
    bool is_asked = false, is_taken = false;

    for (unsigned i = 0; i < count; i++) {
        if (globs[i][0] == '!') {
            if (glob_match(globs[i] + 1, path))
                return GLOBS_EXCLUDED;
        } else {
            is_asked = true;
            is_taken = is_taken || glob_match(globs[i], path);
        }
    }
    return is_taken || !is_asked ? GLOBS_TAKEN : GLOBS_PASSED;
}
