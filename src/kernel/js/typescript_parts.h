/* What the parts of the eraser share: tokens, the parser's state, and each file's functions.
 *
 * The parser reads tokens one at a time and builds no tree. The output begins as a copy of the source;
 * types are blanked in it where they stand, and what is longer than what it replaces is a list of
 * insertions, merged in at the end. After a failure the token is TOKEN_END for good, so every loop ends
 * there; a function that is called then does nothing of harm. Parsing of types writes nothing but notes
 * on names, so that it may be tried and taken back. */
#pragma once

#include "typescript.h"

#include <stdbool.h>
#include <stdint.h>

/* A punctuator of one character is its own kind. '<' and '>' are never joined with what follows: see
 * ts_operator(). */
enum ts_kind {
    TOKEN_END = 0,
    TOKEN_WORD = 128, /* identifiers and keywords: see .word */
    TOKEN_PRIVATE,    /* #name */
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_TEMPLATE, /* from the back-quote, or from '}', to the next "${" (.open) or the end */
    TOKEN_REGEX,
    TOKEN_ARROW,
    TOKEN_ELLIPSIS,
    TOKEN_CHAIN,  /* ?. */
    TOKEN_COUNT,  /* ++ -- */
    TOKEN_ASSIGN, /* += and the like, but not = */
    TOKEN_BINARY, /* operators of more than one character */
};

#define TS_RESERVED(X)          \
    X(BREAK, "break")           \
    X(CASE, "case")             \
    X(CATCH, "catch")           \
    X(CLASS, "class")           \
    X(CONST, "const")           \
    X(CONTINUE, "continue")     \
    X(DEBUGGER, "debugger")     \
    X(DEFAULT, "default")       \
    X(DELETE, "delete")         \
    X(DO, "do")                 \
    X(ELSE, "else")             \
    X(ENUM, "enum")             \
    X(EXPORT, "export")         \
    X(EXTENDS, "extends")       \
    X(FALSE, "false")           \
    X(FINALLY, "finally")       \
    X(FOR, "for")               \
    X(FUNCTION, "function")     \
    X(IF, "if")                 \
    X(IMPORT, "import")         \
    X(IN, "in")                 \
    X(INSTANCEOF, "instanceof") \
    X(NEW, "new")               \
    X(NULL, "null")             \
    X(RETURN, "return")         \
    X(SUPER, "super")           \
    X(SWITCH, "switch")         \
    X(THIS, "this")             \
    X(THROW, "throw")           \
    X(TRUE, "true")             \
    X(TRY, "try")               \
    X(TYPEOF, "typeof")         \
    X(VAR, "var")               \
    X(VOID, "void")             \
    X(WHILE, "while")           \
    X(WITH, "with")

/* Words that mean something in their places only. */
#define TS_CONTEXTUAL(X)          \
    X(ABSTRACT, "abstract")       \
    X(ACCESSOR, "accessor")       \
    X(ANY, "any")                 \
    X(AS, "as")                   \
    X(ASSERT, "assert")           \
    X(ASSERTS, "asserts")         \
    X(ASYNC, "async")             \
    X(AWAIT, "await")             \
    X(BIGINT, "bigint")           \
    X(BOOLEAN, "boolean")         \
    X(CONSTRUCTOR, "constructor") \
    X(DECLARE, "declare")         \
    X(FROM, "from")               \
    X(GET, "get")                 \
    X(GLOBAL, "global")           \
    X(IMPLEMENTS, "implements")   \
    X(INFER, "infer")             \
    X(INTERFACE, "interface")     \
    X(IS, "is")                   \
    X(KEYOF, "keyof")             \
    X(LET, "let")                 \
    X(MODULE, "module")           \
    X(NAMESPACE, "namespace")     \
    X(NEVER, "never")             \
    X(NUMBER, "number")           \
    X(OBJECT, "object")           \
    X(OF, "of")                   \
    X(OUT, "out")                 \
    X(OVERRIDE, "override")       \
    X(PRIVATE, "private")         \
    X(PROTECTED, "protected")     \
    X(PUBLIC, "public")           \
    X(READONLY, "readonly")       \
    X(REQUIRE, "require")         \
    X(SATISFIES, "satisfies")     \
    X(SET, "set")                 \
    X(STATIC, "static")           \
    X(STRING, "string")           \
    X(SYMBOL, "symbol")           \
    X(TYPE, "type")               \
    X(UNDEFINED, "undefined")     \
    X(UNIQUE, "unique")           \
    X(UNKNOWN, "unknown")         \
    X(USING, "using")             \
    X(YIELD, "yield")

