/* The tokeniser of the TypeScript eraser: one token at a time, of the source as it came.
 *
 * Whether '/' divides or begins a regular expression, and whether '}' ends a template's "${", the parser
 * knows: it asks for the other reading where it stands at one. A tokeniser that guessed this from the
 * token before would be wrong behind ')' and '}'. Nothing here may read past the source's length. */
#include "typescript_parts.h"

#include <string.h>

#define CLASS_START 1U /* of an identifier */
#define CLASS_PART 2U
#define CLASS_DIGIT 4U
#define CLASS_SPACE 8U

static const uint8_t classes[256] = {
    ['\t'] = CLASS_SPACE,
    ['\v'] = CLASS_SPACE,
    ['\f'] = CLASS_SPACE,
    [' '] = CLASS_SPACE,
    ['0' ... '9'] = CLASS_PART | CLASS_DIGIT,
    ['a' ... 'z'] = CLASS_START | CLASS_PART,
    ['A' ... 'Z'] = CLASS_START | CLASS_PART,
    ['$'] = CLASS_START | CLASS_PART,
    ['_'] = CLASS_START | CLASS_PART,
    ['\\'] = CLASS_START | CLASS_PART,
    [0x80 ... 0xff] = CLASS_START | CLASS_PART,
};

static const struct {
    char text[12];
    uint8_t length, word;
} words[] = {
    {"abstract", 8, WORD_ABSTRACT},
    {"accessor", 8, WORD_ACCESSOR},
    {"any", 3, WORD_ANY},
    {"as", 2, WORD_AS},
    {"assert", 6, WORD_ASSERT},
    {"asserts", 7, WORD_ASSERTS},
    {"async", 5, WORD_ASYNC},
    {"await", 5, WORD_AWAIT},
    {"bigint", 6, WORD_BIGINT},
    {"boolean", 7, WORD_BOOLEAN},
    {"break", 5, WORD_BREAK},
    {"case", 4, WORD_CASE},
    {"catch", 5, WORD_CATCH},
    {"class", 5, WORD_CLASS},
    {"const", 5, WORD_CONST},
    {"constructor", 11, WORD_CONSTRUCTOR},
    {"continue", 8, WORD_CONTINUE},
    {"debugger", 8, WORD_DEBUGGER},
    {"declare", 7, WORD_DECLARE},
    {"default", 7, WORD_DEFAULT},
    {"delete", 6, WORD_DELETE},
    {"do", 2, WORD_DO},
    {"else", 4, WORD_ELSE},
    {"enum", 4, WORD_ENUM},
    {"export", 6, WORD_EXPORT},
    {"extends", 7, WORD_EXTENDS},
    {"false", 5, WORD_FALSE},
    {"finally", 7, WORD_FINALLY},
    {"for", 3, WORD_FOR},
    {"from", 4, WORD_FROM},
    {"function", 8, WORD_FUNCTION},
    {"get", 3, WORD_GET},
    {"global", 6, WORD_GLOBAL},
    {"if", 2, WORD_IF},
    {"implements", 10, WORD_IMPLEMENTS},
    {"import", 6, WORD_IMPORT},
    {"in", 2, WORD_IN},
    {"infer", 5, WORD_INFER},
    {"instanceof", 10, WORD_INSTANCEOF},
    {"interface", 9, WORD_INTERFACE},
    {"is", 2, WORD_IS},
    {"keyof", 5, WORD_KEYOF},
    {"let", 3, WORD_LET},
    {"module", 6, WORD_MODULE},
    {"namespace", 9, WORD_NAMESPACE},
    {"never", 5, WORD_NEVER},
    {"new", 3, WORD_NEW},
    {"null", 4, WORD_NULL},
    {"number", 6, WORD_NUMBER},
    {"object", 6, WORD_OBJECT},
    {"of", 2, WORD_OF},
    {"out", 3, WORD_OUT},
    {"override", 8, WORD_OVERRIDE},
    {"private", 7, WORD_PRIVATE},
    {"protected", 9, WORD_PROTECTED},
    {"public", 6, WORD_PUBLIC},
    {"readonly", 8, WORD_READONLY},
    {"require", 7, WORD_REQUIRE},
    {"return", 6, WORD_RETURN},
    {"satisfies", 9, WORD_SATISFIES},
    {"set", 3, WORD_SET},
    {"static", 6, WORD_STATIC},
    {"string", 6, WORD_STRING},
    {"super", 5, WORD_SUPER},
    {"switch", 6, WORD_SWITCH},
    {"symbol", 6, WORD_SYMBOL},
    {"this", 4, WORD_THIS},
    {"throw", 5, WORD_THROW},
    {"true", 4, WORD_TRUE},
    {"try", 3, WORD_TRY},
    {"type", 4, WORD_TYPE},
    {"typeof", 6, WORD_TYPEOF},
    {"undefined", 9, WORD_UNDEFINED},
    {"unique", 6, WORD_UNIQUE},
    {"unknown", 7, WORD_UNKNOWN},
    {"using", 5, WORD_USING},
    {"var", 3, WORD_VAR},
    {"void", 4, WORD_VOID},
    {"while", 5, WORD_WHILE},
    {"with", 4, WORD_WITH},
    {"yield", 5, WORD_YIELD},
};

