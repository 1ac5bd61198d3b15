// Where this package lies: src/here.ts of what is compiled as CommonJS, which has no import.meta.
export const here: string = __filename;
