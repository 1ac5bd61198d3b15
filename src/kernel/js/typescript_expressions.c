/* Expressions: operands and operators in one loop, for how strongly operators bind moves no type.
 *
 * Parentheses are read as parameters and as an expression at once; what follows them decides. Only
 * `a ? (b) : c => d` stays open until its end is seen: `: c` is a return type if another ':' follows the
 * body, and otherwise the conditional's second half. Both readings have the same body, so nothing is read
 * twice. */
#include "typescript_parts.h"

static const char missing_operand[] = "An expression was expected here.";

static enum ts_end parse_operand(struct ts_parser *p, unsigned flags, bool may_be_arrow);

static bool is_word(const struct ts_parser *p, enum ts_word word)
{
    return ts_is_word(p, word);
}

/* Notes a use of a word that was read. */
static void note_word(struct ts_parser *p, const struct ts_token *word)
{
    struct ts_name *name = word->kind == TOKEN_WORD
                               ? ts_name(p, 0, (struct ts_span){word->start, word->end})
                               : NULL;

    if (name != NULL)
        ts_name_mark(name, p->ambient > 0 ? NAME_TYPE : NAME_VALUE);
}

/* At "=>": the body. */
static enum ts_end parse_arrow_body(struct ts_parser *p, unsigned flags)
{
    bool in_generator = p->in_generator;
    enum ts_end end = END_ARROW;

    ts_next(p);
    if (ts_is(p, '{')) {
        ts_function_body(p, 0);
        return END_ARROW;
    }
    p->in_generator = false;
    if (ts_assignment(p, flags & ~EXPRESSION_PAREN) == END_ELSE)
        end = END_ELSE;
    p->in_generator = in_generator;
    return end;
}

/* What parentheses were seen to hold. */
struct parenthesis {
    uint32_t open, close;
    uint32_t angle; /* where "<T>" before them begins, or UINT32_MAX */
    bool surely;    /* parameters: an annotation, a rest, or nothing at all */
    bool perhaps;   /* names and patterns only */
};

/* `this: T,` goes with its comma. */
static bool erase_this(struct ts_parser *p)
{
    uint32_t start = p->token.start;

    if (!is_word(p, WORD_THIS) || ts_peek_byte(p) != ':')
        return false;
    ts_next(p);
    ts_next(p);
    ts_type(p);
    (void)ts_take(p, ',');
    ts_blank(p, start, p->previous_end);
    return true;
}

static void parse_element(struct ts_parser *p, struct parenthesis *found)
{
    uint32_t start = p->token.start;
    uint8_t next = ts_peek_byte(p);
    bool group = ts_is(p, '{') || ts_is(p, '[');
    bool named = ts_is_name(p) &&
                 (next == ',' || next == ')' || next == '=' || next == ':' || next == '?');

    if (ts_take(p, TOKEN_ELLIPSIS))
        found->surely = true;
    ts_assignment(p, EXPRESSION_PAREN);
    if (!named &&
        !(group && p->source[p->previous_end - 1] == (p->source[start] == '{' ? '}' : ']')))
        found->perhaps = false;
    if (ts_is(p, '?')) {
        found->surely = true;
        ts_blank(p, p->token.start, p->token.end);
        ts_next(p);
    }
    if (ts_is(p, ':')) {
        found->surely = true;
        ts_erase_annotation(p);
        if (ts_take(p, '='))
            ts_assignment(p, 0);
    }
}

/* At '('; to behind the ')'. */
static struct parenthesis parse_parenthesis(struct ts_parser *p)
{
    struct parenthesis found = {.open = p->token.start, .angle = UINT32_MAX, .perhaps = true};

    ts_next(p);
    if (ts_is(p, ')'))
        found.surely = true;
    if (erase_this(p))
        found.surely = true;
    while (!p->failed && !ts_is(p, ')')) {
        parse_element(p, &found);
        if (!ts_take(p, ','))
            break;
    }
    found.close = p->token.start;
    ts_expect(p, ')', "',' or ')' was expected here.");
    return found;
}

/* An arrow function must not have an end of a line between ')' and "=>", nor between `async` and '(':
 * where a type that is erased leaves one, the parenthesis moves to its far end. */
static void close_gaps(struct ts_parser *p, const struct parenthesis *at, uint32_t type_end)
{
    if (p->failed)
        return;
    if (type_end > at->close && ts_has_newline(p, at->close, type_end)) {
        p->output[at->close] = ' ';
        p->output[type_end - 1] = ')';
    }
    if (at->angle != UINT32_MAX && ts_has_newline(p, at->angle, at->open)) {
        p->output[at->open] = ' ';
        p->output[at->angle] = '(';
    }
}

