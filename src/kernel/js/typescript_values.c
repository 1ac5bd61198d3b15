/* Enums and namespaces: what of TypeScript has a meaning at run time and no counterpart in JavaScript.
 *
 * Both become what TypeScript makes of them, a function that is called with the object it fills, on the
 * lines where they stand. The values of an enum's members are left to the engine: only whether a member
 * is a string is worked out here, for such a one has no way back from value to name. */
#include "typescript_parts.h"

#define EXACT_MAX (1ULL << 53)

/* What an enum's next member without initializer gets. */
enum counter { COUNTER_NUMBER, COUNTER_PREVIOUS, COUNTER_NONE };

struct enumeration {
    struct ts_span name;
    uint32_t number;
    enum counter counter;
    uint64_t next;
    struct ts_span previous; /* a member's key, as it is written in brackets */
    bool previous_is_word;
};

struct key {
    struct ts_span text; /* with its quotes, if it has any */
    bool is_word;
};

static void add_key(struct ts_parser *p, struct key key)
{
    ts_add(p, key.is_word ? "\"" : "");
    ts_add_span(p, key.text);
    ts_add(p, key.is_word ? "\"" : "");
}

/* Without its quotes. */
static struct ts_span bare_key(struct key key)
{
    struct ts_span span = key.text;

    if (!key.is_word && span.end - span.start >= 2) {
        span.start++;
        span.end--;
    }
    return span;
}

/* `A`, "a b" or ["a b"]. */
static struct key parse_key(struct ts_parser *p)
{
    struct key key = {.text = ts_span(p), .is_word = ts_is(p, TOKEN_WORD)};
    bool computed = ts_take(p, '[');

    if (computed)
        key = (struct key){.text = ts_span(p)};
    if ((!computed && ts_is(p, TOKEN_WORD)) || ts_is(p, TOKEN_STRING) ||
        (ts_is(p, TOKEN_TEMPLATE) && !p->token.open))
        ts_next(p);
    else
        ts_fail_here(p, "A member of an enum needs a plain name or a string here.");
    if (computed)
        ts_expect(p, ']', "']' was expected here.");
    return key;
}

/* Whether the enum's, or another's, member is a string: `A`, `E.A`, `E["A"]`; moves behind it. */
static bool is_text_member(struct ts_parser *p, const struct enumeration *e)
{
    uint32_t number = e->number;
    const struct ts_name *found;
    struct ts_span member = ts_span(p);

    ts_next(p);
    if (ts_is(p, '.') || ts_is(p, '[')) {
        bool bracket = ts_is(p, '[');
        found = ts_name_find(p, p->scope, member);
        number = found != NULL ? found->number : 0;
        ts_next(p);
        member = bare_key((struct key){.text = ts_span(p), .is_word = ts_is(p, TOKEN_WORD)});
        ts_next(p);
        if (bracket)
            (void)ts_take(p, ']');
    }
    found = number != 0 ? ts_name_find(p, number, member) : NULL;
    return found != NULL && (found->flags & NAME_TEXT);
}

/* Whether an initializer is a string for sure: strings, templates and members that are such, added to
 * whatever else. Looks ahead, over the initializer only. */
static bool is_text(struct ts_parser *p, const struct enumeration *e)
{
    struct ts_mark mark = ts_mark(p);
    bool text = false, behind_operand = false, plain = true;

    while (plain && !p->failed && !ts_is(p, ',') && !ts_is(p, '}')) {
        switch (p->token.kind) {
        case TOKEN_WORD:
            text |= is_text_member(p, e);
            behind_operand = true;
            continue;
        case TOKEN_TEMPLATE:
        case TOKEN_STRING:
            text = true;
            plain = !behind_operand;
            behind_operand = true;
            break;
        case TOKEN_NUMBER:
        case ')':
            behind_operand = true;
            break;
        case '(':
            plain = !behind_operand;
            break;
        case '+':
        case '*':
        case '/':
        case '%':
            behind_operand = false;
            break;
        default:
            plain = false;
        }
        if (p->token.open) /* what stands in it is skipped, and so is the rest */
            break;
        ts_next(p);
    }
    ts_rewind(p, &mark);
    return text && plain;
}

/* Plain decimal digits, small enough that one more is exact. */
static bool plain_number(const struct ts_parser *p, struct ts_span span, uint64_t *value)
{
    *value = 0;
    if (span.end - span.start > 15 || (span.end - span.start > 1 && p->source[span.start] == '0'))
        return false;
    for (uint32_t i = span.start; i < span.end; i++) {
        if (p->source[i] < '0' || p->source[i] > '9')
            return false;
        *value = *value * 10 + (p->source[i] - '0');
    }
    return span.end > span.start;
}

