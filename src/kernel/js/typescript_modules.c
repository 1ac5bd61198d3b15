/* `import` and `export`: which of their names are types.
 *
 * Whether an import is used as a value is known at the end only, and so is whether a name that the file
 * exports is a type of its own: both are noted where they stand and decided there. */
#include "typescript_parts.h"

static const char missing_name[] = "A name was expected here.";
static const char missing_from[] = "`from` and the name of a module were expected here.";

static bool is_word(const struct ts_parser *p, enum ts_word word)
{
    return ts_is_word(p, word);
}

static bool is_end_of_specifier(const struct ts_token *token)
{
    return token->kind == ',' || token->kind == '}';
}

/* Whether `type` marks the specifier that it begins, rather than being its name. */
static bool is_type_specifier(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);
    struct ts_token first, second, third;

    if (!is_word(p, WORD_TYPE))
        return false;
    ts_next(p);
    first = p->token;
    ts_next(p);
    second = p->token;
    ts_next(p);
    third = p->token;
    ts_rewind(p, &mark);
    if (is_end_of_specifier(&first))
        return false;
    if (first.word != WORD_AS)
        return true;
    if (second.word == WORD_AS)
        return !is_end_of_specifier(&third); /* type as as name, or `type` as `as` */
    return is_end_of_specifier(&second);
}

/* `[type] a [as b]`, with the name that it has in this file. */
static struct ts_specifier parse_specifier(struct ts_parser *p, bool is_export)
{
    struct ts_specifier specifier = {.whole.start = p->token.start, .kind = SPECIFIER_NAMED};

    if (is_type_specifier(p)) {
        specifier.type_only = true;
        ts_next(p);
    }
    specifier.name = ts_span(p);
    if (is_export && (specifier.type_only || p->ambient > 0))
        ts_note(p, NAME_TYPE);
    if (!ts_is(p, TOKEN_WORD) && !ts_is(p, TOKEN_STRING))
        ts_fail_here(p, missing_name);
    ts_next(p);
    if (is_word(p, WORD_AS)) {
        ts_next(p);
        if (!is_export)
            specifier.name = ts_span(p);
        if (!ts_is(p, TOKEN_WORD) && !ts_is(p, TOKEN_STRING))
            ts_fail_here(p, missing_name);
        ts_next(p);
    }
    if (!ts_is(p, '}'))
        ts_expect(p, ',', "',' or '}' was expected here.");
    specifier.whole.end = p->previous_end;
    return specifier;
}

/* `{a, type B}` */
static void parse_specifiers(struct ts_parser *p, bool is_export)
{
    ts_next(p);
    while (!p->failed && !ts_is(p, '}')) {
        struct ts_specifier specifier = parse_specifier(p, is_export);
        TS_PUSH(p, specifiers, specifier);
    }
    ts_expect(p, '}', "'}' was expected here.");
}

/* `from "x" with {...};` */
static void parse_from(struct ts_parser *p)
{
    if (is_word(p, WORD_FROM))
        ts_next(p);
    ts_expect(p, TOKEN_STRING, missing_from);
    if (is_word(p, WORD_WITH) || (is_word(p, WORD_ASSERT) && !p->token.newline)) {
        ts_next(p);
        if (ts_is(p, '{'))
            ts_object(p);
    }
    ts_end_statement(p);
}

static void push_module(struct ts_parser *p, struct ts_module module)
{
    module.whole.end = p->previous_end;
    module.count = p->specifiers.count - module.first;
    /* What is declared of other files is erased as a whole. */
    if (p->ambient > 0)
        p->specifiers.count = module.first;
    else
        TS_PUSH(p, modules, module);
}

/* `import type ...`; `type` may also be the name of the default. */
static bool is_type_import(struct ts_parser *p)
{
    struct ts_mark mark = ts_mark(p);
    const struct ts_token *next;
    bool is_type;

    if (!is_word(p, WORD_TYPE))
        return false;
    ts_next(p);
    if (is_word(p, WORD_FROM)) {
        next = ts_peek(p);
        is_type = next->kind == TOKEN_WORD || next->kind == '=';
    } else {
        is_type = ts_is(p, TOKEN_WORD) || ts_is(p, '{') || ts_is(p, '*');
    }
    ts_rewind(p, &mark);
    return is_type;
}