/* At ':' behind parentheses that are parameters, or may be: `found` says which. */
static enum ts_end parse_returning(struct ts_parser *p, unsigned flags,
                                   const struct parenthesis *found)
{
    struct ts_mark mark = ts_mark(p);
    uint32_t start = p->token.start, type_end, angles = p->angles.count;
    struct ts_span gone;
    bool sure = found->surely || !(flags & EXPRESSION_MIDDLE);
    unsigned depth = p->depth;
    enum ts_end end;

    ts_next(p);
    ts_return_type(p);
    type_end = p->previous_end;
    if (!sure && (p->failed || !ts_is(p, TOKEN_ARROW))) {
        p->tried += p->position - start;
        p->depth = depth;
        p->angles.count = angles;
        ts_rewind(p, &mark);
        if (p->tried > p->may_try)
            ts_fail_here(p, "There are too many conditionals here that may be functions: put "
                            "parentheses around them.");
        return END_PLAIN;
    }
    if (!ts_is(p, TOKEN_ARROW)) {
        ts_fail_here(p, "'=>' was expected here.");
        return END_PLAIN;
    }
    end = parse_arrow_body(p, flags);
    if (!sure && end == END_ARROW && !ts_is(p, ':'))
        return END_ELSE;
    gone = p->gone; /* the body's, which stands behind */
    ts_blank(p, start, type_end);
    close_gaps(p, found, type_end);
    p->gone = gone;
    return end;
}

/* Behind parentheses where a function may stand. */
static enum ts_end parse_after_parenthesis(struct ts_parser *p, unsigned flags,
                                           const struct parenthesis *found)
{
    if (ts_is(p, TOKEN_ARROW)) {
        close_gaps(p, found, found->close);
        return parse_arrow_body(p, flags);
    }
    if (ts_is(p, ':') && (found->surely || (found->perhaps && !(flags & EXPRESSION_CASE))))
        return parse_returning(p, flags, found);
    return END_PLAIN;
}

/* At '(' of an operand. */
static enum ts_end parse_group(struct ts_parser *p, unsigned flags, bool may_be_arrow,
                               uint32_t angle)
{
    struct parenthesis found = parse_parenthesis(p);
    enum ts_end end;

    found.angle = angle;
    if (!may_be_arrow)
        return END_PLAIN;
    end = parse_after_parenthesis(p, flags, &found);
    if (end == END_PLAIN && found.surely)
        ts_fail(p, found.close, "'=>' was expected behind these parameters.");
    return end;
}

/* At '(': a call's. */
static void parse_arguments(struct ts_parser *p)
{
    ts_next(p);
    while (!p->failed && !ts_is(p, ')')) {
        (void)ts_take(p, TOKEN_ELLIPSIS);
        ts_assignment(p, 0);
        if (!ts_take(p, ','))
            break;
    }
    ts_expect(p, ')', "',' or ')' was expected here.");
}

static void parse_template(struct ts_parser *p)
{
    while (!p->failed && p->token.open) {
        ts_next(p);
        ts_expression(p, 0);
        if (!ts_is(p, '}')) {
            ts_fail_here(p, "'}' was expected here, to end what \"${\" began.");
            return;
        }
        ts_template_on(p);
    }
    ts_next(p);
}

static void parse_member_name(struct ts_parser *p)
{
    if (!ts_is(p, TOKEN_WORD) && !ts_is(p, TOKEN_PRIVATE))
        ts_fail_here(p, "The name of a property was expected here.");
    ts_next(p);
}

static void parse_index(struct ts_parser *p)
{
    ts_next(p);
    ts_expression(p, 0);
    ts_expect(p, ']', "']' was expected here.");
}

/* Behind "?.". */
static void parse_chain(struct ts_parser *p)
{
    if (ts_is(p, '<')) {
        uint32_t start = p->token.start;
        ts_type_arguments(p);
        ts_blank(p, start, p->previous_end);
    }
    if (ts_is(p, '('))
        parse_arguments(p);
    else if (ts_is(p, '['))
        parse_index(p);
    else if (ts_is(p, TOKEN_TEMPLATE))
        parse_template(p);
    else
        parse_member_name(p);
}

