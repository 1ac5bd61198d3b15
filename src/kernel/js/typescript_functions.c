/* Functions and classes: parameters, bodies, members.
 *
 * A parameter property becomes a field of the class, written behind its '{', and an assignment at the
 * start of the constructor or behind its super(), as TypeScript does for engines that know fields. What
 * has no body (overloads, abstract and declared members) is erased with all that stood before it. */
#include "typescript_parts.h"

static const char no_decorators[] =
    "Decorators are not supported: call the function on the class instead.";

static bool is_accessibility(const struct ts_parser *p)
{
    switch (p->token.word) {
    case WORD_PUBLIC:
    case WORD_PRIVATE:
    case WORD_PROTECTED:
    case WORD_READONLY:
    case WORD_OVERRIDE:
        return true;
    default:
        return false;
    }
}

/* What is bound to a value: a name or a pattern. */
void ts_target(struct ts_parser *p)
{
    if (ts_is(p, '{'))
        ts_object(p);
    else if (ts_is(p, '['))
        ts_array(p);
    else if (ts_is_name(p))
        ts_next(p);
    else
        ts_fail_here(p, "A name or a pattern was expected here.");
}

/* `private readonly` before a parameter; true if there was one. */
static bool erase_accessibility(struct ts_parser *p)
{
    bool any = false;

    while (ts_is(p, TOKEN_WORD) && is_accessibility(p)) {
        uint8_t next = ts_peek_byte(p);
        if (next == ',' || next == ')' || next == ':' || next == '=' || next == '?')
            break;
        ts_blank(p, p->token.start, p->token.end);
        ts_next(p);
        any = true;
    }
    return any;
}

static void parse_parameter(struct ts_parser *p, bool constructor)
{
    if (ts_is(p, '@'))
        ts_fail_here(p, no_decorators);
    if (erase_accessibility(p)) {
        if (!constructor || !ts_is_name(p)) {
            ts_fail_here(p, "Only a constructor's parameter that is a name can be a property.");
            return;
        }
        TS_PUSH(p, collected, ts_span(p));
    }
    (void)ts_take(p, TOKEN_ELLIPSIS);
    ts_target(p);
    if (ts_is(p, '?')) {
        ts_blank(p, p->token.start, p->token.end);
        ts_next(p);
    }
    ts_erase_annotation(p);
    if (ts_take(p, '='))
        (void)ts_assignment(p, 0);
}

static void parse_parameters(struct ts_parser *p, bool constructor)
{
    ts_expect(p, '(', "The parameters of a function were expected here.");
    if (ts_is_word(p, WORD_THIS)) {
        uint32_t start = p->token.start;
        ts_next(p);
        if (ts_take(p, ':'))
            ts_type(p);
        (void)ts_take(p, ',');
        ts_blank(p, start, p->previous_end);
    }
    while (!p->failed && !ts_is(p, ')')) {
        parse_parameter(p, constructor);
        if (!ts_take(p, ','))
            break;
    }
    ts_expect(p, ')', "',' or ')' was expected here.");
}

/* `; this.x = x;` for each parameter property since `first`. */
static void insert_assignments(struct ts_parser *p, uint32_t first)
{
    uint32_t insertion = ts_reserve(p, p->previous_end);
    uint8_t last = p->source[p->previous_end - 1];

    ts_begin(p, insertion);
    for (uint32_t i = first; i < p->collected.count && !p->failed; i++) {
        ts_add(p, i == first && last != '{' && last != ';' ? "; this." : " this.");
        ts_add_span(p, p->collected.items[i]);
        ts_add(p, " = ");
        ts_add_span(p, p->collected.items[i]);
        ts_add(p, ";");
    }
    ts_finish(p, insertion);
}

/* A constructor's body, with assignments at its start or behind super(). */
static void parse_constructor_body(struct ts_parser *p, unsigned flags, uint32_t first)
{
    bool waiting = true;

    ts_next(p);
    while (ts_is(p, TOKEN_STRING) && !p->failed)
        (void)ts_statement(p);
    if (!(flags & FUNCTION_DERIVED)) {
        insert_assignments(p, first);
        waiting = false;
    }
    while (!p->failed && !ts_is(p, '}')) {
        bool is_super = ts_is_word(p, WORD_SUPER) && ts_peek_byte(p) == '(';
        (void)ts_statement(p);
        if (is_super && waiting) {
            insert_assignments(p, first);
            waiting = false;
        }
    }
    if (waiting)
        ts_fail_here(p, "A constructor with parameter properties needs super() as a statement of "
                        "its own before this.");
    ts_expect(p, '}', "'}' was expected here.");
}