/* `import x = require("y")` and `import x = a.b`, at '='. */
static bool parse_alias(struct ts_parser *p, struct ts_module *module, struct ts_span name,
                        bool exported)
{
    bool is_require;

    ts_next(p);
    is_require = is_word(p, WORD_REQUIRE) && ts_peek_byte(p) == '(';
    if (!p->failed && p->ambient == 0) {
        const char *keyword = is_require ? "const " : "var   ";
        for (uint32_t i = 0; i < 6; i++)
            p->output[module->whole.start + i] = (uint8_t)keyword[i];
    }
    if (!is_require && !exported) {
        module->alias = ts_span(p);
        ts_expect(p, TOKEN_WORD, missing_name);
        while (ts_take(p, '.'))
            ts_expect(p, TOKEN_WORD, missing_name);
    } else {
        ts_expression(p, 0);
    }
    ts_end_statement(p);
    ts_note_declared(p, name, NAME_DECLARED);
    if (exported) {
        if (p->space != NULL)
            ts_space_give(p, name, false);
        return false;
    }
    TS_PUSH(p, specifiers,
            (struct ts_specifier){.name = name, .whole = name, .kind = SPECIFIER_DEFAULT});
    push_module(p, *module);
    return false;
}

/* At "{" or "*" of an import. */
static void parse_bindings(struct ts_parser *p)
{
    struct ts_specifier all = {.whole.start = p->token.start, .kind = SPECIFIER_ALL};

    if (ts_is(p, '{')) {
        parse_specifiers(p, false);
        return;
    }
    ts_expect(p, '*', "A name, '{' or '*' was expected here.");
    if (!is_word(p, WORD_AS))
        ts_fail_here(p, "`as` and a name were expected here.");
    ts_next(p);
    all.name = ts_span(p);
    ts_expect(p, TOKEN_WORD, missing_name);
    all.whole.end = p->previous_end;
    TS_PUSH(p, specifiers, all);
}

/* The token is behind `import`. */
static bool parse_import(struct ts_parser *p, struct ts_module *module, bool exported)
{
    struct ts_span name = ts_span(p);

    if (ts_is(p, TOKEN_STRING)) {
        parse_from(p);
        return false;
    }
    if (ts_is(p, TOKEN_WORD)) {
        ts_next(p);
        if (ts_is(p, '='))
            return parse_alias(p, module, name, exported);
        TS_PUSH(p, specifiers,
                (struct ts_specifier){.name = name, .whole = name, .kind = SPECIFIER_DEFAULT});
        module->tail.start = p->previous_end;
        if (is_word(p, WORD_FROM)) {
            parse_from(p);
            push_module(p, *module);
            return false;
        }
        if (ts_take(p, ',') && !p->failed)
            p->specifiers.items[p->specifiers.count - 1].whole.end = p->previous_end;
    }
    parse_bindings(p);
    module->tail.end = p->previous_end;
    parse_from(p);
    push_module(p, *module);
    return false;
}

bool ts_import(struct ts_parser *p, bool exported, uint32_t start, bool bare_before)
{
    struct ts_module module = {.whole.start = p->token.start,
                               .first = p->specifiers.count,
                               .needs_semicolon = bare_before};
    uint32_t insertions = p->insertions.count;

    ts_next(p);
    if (!is_type_import(p))
        return parse_import(p, &module, exported);
    ts_next(p);
    p->ambient++;
    (void)parse_import(p, &module, exported);
    p->ambient--;
    p->specifiers.count = module.first;
    ts_erase_since(p, start, insertions, bare_before);
    return true;
}

/* `export {a}`, `export {a} from "x"`. */
static bool parse_export_list(struct ts_parser *p, struct ts_module *module)
{
    bool reexports;

    parse_specifiers(p, true);
    reexports = is_word(p, WORD_FROM);
    if (reexports)
        parse_from(p);
    else
        ts_end_statement(p);
    if (!p->failed && reexports) {
        /* They are no names of this file. */
        for (uint32_t i = module->first; i < p->specifiers.count; i++)
            if (!p->specifiers.items[i].type_only)
                p->specifiers.items[i].name.end = p->specifiers.items[i].name.start;
    }
    module->is_export = true;
    module->reexports = reexports;
    push_module(p, *module);
    return false;
}

/* `export * from`, `export * as a from`. */
static bool parse_export_all(struct ts_parser *p)
{
    ts_next(p);
    if (is_word(p, WORD_AS)) {
        ts_next(p);
        ts_next(p);
    }
    parse_from(p);
    return false;
}

/* `export default` of one name, which may be a type. */
static void parse_default_name(struct ts_parser *p, struct ts_module *module)
{
    struct ts_span name = ts_span(p);

    ts_next(p);
    ts_end_statement(p);
    module->is_export = true;
    TS_PUSH(p, specifiers,
            (struct ts_specifier){.name = name, .whole = name, .kind = SPECIFIER_DEFAULT});
    push_module(p, *module);
}

