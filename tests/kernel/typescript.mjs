// Compares the eraser with TypeScript's own transpileModule. Both outputs are parsed and written down as
// trees without what does not matter (parentheses, empty statements, the values of enums, which running
// compares), and snippets are run, too.
// usage: typescript.mjs ERASER MODULES <JOBS, where JOBS is JSON: {name: [mode, place]}, with a mode and its place of
//   corpus, javascript  a folder; the first takes TypeScript and JavaScript, the second JavaScript only, which must
//                       come back unchanged
//   lines, breaks, run  a file
// Prints a line of JSON, {name: report}: {found, compared, unchanged, foreign: [file], refused: [[file, why]],
// different: [[file, ours, theirs]]}; foreign is what TypeScript itself does not take.
//
// TypeScript takes its milliseconds for each source, so that a corpus is compared in part: the same files each time,
// whose names fall into it by their hash. COVE_SOAK=1 compares all.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import vm from "node:vm";

const [eraser, modules] = process.argv.slice(2);
const isSoak = Boolean(process.env.COVE_SOAK);
const PART_OF_FILES = isSoak ? 1 : 4, PART_OF_BREAKS = isSoak ? 1 : 12;
const isChosen = (name) => createHash("sha256").update(`1 ${name}`).digest().readUInt32BE() % PART_OF_FILES === 0;
const ts = createRequire(path.join(path.resolve(modules), "x.js"))("typescript");
const K = ts.SyntaxKind;

function erase(sources) {
  const input = [];
  for (const source of sources) {
    const bytes = Buffer.from(source);
    input.push(Buffer.from(`${bytes.length}\n`), bytes);
  }
  const { stdout, stderr, status } =
    spawnSync(eraser, { input: Buffer.concat(input), maxBuffer: 1 << 30 });
  if (status !== 0) throw new Error(`the eraser ended with ${status}: ${stderr}`);
  const answers = [];
  for (let at = 0; at < stdout.length;) {
    const line = stdout.indexOf(10, at);
    const [failed, length] = stdout.toString("latin1", at, line).split(" ").map(Number);
    answers.push({ failed, text: stdout.toString("utf8", line + 1, line + 1 + length) });
    at = line + 1 + length;
  }
  return answers;
}

const compilerOptions = {
  target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, isolatedModules: true,
  useDefineForClassFields: true, alwaysStrict: false, removeComments: true, newLine: ts.NewLineKind.LineFeed,
};

// To be run, it must be of a kind that node takes.
const runnable = { ...compilerOptions, target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.CommonJS };

function transpile(source, compilerOptions) {
  return ts.transpileModule(source, { compilerOptions, fileName: "a.ts", reportDiagnostics: true });
}

const parse = (text, name) =>
  ts.createSourceFile(name, text, ts.ScriptTarget.ESNext, true, ts.ScriptKind[name.endsWith(".ts") ? "TS" : "JS"]);

// `E["A"] = 1`: whether it is a string is seen by what is around it.
const isMember = (node) => ts.isBinaryExpression(node) && node.operatorToken.kind === K.EqualsToken &&
  ts.isElementAccessExpression(node.left) && ts.isStringLiteralLike(node.left.argumentExpression);

function dump(node, out) {
  if (ts.isParenthesizedExpression(node)) return dump(node.expression, out);
  if (ts.isEmptyStatement(node) || node.kind === K.SemicolonClassElement) return;
  if (ts.isExportDeclaration(node) && !node.moduleSpecifier && node.exportClause &&
      ts.isNamedExports(node.exportClause) && node.exportClause.elements.length === 0) return;
  out.push(K[node.kind]);
  if (ts.isStringLiteralLike(node) || ts.isIdentifier(node) || ts.isNumericLiteral(node) ||
      ts.isPrivateIdentifier(node) || ts.isRegularExpressionLiteral(node) || ts.isBigIntLiteral(node) ||
      ts.isTemplateHead(node) || ts.isTemplateMiddleOrTemplateTail(node)) out.push(JSON.stringify(node.text));
  else if (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) out.push(K[node.operator]);
  if (ts.isVariableDeclarationList(node)) out.push(node.flags & ts.NodeFlags.BlockScoped);
  out.push("(");
  if (isMember(node)) {
    dump(node.left, out);
    out.push("value");
  } else {
    ts.forEachChild(node, (child) => dump(child, out));
  }
  out.push(")");
}

function tree(text) {
  const file = parse(text, "a.js"), out = [];
  const wrong = file.parseDiagnostics.filter((d) => d.category === ts.DiagnosticCategory.Error &&
    !/can only be used in TypeScript files/.test(ts.flattenDiagnosticMessageText(d.messageText, " ")));
  if (wrong.length > 0)
    return `no JavaScript: ${wrong[0].start}: ${ts.flattenDiagnosticMessageText(wrong[0].messageText, " ")}`;
  dump(file, out);
  return out;
}

const isPropertyName = (node) => (ts.isPropertyAccessExpression(node.parent) && node.parent.name === node) ||
  (ts.isExportSpecifier(node.parent) && node.parent.parent.parent.moduleSpecifier) ||
  (ts.isQualifiedName(node.parent) && node.parent.right === node) ||
  (node.parent.name === node && (ts.isPropertyAssignment(node.parent) || ts.isPropertySignature(node.parent) ||
    ts.isPropertyDeclaration(node.parent) || ts.isMethodDeclaration(node.parent)));

