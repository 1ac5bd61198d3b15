#!/usr/bin/env python3
"""Makes the few changes that a kernel needs in the engine's own source: `adapt.py IN OUT`.

What they do: `return` is allowed at the top level of a run; an asynchronous run gives its value as
it is, unwrapped; a run may declare again what an earlier run declared (the rule of a REPL); and a number as
the key of a Map takes no longer than a string. Nothing of this can be had through the engine's interface. Each change names the text that it
replaces and fails unless that text is there exactly once, so that a new version of the engine
cannot be half adapted. It must never touch anything that code inside a function or eval() sees.
"""
import sys

EDITS = [
    # `return` at the top level of a run: of JS_Eval's own code, never of eval() inside it.
    (
        "        if (s->cur_func->is_eval) {\n"
        '            js_parse_error(s, "return not in a function");\n',
        "        if (s->cur_func->is_eval &&\n"
        "            (s->is_module || s->cur_func->eval_type != JS_EVAL_TYPE_GLOBAL)) {\n"
        '            js_parse_error(s, "return not in a function");\n',
    ),
    # What is declared again: told apart from what eval() declares by a flag of its own.
    (
        "#define DEFINE_GLOBAL_FUNC_VAR (1 << 6)\n",
        "#define DEFINE_GLOBAL_FUNC_VAR (1 << 6)\n#define DEFINE_GLOBAL_AGAIN (1 << 5)\n",
    ),
    (
        "            flags |= DEFINE_GLOBAL_LEX_VAR;\n"
        "        if (hf->cpool_idx >= 0)\n"
        "            flags |= DEFINE_GLOBAL_FUNC_VAR;\n",
        "            flags |= DEFINE_GLOBAL_LEX_VAR;\n"
        "        if (s->eval_type == JS_EVAL_TYPE_GLOBAL)\n"
        "            flags |= DEFINE_GLOBAL_AGAIN;\n"
        "        if (hf->cpool_idx >= 0)\n"
        "            flags |= DEFINE_GLOBAL_FUNC_VAR;\n",
    ),
    # A `let` may hide what an earlier run made with `var` or `function` (enumerable), never what
    # the language itself has fixed (undefined, NaN).
    (
        "        if (prs && !(prs->flags & JS_PROP_CONFIGURABLE))\n"
        "            goto fail_redeclaration;\n",
        "        if (prs && !(prs->flags & JS_PROP_CONFIGURABLE) &&\n"
        "            !((flags & DEFINE_GLOBAL_AGAIN) && (prs->flags & JS_PROP_ENUMERABLE)))\n"
        "            goto fail_redeclaration;\n",
    ),
    (
        "    p = JS_VALUE_GET_OBJ(ctx->global_var_obj);\n"
        "    prs = find_own_property1(p, prop);\n"
        "    if (prs) {\n"
        "    fail_redeclaration:\n",
        "    p = JS_VALUE_GET_OBJ(ctx->global_var_obj);\n"
        "    prs = find_own_property1(p, prop);\n"
        "    if (prs && (flags & DEFINE_GLOBAL_AGAIN))\n"
        "        return delete_property(ctx, p, prop) < 0 ? -1 : 0;\n"
        "    if (prs) {\n"
        "    fail_redeclaration:\n",
    ),
    # Keys of Map and Set: a table takes the low bits of a hash, and those of small integers, of bigints and of
    # addresses were all the same.
    (
        "    return h ^ ctx->hash_seed ^ hash32(tag);\n",
        "    h = hash32(h ^ ctx->hash_seed ^ hash32(tag));\n    return h ^ (h >> 16);\n",
    ),
    # JSON takes the characters that it need not quote together, not one by one.
    (
        "    for(i = 0; i < p->len; ) {\n"
        "        c = string_getc(p, &i);\n"
        "        switch(c) {\n"
        "        case '\\t':\n",
        "    for(i = 0; i < p->len; ) {\n"
        "        int from = i;\n"
        "        if (!p->is_wide_char) {\n"
        "            const uint8_t *s = str8(p);\n"
        "            while (i < p->len && s[i] >= 32 && s[i] != '\\\\' && s[i] != '\"')\n"
        "                i++;\n"
        "            if (i > from && string_buffer_write8(b, s + from, i - from))\n"
        "                goto fail;\n"
        "            if (i == p->len)\n"
        "                break;\n"
        "        }\n"
        "        c = string_getc(p, &i);\n"
        "        switch(c) {\n"
        "        case '\\t':\n",
    ),
    # Memory that is not there for the result of normalize() is said, as everywhere else.
    (
        "    js_free(ctx, buf);\n    if (out_len < 0)\n        return JS_EXCEPTION;\n",
        "    js_free(ctx, buf);\n    if (out_len < 0)\n        return JS_ThrowOutOfMemory(ctx);\n",
    ),
]

# The value of an asynchronous script comes wrapped, at two places; here it comes as it is.
WRAPPED = "            if (fd->func_kind == JS_FUNC_ASYNC) {\n                emit_op(s, OP_object);\n"
PLAIN = "            if (false) {\n                emit_op(s, OP_object);\n"


def adapted(text: str) -> str:
    for old, new in EDITS:
        if text.count(old) != 1:
            sys.exit(f"adapt.py: found {text.count(old)} times, not once, in the engine's source:\n{old}")
        text = text.replace(old, new)
    if text.count(WRAPPED) != 2:
        sys.exit(f"adapt.py: found {text.count(WRAPPED)} times, not twice, in the engine's source:\n{WRAPPED}")
    return text.replace(WRAPPED, PLAIN)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: adapt.py IN OUT")
    with open(sys.argv[1], encoding="utf-8") as source:
        result = adapted(source.read())
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(result)