static bool is_lone_name(struct ts_parser *p)
{
    const struct ts_token *next;

    if (!ts_is_name(p))
        return false;
    next = ts_peek(p);
    return next->kind == ';' || next->kind == TOKEN_END ||
           (next->newline && next->kind == TOKEN_WORD && next->word != WORD_IN &&
            next->word != WORD_INSTANCEOF);
}

static bool parse_export_default(struct ts_parser *p, struct ts_module *module)
{
    uint32_t start;

    ts_next(p);
    start = p->token.start;
    if (is_word(p, WORD_FUNCTION) || is_word(p, WORD_CLASS) || is_word(p, WORD_INTERFACE) ||
        (is_word(p, WORD_ABSTRACT) && ts_peek(p)->word == WORD_CLASS) ||
        (is_word(p, WORD_ASYNC) && ts_peek(p)->word == WORD_FUNCTION && !ts_peek(p)->newline)) {
        if (!is_word(p, WORD_INTERFACE) || ts_peek(p)->kind == TOKEN_WORD)
            return ts_declaration(p, start, true);
    }
    if (is_lone_name(p)) {
        parse_default_name(p, module);
        return true;
    }
    (void)ts_assignment(p, 0);
    ts_end_statement(p);
    return true;
}

/* `export = x` */
static bool parse_export_assign(struct ts_parser *p, uint32_t start)
{
    uint32_t insertion = ts_reserve(p, start);

    ts_blank(p, start, p->token.end);
    ts_begin(p, insertion);
    ts_add(p, "module.exports =");
    ts_finish(p, insertion);
    ts_next(p);
    ts_expression(p, 0);
    ts_end_statement(p);
    return true;
}

/* In a namespace: what is declared is given to it behind the declaration. */
static bool parse_space_export(struct ts_parser *p, uint32_t start)
{
    uint32_t first = p->collected.count;
    bool changes = !is_word(p, WORD_CONST), kept = true, async = is_word(p, WORD_ASYNC);
    struct ts_span name;

    ts_blank(p, start, p->previous_end);
    if (is_word(p, WORD_VAR) || is_word(p, WORD_LET) ||
        (is_word(p, WORD_CONST) && ts_peek(p)->word != WORD_ENUM)) {
        ts_variables(p, 0, true);
        ts_end_statement(p);
        for (uint32_t i = first; i < p->collected.count && !p->failed; i++)
            ts_space_give(p, p->collected.items[i], changes);
        p->collected.count = first;
        return true;
    }
    if (async || is_word(p, WORD_FUNCTION)) {
        if (async)
            ts_next(p);
        kept = ts_function(p, &name);
        if (!kept)
            ts_end_statement(p);
    } else if (is_word(p, WORD_ABSTRACT) || is_word(p, WORD_CLASS)) {
        if (is_word(p, WORD_ABSTRACT)) {
            ts_blank(p, p->token.start, p->token.end);
            ts_next(p);
        }
        ts_class(p, &name);
    } else {
        return ts_declaration(p, p->token.start, true);
    }
    ts_note_declared(p, name, NAME_DECLARED);
    if (kept)
        ts_space_give(p, name, false);
    return kept;
}

/* Behind `export`; true if something is left. */
static bool parse_export(struct ts_parser *p, struct ts_module *module)
{
    uint32_t start = module->whole.start;
    const struct ts_token *next = ts_peek(p);

    if (is_word(p, WORD_TYPE) && (next->kind == '{' || next->kind == '*')) {
        p->ambient++;
        ts_next(p);
        (void)(ts_is(p, '{') ? parse_export_list(p, module) : parse_export_all(p));
        p->ambient--;
        return false;
    }
    if (is_word(p, WORD_AS)) { /* export as namespace X */
        ts_next(p);
        ts_next(p);
        ts_next(p);
        ts_end_statement(p);
        return false;
    }
    if (is_word(p, WORD_IMPORT)) {
        if (p->space != NULL)
            ts_blank(p, start, p->previous_end);
        return !ts_import(p, true, start, false);
    }
    if (p->space != NULL && p->ambient == 0) {
        if (ts_begins_declaration(p))
            return parse_space_export(p, start);
        ts_fail_here(p, "Only a declaration can be exported from a namespace.");
        return true;
    }
    if (ts_is(p, '{'))
        return !parse_export_list(p, module);
    if (ts_is(p, '*'))
        return !parse_export_all(p);
    if (ts_is(p, '='))
        return parse_export_assign(p, start);
    if (is_word(p, WORD_DEFAULT))
        return parse_export_default(p, module);
    if (!ts_begins_declaration(p))
        ts_fail_here(p, ts_is(p, '@')
                            ? "Decorators are not supported: call the function on the class "
                              "instead."
                            : "A declaration was expected behind `export`.");
    return ts_declaration(p, start, true);
}