#define TS_WORD_ENUM(name, text) WORD_##name,
enum ts_word {
    WORD_NONE,
    TS_RESERVED(TS_WORD_ENUM) WORD_LAST_RESERVED,
    TS_CONTEXTUAL(TS_WORD_ENUM) WORD_COUNT,
};

struct ts_token {
    uint32_t start, end;
    uint8_t kind, word;
    bool newline; /* before it */
    bool open;    /* of TOKEN_TEMPLATE: "${" follows */
};

/* A piece of the source. */
struct ts_span {
    uint32_t start, end;
};

#define SCOPE_FILE 1U /* what the file itself declares; 0 is for what is noted of all its text */
/* A '<' that was found to begin no type arguments. */
#define SCOPE_ANGLE (1U << 31)

/* What is noted of a name. */
#define NAME_VALUE 1U         /* used as a value */
#define NAME_TYPE 2U          /* used as a type */
#define NAME_DECLARED_TYPE 4U /* an interface or a type of the file itself */
#define NAME_DECLARED 8U      /* in its scope: a class, function, enum, namespace or variable */
#define NAME_TEXT 16U         /* a member of an enum that is a string */

struct ts_name {
    struct ts_span text;
    uint32_t
        scope;    /* 0: of the whole file; a number that is used once; or SCOPE_ANGLE and a place */
    uint16_t tag; /* of its hash */
    uint16_t flags;
    uint32_t number;  /* of an enum or namespace: the scope of its members */
    uint32_t exports; /* of a namespace: its last in .exports, counted from 1 */
};

struct ts_insertion {
    uint32_t at;
    uint32_t text, length; /* in .text */
};

enum ts_specifier_kind { SPECIFIER_DEFAULT, SPECIFIER_ALL, SPECIFIER_NAMED };

/* A name that an import gives or an export takes: decided at the end, when all uses are known. */
struct ts_specifier {
    struct ts_span name, whole; /* whole: what to blank, the comma included */
    uint8_t kind;
    bool type_only;
};

struct ts_module {
    struct ts_span whole;
    struct ts_span tail;   /* of an import: from behind its default name to "from" */
    struct ts_span alias;  /* of `import x = a.b`: a */
    uint32_t first, count; /* of .specifiers */
    bool is_export, reexports, needs_semicolon;
};

/* The namespace whose body is read. */
struct ts_space {
    struct ts_span name;
    uint32_t scope; /* in which it has this name */
    uint32_t number;
};

struct ts_export {
    struct ts_span name;
    uint32_t before; /* the one before it of the same namespace, counted from 1; 0: none */
};

/* An array that grows; see ts_grow(). */
#define TS_ARRAY(type)            \
    struct {                      \
        type *items;              \
        uint32_t count, capacity; \
    }

struct ts_parser {
    const uint8_t *source;
    uint32_t length;
    uint8_t *output;

    struct ts_token token, peeked;
    uint32_t position;     /* behind the token */
    uint32_t previous_end; /* of the token before it */

    bool failed;
    uint32_t failed_at;
    const char *failure;

    unsigned depth;
    unsigned ambient;    /* inside so many `declare` */
    bool in_generator;   /* so `yield` is an operator */
    bool bare;           /* the last statement ended without a semicolon */
    struct ts_span gone; /* what was blanked last */
    uint32_t scope, scopes;
    uint64_t tried, may_try; /* bytes read in vain, and how many are too many */

