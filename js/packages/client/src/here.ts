// Where this package lies. As CommonJS it is src-cjs/here.ts instead.
export const here: string = import.meta.url;