/* Members, calls, type arguments and '!' behind an operand. */
static void parse_postfix(struct ts_parser *p, bool calls)
{
    uint32_t start;

    while (!p->failed) {
        switch (p->token.kind) {
        case '.':
            ts_next(p);
            parse_member_name(p);
            break;
        case TOKEN_CHAIN:
            ts_next(p);
            parse_chain(p);
            break;
        case '[':
            parse_index(p);
            break;
        case '(':
            if (!calls)
                return;
            parse_arguments(p);
            break;
        case TOKEN_TEMPLATE:
            parse_template(p);
            break;
        case '!':
            if (p->token.newline)
                return;
            ts_blank(p, p->token.start, p->token.end);
            ts_next(p);
            break;
        case '<':
            start = p->token.start;
            if (!ts_try_type_arguments(p))
                return;
            ts_blank(p, start, p->previous_end);
            break;
        default:
            return;
        }
    }
}

void ts_array(struct ts_parser *p)
{
    ts_next(p);
    while (!p->failed && !ts_is(p, ']')) {
        if (ts_take(p, ','))
            continue;
        (void)ts_take(p, TOKEN_ELLIPSIS);
        ts_assignment(p, 0);
        if (!ts_take(p, ','))
            break;
    }
    ts_expect(p, ']', "',' or ']' was expected here.");
}

void ts_property_name(struct ts_parser *p)
{
    if (ts_is(p, '[')) {
        ts_next(p);
        ts_assignment(p, 0);
        ts_expect(p, ']', "']' was expected here.");
    } else if (ts_is(p, TOKEN_WORD) || ts_is(p, TOKEN_STRING) || ts_is(p, TOKEN_NUMBER) ||
               ts_is(p, TOKEN_PRIVATE)) {
        ts_next(p);
    } else {
        ts_fail_here(p, "The name of a property was expected here.");
    }
}

/* `async`, `get` or `set` before a name, not as one. */
static bool is_property_modifier(const struct ts_parser *p)
{
    uint8_t next;

    if (!is_word(p, WORD_ASYNC) && !is_word(p, WORD_GET) && !is_word(p, WORD_SET))
        return false;
    next = ts_peek_byte(p);
    return next != ',' && next != ':' && next != '(' && next != '=' && next != '}' && next != '<' &&
           next != '?' && next != 0;
}

static void parse_property(struct ts_parser *p)
{
    unsigned kind = 0;
    struct ts_token name;

    if (ts_take(p, TOKEN_ELLIPSIS)) {
        ts_assignment(p, 0);
        return;
    }
    if (is_property_modifier(p))
        ts_next(p);
    if (ts_take(p, '*'))
        kind = FUNCTION_GENERATOR;
    name = p->token;
    ts_property_name(p);
    if (ts_is(p, '(') || ts_is(p, '<')) {
        if (!ts_function_rest(p, kind, 0))
            ts_fail_here(p, "The body of a method was expected here.");
        return;
    }
    if (ts_take(p, ':')) {
        ts_assignment(p, 0);
        return;
    }
    note_word(p, &name);
    if (ts_take(p, '='))
        ts_assignment(p, 0);
}

void ts_object(struct ts_parser *p)
{
    ts_next(p);
    while (!p->failed && !ts_is(p, '}')) {
        parse_property(p);
        if (!ts_take(p, ','))
            break;
    }
    ts_expect(p, '}', "',' or '}' was expected here.");
}

/* At `async`. */
static enum ts_end parse_async(struct ts_parser *p, unsigned flags, bool may_be_arrow)
{
    struct ts_token word = p->token;
    const struct ts_token *next = ts_peek(p);
    struct parenthesis found;
    uint32_t angle = UINT32_MAX;

    if (next->newline || !may_be_arrow) {
        ts_note(p, NAME_VALUE);
        ts_next(p);
        return END_PLAIN;
    }
    if (next->kind == TOKEN_WORD && next->word != WORD_IN && next->word != WORD_INSTANCEOF &&
        next->word != WORD_OF && next->word != WORD_AS && next->word != WORD_SATISFIES) {
        ts_next(p);
        ts_next(p);
        if (!ts_is(p, TOKEN_ARROW))
            ts_fail_here(p, "'=>' was expected here.");
        return parse_arrow_body(p, flags);
    }
    ts_next(p);
    if (ts_is(p, '<')) {
        angle = p->token.start;
        if (ts_try_type_parameters(p))
            ts_blank(p, angle, p->previous_end);
    }
    if (!ts_is(p, '(')) {
        note_word(p, &word);
        return END_PLAIN;
    }
    found = parse_parenthesis(p);
    found.angle = angle;
    return parse_after_parenthesis(p, flags, &found);
}

static void parse_function_expression(struct ts_parser *p)
{
    struct ts_span name;

    if (!ts_function(p, &name))
        ts_fail_here(p, "The body of a function was expected here.");
}

static enum ts_end parse_word(struct ts_parser *p, unsigned flags, bool may_be_arrow)
{
    struct ts_token word = p->token;
    struct ts_span name;

