/* Types: where they end. Parameters and parenthesised types are read by one grammar that covers both,
 * and so are tuples and patterns: what stands behind tells them apart, and here only the extent counts.
 *
 * Only type arguments behind an expression have to be tried, for `a < b` begins alike. A '<' that was tried
 * in vain is noted, with all that were open inside it, so that none is read twice for nothing; what cannot
 * be noted is bounded by a budget. Nothing here writes to the output but ts_erase_*(). */
#include "typescript_parts.h"

/* Shorter ones are as quickly tried again as looked up. */
#define TRIED_WORTH_A_NOTE 64

static const char missing_type[] = "A type was expected here.";
static const char too_many_angles[] = "There are too many '<' here of which each could begin type "
                                      "arguments: put parentheses around the comparisons.";
static const char missing_name[] = "A name was expected here.";

/* Not `conditional`: directly behind `extends`, where '?' belongs to what is around. */
static void parse_type(struct ts_parser *p, bool conditional);

static bool is_operator_word(const struct ts_parser *p, enum ts_word word)
{
    return ts_is(p, TOKEN_WORD) && ts_is_word(p, word);
}

/* Whether the token, whatever word it is, names a parameter, a member or an element. */
static bool is_label(const struct ts_parser *p)
{
    uint8_t c = ts_peek_byte(p);

    return ts_is(p, TOKEN_WORD) && (c == ':' || c == '?' || c == ',' || c == ')');
}

void ts_type_arguments(struct ts_parser *p)
{
    TS_PUSH(p, angles, p->token.start);
    ts_expect(p, '<', "'<' was expected here.");
    while (!p->failed && !ts_is(p, '>')) {
        parse_type(p, true);
        if (!ts_take(p, ','))
            break;
    }
    ts_expect(p, '>', "The type arguments are not closed by '>'.");
    if (!p->failed)
        p->angles.count--;
}

/* Parameters and arguments of types by one grammar: `const T extends U = V`, and whole types. */
void ts_type_parameters(struct ts_parser *p)
{
    ts_expect(p, '<', "'<' was expected here.");
    while (!p->failed && !ts_is(p, '>')) {
        while (is_operator_word(p, WORD_CONST) || is_operator_word(p, WORD_IN) ||
               (is_operator_word(p, WORD_OUT) && ts_peek(p)->kind == TOKEN_WORD &&
                ts_peek(p)->word != WORD_EXTENDS))
            ts_next(p);
        parse_type(p, false);
        if (is_operator_word(p, WORD_EXTENDS)) {
            ts_next(p);
            parse_type(p, true);
        }
        if (ts_take(p, '?')) {
            parse_type(p, true);
            ts_expect(p, ':', "A conditional type needs ':' here.");
            parse_type(p, true);
        }
        if (ts_take(p, '='))
            parse_type(p, true);
        if (!ts_take(p, ','))
            break;
    }
    ts_expect(p, '>', "The type parameters are not closed by '>'.");
}

/* Between brackets of any kind, over whatever is balanced: the name of a computed member. */
static void skip_brackets(struct ts_parser *p)
{
    unsigned open = 0;

    do {
        if (ts_is(p, '[') || ts_is(p, '(') || ts_is(p, '{'))
            open++;
        else if (ts_is(p, ']') || ts_is(p, ')') || ts_is(p, '}'))
            open--;
        else if (ts_is(p, TOKEN_END) || p->token.open)
            ts_fail_here(p, "A bracket is not closed here.");
        ts_note(p, NAME_VALUE); /* as TypeScript has it, though nothing is left of it */
        ts_next(p);
    } while (open > 0 && !p->failed);
}