/* Of each letter, where its words begin. */
static const uint8_t letters[27] = {0,  8,  11, 17, 22, 26, 31, 33, 33, 41, 41, 42, 43, 44,
                                    49, 53, 56, 56, 59, 66, 72, 76, 78, 80, 80, 81, 81};

static uint8_t at(const struct ts_parser *p, uint32_t i)
{
    return i < p->length ? p->source[i] : 0;
}

static bool is_part(const struct ts_parser *p, uint32_t i)
{
    return (classes[at(p, i)] & CLASS_PART) != 0;
}

/* The length of a space beyond ASCII, or 0; sets `newline` for those that end a line. */
static uint32_t wide_space(const struct ts_parser *p, uint32_t i, bool *newline)
{
    uint8_t a = at(p, i), b = at(p, i + 1), c = at(p, i + 2);

    if (a == 0xc2 && b == 0xa0)
        return 2;
    if (a == 0xe2 && b == 0x80) {
        if (c == 0xa8 || c == 0xa9)
            *newline = true;
        return (c >= 0x80 && c <= 0x8a) || c == 0xa8 || c == 0xa9 || c == 0xaf ? 3 : 0;
    }
    return (a == 0xef && b == 0xbb && c == 0xbf) || (a == 0xe1 && b == 0x9a && c == 0x80) ||
                   (a == 0xe2 && b == 0x81 && c == 0x9f) || (a == 0xe3 && b == 0x80 && c == 0x80)
               ? 3
               : 0;
}

static bool is_line_end(const struct ts_parser *p, uint32_t i)
{
    uint8_t c = at(p, i);

    return c == '\n' || c == '\r' ||
           (c == 0xe2 && at(p, i + 1) == 0x80 && (at(p, i + 2) == 0xa8 || at(p, i + 2) == 0xa9));
}

static uint32_t skip_line(const struct ts_parser *p, uint32_t i)
{
    while (i < p->length && !is_line_end(p, i))
        i++;
    return i;
}

/* Behind a comment of the other kind, or the length + 1 if it does not end. */
static uint32_t skip_comment(const struct ts_parser *p, uint32_t i, bool *newline)
{
    for (i += 2; i < p->length; i++) {
        if (p->source[i] == '*' && at(p, i + 1) == '/')
            return i + 2;
        if (is_line_end(p, i))
            *newline = true;
    }
    return p->length + 1;
}