    const struct ts_space *space;
    uint32_t enumeration; /* number of the enum whose initializer is read, or 0 */
    struct ts_span enumeration_name;

    TS_ARRAY(struct ts_name) names; /* open addressing; capacity is a power of two */
    TS_ARRAY(struct ts_insertion) insertions;
    TS_ARRAY(char) text;
    TS_ARRAY(struct ts_specifier) specifiers;
    TS_ARRAY(struct ts_module) modules;
    TS_ARRAY(struct ts_span) collected; /* a stack: parameter properties, variables of an export */
    TS_ARRAY(struct ts_export) exports;
    TS_ARRAY(uint32_t) angles; /* a stack: each '<' of type arguments that is open */
};

/* typescript.c: the output, and names. */
void ts_fail(struct ts_parser *p, uint32_t at, const char *sentence);
void ts_fail_here(struct ts_parser *p, const char *sentence);
/* Room for one item more, of `size` bytes; false after a failure. */
bool ts_grow(struct ts_parser *p, void **items, uint32_t *capacity, uint32_t count, size_t size);
#define TS_PUSH(p, array, ...)                                                             \
    do {                                                                                   \
        if (ts_grow(p, (void **)&(p)->array.items, &(p)->array.capacity, (p)->array.count, \
                    sizeof(*(p)->array.items)))                                            \
            (p)->array.items[(p)->array.count++] = __VA_ARGS__;                            \
    } while (0)

void ts_blank(struct ts_parser *p, uint32_t start, uint32_t end);
/* Of text that is put in at a place: begin, add, end. Places must not decrease; ts_reserve() keeps one
 * for later. */
uint32_t ts_reserve(struct ts_parser *p, uint32_t at);
void ts_begin(struct ts_parser *p, uint32_t insertion);
void ts_add(struct ts_parser *p, const char *text);
void ts_add_span(struct ts_parser *p, struct ts_span span);
void ts_add_number(struct ts_parser *p, uint64_t number);
void ts_finish(struct ts_parser *p, uint32_t insertion);
void ts_insert(struct ts_parser *p, uint32_t at, const char *text);

/* The entry of a name, which is made if there is none; NULL after a failure. */
struct ts_name *ts_name(struct ts_parser *p, uint32_t scope, struct ts_span name);
const struct ts_name *ts_name_find(const struct ts_parser *p, uint32_t scope, struct ts_span name);
void ts_name_mark(struct ts_name *name, unsigned flags);
/* Notes a use of the token. */
void ts_note(struct ts_parser *p, unsigned flags);
void ts_note_declared(struct ts_parser *p, struct ts_span name, unsigned flags);

/* typescript_lex.c */
struct ts_mark {
    struct ts_token token;
    uint32_t position, previous_end;
};
void ts_next(struct ts_parser *p);
struct ts_mark ts_mark(const struct ts_parser *p);
void ts_rewind(struct ts_parser *p, const struct ts_mark *mark);
/* The token behind it, until the next call. */
const struct ts_token *ts_peek(struct ts_parser *p);
/* The first byte of what follows the token; 0 at the end. */
uint8_t ts_peek_byte(const struct ts_parser *p);
/* The token is '/' or "/=": reads a regular expression instead. */
void ts_regex(struct ts_parser *p);
/* The token is the '}' that ends "${": reads the template on. */
void ts_template_on(struct ts_parser *p);
/* Behind a binary operator or an assignment; 0: the token is none. `<` and `>` are joined here. */
enum ts_kind ts_operator(struct ts_parser *p);
bool ts_is(const struct ts_parser *p, unsigned kind);
bool ts_is_word(const struct ts_parser *p, enum ts_word word);
bool ts_is_name(const struct ts_parser *p);
bool ts_take(struct ts_parser *p, unsigned kind);
void ts_expect(struct ts_parser *p, unsigned kind, const char *sentence);
struct ts_span ts_span(const struct ts_parser *p);
bool ts_has_newline(const struct ts_parser *p, uint32_t start, uint32_t end);
/* Counts a level of recursion; false, and a failure, if it is one too many. */
bool ts_enter(struct ts_parser *p);
void ts_leave(struct ts_parser *p);