/* One of a list; whether a parameter may look so. */
static bool parse_list_element(struct ts_parser *p)
{
    uint8_t opening = p->token.kind;
    bool parameter = is_label(p) || ts_is(p, TOKEN_ELLIPSIS);

    (void)ts_take(p, TOKEN_ELLIPSIS);
    if (is_label(p)) {
        ts_note(p, NAME_TYPE);
        ts_next(p);
    } else if (!ts_is(p, ',')) {
        parse_type(p, true);
        if (opening == '{' || opening == '[')
            parameter = p->source[p->previous_end - 1] == (opening == '{' ? '}' : ']');
    }
    (void)ts_take(p, '?');
    if (ts_take(p, ':'))
        parse_type(p, true);
    (void)ts_take(p, '?');
    return parameter;
}

/* `(...)` or `[...]`: parameters, a parenthesised type, a tuple, a pattern. True if it may be the first. */
static bool parse_list(struct ts_parser *p, unsigned close, const char *unclosed)
{
    bool parameters;

    ts_next(p);
    parameters = ts_is(p, close) || parse_list_element(p);
    while (!p->failed && ts_take(p, ','))
        if (!ts_is(p, close))
            (void)parse_list_element(p);
    ts_expect(p, close, unclosed);
    return parameters;
}

/* `(a: T) => U`, or a type in parentheses. */
static void parse_parenthesis(struct ts_parser *p)
{
    if (parse_list(p, ')', "The parentheses of a type are not closed.") && ts_take(p, TOKEN_ARROW))
        ts_return_type(p);
}

static void parse_function_type(struct ts_parser *p)
{
    if (ts_is(p, '<'))
        ts_type_parameters(p);
    if (!ts_is(p, '('))
        ts_fail_here(p, "The parameters of a function type were expected here.");
    (void)parse_list(p, ')', "The parameters of a function type are not closed.");
    ts_expect(p, TOKEN_ARROW, "A function type needs '=>' here.");
    ts_return_type(p);
}

/* `[K in T as U]?: V`; the token is '[' or what stands before it. */
static bool parse_mapped(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);

    if (ts_is(p, '+') || ts_is(p, '-'))
        ts_next(p);
    if (is_operator_word(p, WORD_READONLY))
        ts_next(p);
    if (ts_take(p, '[') && ts_is(p, TOKEN_WORD)) {
        ts_next(p);
        if (is_operator_word(p, WORD_IN)) {
            ts_next(p);
            parse_type(p, true);
            if (is_operator_word(p, WORD_AS)) {
                ts_next(p);
                parse_type(p, true);
            }
            ts_expect(p, ']', "The key of a mapped type is not closed by ']'.");
            if (ts_is(p, '+') || ts_is(p, '-'))
                ts_next(p);
            (void)ts_take(p, '?');
            if (ts_take(p, ':'))
                parse_type(p, true);
            (void)(ts_take(p, ';') || ts_take(p, ','));
            return true;
        }
    }
    ts_rewind(p, &mark);
    return false;
}

/* `[key: T]` or `[name]`. */
static void parse_computed(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);

    ts_next(p);
    if (ts_is(p, TOKEN_WORD) && ts_peek_byte(p) == ':') {
        ts_next(p);
        ts_next(p);
        parse_type(p, true);
        ts_expect(p, ']', "']' was expected here.");
        return;
    }
    ts_rewind(p, &mark);
    skip_brackets(p);
}

static bool is_member_modifier(struct ts_parser *p)
{
    const struct ts_token *next;

    if (!is_operator_word(p, WORD_READONLY) && !is_operator_word(p, WORD_GET) &&
        !is_operator_word(p, WORD_SET))
        return false;
    next = ts_peek(p);
    return next->kind == TOKEN_WORD || next->kind == TOKEN_STRING || next->kind == TOKEN_NUMBER ||
           next->kind == TOKEN_PRIVATE || next->kind == '[';
}

