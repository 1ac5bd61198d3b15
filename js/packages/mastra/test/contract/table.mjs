// The table at the end: a line for each case, a column for each sandbox, and below a line what a sandbox gave
// instead of what the contract says.
import { inspect } from 'node:util';

const show = (value) => inspect(value, { breakLength: Infinity, depth: 5, maxStringLength: 60, maxArrayLength: 8 });

export function table(rows, columns) {
    const lines = [];
    const wide = Math.max(...rows.map((row) => row.name.length)) + 2;
    const widths = columns.map(({ title }) => Math.max(title.length, 'unsupported'.length) + 2);
    const line = (first, cells) => [first.padEnd(wide), ...cells.map((cell, i) => cell.padEnd(widths[i]))].join('').trimEnd();
    let title;

    for (const row of rows) {
        if (row.title !== title) {
            title = row.title;
            lines.push('', line(title.toUpperCase(), columns.map((column) => column.title)));
        }
        lines.push(line(row.name, row.cells.map(({ verdict }) => verdict)));
        row.cells.forEach(({ verdict, seen }, i) => {
            if (verdict === 'differs') lines.push(`    ${columns[i].title}: ${show(seen)}, not ${show(row.expected)}`);
        });
    }
    const count = (i) => rows.filter((row) => row.cells[i].verdict === 'ok').length;
    lines.push('', line(`as the contract says, of ${rows.length}`, columns.map((_, i) => String(count(i)))), '');
    return lines.join('\n');
}
