// Patterns that agents write, and such that are told apart only by how JavaScript reads them. Each is searched for in
// `lines` (and some other files) by core's own search and by the engine's, which must find the same.
// [pattern, whether the engine answers it (or leaves it to core), the same when case is ignored]

export const lines = [
    "plain text", "TODO: first", "FIXME(second): todo", "function main(argc, argv) {", "const x = [1, 2, 3];", "foo.bar()",
    "fooXbar()", "foo bar", "foo\tbar", "foo\u00a0bar", "foo\u2003bar", "foo\ufeffbar", "foo\u2028bar", "foo\rbar",
    "price: 12.50 €", "café au lait", "CAFÉ AU LAIT", "naïve", "Straße", "STRASSE", "ſtraße", "\u212aelvin", "kelvin",
    "KELVIN", "emoji 😀 one", "😀", "😀😀", "a😀b", "ab", "a b", "x😀y", "x😀😀y", "xy", "\u{1f468}\u200d\u{1f469}\u200d\u{1f467}",
    "日本語テキスト", "ΣΑΣ σας", "Ω Ω", "µ μ", "ı i İ I", '"quoted \\" string"', '"plain"', "'single'", "`tick`", "back\\slash",
    "tab\there", "{braces}", "a{2}", "a{,3}", "aa", "aaa", "[brackets]", "(parens)", "1+1=2", "50%", "$HOME", "^caret",
    "a|b", "end.", "trailing  ", "  leading", "", "http://example.com:8080/a?b=c#d", "user@example.com",
    "2026-11-22T12:00:00Z", "192.168.0.1", "0xDEADBEEF", "#!/bin/sh", "<div class=\"a\">text</div>", "key: value",
    "key=value", "-- comment", "// comment", "/* block */", "x".repeat(600), "_under_score", "word boundary",
    "wordboundary", "abcabc", "aXbXc", "if (a && b || !c) {", "\u0007bell", "vertical\vtab", "form\ffeed",
    "\u0000zero?".slice(1), "}", "{", "a-b", "a_b", "A-B", "é", "É", "ÿ", "Ÿ", "last line without an end",
];

export const patterns = [
    ["TODO: first"], ["text", true, true], ["TODO: first|FIXME"], ["foo.bar", true, true], ["foo\\.bar", true, true],
    ["foo\\sbar"], ["foo\\Sbar"], ["foo[\\s]bar"], ["foo[^\\s]bar"], ["foo\\s*bar", true, true], ["function\\s+\\w+\\("],
    ["\\bword\\b", true, true], ["^$", false], ["^foo"], ["bar$"], ["^\\s+\\S"], ["\\s+$"], ["[A-Z]{3,}", true, true],
    ["\\d+\\.\\d+"], ["\\d{1,3}(\\.\\d{1,3}){3}"], ["[\\w.]+@[\\w.]+"], ["https?://[^\\s/]+"], ["café", true, true],
    ["CAFÉ", true, true], ["caf[eé]", true, true], ["caf[^e]", true, true], ["straße", true, true], ["kelvin", true, true],
    ["[k]elvin", true, true], ["[a-m]elvin", true, true], ["[^j]elvin", true, true], ["\\u212a", true, true],
    ["σας", true, true], ["ω", true, true], ["μ", true, true], ["i", true, true], ["ÿ", true, true], ["\\u00e9"],
    ["\\xe9", true, true], ["😀"], ["a😀b"], ["^.$"], ["^..$", false], ["^.{2}$", false], ["^.+$", true], ["a.b", true, true],
    ["a..b", false], ["a[^x]b"], ["x.*y"], ["x.+y"], ["x.?y"], ["x.{2}y", false], ["x[^a][^b]y", false], ["x.*.*y"],
    ["x\\Wy"], ["x[\\W]y"], ["😀+", false], ["[😀]", false], ["\\ud83d", false], ["^\\S+$"], ["日本."], ["[ぁ-ん]|語"],
    ["[\\u3040-\\u30ff]+"], ["[\\u0080-\\uffff]"], ["[\\u0000-\\ud900]", false], ['"(?:[^"\\\\]|\\\\.)*"'], ['"[^"]*"'],
    ["'[^']+'"], ["\\\\"], ["\\t"], ["[\\t ]here"], ["a{2}"], ["a\\{2\\}"], ["a{,3}"], ["{"], ["}"], ["{braces}"], ["]"],
    ["\\[brackets\\]"], ["[[]"], ["[\\]]"], ["[]", true], ["[^]", true], ["[^]x", true], ["a{2,3}"], ["a{1}?"], ["1\\+1"],
    ["\\$HOME"], ["\\^caret"], ["a\\|b"], ["(parens)"], ["\\(parens\\)"], ["(?:a|b){2}"], ["(?<name>a)b"],
    ["(a)(b)\\2", false], ["(abc)\\1", false], ["\\k", false], ["(?=foo)f"], ["foo(?=\\.)"], ["foo(?!\\.)"],
    ["^(?!.*foo).*bar"], ["(?<=foo)bar", false], ["(?<!foo)bar", false], ["(?!a.b)a", false], ["(?!^).", false],
    [".(?!x)", false], ["(?!foo)\\w+bar"], ["(?!😀)x"], ["(?:(?!bar).)+$", false], ["o+(?!o)."], ["a(?=.)b?", false],
    ["\\Bord", false], ["\\a"], ["\\e"], ["\\h"], ["\\z"], ["\\A"], ["\\Q"], ["\\pL"], ["\\x"], ["\\u"], ["\\-"],
    ["\\/\\/"], ["\\cG"], ["\\v"], ["\\f"], ["[\\b]"], ["\\0", true], ["[a-]b"], ["[-a]"], ["[\\w-]+_"], ["[^\\W]x"],
    ["[^\\S]x"], ["[^\\S\\n]l"], ["[\\s\\S]x"], ["[\\W\\d]x"], ["[^\\s\"]+$", true, true], ["na\\Wve"], ["na\\b"],
    ["\\bve"], ["\\D\\d\\D"], ["[^\\D]0"], ["[\\S]+$"], ["[\\d\\D]"], ["[A-z]b"], ["[.]"], ["[^.]\\."], ["[$^|]"],
    ["x{500,}"], ["x{99999}", false], [".*", false], ["", false], ["()", false], ["a||b", false], ["(a|)b"],
    ["(?:)", false], ["(\\w+)\\s*[:=]\\s*(.*)"], ["if\\s*\\(.*&&.*\\)"], ["<(\\w+)[^>]*>.*</"], ["#!|^--|^//"],
    ["(?:^|\\s)foo(?:$|\\s)"], ["\\w+\\W+\\w+"], ["(.)x", true], ["(?:.|x)y", true], ["(?:.b)+", true], ["(?:b.)+", true],
    ["(?:.b|b.)+", false], ["(?:.+,)+", true], ["([^,]+,)*[^,]+$", true], ["one|two", true], ["three$", true],
    ["o\\r$", true], ["two.", true],
];
