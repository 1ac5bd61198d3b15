/* Statements and declarations, and what becomes of those that are erased.
 *
 * A line that loses what separated it from the next may join it: `let a = b as T` before a line that
 * begins with '('. Where the last thing of a statement that ends without a semicolon was erased, or a
 * whole statement after such a one, a ';' takes the first of the blanks. */
#include "typescript_parts.h"

static bool is_word(const struct ts_parser *p, enum ts_word word)
{
    return ts_is_word(p, word);
}

void ts_end_statement(struct ts_parser *p)
{
    if (ts_take(p, ';')) {
        p->bare = false;
        return;
    }
    if (!ts_is(p, '}') && !ts_is(p, TOKEN_END) && !p->token.newline) {
        ts_fail_here(p, "';' or a new line was expected here.");
        return;
    }
    p->bare = !ts_is(p, '}');
    if (p->bare && p->previous_end == p->gone.end && !ts_is(p, TOKEN_WORD) &&
        !ts_is(p, TOKEN_END) && !p->failed) {
        p->output[p->gone.start] = ';';
        p->bare = false;
    }
}

void ts_erase_since(struct ts_parser *p, uint32_t start, uint32_t insertions, bool bare_before)
{
    if (p->failed)
        return;
    ts_blank(p, start, p->previous_end);
    p->insertions.count = insertions;
    if (bare_before)
        p->output[start] = ';';
    p->bare = false;
}

bool ts_statements(struct ts_parser *p)
{
    bool any = false;

    while (!p->failed && !ts_is(p, '}') && !ts_is(p, TOKEN_END))
        if (!ts_statement(p))
            any = true;
    return any;
}

void ts_block(struct ts_parser *p)
{
    uint32_t scope = p->scope;

    ts_expect(p, '{', "'{' was expected here.");
    p->bare = false;
    p->scope = ++p->scopes;
    (void)ts_statements(p);
    p->scope = scope;
    ts_expect(p, '}', "'}' was expected here.");
    p->bare = false;
}

static void parse_variable(struct ts_parser *p, unsigned flags, bool collect)
{
    if (ts_is_name(p)) {
        ts_note_declared(p, ts_span(p), NAME_DECLARED);
        if (collect)
            TS_PUSH(p, collected, ts_span(p));
    } else if (collect) {
        ts_fail_here(p, "A namespace can export a pattern's variables only one by one: write "
                        "`export const name = ...` for each.");
    }
    ts_target(p);
    if (ts_is(p, '!')) {
        ts_blank(p, p->token.start, p->token.end);
        ts_next(p);
    }
    if (ts_is(p, ':')) {
        uint32_t start = p->source[p->previous_end - 1] == '!' ? p->previous_end - 1
                                                               : p->token.start;
        ts_erase_annotation(p);
        p->gone.start = start;
    }
    if (ts_take(p, '='))
        (void)ts_assignment(p, flags);
}

void ts_variables(struct ts_parser *p, unsigned flags, bool collect)
{
    do {
        ts_next(p);
        parse_variable(p, flags, collect);
    } while (ts_is(p, ',') && !p->failed);
}

static void parse_condition(struct ts_parser *p)
{
    ts_expect(p, '(', "'(' was expected here.");
    ts_expression(p, 0);
    ts_expect(p, ')', "')' was expected here.");
}

/* A statement inside another, which must not be one that is erased. */
static void parse_body(struct ts_parser *p)
{
    p->bare = false;
    if (ts_statement(p) && !p->failed)
        ts_fail(p, p->previous_end, "A type cannot be declared here: put it in a block.");
}

/* `else if` in a loop, since there may be many. */
static void parse_if(struct ts_parser *p)
{
    for (;;) {
        ts_next(p);
        parse_condition(p);
        parse_body(p);
        if (!is_word(p, WORD_ELSE))
            return;
        ts_next(p);
        if (!is_word(p, WORD_IF))
            break;
    }
    parse_body(p);
}