struct around {
    uint32_t scope, enumeration;
    const struct ts_space *space;
    bool in_generator;
};

static struct around enter_function(struct ts_parser *p, unsigned flags)
{
    struct around around = {p->scope, p->enumeration, p->space, p->in_generator};

    p->in_generator = (flags & FUNCTION_GENERATOR) != 0;
    p->space = NULL;
    p->enumeration = 0;
    p->scope = ++p->scopes;
    return around;
}

static void leave_function(struct ts_parser *p, const struct around *around)
{
    p->in_generator = around->in_generator;
    p->space = around->space;
    p->enumeration = around->enumeration;
    p->scope = around->scope;
}

static void parse_body(struct ts_parser *p, unsigned flags, uint32_t first)
{
    struct around around;

    if (!ts_enter(p))
        return;
    around = enter_function(p, flags);
    p->bare = false;
    if ((flags & FUNCTION_CONSTRUCTOR) && p->collected.count > first) {
        parse_constructor_body(p, flags, first);
    } else {
        ts_next(p);
        (void)ts_statements(p);
        ts_expect(p, '}', "'}' was expected here.");
    }
    leave_function(p, &around);
    ts_leave(p);
}

void ts_function_body(struct ts_parser *p, unsigned flags)
{
    parse_body(p, flags & ~FUNCTION_CONSTRUCTOR, 0);
}

bool ts_function_rest(struct ts_parser *p, unsigned flags, uint32_t properties)
{
    struct around around = enter_function(p, flags);

    ts_erase_type_parameters(p);
    parse_parameters(p, (flags & FUNCTION_CONSTRUCTOR) != 0);
    leave_function(p, &around);
    ts_erase_annotation(p);
    if (!ts_is(p, '{'))
        return false;
    parse_body(p, flags, properties);
    return true;
}

bool ts_function(struct ts_parser *p, struct ts_span *name)
{
    unsigned flags = 0;

    ts_next(p);
    if (ts_take(p, '*'))
        flags = FUNCTION_GENERATOR;
    *name = (struct ts_span){p->token.start, p->token.start};
    if (ts_is(p, TOKEN_WORD)) {
        *name = ts_span(p);
        ts_next(p);
    }
    return ts_function_rest(p, flags, 0);
}

/* A member of a class, while it is read. */
struct member {
    uint32_t start, insertions;
    uint32_t accessor; /* where the word stands, or UINT32_MAX */
    bool bare_before;
    bool erase; /* whole: it is abstract, declared or a signature */
    bool is_static;
    unsigned kind;
};

struct class
{
    struct ts_span name;
    uint32_t fields; /* the insertion behind '{' */
    bool derived;
};

/* Whether the word stands before the name of a member, rather than being it. */
static bool is_modifier(struct ts_parser *p)
{
    const struct ts_token *next = ts_peek(p);

    switch (p->token.word) {
    case WORD_STATIC:
    case WORD_GET:
    case WORD_SET:
        break;
    case WORD_ASYNC:
    case WORD_ABSTRACT:
    case WORD_ACCESSOR:
    case WORD_DECLARE:
    case WORD_PUBLIC:
    case WORD_PRIVATE:
    case WORD_PROTECTED:
    case WORD_READONLY:
    case WORD_OVERRIDE:
        if (next->newline)
            return false;
        break;
    default:
        return false;
    }
    return next->kind == TOKEN_WORD || next->kind == TOKEN_STRING || next->kind == TOKEN_NUMBER ||
           next->kind == TOKEN_PRIVATE || next->kind == '[' ||
           (next->kind == '*' && !ts_is_word(p, WORD_GET) && !ts_is_word(p, WORD_SET)) ||
           (next->kind == '{' && ts_is_word(p, WORD_STATIC));
}

/* A word that is erased at the start of a line must not join the line with a field that ended without a
 * semicolon. */
