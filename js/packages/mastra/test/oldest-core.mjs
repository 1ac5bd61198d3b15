// Loaded before a test (`--import`), it puts the oldest @mastra/core that the package may be used with in the place of the
// newest: all of the package's modules and of the tests' get that one.
import { register } from "node:module";

const OLDEST = "mastra-core-oldest";

export async function resolve(specifier, context, next) {
    return next(specifier.replace(/^@mastra\/core(?=\/|$)/, OLDEST), context);
}

register(import.meta.url);
