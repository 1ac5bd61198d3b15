// A JavaScript regular expression as one that Perl's engine takes, for the search inside the sandbox.
//
// What comes out matches every line that the original matches, and perhaps some more: the caller tries the original
// on each line that was found. What cannot be said that way has a reason, and is left to a search on this side.
//
// The one hard point: JavaScript counts UTF-16 units, so "." takes half an emoji, and ".." a whole one. A pattern is
// safe unless two atoms that could each take a half must stand side by side; the shapes below keep count of that.

/** Why a pattern is left to JavaScript. */
export class Untranslatable extends Error {
    override readonly name = "Untranslatable";
}

/** What a part of the pattern can consume: nothing sure (`solid` false), or at least one character that is no half. */
interface Shape {
    solid: boolean;
    /** Atoms that must match and could take a half, at the edges: 0 or 1. Equal where nothing solid is between. */
    left: number;
    right: number;
}

interface Part {
    text: string;
    shapes: Shape[];
    /** A single character or class, not a group. */
    isAtom: boolean;
    takesHalves: boolean;
}

const EMPTY: Shape = { solid: false, left: 0, right: 0 };
const SOLID: Shape = { solid: true, left: 0, right: 0 };
const HALF: Shape = { solid: false, left: 1, right: 1 };
const NEVER = "(?!)";
const REPEAT_MAX = 65535;
const LAST = 0x10ffff;

type Range = readonly [low: number, high: number];

/** JavaScript's own sets. They are written out where Perl's engine has others, and where it takes no more than ASCII. */
const DIGITS: readonly Range[] = [[48, 57]];
const WORDS: readonly Range[] = [[48, 57], [65, 90], [95, 95], [97, 122]];
const SPACES: readonly Range[] = [
    [9, 13], [32, 32], [0xa0, 0xa0], [0x1680, 0x1680], [0x2000, 0x200a], [0x2028, 0x2029], [0x202f, 0x202f],
    [0x205f, 0x205f], [0x3000, 0x3000], [0xfeff, 0xfeff],
];
const SETS: Readonly<Record<string, readonly Range[]>> = {
    d: DIGITS, D: allBut(DIGITS), w: WORDS, W: allBut(WORDS), s: SPACES, S: allBut(SPACES),
};

function allBut(ranges: readonly Range[]): Range[] {
    const others: Range[] = [];
    let from = 0;
    for (const [low, high] of ranges) {
        if (low > from) others.push([from, low - 1]);
        from = high + 1;
    }
    return [...others, [from, LAST]];
}

const isSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdfff;
const isAsciiLetter = (code: number): boolean => (code >= 65 && code <= 90) || (code >= 97 && code <= 122);
const hex = (code: number): string => `\\x{${code.toString(16)}}`;

function distinct(shapes: Shape[]): Shape[] {
    const known = new Map<string, Shape>();
    for (const shape of shapes) known.set(`${shape.solid}${shape.left}${shape.right}`, shape);
    return [...known.values()];
}

function tooManyHalves(): never {
    throw new Untranslatable("it counts UTF-16 units");
}

function join(a: Shape, b: Shape): Shape {
    if ((a.solid ? a.right : a.left) + b.left > 1) tooManyHalves();
    if (!a.solid && !b.solid) return a.left + b.left > 0 ? HALF : EMPTY;
    return {
        solid: true,
        left: a.solid ? a.left : a.left + b.left,
        right: b.solid ? b.right : a.right + b.right,
    };
}

const joinAll = (first: Shape[], second: Shape[]): Shape[] => distinct(first.flatMap((a) => second.map((b) => join(a, b))));

/** A group that stands several times, one copy beside the other. */
function repeatShapes(shapes: Shape[], min: number): Shape[] {
    const all = [...shapes];
    for (const a of shapes)
        for (const b of shapes) {
            // A copy that takes one half alone can be left out where the copy before takes both; another cannot.
            if (a.right + b.left > 1 && (b.solid || min > 1)) tooManyHalves();
            all.push({
                solid: a.solid || b.solid,
                left: a.solid ? a.left : Math.max(a.left, b.left),
                right: b.solid ? b.right : Math.max(a.right, b.right),
            });
        }
    return distinct(all);
}