bool ts_export(struct ts_parser *p, bool bare_before)
{
    struct ts_module module = {.whole.start = p->token.start,
                               .first = p->specifiers.count,
                               .needs_semicolon = bare_before};
    uint32_t insertions = p->insertions.count;
    bool kept;

    ts_next(p);
    kept = parse_export(p, &module);
    if (!kept)
        ts_erase_since(p, module.whole.start, insertions, bare_before);
    return !kept;
}

/* Used as a type and not as a value; a name that is never used stays. */
static bool is_only_type(const struct ts_parser *p, const struct ts_specifier *specifier)
{
    const struct ts_name *name = ts_name_find(p, 0, specifier->name);

    return specifier->type_only ||
           (name != NULL && (name->flags & NAME_TYPE) && !(name->flags & NAME_VALUE));
}

/* Declared by the file as a type, and as nothing else. */
static bool is_own_type(const struct ts_parser *p, const struct ts_specifier *specifier)
{
    const struct ts_name *name = ts_name_find(p, 0, specifier->name);

    return specifier->type_only ||
           (name != NULL && (name->flags & NAME_DECLARED_TYPE) && !(name->flags & NAME_VALUE) &&
            ts_name_find(p, SCOPE_FILE, specifier->name) == NULL);
}

static void erase_module(struct ts_parser *p, const struct ts_module *module)
{
    ts_blank(p, module->whole.start, module->whole.end);
    if (module->needs_semicolon && !p->failed)
        p->output[module->whole.start] = ';';
}

static void finish_export(struct ts_parser *p, const struct ts_module *module)
{
    uint32_t erased = 0;

    for (uint32_t i = module->first; i < module->first + module->count; i++) {
        const struct ts_specifier *specifier = &p->specifiers.items[i];
        if (!is_own_type(p, specifier)) {
            struct ts_name *name = ts_name(p, 0, specifier->name);
            if (name != NULL)
                ts_name_mark(name, NAME_VALUE);
        } else if (specifier->kind == SPECIFIER_DEFAULT) {
            erase_module(p, module);
        } else {
            ts_blank(p, specifier->whole.start, specifier->whole.end);
            erased++;
        }
    }
    if (module->reexports && erased > 0 && erased == module->count)
        erase_module(p, module);
}

static void finish_import(struct ts_parser *p, const struct ts_module *module)
{
    const struct ts_specifier *first = &p->specifiers.items[module->first];
    uint32_t kept = 0, kept_tail = 0;

    for (uint32_t i = 0; i < module->count; i++) {
        if (is_only_type(p, &first[i]))
            continue;
        kept++;
        if (first[i].kind != SPECIFIER_DEFAULT)
            kept_tail++;
    }
    if (kept == module->count)
        return;
    if (kept == 0) {
        erase_module(p, module);
        return;
    }
    if (kept_tail == 0) {
        ts_blank(p, module->tail.start, module->tail.end);
        return;
    }
    for (uint32_t i = 0; i < module->count; i++)
        if (is_only_type(p, &first[i]))
            ts_blank(p, first[i].whole.start, first[i].whole.end);
}

/* An alias uses what it stands for as it is used itself. */
static void finish_alias(struct ts_parser *p, const struct ts_module *module)
{
    bool is_type = is_only_type(p, &p->specifiers.items[module->first]);
    struct ts_name *name = ts_name(p, 0, module->alias);

    if (name != NULL)
        ts_name_mark(name, is_type ? NAME_TYPE : NAME_VALUE);
}

void ts_modules_finish(struct ts_parser *p)
{
    /* Exports are uses, so they come first. */
    for (uint32_t i = 0; i < p->modules.count; i++)
        if (p->modules.items[i].is_export)
            finish_export(p, &p->modules.items[i]);
    /* An alias may stand for one before it. */
    for (uint32_t i = p->modules.count; i-- > 0;)
        if (p->modules.items[i].alias.end > 0)
            finish_alias(p, &p->modules.items[i]);
    for (uint32_t i = 0; i < p->modules.count; i++)
        if (!p->modules.items[i].is_export)
            finish_import(p, &p->modules.items[i]);
}