static bool begins_let(struct ts_parser *p)
{
    const struct ts_token *next;

    if (is_word(p, WORD_AWAIT)) {
        struct ts_mark mark = ts_mark(p);
        bool is_using;
        ts_next(p);
        next = ts_peek(p);
        is_using = is_word(p, WORD_USING) && !p->token.newline && next->kind == TOKEN_WORD &&
                   !next->newline && next->word != WORD_IN && next->word != WORD_INSTANCEOF &&
                   next->word != WORD_OF;
        ts_rewind(p, &mark);
        return is_using;
    }
    if (!is_word(p, WORD_LET) && !is_word(p, WORD_USING))
        return false;
    next = ts_peek(p);
    if (next->kind == TOKEN_WORD)
        return next->word != WORD_IN && next->word != WORD_INSTANCEOF &&
               (is_word(p, WORD_LET) || (!next->newline && next->word != WORD_OF));
    return is_word(p, WORD_LET) && (next->kind == '[' || next->kind == '{');
}

/* Between "for (" and ')'. */
static void parse_for_head(struct ts_parser *p)
{
    bool is_let = begins_let(p);

    if (is_let || is_word(p, WORD_VAR) || is_word(p, WORD_CONST)) {
        if (is_word(p, WORD_AWAIT))
            ts_next(p);
        ts_variables(p, EXPRESSION_NO_IN, false);
    } else if (!ts_is(p, ';')) {
        ts_expression(p, EXPRESSION_NO_IN);
    }
    if (is_word(p, WORD_OF) || is_word(p, WORD_IN)) {
        ts_next(p);
        ts_expression(p, 0);
        return;
    }
    ts_expect(p, ';', "';', `of` or `in` was expected here.");
    if (!ts_is(p, ';'))
        ts_expression(p, 0);
    ts_expect(p, ';', "';' was expected here.");
    if (!ts_is(p, ')'))
        ts_expression(p, 0);
}

static void parse_for(struct ts_parser *p)
{
    uint32_t scope = p->scope;

    ts_next(p);
    if (is_word(p, WORD_AWAIT))
        ts_next(p);
    ts_expect(p, '(', "'(' was expected here.");
    p->scope = ++p->scopes;
    parse_for_head(p);
    ts_expect(p, ')', "')' was expected here.");
    parse_body(p);
    p->scope = scope;
}

static void parse_do(struct ts_parser *p)
{
    ts_next(p);
    parse_body(p);
    if (!is_word(p, WORD_WHILE))
        ts_fail_here(p, "`while` was expected here.");
    ts_next(p);
    parse_condition(p);
    (void)ts_take(p, ';');
    p->bare = false;
}

static void parse_cases(struct ts_parser *p)
{
    while (!p->failed && !ts_is(p, '}')) {
        if (is_word(p, WORD_CASE)) {
            ts_next(p);
            ts_expression(p, EXPRESSION_CASE);
        } else if (is_word(p, WORD_DEFAULT)) {
            ts_next(p);
        } else {
            ts_fail_here(p, "`case`, `default` or '}' was expected here.");
        }
        ts_expect(p, ':', "':' was expected here.");
        p->bare = false;
        while (!p->failed && !ts_is(p, '}') && !is_word(p, WORD_CASE) && !is_word(p, WORD_DEFAULT))
            (void)ts_statement(p);
    }
}

static void parse_switch(struct ts_parser *p)
{
    uint32_t scope = p->scope;

    ts_next(p);
    parse_condition(p);
    ts_expect(p, '{', "'{' was expected here.");
    p->scope = ++p->scopes;
    parse_cases(p);
    p->scope = scope;
    ts_expect(p, '}', "'}' was expected here.");
    p->bare = false;
}

static void parse_try(struct ts_parser *p)
{
    ts_next(p);
    ts_block(p);
    if (is_word(p, WORD_CATCH)) {
        ts_next(p);
        if (ts_take(p, '(')) {
            ts_target(p);
            ts_erase_annotation(p);
            ts_expect(p, ')', "')' was expected here.");
        }
        ts_block(p);
    }
    if (is_word(p, WORD_FINALLY)) {
        ts_next(p);
        ts_block(p);
    }
}