/** Whether it can hold, or begin or end, only where a character begins. */
function isFirm(part: Part | undefined): boolean {
    if (part === undefined) return false;
    return ["^", "$", "\\b"].includes(part.text) || (part.isAtom && part.shapes.every((shape) => shape.solid));
}

class Translator {
    private at = 0;
    private inNegative = false;

    constructor(
        private readonly source: string,
        private readonly ignoreCase: boolean,
    ) {}

    translate(): string {
        const whole = this.alternatives();
        if (this.at < this.source.length) throw new Untranslatable("it has a parenthesis too many");
        return whole.text;
    }

    private peek(text: string): boolean {
        return this.source.startsWith(text, this.at);
    }

    private take(text: string): boolean {
        if (!this.peek(text)) return false;
        this.at += text.length;
        return true;
    }

    private alternatives(): Part {
        const texts: string[] = [];
        let shapes: Shape[] = [];
        do {
            const one = this.sequence();
            texts.push(one.text);
            shapes = distinct([...shapes, ...one.shapes]);
        } while (this.take("|"));
        return { text: texts.join("|"), shapes, isAtom: false, takesHalves: false };
    }

    private sequence(): Part {
        const parts: Part[] = [];
        let shapes = [EMPTY];
        while (this.at < this.source.length && !this.peek("|") && !this.peek(")")) {
            const part = this.term();
            parts.push(part);
            shapes = joinAll(shapes, part.shapes);
        }
        // What must not follow can hold in the middle of a character where it does not before it, so there must be
        // something beside it that stands in no middle.
        parts.forEach((part, i) => {
            const isNegative = part.text.startsWith("(?!") && part.text !== NEVER;
            if (isNegative && !isFirm(parts[i - 1]) && !isFirm(parts[i + 1])) tooManyHalves();
        });
        return { text: parts.map((part) => part.text).join(""), shapes, isAtom: false, takesHalves: false };
    }

    private term(): Part {
        const assertion = this.assertion();
        if (assertion === undefined) return this.quantified(this.atom());
        if (this.quantifier() !== undefined) throw new Untranslatable("it repeats an assertion");
        return { text: assertion, shapes: [EMPTY], isAtom: false, takesHalves: false };
    }

    private assertion(): string | undefined {
        for (const plain of ["^", "$", "\\b"]) if (this.take(plain)) return plain;
        if (this.peek("\\B")) throw new Untranslatable("\\B");
        if (this.take("(?=")) return `(?=${this.ahead().text})`;
        if (this.take("(?!")) {
            const outer = this.inNegative;
            this.inNegative = true;
            const text = `(?!${this.ahead().text})`;
            this.inNegative = outer;
            return text;
        }
        if (this.peek("(?<=") || this.peek("(?<!")) throw new Untranslatable("it looks behind");
        return undefined;
    }

    /** What is looked at ahead could begin in the middle of a character. */
    private ahead(): Part {
        const part = this.alternatives();
        this.close();
        if (part.shapes.some((shape) => shape.left > 0)) tooManyHalves();
        return part;
    }

    private close(): void {
        if (!this.take(")")) throw new Untranslatable("a group has no end");
    }