static uint32_t skip_space(const struct ts_parser *p, uint32_t i, bool *newline)
{
    while (i < p->length) {
        uint8_t c = p->source[i];

        if (classes[c] & CLASS_SPACE) {
            i++;
        } else if (c == '\n' || c == '\r') {
            *newline = true;
            i++;
        } else if (c == '/' && at(p, i + 1) == '/') {
            i = skip_line(p, i);
        } else if (c == '/' && at(p, i + 1) == '*') {
            i = skip_comment(p, i, newline);
        } else if (c >= 0x80) {
            uint32_t n = wide_space(p, i, newline);
            if (n == 0)
                break;
            i += n;
        } else {
            break;
        }
    }
    return i;
}

static uint32_t skip_identifier(const struct ts_parser *p, uint32_t i)
{
    bool newline = false;

    for (; i < p->length; i++) {
        uint8_t c = p->source[i];
        if (!(classes[c] & CLASS_PART) || (c >= 0x80 && wide_space(p, i, &newline) > 0))
            break;
        if (c == '\\' && at(p, i + 1) == 'u' && at(p, i + 2) == '{')
            while (i < p->length && p->source[i] != '}' && p->source[i] != '\n')
                i++;
    }
    return i < p->length ? i : p->length;
}

static uint8_t find_word(const uint8_t *text, uint32_t length)
{
    uint8_t c = text[0];

    if (length > 11 || c < 'a' || c > 'z')
        return WORD_NONE;
    for (unsigned i = letters[c - 'a']; i < letters[c - 'a' + 1]; i++)
        if (words[i].length == length && memcmp(words[i].text, text, length) == 0)
            return words[i].word;
    return WORD_NONE;
}

static uint32_t skip_digits(const struct ts_parser *p, uint32_t i)
{
    while ((classes[at(p, i)] & CLASS_DIGIT) || at(p, i) == '_')
        i++;
    return i;
}

static uint32_t skip_number(const struct ts_parser *p, uint32_t i)
{
    uint8_t second = at(p, i + 1) | 0x20;

    if (at(p, i) == '0' && (second == 'x' || second == 'b' || second == 'o'))
        return skip_identifier(p, i + 2);
    i = skip_digits(p, i);
    if (at(p, i) == '.')
        i = skip_digits(p, i + 1);
    if ((at(p, i) | 0x20) == 'e') {
        uint32_t sign = at(p, i + 1) == '+' || at(p, i + 1) == '-' ? 1 : 0;
        if (classes[at(p, i + 1 + sign)] & CLASS_DIGIT)
            i = skip_digits(p, i + 1 + sign);
    }
    return is_part(p, i) ? skip_identifier(p, i) : i;
}

static void read_string(struct ts_parser *p)
{
    uint8_t quote = p->source[p->token.start];
    uint32_t i = p->token.start + 1;

    for (; i < p->length && p->source[i] != quote; i++) {
        if (p->source[i] == '\\')
            i += at(p, i + 1) == '\r' && at(p, i + 2) == '\n' ? 2 : 1;
        else if (p->source[i] == '\n' || p->source[i] == '\r')
            break;
    }
    if (i >= p->length || p->source[i] != quote) {
        ts_fail(p, p->token.start, "This string is not closed on its line.");
        return;
    }
    p->token.kind = TOKEN_STRING;
    p->token.end = i + 1;
}

/* From behind the back-quote or the '}'. */
static void read_template(struct ts_parser *p, uint32_t i)
{
    for (; i < p->length; i++) {
        if (p->source[i] == '\\') {
            i++;
        } else if (p->source[i] == '`' || (p->source[i] == '$' && at(p, i + 1) == '{')) {
            p->token.kind = TOKEN_TEMPLATE;
            p->token.word = WORD_NONE;
            p->token.open = p->source[i] == '$';
            p->token.end = i + (p->token.open ? 2 : 1);
            p->position = p->token.end;
            return;
        }
    }
    ts_fail(p, p->token.start, "This template string is not closed.");
}

struct mark_text {
    char text[5];
    uint8_t length, kind;
};

