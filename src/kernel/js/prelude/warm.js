// The last part: a few runs while the image is made, so that what the engine makes once (shapes of
// objects, names) is in the image and no pristine run has to make it again. It must leave nothing
// behind that a run could see.
(function (host, native, share) {
    "use strict";

    const sources = ["1+1", "'text'", "undefined", "({ a: 1, b: [1, 'x', null] })", "[1, 2, 3].map((x) => x * 2)", "return 5", "throw new Error('x')",
        "(() => { const text = JSON.stringify({ a: [1, 2] }); return JSON.parse(text).a.length; })()"];
    for (let i = 0; i < sources.length; i++) {
        share.run(sources[i], { __proto__: null, language: "js", filename: "<run>", module: false });
        while (share.step() === -3);
        share.result();
    }
    share.formatWithOptions({ breakLength: 80 }, ["%s", "a", { a: 1, b: [1, 2, { c: new Map() }] }, "text", 5, null, undefined, true]);
    share.reset();
})