static void note_member(struct ts_parser *p, const struct enumeration *e, struct key key, bool text)
{
    struct ts_name *name = ts_name(p, e->number, bare_key(key));

    if (name != NULL)
        name->flags = text ? NAME_TEXT : 0;
}

/* `E[E["A"] = ` */
static void begin_member(struct ts_parser *p, const struct enumeration *e, struct key key,
                         bool text)
{
    if (!text) {
        ts_add_span(p, e->name);
        ts_add(p, "[");
    }
    ts_add_span(p, e->name);
    ts_add(p, "[");
    add_key(p, key);
    ts_add(p, "] = ");
}

/* `] = "A";` */
static void end_member(struct ts_parser *p, struct key key, bool text)
{
    if (!text) {
        ts_add(p, "] = ");
        add_key(p, key);
    }
    ts_add(p, ";");
}

static void add_next_value(struct ts_parser *p, struct enumeration *e, uint32_t at)
{
    if (e->counter == COUNTER_NUMBER) {
        ts_add_number(p, e->next);
        if (++e->next >= EXACT_MAX)
            e->counter = COUNTER_PREVIOUS;
    } else if (e->counter == COUNTER_PREVIOUS) {
        ts_add_span(p, e->name);
        ts_add(p, "[");
        add_key(p, (struct key){e->previous, e->previous_is_word});
        ts_add(p, "] + 1");
    } else {
        ts_fail(p, at, "This member of an enum needs a value, for the one before it is a string.");
    }
}

/* Behind '='. */
static void parse_initializer(struct ts_parser *p, struct enumeration *e, struct key key,
                              uint32_t start)
{
    bool text = is_text(p, e);
    uint32_t insertion = ts_reserve(p, p->token.start);
    struct ts_token first = p->token;
    uint64_t value;

    ts_blank(p, start, p->previous_end);
    ts_begin(p, insertion);
    begin_member(p, e, key, text);
    ts_finish(p, insertion);
    p->enumeration = e->number;
    p->enumeration_name = e->name;
    (void)ts_assignment(p, 0);
    p->enumeration = 0;
    insertion = ts_reserve(p, p->previous_end);
    ts_begin(p, insertion);
    end_member(p, key, text);
    ts_finish(p, insertion);
    e->counter = text ? COUNTER_NONE : COUNTER_PREVIOUS;
    if (first.kind == TOKEN_NUMBER && first.end == p->previous_end &&
        plain_number(p, (struct ts_span){first.start, first.end}, &value)) {
        e->counter = COUNTER_NUMBER;
        e->next = value + 1;
    }
    note_member(p, e, key, text);
}

static void parse_member(struct ts_parser *p, struct enumeration *e)
{
    uint32_t start = p->token.start, insertion;
    struct key key = parse_key(p);

    if (ts_take(p, '=')) {
        parse_initializer(p, e, key, start);
    } else {
        insertion = ts_reserve(p, start);
        ts_blank(p, start, p->previous_end);
        ts_begin(p, insertion);
        begin_member(p, e, key, false);
        add_next_value(p, e, start);
        end_member(p, key, false);
        ts_finish(p, insertion);
        note_member(p, e, key, false);
    }
    e->previous = key.text;
    e->previous_is_word = key.is_word;
    if (ts_is(p, ','))
        ts_blank(p, p->token.start, p->token.end);
    else if (!ts_is(p, '}'))
        ts_fail_here(p, "',' or '}' was expected behind a member of an enum.");
    (void)ts_take(p, ',');
}

/* `var E; ` unless something of that name is there already; then `;`, for what is put in behind it begins
 * with a parenthesis. The number of the name's members. */
static uint32_t add_variable(struct ts_parser *p, struct ts_span name, bool in_space,
                             uint32_t scope, bool *known)
{
    struct ts_name *entry = ts_name(p, scope, name);

    if (entry == NULL)
        return 0;
    *known = (entry->flags & NAME_DECLARED) != 0;
    if (*known) {
        ts_add(p, ";");
    } else {
        ts_add(p, in_space || scope != SCOPE_FILE ? "let " : "var ");
        ts_add_span(p, name);
        ts_add(p, "; ");
    }
    ts_name_mark(entry, NAME_DECLARED);
    if (entry->number == 0)
        entry->number = ++p->scopes;
    return entry->number;
}

