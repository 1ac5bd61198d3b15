// Which shell runs a line. Agents write for bash, and that is what the engine takes where there is one; but to start it
// costs more than all else. A line that only names a program and its arguments is the same to every shell, and is for sh.
import type { ExecSpec } from "@cove/client";

/** What bash does itself, and other shells not at all or otherwise. `true` and `false` are the same anywhere. */
const BASH_OWN = new Set(
    (
        ". : [ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs " +
        "disown do done echo elif else enable esac eval exec exit export fc fg fi for function getopts hash help history " +
        "if in jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift " +
        "shopt source suspend test then time times trap type typeset ulimit umask unalias unset until wait while"
    ).split(" "),
);
/** No path as the program: a script without a first line that names its shell is run by the shell that finds it. */
const PLAIN = /^([A-Za-z0-9._-]+)(?: [A-Za-z0-9._\-/=:@,+]+| '[^']*')*$/;

export function shellFor(line: string, env: Readonly<Record<string, string>> | undefined): ExecSpec {
    const program = PLAIN.exec(line)?.[1];
    if (program === undefined || BASH_OWN.has(program) || env?.["BASH_ENV"] !== undefined) return { command: line };
    return { argv: ["/bin/sh", "-c", line] };
}