static void parse_member(struct ts_parser *p)
{
    while (is_member_modifier(p))
        ts_next(p);
    (void)ts_take(p, TOKEN_ELLIPSIS);
    if (ts_is(p, '['))
        parse_computed(p);
    else if (ts_is(p, TOKEN_WORD) || ts_is(p, TOKEN_STRING) || ts_is(p, TOKEN_NUMBER) ||
             ts_is(p, TOKEN_PRIVATE))
        ts_next(p); /* `new`, too */
    else if (!ts_is(p, '(') && !ts_is(p, '<'))
        ts_fail_here(p, "A member of a type was expected here.");
    (void)ts_take(p, '?');
    if (ts_is(p, '<'))
        ts_type_parameters(p);
    if (ts_is(p, '('))
        (void)parse_list(p, ')', "The parameters of a member are not closed.");
    if (ts_take(p, ':'))
        ts_return_type(p);
    if (!ts_take(p, ';') && !ts_take(p, ',') && !ts_is(p, '}') && !p->token.newline)
        ts_fail_here(p, "';', ',' or a new line was expected behind a member of a type.");
}

void ts_type_members(struct ts_parser *p)
{
    ts_expect(p, '{', "'{' was expected here.");
    (void)parse_mapped(p);
    while (!p->failed && !ts_is(p, '}'))
        parse_member(p);
    ts_expect(p, '}', "The members of a type are not closed by '}'.");
}

static void parse_template(struct ts_parser *p)
{
    while (!p->failed && p->token.open) {
        ts_next(p);
        parse_type(p, true);
        if (!ts_is(p, '}'))
            ts_fail_here(p, "'}' was expected here.");
        ts_template_on(p);
    }
    ts_next(p);
}

/* `.a.b`, and type arguments, which begin on the same line. */
static void parse_entity_rest(struct ts_parser *p)
{
    while (ts_take(p, '.')) {
        if (!ts_is(p, TOKEN_WORD) && !ts_is(p, TOKEN_PRIVATE))
            ts_fail_here(p, missing_name);
        ts_next(p);
    }
    if (ts_is(p, '<') && !p->token.newline)
        ts_type_arguments(p);
}

/* `import("x", {with: {...}}).A<B>` */
static void parse_import_type(struct ts_parser *p)
{
    ts_next(p);
    if (!ts_is(p, '('))
        ts_fail_here(p, "'(' was expected behind the import of a type.");
    skip_brackets(p);
    parse_entity_rest(p);
}

/* Those that take neither members nor arguments. */
static bool is_plain_type(const struct ts_parser *p)
{
    switch (p->token.word) {
    case WORD_ANY:
    case WORD_BIGINT:
    case WORD_BOOLEAN:
    case WORD_NEVER:
    case WORD_NUMBER:
    case WORD_OBJECT:
    case WORD_STRING:
    case WORD_SYMBOL:
    case WORD_UNDEFINED:
    case WORD_UNKNOWN:
    case WORD_VOID:
    case WORD_NULL:
    case WORD_TRUE:
    case WORD_FALSE:
    case WORD_CONST:
        return true;
    default:
        return false;
    }
}

static void parse_word(struct ts_parser *p)
{
    if (is_plain_type(p) && (p->token.word == WORD_CONST || ts_peek_byte(p) != '.')) {
        ts_next(p);
    } else if (ts_is_word(p, WORD_TYPEOF)) {
        ts_next(p);
        if (ts_is_word(p, WORD_IMPORT)) {
            parse_import_type(p);
            return;
        }
        ts_note(p, NAME_TYPE);
        ts_expect(p, TOKEN_WORD, missing_name);
        parse_entity_rest(p);
    } else if (ts_is_word(p, WORD_IMPORT)) {
        parse_import_type(p);
    } else if (ts_is_name(p) || ts_is_word(p, WORD_THIS)) {
        ts_note(p, NAME_TYPE);
        ts_next(p);
        parse_entity_rest(p);
    } else {
        ts_fail_here(p, missing_type);
    }
}

static void parse_primary(struct ts_parser *p)
{
    switch (p->token.kind) {
    case TOKEN_WORD:
        parse_word(p);
        break;
    case '[':
        (void)parse_list(p, ']', "A tuple is not closed by ']'.");
        break;
    case '{':
        ts_type_members(p);
        break;
    case '-':
        ts_next(p);
        ts_expect(p, TOKEN_NUMBER, "A number was expected behind '-' in a type.");
        break;
    case TOKEN_STRING:
    case TOKEN_NUMBER:
        ts_next(p);
        break;
    case TOKEN_TEMPLATE:
        parse_template(p);
        break;
    default:
        ts_fail_here(p, missing_type);
    }
}

