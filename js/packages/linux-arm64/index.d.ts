/** The path of the program `cove`; the others lie beside it. */
export declare const cove: string;