    switch (word.word) {
    case WORD_FUNCTION:
        parse_function_expression(p);
        return END_PLAIN;
    case WORD_CLASS:
        ts_class(p, &name);
        return END_PLAIN;
    case WORD_ASYNC:
        if (ts_peek(p)->word == WORD_FUNCTION && !ts_peek(p)->newline) {
            ts_next(p);
            parse_function_expression(p);
            return END_PLAIN;
        }
        if (ts_peek_byte(p) != '=')
            return parse_async(p, flags, may_be_arrow);
        break;
    case WORD_THIS:
    case WORD_NULL:
    case WORD_TRUE:
    case WORD_FALSE:
    case WORD_SUPER:
    case WORD_IMPORT:
    case WORD_NEW: /* new.target */
        ts_next(p);
        return END_PLAIN;
    default:
        if (!ts_is_name(p)) {
            ts_fail_here(p, missing_operand);
            return END_PLAIN;
        }
    }
    if (may_be_arrow && ts_peek_byte(p) == '=' && ts_peek(p)->kind == TOKEN_ARROW) {
        ts_next(p);
        return parse_arrow_body(p, flags);
    }
    ts_note(p, NAME_VALUE);
    if (p->enumeration != 0 && ts_name_find(p, p->enumeration, ts_span(p)) != NULL) {
        uint32_t insertion = ts_reserve(p, word.start);
        ts_begin(p, insertion);
        ts_add_span(p, p->enumeration_name);
        ts_add(p, ".");
        ts_finish(p, insertion);
    }
    ts_next(p);
    return END_PLAIN;
}

/* Without what stands before and behind it. */
static enum ts_end parse_primary(struct ts_parser *p, unsigned flags, bool may_be_arrow)
{
    switch (p->token.kind) {
    case TOKEN_WORD:
        return parse_word(p, flags, may_be_arrow);
    case TOKEN_NUMBER:
    case TOKEN_STRING:
    case TOKEN_PRIVATE:
        ts_next(p);
        break;
    case TOKEN_TEMPLATE:
        parse_template(p);
        break;
    case '(':
        return parse_group(p, flags, may_be_arrow, UINT32_MAX);
    case '[':
        ts_array(p);
        break;
    case '{':
        ts_object(p);
        break;
    case '/':
    case TOKEN_ASSIGN:
        if (p->source[p->token.start] != '/') {
            ts_fail_here(p, missing_operand);
            break;
        }
        ts_regex(p);
        ts_next(p);
        break;
    case '@':
        ts_fail_here(p, "Decorators are not supported: call the function on the class instead.");
        break;
    default:
        ts_fail_here(p, missing_operand);
    }
    return END_PLAIN;
}

/* `await` is a name where nothing follows that it could wait for. */
static bool is_await(const struct ts_parser *p)
{
    uint8_t next;

    if (!is_word(p, WORD_AWAIT))
        return false;
    next = ts_peek_byte(p);
    return next != 0 && next != ')' && next != ']' && next != '}' && next != ',' && next != ';' &&
           next != ':' && next != '=' && next != '.' && next != '?' && next != '*' && next != '%' &&
           next != '&' && next != '|' && next != '^' && next != '>';
}

static bool is_prefix(const struct ts_parser *p)
{
    switch (p->token.kind) {
    case '!':
    case '~':
    case '+':
    case '-':
    case TOKEN_COUNT:
        return true;
    case TOKEN_WORD:
        return is_word(p, WORD_TYPEOF) || is_word(p, WORD_VOID) || is_word(p, WORD_DELETE) ||
               is_await(p) || (is_word(p, WORD_NEW) && ts_peek_byte(p) != '.');
    default:
        return false;
    }
}

/* At '<': the parameters of an arrow function, or a cast. Where the operand of a cast would begin a
 * block or a declaration, or stand on a later line, it is put in parentheses. */
static enum ts_end parse_angle(struct ts_parser *p, unsigned flags, bool may_be_arrow)
{
    uint32_t start = p->token.start, insertion;
    enum ts_end end;

    ts_erase_type_parameters(p);
    if (ts_is(p, '(') && may_be_arrow) {
        end = parse_group(p, flags, true, start);
        if (end != END_PLAIN)
            return end;
        parse_postfix(p, true);
        if (ts_is(p, TOKEN_COUNT) && !p->token.newline)
            ts_next(p);
    } else {
        if (!ts_enter(p))
            return END_PLAIN;
        (void)parse_operand(p, flags, false);
        ts_leave(p);
    }
    insertion = ts_reserve(p, p->previous_end);
    if (!p->failed) {
        p->output[start] = '(';
        ts_begin(p, insertion);
        ts_add(p, ")");
        ts_finish(p, insertion);
    }
    return END_PLAIN;
}