/* Longest first. Without what begins with '<' or '>'. */
static const struct mark_text marks[] = {
    {"...", 3, TOKEN_ELLIPSIS}, {"===", 3, TOKEN_BINARY}, {"!==", 3, TOKEN_BINARY},
    {"**=", 3, TOKEN_ASSIGN},   {"&&=", 3, TOKEN_ASSIGN}, {"||=", 3, TOKEN_ASSIGN},
    {"?\?=", 3, TOKEN_ASSIGN},  {"=>", 2, TOKEN_ARROW},   {"==", 2, TOKEN_BINARY},
    {"!=", 2, TOKEN_BINARY},    {"++", 2, TOKEN_COUNT},   {"--", 2, TOKEN_COUNT},
    {"+=", 2, TOKEN_ASSIGN},    {"-=", 2, TOKEN_ASSIGN},  {"*=", 2, TOKEN_ASSIGN},
    {"/=", 2, TOKEN_ASSIGN},    {"%=", 2, TOKEN_ASSIGN},  {"&=", 2, TOKEN_ASSIGN},
    {"|=", 2, TOKEN_ASSIGN},    {"^=", 2, TOKEN_ASSIGN},  {"&&", 2, TOKEN_BINARY},
    {"||", 2, TOKEN_BINARY},    {"??", 2, TOKEN_BINARY},  {"**", 2, TOKEN_BINARY},
};

static bool may_join(uint8_t c)
{
    return c == '=' || c == '+' || c == '-' || c == '&' || c == '|' || c == '?' || c == '*' ||
           c == '>' || c == '.';
}

static void read_punctuator(struct ts_parser *p)
{
    uint32_t i = p->token.start;
    uint8_t c = p->source[i], second = at(p, i + 1);

    p->token.kind = c;
    p->token.end = i + 1;
    if (!may_join(second) || c == '<' || c == '>')
        return;
    if (c == '?' && second == '.') {
        if (!(classes[at(p, i + 2)] & CLASS_DIGIT)) {
            p->token.kind = TOKEN_CHAIN;
            p->token.end = i + 2;
        }
        return;
    }
    for (size_t k = 0; k < sizeof(marks) / sizeof(marks[0]); k++) {
        if (c == (uint8_t)marks[k].text[0] && p->length - i >= marks[k].length &&
            memcmp(p->source + i, marks[k].text, marks[k].length) == 0) {
            p->token.kind = marks[k].kind;
            p->token.end = i + marks[k].length;
            return;
        }
    }
}

static void read_token(struct ts_parser *p)
{
    uint32_t i = p->token.start;
    uint8_t c = p->source[i];

    if (classes[c] & CLASS_START) {
        p->token.kind = TOKEN_WORD;
        p->token.end = skip_identifier(p, i);
        p->token.word = find_word(p->source + i, p->token.end - i);
    } else if ((classes[c] & CLASS_DIGIT) || (c == '.' && (classes[at(p, i + 1)] & CLASS_DIGIT))) {
        p->token.kind = TOKEN_NUMBER;
        p->token.end = skip_number(p, i);
    } else if (c == '"' || c == '\'') {
        read_string(p);
    } else if (c == '`') {
        read_template(p, i + 1);
    } else if (c == '#' && is_part(p, i + 1)) {
        p->token.kind = TOKEN_PRIVATE;
        p->token.end = skip_identifier(p, i + 1);
    } else if (c > ' ' && c < 0x7f) {
        read_punctuator(p);
    } else {
        ts_fail(p, i, "This character cannot stand here.");
    }
}

void ts_next(struct ts_parser *p)
{
    bool newline = false;
    uint32_t start;

    if (p->failed)
        return;
    p->previous_end = p->token.end;
    start = skip_space(p, p->position, &newline);
    if (start > p->length) {
        ts_fail(p, p->position, "This comment is not closed.");
        return;
    }
    p->token = (struct ts_token){.start = start, .end = start, .newline = newline};
    if (start < p->length)
        read_token(p);
    p->position = p->token.end;
}

struct ts_mark ts_mark(const struct ts_parser *p)
{
    return (struct ts_mark){p->token, p->position, p->previous_end};
}