/* `return`, `throw`, `break`, `continue`, `debugger`. */
static void parse_jump(struct ts_parser *p)
{
    ts_next(p);
    if (!p->token.newline && !ts_is(p, ';') && !ts_is(p, '}') && !ts_is(p, TOKEN_END))
        ts_expression(p, 0);
    ts_end_statement(p);
}

/* A word that begins a declaration because another word follows it on its line. */
static bool is_before_name(struct ts_parser *p)
{
    const struct ts_token *next = ts_peek(p);

    return next->kind == TOKEN_WORD && !next->newline && next->word != WORD_IN &&
           next->word != WORD_INSTANCEOF;
}

/* `declare`, `abstract` and so on may be names, too. */
static bool is_contextual_declaration(struct ts_parser *p)
{
    const struct ts_token *next;

    switch (p->token.word) {
    case WORD_TYPE:
    case WORD_INTERFACE:
    case WORD_DECLARE:
    case WORD_ABSTRACT:
        next = ts_peek(p);
        if (p->token.word == WORD_ABSTRACT)
            return next->word == WORD_CLASS && !next->newline;
        /* `type as T` and `type satisfies T` are expressions, `type as = T` is not. */
        if (next->word == WORD_AS || next->word == WORD_SATISFIES) {
            struct ts_mark mark = ts_mark(p);
            ts_next(p);
            next = ts_peek(p);
            ts_rewind(p, &mark);
            return next->kind == '=' || next->kind == '<' || next->kind == '{';
        }
        return is_before_name(p);
    case WORD_NAMESPACE:
    case WORD_MODULE:
        next = ts_peek(p);
        return !next->newline &&
               ((next->kind == TOKEN_WORD && is_before_name(p) && next->word != WORD_AS) ||
                (next->kind == TOKEN_STRING && p->ambient > 0));
    case WORD_GLOBAL:
        return p->ambient > 0 && ts_peek_byte(p) == '{';
    case WORD_ASYNC:
        next = ts_peek(p);
        return next->word == WORD_FUNCTION && !next->newline;
    default:
        return begins_let(p);
    }
}

bool ts_begins_declaration(struct ts_parser *p)
{
    switch (p->token.word) {
    case WORD_NONE:
        return false;
    case WORD_VAR:
    case WORD_CONST:
    case WORD_FUNCTION:
    case WORD_CLASS:
    case WORD_ENUM:
        return true;
    default:
        return p->token.word > WORD_LAST_RESERVED && is_contextual_declaration(p);
    }
}

/* `type A<T> = B`, `interface A extends B {}`. */
static bool parse_type_declaration(struct ts_parser *p)
{
    bool is_interface = is_word(p, WORD_INTERFACE);

    ts_next(p);
    ts_note_declared(p, ts_span(p), NAME_DECLARED_TYPE);
    ts_expect(p, TOKEN_WORD, "The name of a type was expected here.");
    if (ts_is(p, '<'))
        ts_type_parameters(p);
    if (!is_interface) {
        ts_expect(p, '=', "'=' was expected here.");
        ts_type(p);
        ts_end_statement(p);
        return false;
    }
    if (is_word(p, WORD_EXTENDS)) {
        do {
            ts_next(p);
            ts_type(p);
        } while (ts_is(p, ',') && !p->failed);
    }
    ts_type_members(p);
    return false;
}

static bool parse_function(struct ts_parser *p)
{
    struct ts_span name;

    if (is_word(p, WORD_ASYNC))
        ts_next(p);
    if (ts_function(p, &name)) {
        ts_note_declared(p, name, NAME_DECLARED);
        p->bare = false;
        return true;
    }
    ts_end_statement(p);
    return false;
}