/* With its prefixes, members, calls and so on. */
static enum ts_end parse_operand(struct ts_parser *p, unsigned flags, bool may_be_arrow)
{
    enum ts_end end;

    while (is_prefix(p) && !p->failed) {
        may_be_arrow = false;
        ts_next(p);
    }
    if (ts_is(p, '<'))
        return parse_angle(p, flags, may_be_arrow);
    end = parse_primary(p, flags, may_be_arrow);
    if (end != END_PLAIN)
        return end;
    parse_postfix(p, true);
    if (ts_is(p, TOKEN_COUNT) && !p->token.newline)
        ts_next(p);
    return END_PLAIN;
}

void ts_left_hand_side(struct ts_parser *p)
{
    (void)parse_operand(p, 0, false);
}

/* `x as T`, `x satisfies T`. */
static bool erase_assertion(struct ts_parser *p)
{
    uint32_t start = p->token.start;

    if ((!is_word(p, WORD_AS) && !is_word(p, WORD_SATISFIES)) || p->token.newline)
        return false;
    ts_next(p);
    ts_type(p);
    ts_blank(p, start, p->previous_end);
    return true;
}

/* '?' that is no conditional's, but makes a parameter optional. */
static bool is_optional_mark(const struct ts_parser *p, unsigned flags)
{
    uint8_t next;

    if (!(flags & EXPRESSION_PAREN))
        return false;
    next = ts_peek_byte(p);
    return next == ',' || next == ')' || next == ':' || next == '=';
}

/* `yield` and what follows it; true if an operand does. */
static bool parse_yield(struct ts_parser *p)
{
    ts_next(p);
    if (p->token.newline)
        return false;
    if (ts_take(p, '*'))
        return true;
    switch (p->token.kind) {
    case TOKEN_END:
    case ')':
    case ']':
    case '}':
    case ',':
    case ';':
    case ':':
    case '?':
    case '=':
        return false;
    default:
        return !is_word(p, WORD_IN) && !is_word(p, WORD_OF) && !is_word(p, WORD_AS);
    }
}

/* What joins an operand with the next. */
enum join { JOIN_NONE, JOIN_BINARY, JOIN_ASSIGN, JOIN_ENDED };

static enum join parse_join(struct ts_parser *p, unsigned flags)
{
    while (!p->failed && erase_assertion(p))
        ;
    if (ts_is(p, '?')) {
        if (is_optional_mark(p, flags))
            return JOIN_NONE;
        ts_next(p);
        if (ts_assignment(p, EXPRESSION_MIDDLE) == END_ELSE)
            return JOIN_ENDED;
        ts_expect(p, ':', "':' was expected here, for the '?' before it.");
        return JOIN_ASSIGN;
    }
    if (ts_is(p, TOKEN_WORD)) {
        if (!is_word(p, WORD_INSTANCEOF) && !(is_word(p, WORD_IN) && !(flags & EXPRESSION_NO_IN)))
            return JOIN_NONE;
        ts_next(p);
        return JOIN_BINARY;
    }
    switch (ts_operator(p)) {
    case TOKEN_BINARY:
        return JOIN_BINARY;
    case TOKEN_ASSIGN:
        return JOIN_ASSIGN;
    default:
        return JOIN_NONE;
    }
}

enum ts_end ts_assignment(struct ts_parser *p, unsigned flags)
{
    bool may_be_arrow = true;
    enum ts_end end = END_PLAIN;

    if (p->failed || !ts_enter(p))
        return END_PLAIN;
    for (;;) {
        enum join join;

        if (p->in_generator && is_word(p, WORD_YIELD)) {
            if (!parse_yield(p)) {
                join = ts_is(p, '?') ? parse_join(p, flags) : JOIN_NONE;
                if (join != JOIN_ASSIGN)
                    break;
            }
            may_be_arrow = true;
            continue;
        }
        end = parse_operand(p, flags, may_be_arrow);
        if (end != END_PLAIN || p->failed)
            break;
        join = parse_join(p, flags);
        if (join == JOIN_NONE)
            break;
        if (join == JOIN_ENDED) {
            end = END_ARROW;
            break;
        }
        may_be_arrow = join == JOIN_ASSIGN;
    }
    ts_leave(p);
    return end;
}

void ts_expression(struct ts_parser *p, unsigned flags)
{
    do
        (void)ts_assignment(p, flags);
    while (ts_take(p, ','));
}