    private quantifier(): { text: string; min: number; max: number } | undefined {
        const rest = this.source.slice(this.at);
        const found = /^(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})(\??)/.exec(rest);
        if (found === null) return undefined;
        this.at += found[0].length;
        const [, sign, low, comma, high, lazy] = found;
        if (sign !== undefined) return { text: sign + lazy, min: sign === "+" ? 1 : 0, max: sign === "?" ? 1 : Infinity };
        const min = Number(low);
        const max = comma === undefined ? min : high === "" ? Infinity : Number(high);
        if (min > REPEAT_MAX || (max !== Infinity && max > REPEAT_MAX)) throw new Untranslatable("it repeats too often");
        return { text: `{${min}${comma === undefined ? "" : `,${max === Infinity ? "" : max}`}}${lazy}`, min, max };
    }

    private quantified(part: Part): Part {
        const many = this.quantifier();
        if (part.takesHalves && this.inNegative && !(many !== undefined && many.max === Infinity && many.min < 2))
            tooManyHalves();
        if (many === undefined) return part;
        if (part.isAtom && part.text.length > 1 && isSurrogate(part.text.charCodeAt(0)))
            throw new Untranslatable("it repeats half a character");
        const text = part.text + many.text;
        if (part.takesHalves) {
            if (many.min > 1) tooManyHalves();
            return { ...part, text, shapes: [many.min === 0 ? EMPTY : HALF] };
        }
        let shapes = many.max > 1 ? repeatShapes(part.shapes, many.min) : part.shapes;
        if (many.min === 0) shapes = distinct([EMPTY, ...shapes.map((shape) => (shape.solid ? shape : EMPTY))]);
        return { ...part, text, shapes };
    }

    private atom(): Part {
        if (this.take("(?:")) return this.group("(?:");
        if (this.take("(?<")) {
            this.at = this.source.indexOf(">", this.at) + 1;
            return this.group("(");
        }
        if (this.peek("(?")) throw new Untranslatable("it sets flags");
        if (this.take("(")) return this.group("(");
        if (this.take("[")) return this.characterClass();
        if (this.take("."))
            return {
                text: this.inNegative ? "[^\\n\\r\\x{2028}\\x{2029}]" : ".",
                shapes: [HALF],
                isAtom: true,
                takesHalves: true,
            };
        if (this.take("\\")) return this.escape();
        const code = this.source.codePointAt(this.at)!;
        this.at += code > 0xffff ? 2 : 1;
        return this.character(code);
    }

    private group(open: string): Part {
        const inside = this.alternatives();
        this.close();
        return { text: `${open}${inside.text})`, shapes: inside.shapes, isAtom: false, takesHalves: false };
    }

    private character(code: number): Part {
        const char = String.fromCodePoint(code);
        let text = char;
        if (isSurrogate(code)) throw new Untranslatable("it has half a character");
        if (this.ignoreCase && code > 127 && this.inNegative) throw new Untranslatable("letters of other alphabets");
        // Perl's engine takes the Kelvin sign for a K and the long s for an S, JavaScript does not.
        if (this.ignoreCase && "kKsS".includes(char)) text = `(?-i:[${char.toLowerCase()}${char.toUpperCase()}])`;
        else if ("\\^$.[]|()?*+{}".includes(char)) text = `\\${char}`;
        else if (code < 32 || code === 127) text = hex(code);
        return { text, shapes: [SOLID], isAtom: true, takesHalves: false };
    }

    /** Behind a backslash, outside of a class. */
    private escape(): Part {
        const letter = this.source[this.at]!;
        if (/[1-9]/.test(letter) || letter === "k") throw new Untranslatable("it refers back");
        if ("dw".includes(letter)) {
            this.at++;
            return { text: `\\${letter}`, shapes: [SOLID], isAtom: true, takesHalves: false };
        }
        const set = SETS[letter];
        if (set !== undefined) {
            this.at++;
            const takesHalves = set.some(hasHalf);
            return { text: `[${set.map(written).join("")}]`, shapes: [takesHalves ? HALF : SOLID], isAtom: true, takesHalves };
        }
        return this.character(this.escapedCode());
    }

    /** The character that an escape stands for; `at` is behind its backslash. */
    private escapedCode(): number {
        const letter = this.source[this.at]!;
        const controls: Record<string, number> = { t: 9, n: 10, v: 11, f: 12, r: 13 };
        const coded = /^(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|c([A-Za-z]))/.exec(this.source.slice(this.at));
        if (coded !== null) {
            this.at += coded[0].length;
            return coded[3] !== undefined ? coded[3].charCodeAt(0) & 31 : parseInt((coded[1] ?? coded[2])!, 16);
        }
        if (/[0-9]/.test(letter)) {
            if (letter !== "0" || /[0-9]/.test(this.source[this.at + 1] ?? "")) throw new Untranslatable("an octal escape");
            this.at++;
            return 0;
        }
        if (letter === "c") throw new Untranslatable("an escape of no meaning");
        const code = this.source.codePointAt(this.at)!;
        this.at += code > 0xffff ? 2 : 1;
        return controls[letter] ?? code;
    }

    /** One member of a class: a code, or a set of its own such as \w. */
    private member(): number | string {
        if (!this.take("\\")) {
            const code = this.source.charCodeAt(this.at++);
            if (isSurrogate(code)) throw new Untranslatable("a class has half a character");
            return code;
        }
        const letter = this.source[this.at]!;
        if ("dDwWsS".includes(letter)) {
            this.at++;
            return letter;
        }
        if (this.take("b")) return 8;
        const code = this.escapedCode();
        if (code > 0xffff || isSurrogate(code)) throw new Untranslatable("a class has half a character");
        return code;
    }

    private characterClass(): Part {
        const isNegated = this.take("^");
        const ranges: Range[] = [];
        const sets = new Set<string>();
        while (!this.take("]")) {
            if (this.at >= this.source.length) throw new Untranslatable("a class has no end");
            const first = this.member();
            const isRange = this.peek("-") && !this.peek("-]") && this.at + 1 < this.source.length;
            if (!isRange || typeof first === "string") {
                add(first);
                continue;
            }
            this.at++;
            const last = this.member();
            if (typeof last === "string") {
                add(first);
                add(45);
                add(last);
            } else {
                ranges.push([first, last]);
            }
        }
        return this.classOf(ranges, sets, isNegated);

        function add(member: number | string): void {
            if (typeof member === "string") sets.add(member);
            else ranges.push([member, member]);
        }
    }

    private classOf(given: readonly Range[], sets: ReadonlySet<string>, isNegated: boolean): Part {
        const isAscii = given.every(([, high]) => high < 128);
        if (this.ignoreCase && !isAscii && (isNegated || this.inNegative))
            throw new Untranslatable("letters of other alphabets");
        // Half of a character is in the class, so the whole may be: as one atom that could take a half.
        const ranges = given.map(([low, high]): Range => (high === 0xffff && low <= 0xd800 ? [low, LAST] : [low, high]));
        if (ranges.some((range) => hasHalf(range) && range[1] !== LAST))
            throw new Untranslatable("a class with some halves of characters");
        const members = this.ignoreCase && isAscii ? bothCases(ranges) : ranges;
        let inside = members.map(written).join("");
        for (const set of sets) inside += "dw".includes(set) ? `\\${set}` : SETS[set]!.map(written).join("");
        const hasHalves = members.some(hasHalf) || [...sets].some((set) => SETS[set]!.some(hasHalf));
        const takesHalves = isNegated !== hasHalves;
        const shapes = [takesHalves ? HALF : SOLID];
        if (inside === "") return { text: isNegated ? `[\\x{0}-${hex(LAST)}]` : NEVER, shapes, isAtom: true, takesHalves };
        const text = `[${isNegated ? "^" : ""}${inside}]`;
        return { text: this.ignoreCase && isAscii ? `(?-i:${text})` : text, shapes, isAtom: true, takesHalves };
    }
}