static bool parse_class(struct ts_parser *p)
{
    struct ts_span name;

    if (is_word(p, WORD_ABSTRACT)) {
        ts_blank(p, p->token.start, p->token.end);
        ts_next(p);
    }
    ts_class(p, &name);
    ts_note_declared(p, name, NAME_DECLARED);
    return true;
}

static bool parse_let(struct ts_parser *p)
{
    if (is_word(p, WORD_AWAIT))
        ts_next(p);
    ts_variables(p, 0, false);
    ts_end_statement(p);
    return true;
}

bool ts_declaration(struct ts_parser *p, uint32_t start, bool exported)
{
    switch (p->token.word) {
    case WORD_CONST:
        if (ts_peek(p)->word == WORD_ENUM) {
            ts_enum(p, start, exported);
            return true;
        }
        return parse_let(p);
    case WORD_ENUM:
        ts_enum(p, start, exported);
        return true;
    case WORD_FUNCTION:
    case WORD_ASYNC:
        return parse_function(p);
    case WORD_CLASS:
    case WORD_ABSTRACT:
        return parse_class(p);
    case WORD_TYPE:
    case WORD_INTERFACE:
        return parse_type_declaration(p);
    case WORD_NAMESPACE:
    case WORD_MODULE:
    case WORD_GLOBAL:
        return !ts_namespace(p, start, exported);
    case WORD_DECLARE:
        ts_next(p);
        if (is_word(p, WORD_DECLARE) ||
            (!ts_begins_declaration(p) && !is_word(p, WORD_GLOBAL) && !is_word(p, WORD_MODULE)))
            ts_fail_here(p, "A declaration was expected behind `declare`.");
        p->ambient++;
        (void)ts_declaration(p, p->token.start, false);
        p->ambient--;
        return false;
    default:
        return parse_let(p);
    }
}

static bool is_label(struct ts_parser *p)
{
    return ts_peek_byte(p) == ':' && ts_is_name(p);
}

static bool parse_other(struct ts_parser *p, bool bare_before)
{
    uint32_t start = p->token.start, insertions = p->insertions.count;

    if (is_word(p, WORD_IMPORT) && ts_peek_byte(p) != '(' && ts_peek_byte(p) != '.')
        return ts_import(p, false, start, bare_before);
    if (is_word(p, WORD_EXPORT))
        return ts_export(p, bare_before);
    if (ts_begins_declaration(p)) {
        bool kept = ts_declaration(p, start, false);
        if (!kept)
            ts_erase_since(p, start, insertions, bare_before);
        return !kept;
    }
    if (ts_is(p, TOKEN_WORD) && is_label(p)) {
        ts_next(p);
        ts_next(p);
        return ts_statement(p);
    }
    ts_expression(p, 0);
    ts_end_statement(p);
    return false;
}

static bool parse_statement(struct ts_parser *p, bool bare_before)
{
    switch (p->token.kind) {
    case '{':
        ts_block(p);
        return false;
    case ';':
        ts_next(p);
        return false;
    case TOKEN_WORD:
        break;
    default:
        return parse_other(p, bare_before);
    }
    switch (p->token.word) {
    case WORD_IF:
        parse_if(p);
        return false;
    case WORD_FOR:
        parse_for(p);
        return false;
    case WORD_WHILE:
    case WORD_WITH:
        ts_next(p);
        parse_condition(p);
        parse_body(p);
        return false;
    case WORD_DO:
        parse_do(p);
        return false;
    case WORD_SWITCH:
        parse_switch(p);
        return false;
    case WORD_TRY:
        parse_try(p);
        return false;
    case WORD_RETURN:
    case WORD_THROW:
    case WORD_BREAK:
    case WORD_CONTINUE:
    case WORD_DEBUGGER:
        parse_jump(p);
        return false;
    default:
        return parse_other(p, bare_before);
    }
}

bool ts_statement(struct ts_parser *p)
{
    bool bare_before = p->bare, erased;

    if (p->failed || !ts_enter(p))
        return false;
    p->bare = false;
    erased = parse_statement(p, bare_before);
    ts_leave(p);
    return erased;
}