// Imports that the file never mentions are kept by one and removed by the other: here they are mentioned.
function mentionImports(source) {
  const file = parse(source, "a.ts"), imported = new Set(), seen = new Map();
  (function walk(node) {
    if (ts.isIdentifier(node) && !isPropertyName(node)) seen.set(node.text, (seen.get(node.text) ?? 0) + 1);
    if ((ts.isImportSpecifier(node) && !node.isTypeOnly && !node.parent.parent.isTypeOnly) || ts.isNamespaceImport(node) ||
        (ts.isImportEqualsDeclaration(node) && !node.isTypeOnly) || (ts.isImportClause(node) && node.name && !node.isTypeOnly)) imported.add(node.name.text);
    ts.forEachChild(node, walk);
  })(file);
  const names = [...imported].filter((name) => seen.get(name) === 1);
  return names.length === 0 ? source : `${source}\n;void [${names}];`;
}

// A namespace that holds values is compared by running alone.
const hasNamespace = (source) => /^\s*(export\s+)?(namespace|module)\s+[\w.]+\s*\{/m.test(source);

function different(ours, theirs) {
  if (typeof ours === "string") return [ours, ""];
  for (let i = 0; i < Math.max(ours.length, theirs.length); i++)
    if (ours[i] !== theirs[i])
      return [ours.slice(Math.max(0, i - 12), i + 12).join(" "), theirs.slice(Math.max(0, i - 12), i + 12).join(" ")];
  return null;
}

function compareTrees(files, sources, report) {
  const answers = erase(sources);
  files.forEach((file, i) => {
    const done = transpile(sources[i], compilerOptions), theirs = tree(done.outputText);
    if (typeof theirs === "string" ||
        done.diagnostics.some((d) => d.category === ts.DiagnosticCategory.Error && d.code < 2000)) {
      report.foreign.push(file);
      return;
    }
    if (answers[i].failed) {
      report.refused.push([file, answers[i].text]);
      return;
    }
    if (answers[i].text.split("\n").length !== sources[i].split("\n").length)
      report.different.push([file, "other lines", ""]);
    const ours = tree(answers[i].text);
    const where = hasNamespace(sources[i]) && typeof ours !== "string" ? null : different(ours, theirs);
    report.compared++;
    if (where) report.different.push([file, ...where]);
  });
}

// Plain JavaScript comes back byte for byte.
function compareIdentity(files, sources, report) {
  erase(sources).forEach((answer, i) => {
    if (answer.failed) report.refused.push([`${files[i]} (as JavaScript)`, answer.text]);
    else if (answer.text !== sources[i]) report.different.push([`${files[i]} (as JavaScript)`, "changed", ""]);
    report.unchanged++;
  });
}

function find(folder, ending, found) {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const whole = path.join(folder, entry.name);
    if (entry.isDirectory()) find(whole, ending, found);
    else if (ending.test(entry.name) && !/\.d\.[cm]?ts$/.test(entry.name)) found.push(whole);
  }
  return found;
}

function run(text) {
  const lines = [], module = { exports: {} };
  const context = { console: { log: (...a) => lines.push(JSON.stringify(a) ?? "undefined") }, module,
    exports: module.exports, require: (name) => ({ name, join: (...a) => a.join("/"), default: name }) };
  try {
    vm.runInNewContext(text, context, { timeout: 5000 });
  } catch (error) {
    lines.push(`${error.name}: ${error.message}`);
  }
  return lines.join("\n");
}

// Snippets, parted by lines of dashes: both outputs must print the same, and something.
function compareRuns(file, report) {
  const sources = fs.readFileSync(file, "utf8").split(/^-{3,}.*\n/m).filter((s) => s.trim());
  erase(sources).forEach((answer, i) => {
    const name = `${path.basename(file)}: ${sources[i].trim().split("\n")[0]}`;
    const theirs = run(transpile(sources[i], runnable).outputText);
    if (answer.failed) return report.refused.push([name, answer.text]);
    const ours = run(answer.text);
    report.compared++;
    if (ours !== theirs || theirs === "" || answer.text.split("\n").length !== sources[i].split("\n").length)
      report.different.push([name, `${ours}\n${answer.text}`, theirs]);
  });
}

// A line with an end of a line before each of its tokens in turn: what was erased must not join, nor part,
// what is left.
function breakLine(line, number) {
  const starts = new Set();
  (function walk(node) {
    if (node.getChildCount() === 0) starts.add(node.getStart());
    node.getChildren().forEach(walk);
  })(parse(line, "a.ts"));
  starts.delete(0);
  return [...starts].filter((_, i) => i % PART_OF_BREAKS === number % PART_OF_BREAKS)
    .map((start) => `${line.slice(0, start)}\n${line.slice(start)}`);
}

function job(mode, place) {
  const report = { found: 0, compared: 0, unchanged: 0, foreign: [], refused: [], different: [] };
  const chosen = (ending) => {
    const files = find(place, ending, []);
    report.found ||= files.length;
    return files.filter((file) => isChosen(path.relative(modules, file)));
  };
  if (mode === "lines" || mode === "breaks") {
    let lines = fs.readFileSync(place, "utf8").split("\n").filter((line) => line && !line.startsWith("//"));
    if (mode === "breaks") lines = lines.flatMap(breakLine);
    compareTrees(lines, lines.map(mentionImports), report);
  }
  if (mode === "run") compareRuns(place, report);
  if (mode === "corpus") {
    const files = chosen(/\.[cm]?ts$/);
    compareTrees(files, files.map((file) => mentionImports(fs.readFileSync(file, "utf8"))), report);
  }
  if (mode === "corpus" || mode === "javascript") {
    const scripts = mode === "corpus" ? chosen(/\.[cm]?js$/) : find(place, /\.[cm]?js$/, []);
    compareIdentity(scripts, scripts.map((script) => fs.readFileSync(script, "utf8")), report);
  }
  return report;
}

const jobs = Object.entries(JSON.parse(fs.readFileSync(0, "utf8")));
console.log(JSON.stringify(Object.fromEntries(jobs.map(([name, [mode, place]]) => [name, job(mode, place)]))));