static void erase_modifier(struct ts_parser *p, const struct member *member)
{
    ts_blank(p, p->token.start, p->token.end);
    if (member->bare_before && p->token.start == member->start && !p->failed)
        p->output[p->token.start] = ';';
}

static void parse_modifiers(struct ts_parser *p, struct member *member)
{
    while (ts_is(p, TOKEN_WORD) && is_modifier(p)) {
        switch (p->token.word) {
        case WORD_STATIC:
            member->is_static = true;
            break;
        case WORD_ABSTRACT:
        case WORD_DECLARE:
            member->erase = true;
            erase_modifier(p, member);
            break;
        case WORD_ACCESSOR:
            member->accessor = p->token.start;
            break;
        case WORD_ASYNC:
        case WORD_GET:
        case WORD_SET:
            break;
        default:
            erase_modifier(p, member);
        }
        ts_next(p);
    }
}

/* `[key: string]: T` */
static bool parse_index_signature(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);

    ts_next(p);
    if (ts_is(p, TOKEN_WORD) && ts_peek_byte(p) == ':') {
        ts_next(p);
        ts_next(p);
        ts_type(p);
        ts_expect(p, ']', "']' was expected here.");
        if (ts_take(p, ':'))
            ts_type(p);
        return true;
    }
    ts_rewind(p, &mark);
    return false;
}

/* `get x() {...} set x(value) {...} #x_accessor`, and then what follows the name. */
static void insert_accessor(struct ts_parser *p, const struct member *member,
                            const struct class *class, const struct ts_token *name)
{
    struct ts_span span = {name->start, name->end}, bare = span;
    const char *prefix = member->is_static ? "static " : "";
    uint32_t insertion = ts_reserve(p, member->accessor);

    if (name->kind == TOKEN_PRIVATE)
        bare.start++;
    else if (name->kind != TOKEN_WORD)
        ts_fail(p, name->start, "An accessor field needs a plain name.");
    if (member->is_static && class->name.start == class->name.end)
        ts_fail(p, name->start, "A static accessor field needs a class that has a name.");
    ts_begin(p, insertion);
    for (unsigned i = 0; i < 2; i++) {
        ts_add(p, i == 1 ? prefix : "");
        ts_add(p, i == 0 ? "get " : "set ");
        ts_add_span(p, span);
        ts_add(p, i == 0 ? "() { return " : "(value) { ");
        if (member->is_static)
            ts_add_span(p, class->name);
        else
            ts_add(p, "this");
        ts_add(p, ".#");
        ts_add_span(p, bare);
        ts_add(p, i == 0 ? "_accessor; } " : "_accessor = value; } ");
    }
    ts_add(p, prefix);
    ts_add(p, "#");
    ts_add_span(p, bare);
    ts_add(p, "_accessor");
    ts_finish(p, insertion);
    ts_blank(p, member->accessor, name->end);
}

/* The end of a field. What was erased last may have been all that kept it apart from the next line. */
static void end_field(struct ts_parser *p)
{
    if (ts_take(p, ';'))
        return;
    if (!ts_is(p, '}') && !p->token.newline) {
        ts_fail_here(p, "';' or a new line was expected behind a field.");
        return;
    }
    p->bare = !ts_is(p, '}');
    if (p->bare && p->previous_end == p->gone.end && !p->failed) {
        p->output[p->gone.start] = ';';
        p->bare = false;
    }
}

static void erase_marks(struct ts_parser *p)
{
    uint32_t start = p->token.start;

    if (!ts_is(p, '?') && !ts_is(p, '!'))
        return;
    ts_next(p);
    if (ts_take(p, ':'))
        ts_type(p);
    ts_blank(p, start, p->previous_end);
}

static void parse_field(struct ts_parser *p, struct member *member, const struct class *class,
                        const struct ts_token *name)
{
    struct around around;

    if (member->accessor != UINT32_MAX && !member->erase)
        insert_accessor(p, member, class, name);
    ts_erase_annotation(p);
    if (ts_take(p, '=')) {
        around = enter_function(p, 0);
        (void)ts_assignment(p, 0);
        leave_function(p, &around);
    }
    end_field(p);
}

static void insert_fields(struct ts_parser *p, const struct class *class, uint32_t first)
{
    if (p->collected.count == first)
        return;
    ts_begin(p, class->fields);
    for (uint32_t i = first; i < p->collected.count && !p->failed; i++) {
        ts_add(p, " ");
        ts_add_span(p, p->collected.items[i]);
        ts_add(p, ";");
    }
    ts_finish(p, class->fields);
}