/* The next token goes on with a type, and so makes the word before it an operator. */
static bool begins_type(const struct ts_token *token)
{
    switch (token->kind) {
    case TOKEN_WORD:
        return token->word != WORD_EXTENDS && token->word != WORD_IS && token->word != WORD_AS &&
               token->word != WORD_IN;
    case '(':
    case '[':
    case '{':
    case '-':
    case TOKEN_STRING:
    case TOKEN_NUMBER:
    case TOKEN_TEMPLATE:
        return true;
    default:
        return false;
    }
}

/* Words before a type: `keyof T`; as names they stand alone. Returns whether the last one was `infer`. */
static bool skip_prefixes(struct ts_parser *p)
{
    bool infer = false;

    while (ts_is(p, TOKEN_WORD) && !p->failed) {
        const struct ts_token *next;

        if (!ts_is_word(p, WORD_KEYOF) && !ts_is_word(p, WORD_UNIQUE) &&
            !ts_is_word(p, WORD_READONLY) && !ts_is_word(p, WORD_INFER))
            break;
        next = ts_peek(p);
        if (!begins_type(next))
            break;
        infer = ts_is_word(p, WORD_INFER);
        ts_next(p);
    }
    return infer;
}

/* Between '|' and '&'. True if it was a function type, which takes all that follows, or `infer T`. */
static void parse_operand(struct ts_parser *p, bool conditional)
{
    bool infer = skip_prefixes(p);

    if (is_operator_word(p, WORD_ABSTRACT) && ts_peek(p)->word == WORD_NEW)
        ts_next(p);
    if (is_operator_word(p, WORD_NEW)) {
        ts_next(p);
        parse_function_type(p);
    } else if (ts_is(p, '<')) {
        parse_function_type(p);
    } else if (ts_is(p, '(')) {
        parse_parenthesis(p);
    } else {
        parse_primary(p);
    }
    while (ts_is(p, '[') && !p->token.newline) {
        ts_next(p);
        if (!ts_is(p, ']'))
            parse_type(p, true);
        ts_expect(p, ']', "']' was expected in a type here.");
    }
    /* Where a conditional type may stand, `infer T extends U` is read as the head of one, which ends
     * at the same place. */
    if (infer && !conditional && is_operator_word(p, WORD_EXTENDS)) {
        ts_next(p);
        parse_type(p, false);
    }
}

static void parse_union(struct ts_parser *p, bool conditional)
{
    if (ts_is(p, '|') || ts_is(p, '&'))
        ts_next(p);
    parse_operand(p, conditional);
    while (ts_is(p, '|') || ts_is(p, '&')) {
        ts_next(p);
        if (ts_is(p, '|') || ts_is(p, '&'))
            ts_next(p);
        parse_operand(p, conditional);
    }
}

static void parse_type(struct ts_parser *p, bool conditional)
{
    if (p->failed || !ts_enter(p))
        return;
    for (;;) {
        bool may_be_constraint = is_operator_word(p, WORD_INFER);

        parse_union(p, conditional);
        if (!conditional || !is_operator_word(p, WORD_EXTENDS) ||
            (p->token.newline && !may_be_constraint))
            break;
        ts_next(p);
        parse_type(p, false);
        if (!ts_is(p, '?') && may_be_constraint)
            break;
        ts_expect(p, '?', "A conditional type needs '?' here.");
        parse_type(p, true);
        ts_expect(p, ':', "A conditional type needs ':' here.");
    }
    ts_leave(p);
}

void ts_type(struct ts_parser *p)
{
    parse_type(p, true);
}