/* `})(E || (E = {}));`, of what a namespace holds `})(E = N.E || (N.E = {}));` */
static void add_call(struct ts_parser *p, struct ts_span name, const struct ts_span *owner)
{
    ts_add(p, "})(");
    ts_add_span(p, name);
    for (unsigned i = 0; i < 2; i++) {
        ts_add(p, i == 0 ? (owner != NULL ? " = " : "") : " || (");
        if (owner != NULL) {
            ts_add_span(p, *owner);
            ts_add(p, ".");
        }
        if (i == 1 || owner != NULL)
            ts_add_span(p, name);
    }
    ts_add(p, " = {}));");
}

static void add_opening(struct ts_parser *p, struct ts_span name)
{
    ts_add(p, "(function (");
    ts_add_span(p, name);
    ts_add(p, ") {");
}

static bool is_known(const struct ts_parser *p, struct ts_span name)
{
    const struct ts_name *entry = ts_name_find(p, p->scope, name);

    return entry != NULL && (entry->flags & NAME_DECLARED);
}

void ts_enum(struct ts_parser *p, uint32_t start, bool exported)
{
    const struct ts_space *space = exported ? p->space : NULL;
    uint32_t word = p->token.start, insertion, enumeration = p->enumeration;
    struct enumeration e = {0};
    bool known = false;

    if (ts_is_word(p, WORD_CONST))
        ts_next(p);
    ts_next(p);
    e.name = ts_span(p);
    if (!ts_is_name(p))
        ts_fail_here(p, "The name of an enum was expected here.");
    if (exported && space == NULL && !is_known(p, e.name))
        start = word;
    ts_next(p);
    ts_expect(p, '{', "'{' was expected here.");
    insertion = ts_reserve(p, start);
    ts_begin(p, insertion);
    e.number = add_variable(p, e.name, p->space != NULL, p->scope, &known);
    add_opening(p, e.name);
    ts_finish(p, insertion);
    ts_blank(p, start, p->previous_end);
    while (!p->failed && !ts_is(p, '}'))
        parse_member(p, &e);
    p->enumeration = enumeration;
    insertion = ts_reserve(p, p->token.start);
    ts_begin(p, insertion);
    add_call(p, e.name, space != NULL ? &space->name : NULL);
    ts_finish(p, insertion);
    ts_blank(p, p->token.start, p->token.end);
    ts_expect(p, '}', "'}' was expected here.");
    p->bare = false;
}

static void note_export(struct ts_parser *p, const struct ts_space *space, struct ts_span name)
{
    struct ts_name *entry = ts_name(p, space->scope, space->name);

    if (entry == NULL)
        return;
    TS_PUSH(p, exports, (struct ts_export){name, entry->exports});
    entry->exports = p->exports.count;
}

/* ` N.x = x;`, or an accessor for a variable that may change. */
void ts_space_give(struct ts_parser *p, struct ts_span name, bool changes)
{
    uint32_t insertion;

    if (p->space == NULL || name.start == name.end)
        return;
    insertion = ts_reserve(p, p->previous_end);
    ts_begin(p, insertion);
    ts_add(p, changes ? "; Object.defineProperty(" : "; ");
    ts_add_span(p, p->space->name);
    ts_add(p, changes ? ", \"" : ".");
    ts_add_span(p, name);
    if (changes) {
        bool is_v = name.end - name.start == 1 && p->source[name.start] == 'v';
        ts_add(p, "\", { get: () => ");
        ts_add_span(p, name);
        ts_add(p, is_v ? ", set: (w) => { " : ", set: (v) => { ");
        ts_add_span(p, name);
        ts_add(p, is_v ? " = w; }, " : " = v; }, ");
        ts_add(p, "enumerable: true, configurable: true });");
    } else {
        ts_add(p, " = ");
        ts_add_span(p, name);
        ts_add(p, ";");
        note_export(p, p->space, name);
    }
    ts_finish(p, insertion);
    p->bare = false;
}

/* What earlier blocks of the namespace exported, for the names to be seen in this one. A block of its own
 * follows, so that it may declare such a name again. */
static bool add_earlier(struct ts_parser *p, const struct ts_space *space)
{
    const struct ts_name *entry = ts_name_find(p, space->scope, space->name);
    uint32_t i = entry != NULL && !p->failed ? entry->exports : 0;
    bool any = i > 0;

    if (!any)
        return false;
    ts_add(p, " var { ");
    for (; i > 0 && !p->failed; i = p->exports.items[i - 1].before) {
        ts_add_span(p, p->exports.items[i - 1].name);
        ts_add(p, p->exports.items[i - 1].before > 0 ? ", " : " } = ");
    }
    ts_add_span(p, space->name);
    ts_add(p, "; {");
    return true;
}

/* One name of `namespace A.B.C`, while it is open. */
struct open_space {
    struct ts_space space;
    const struct ts_space *owner; /* whose member it is, or NULL */
    bool has_block, known;
};