static void parse_method(struct ts_parser *p, struct member *member, const struct class *class,
                         const struct ts_token *name)
{
    uint32_t first = p->collected.count;
    unsigned flags = member->kind;

    if (name->word == WORD_CONSTRUCTOR && !member->is_static)
        flags |= FUNCTION_CONSTRUCTOR | (class->derived ? FUNCTION_DERIVED : 0);
    if (ts_function_rest(p, flags, first)) {
        insert_fields(p, class, first);
        p->bare = false;
    } else {
        end_field(p);
        member->erase = true;
    }
    p->collected.count = first;
}

static void parse_named_member(struct ts_parser *p, struct member *member,
                               const struct class *class)
{
    struct ts_token name = p->token;

    if (ts_is(p, '[') && parse_index_signature(p)) {
        member->erase = true;
        end_field(p);
        return;
    }
    ts_property_name(p);
    if (ts_peek_byte(p) == '(' || ts_peek_byte(p) == '<') {
        if (ts_is(p, '?') || ts_is(p, '!')) {
            ts_blank(p, p->token.start, p->token.end);
            ts_next(p);
        }
    }
    if (ts_is(p, '(') || ts_is(p, '<')) {
        parse_method(p, member, class, &name);
        return;
    }
    if (member->accessor == UINT32_MAX) {
        erase_marks(p);
    } else if (ts_is(p, '?') || ts_is(p, '!')) {
        ts_blank(p, p->token.start, p->token.end);
        ts_next(p);
    }
    parse_field(p, member, class, &name);
}

static void parse_member(struct ts_parser *p, const struct class *class)
{
    struct member member = {.start = p->token.start,
                            .insertions = p->insertions.count,
                            .accessor = UINT32_MAX,
                            .bare_before = p->bare};

    p->bare = false;
    if (ts_take(p, ';'))
        return;
    if (ts_is(p, '@')) {
        ts_fail_here(p, no_decorators);
        return;
    }
    parse_modifiers(p, &member);
    if (member.is_static && ts_is(p, '{')) {
        ts_function_body(p, 0);
        p->bare = false;
        return;
    }
    if (ts_take(p, '*'))
        member.kind = FUNCTION_GENERATOR;
    parse_named_member(p, &member, class);
    if (member.erase)
        ts_erase_since(p, member.start, member.insertions, member.bare_before);
}

static void parse_heritage(struct ts_parser *p, struct class *class)
{
    uint32_t start;

    if (ts_is_word(p, WORD_EXTENDS)) {
        class->derived = true;
        ts_next(p);
        ts_left_hand_side(p);
        if (ts_is(p, '<')) {
            start = p->token.start;
            ts_type_arguments(p);
            ts_blank(p, start, p->previous_end);
        }
    }
    if (ts_is_word(p, WORD_IMPLEMENTS)) {
        start = p->token.start;
        do {
            ts_next(p);
            ts_type(p);
            if (ts_is(p, '<')) /* on a later line */
                ts_type_arguments(p);
        } while (ts_is(p, ','));
        ts_blank(p, start, p->previous_end);
    }
}

static void parse_members(struct ts_parser *p, struct class *class)
{
    ts_expect(p, '{', "The body of a class was expected here.");
    class->fields = ts_reserve(p, p->previous_end);
    p->bare = false;
    while (!p->failed && !ts_is(p, '}'))
        parse_member(p, class);
    ts_expect(p, '}', "The body of a class is not closed by '}'.");
    p->bare = false;
}

void ts_class(struct ts_parser *p, struct ts_span *name)
{
    struct class class = {0};

    ts_next(p);
    *name = (struct ts_span){p->token.start, p->token.start};
    if (!ts_enter(p))
        return;
    if (ts_is_name(p) && !(ts_is_word(p, WORD_IMPLEMENTS) && ts_peek(p)->kind == TOKEN_WORD)) {
        *name = ts_span(p);
        ts_next(p);
    }
    class.name = *name;
    ts_erase_type_parameters(p);
    parse_heritage(p, &class);
    parse_members(p, &class);
    ts_leave(p);
}