/* typescript_types.c: they move on, and erase nothing. */
void ts_type(struct ts_parser *p);
void ts_return_type(struct ts_parser *p);
void ts_type_parameters(struct ts_parser *p);
void ts_type_members(struct ts_parser *p);
/* Behind the type arguments that the token '<' begins, or nowhere else and false. */
bool ts_try_type_arguments(struct ts_parser *p);
void ts_type_arguments(struct ts_parser *p);
/* The same of type parameters before '('. */
bool ts_try_type_parameters(struct ts_parser *p);
/* These erase: `: T` where there is one, and `<T>`. */
void ts_erase_annotation(struct ts_parser *p);
void ts_erase_type_parameters(struct ts_parser *p);

/* typescript_expressions.c */
#define EXPRESSION_NO_IN 1U  /* the head of a `for` */
#define EXPRESSION_MIDDLE 2U /* between '?' and ':' */
#define EXPRESSION_CASE 4U   /* between `case` and ':' */
#define EXPRESSION_PAREN 8U  /* directly in parentheses that may be parameters */
enum ts_end {
    END_PLAIN,
    END_ARROW, /* a function whose body ends the expression */
    END_ELSE,  /* so does one that stood behind the ':' of the conditional around it */
};
void ts_expression(struct ts_parser *p, unsigned flags);
enum ts_end ts_assignment(struct ts_parser *p, unsigned flags);
void ts_left_hand_side(struct ts_parser *p);
void ts_object(struct ts_parser *p);
void ts_array(struct ts_parser *p);
void ts_property_name(struct ts_parser *p);

/* typescript_functions.c: functions and classes. */
#define FUNCTION_GENERATOR 1U
#define FUNCTION_CONSTRUCTOR 2U
#define FUNCTION_DERIVED 4U
/* From type parameters to the body; false if there is none. */
bool ts_function_rest(struct ts_parser *p, unsigned flags, uint32_t properties);
void ts_function_body(struct ts_parser *p, unsigned flags);
/* At `function`; the span of its name. False if it has no body. */
bool ts_function(struct ts_parser *p, struct ts_span *name);
/* At `class`. */
void ts_class(struct ts_parser *p, struct ts_span *name);
void ts_target(struct ts_parser *p);

/* typescript_statements.c */
/* True if it left nothing. */
bool ts_statement(struct ts_parser *p);
/* Statements up to '}'; true if one of them left something. */
bool ts_statements(struct ts_parser *p);
void ts_block(struct ts_parser *p);
void ts_end_statement(struct ts_parser *p);
/* Blanks a whole statement or member that ends here, and what was put in since. */
void ts_erase_since(struct ts_parser *p, uint32_t start, uint32_t insertions, bool bare_before);
/* At `var`, `let` or `const`: to the end of the list. Names go to .collected if `collect`. */
void ts_variables(struct ts_parser *p, unsigned flags, bool collect);
/* What `export` or `declare` may stand before; false: nothing is left of it. */
bool ts_declaration(struct ts_parser *p, uint32_t start, bool exported);
bool ts_begins_declaration(struct ts_parser *p);

/* typescript_modules.c */
bool ts_import(struct ts_parser *p, bool exported, uint32_t start, bool bare_before);
bool ts_export(struct ts_parser *p, bool bare_before);
/* At the end: removes what was used as a type only. */
void ts_modules_finish(struct ts_parser *p);

/* typescript_values.c: enums and namespaces. */
void ts_enum(struct ts_parser *p, uint32_t start, bool exported);
/* True if it holds types only, and was erased. */
bool ts_namespace(struct ts_parser *p, uint32_t start, bool exported);
/* In a namespace: text that gives what was declared to it. */
void ts_space_give(struct ts_parser *p, struct ts_span name, bool changes);