#define SPACE_NAMES_MAX 8

struct spaces {
    struct open_space items[SPACE_NAMES_MAX];
    unsigned count;
};

/* `A.B.C`, a string, or `global`. */
static void parse_names(struct ts_parser *p, struct spaces *spaces)
{
    spaces->count = 0;
    do {
        if (spaces->count == SPACE_NAMES_MAX) {
            ts_fail_here(p, "A namespace cannot have so many names: nest it instead.");
            return;
        }
        spaces->items[spaces->count++] = (struct open_space){.space.name = ts_span(p)};
        if (!ts_is(p, TOKEN_WORD) && !(ts_is(p, TOKEN_STRING) && p->ambient > 0))
            ts_fail_here(p, "The name of a namespace was expected here.");
        ts_next(p);
    } while (ts_take(p, '.'));
}

static void add_heads(struct ts_parser *p, struct spaces *spaces, bool exported)
{
    const struct ts_space *owner = exported ? p->space : NULL;
    uint32_t scope = p->scope;

    for (unsigned i = 0; i < spaces->count; i++) {
        struct open_space *open = &spaces->items[i];

        open->space.scope = scope;
        open->space.number = add_variable(p, open->space.name, i > 0 || p->space != NULL, scope,
                                          &open->known);
        add_opening(p, open->space.name);
        open->has_block = open->known && add_earlier(p, &open->space);
        open->owner = owner;
        owner = &open->space;
        scope = open->space.number;
    }
}

static void add_tails(struct ts_parser *p, const struct spaces *spaces)
{
    for (unsigned i = spaces->count; i-- > 0;) {
        const struct open_space *open = &spaces->items[i];

        ts_add(p, open->has_block ? "}" : "");
        add_call(p, open->space.name, open->owner != NULL ? &open->owner->name : NULL);
        if (open->owner != NULL)
            note_export(p, open->owner, open->space.name);
    }
}

/* It holds types only, so no variable was made for it. */
static void forget(struct ts_parser *p, const struct spaces *spaces)
{
    uint32_t scope = p->scope;

    ts_note_declared(p, spaces->items[0].space.name, NAME_DECLARED_TYPE);
    for (unsigned i = 0; i < spaces->count; i++) {
        struct ts_name *name = ts_name(p, scope, spaces->items[i].space.name);
        if (name != NULL && !spaces->items[i].known)
            name->flags = (uint16_t)(name->flags & ~NAME_DECLARED);
        scope = spaces->items[i].space.number;
    }
}

/* At '{': the statements; true if one of them leaves something. */
static bool parse_body(struct ts_parser *p, const struct ts_space *space)
{
    const struct ts_space *outer = p->space;
    uint32_t scope = p->scope;
    bool any;

    if (!ts_is(p, '{') && p->ambient > 0) { /* declare module "x"; */
        ts_end_statement(p);
        return false;
    }
    ts_expect(p, '{', "'{' was expected here.");
    if (!ts_enter(p))
        return false;
    p->space = space;
    p->scope = ++p->scopes;
    p->bare = false;
    any = ts_statements(p);
    p->space = outer;
    p->scope = scope;
    ts_leave(p);
    return any;
}

bool ts_namespace(struct ts_parser *p, uint32_t start, bool exported)
{
    struct spaces spaces;
    uint32_t insertion, word = p->token.start, insertions = p->insertions.count, close;
    uint32_t head_end;

    if (!ts_is_word(p, WORD_GLOBAL))
        ts_next(p);
    parse_names(p, &spaces);
    if (p->failed)
        return false;
    if (exported && p->space == NULL && !is_known(p, spaces.items[0].space.name))
        start = word;
    insertion = ts_reserve(p, start);
    head_end = p->token.end;
    if (p->ambient > 0) {
        (void)parse_body(p, NULL);
        (void)ts_take(p, '}');
        return true;
    }
    ts_begin(p, insertion);
    add_heads(p, &spaces, exported);
    ts_finish(p, insertion);
    if (!parse_body(p, &spaces.items[spaces.count - 1].space)) {
        p->insertions.count = insertions;
        forget(p, &spaces);
        ts_expect(p, '}', "'}' was expected here.");
        return true;
    }
    ts_blank(p, start, head_end);
    close = p->token.start;
    insertion = ts_reserve(p, close);
    ts_begin(p, insertion);
    add_tails(p, &spaces);
    ts_finish(p, insertion);
    ts_blank(p, close, p->token.end);
    ts_expect(p, '}', "'}' was expected here.");
    p->bare = false;
    return false;
}