/* Also `x is T`, `asserts x` and `asserts x is T`. */
void ts_return_type(struct ts_parser *p)
{
    const struct ts_token *next;

    if (is_operator_word(p, WORD_ASSERTS)) {
        next = ts_peek(p);
        if (next->kind == TOKEN_WORD && !next->newline && next->word != WORD_IS &&
            next->word != WORD_EXTENDS) {
            ts_next(p);
            ts_next(p);
            if (!is_operator_word(p, WORD_IS))
                return;
            ts_next(p);
            parse_type(p, true);
            return;
        }
    }
    if (ts_is_name(p) || ts_is_word(p, WORD_THIS)) {
        next = ts_peek(p);
        if (next->word == WORD_IS && !next->newline) {
            ts_next(p);
            ts_next(p);
        }
    }
    parse_type(p, true);
}

/* What may stand behind the type arguments of an expression; elsewhere '<' and '>' compare. */
static bool may_follow_arguments(const struct ts_parser *p)
{
    switch (p->token.kind) {
    case '(':
    case TOKEN_TEMPLATE:
        return true;
    case '<':
    case '>':
    case '+':
    case '-':
        return false;
    case TOKEN_WORD:
        return p->token.newline || ts_is_word(p, WORD_IN) || ts_is_word(p, WORD_INSTANCEOF) ||
               ts_is_word(p, WORD_AS) || ts_is_word(p, WORD_SATISFIES) ||
               ts_is_word(p, WORD_EXTENDS) || ts_is_word(p, WORD_ELSE);
    case TOKEN_PRIVATE:
    case TOKEN_NUMBER:
    case TOKEN_STRING:
    case TOKEN_COUNT:
    case '[':
    case '{':
    case '!':
    case '~':
    case '@':
        return p->token.newline;
    default:
        return true;
    }
}

/* The last '>' is the first character of an operator: `a<b>=c`, `a<b>>c`. */
static bool is_joined(const struct ts_parser *p)
{
    uint8_t next = p->previous_end < p->length ? p->source[p->previous_end] : 0;

    return next == '=' || next == '>';
}

static struct ts_span angle_span(uint32_t at)
{
    return (struct ts_span){at, at + 1};
}

bool ts_try_type_arguments(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);
    uint32_t open = p->angles.count, start = p->token.start, reached;
    unsigned depth = p->depth;
    bool good;

    if (p->failed || ts_name_find(p, SCOPE_ANGLE | start, angle_span(start)) != NULL)
        return false;
    ts_type_arguments(p);
    reached = p->position;
    good = !p->failed && !is_joined(p) && may_follow_arguments(p);
    p->depth = depth;
    if (good)
        return true;
    ts_rewind(p, &mark);
    if (reached - start >= TRIED_WORTH_A_NOTE)
        for (uint32_t i = open; i < p->angles.count; i++)
            (void)ts_name(p, SCOPE_ANGLE | p->angles.items[i], angle_span(p->angles.items[i]));
    p->angles.count = open;
    p->tried += reached - start;
    if (p->tried > p->may_try)
        ts_fail_here(p, too_many_angles);
    return false;
}

bool ts_try_type_parameters(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);
    uint32_t start = p->token.start, open = p->angles.count;
    unsigned depth = p->depth;

    ts_type_parameters(p);
    if (!p->failed && ts_is(p, '('))
        return true;
    p->tried += p->position - start;
    p->depth = depth;
    p->angles.count = open;
    ts_rewind(p, &mark);
    if (p->tried > p->may_try)
        ts_fail_here(p, too_many_angles);
    return false;
}

void ts_erase_annotation(struct ts_parser *p)
{
    uint32_t start = p->token.start;

    if (!ts_take(p, ':'))
        return;
    ts_return_type(p);
    ts_blank(p, start, p->previous_end);
}

void ts_erase_type_parameters(struct ts_parser *p)
{
    uint32_t start = p->token.start;

    if (!ts_is(p, '<'))
        return;
    ts_type_parameters(p);
    ts_blank(p, start, p->previous_end);
}