const hasHalf = ([low, high]: Range): boolean => low <= 0xdfff && high >= 0xd800;

/** As it is where that is plain, for the search knows such classes to be fast. */
function written([low, high]: Range): string {
    const name = isPlain(low) && isPlain(high) ? char : hex;
    return low === high ? name(low) : `${name(low)}-${name(high)}`;
}

const isPlain = (code: number): boolean => isAsciiLetter(code) || (code >= 48 && code <= 57) || " _.-/]\\^[".includes(char(code));

function char(code: number): string {
    const one = String.fromCharCode(code);
    return ".-/]\\^[".includes(one) ? `\\${one}` : one;
}

function bothCases(ranges: readonly Range[]): Range[] {
    const more: Range[] = [];
    for (const [low, high] of ranges)
        for (const [first, last, other] of [
            [65, 90, 32],
            [97, 122, -32],
        ] as const) {
            const from = Math.max(low, first);
            const to = Math.min(high, last);
            if (from <= to) more.push([from + other, to + other]);
        }
    return [...ranges, ...more];
}

/** For PCRE in UTF mode without its Unicode properties, on one line at a time. Throws `Untranslatable`. */
export function perlPattern(source: string, ignoreCase: boolean): string {
    return new Translator(source, ignoreCase).translate();
}