void ts_rewind(struct ts_parser *p, const struct ts_mark *mark)
{
    p->token = mark->token;
    p->position = mark->position;
    p->previous_end = mark->previous_end;
    p->failed = false;
}

const struct ts_token *ts_peek(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);

    if (p->failed)
        return &p->token;
    ts_next(p);
    p->peeked = p->token;
    ts_rewind(p, &mark);
    return &p->peeked;
}

uint8_t ts_peek_byte(const struct ts_parser *p)
{
    bool newline = false;

    return at(p, skip_space(p, p->position, &newline));
}

void ts_regex(struct ts_parser *p)
{
    uint32_t i = p->token.start + 1;
    bool in_class = false;

    if (p->failed)
        return;
    for (; i < p->length && (in_class || p->source[i] != '/') && !is_line_end(p, i); i++) {
        if (p->source[i] == '\\' && !is_line_end(p, i + 1))
            i++;
        else if (p->source[i] == '[')
            in_class = true;
        else if (p->source[i] == ']')
            in_class = false;
    }
    if (at(p, i) != '/') {
        ts_fail(p, p->token.start, "This regular expression is not closed on its line.");
        return;
    }
    p->token.kind = TOKEN_REGEX;
    p->token.end = skip_identifier(p, i + 1);
    p->position = p->token.end;
}

void ts_template_on(struct ts_parser *p)
{
    if (!p->failed)
        read_template(p, p->token.start + 1);
}

/* Of what begins with '<' or '>'. */
static enum ts_kind angle_operator(struct ts_parser *p)
{
    uint8_t c = p->token.kind;
    uint32_t i = p->token.start + 1;
    unsigned most = c == '>' ? 3 : 2, n = 1;

    while (n < most && at(p, i) == c) {
        i++;
        n++;
    }
    if (at(p, i) != '=') {
        p->token.end = p->position = i;
        return TOKEN_BINARY;
    }
    p->token.end = p->position = i + 1;
    return n > 1 ? TOKEN_ASSIGN : TOKEN_BINARY;
}

enum ts_kind ts_operator(struct ts_parser *p)
{
    enum ts_kind kind;

    switch (p->token.kind) {
    case '<':
    case '>':
        kind = angle_operator(p);
        break;
    case '+':
    case '-':
    case '*':
    case '/':
    case '%':
    case '&':
    case '|':
    case '^':
    case TOKEN_BINARY:
        kind = TOKEN_BINARY;
        break;
    case '=':
    case TOKEN_ASSIGN:
        kind = TOKEN_ASSIGN;
        break;
    default:
        return TOKEN_END;
    }
    ts_next(p);
    return kind;
}

bool ts_is(const struct ts_parser *p, unsigned kind)
{
    return p->token.kind == kind;
}

bool ts_is_word(const struct ts_parser *p, enum ts_word word)
{
    return p->token.word == word;
}

bool ts_is_name(const struct ts_parser *p)
{
    return p->token.kind == TOKEN_WORD &&
           (p->token.word == WORD_NONE || p->token.word > WORD_LAST_RESERVED);
}

bool ts_take(struct ts_parser *p, unsigned kind)
{
    if (p->token.kind != kind)
        return false;
    ts_next(p);
    return true;
}

void ts_expect(struct ts_parser *p, unsigned kind, const char *sentence)
{
    if (!ts_take(p, kind))
        ts_fail_here(p, sentence);
}

struct ts_span ts_span(const struct ts_parser *p)
{
    return (struct ts_span){p->token.start, p->token.end};
}

bool ts_has_newline(const struct ts_parser *p, uint32_t start, uint32_t end)
{
    for (; start < end; start++)
        if (is_line_end(p, start))
            return true;
    return false;
}

bool ts_enter(struct ts_parser *p)
{
    if (p->depth >= TYPESCRIPT_DEPTH_MAX) {
        ts_fail_here(p, "Too many blocks, brackets, functions or types lie in one another here: "
                        "write it flatter.");
        return false;
    }
    p->depth++;
    return true;
}

void ts_leave(struct ts_parser *p)
{
    p->depth--;
}
