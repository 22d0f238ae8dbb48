/**
 * Reads the tables of docs/errors.md as a module, so that `runs ID` can show the advice
 * for each code. The docs themselves are not shipped with the program.
 */

interface Advice {
  readonly meaning: string;
  readonly todo: string;
}

/** A cell that repeats the one above it begins with one of these. */
const REPEATS = /^(?:As above|The same)(?=[.,])/;

/** @param page the text of docs/errors.md */
export function readAdvice(page: string): Readonly<Record<string, Advice>> {
  const found: Record<string, Advice> = {};
  let above = '';
  for (const [, code = '', meaning = '', todo = ''] of page.matchAll(
    /^\| `([A-Z0-9_]+)` \| (.*) \| (.*) \|$/gm,
  )) {
    const repeated = above.replace(/\.$/, '');
    const told = plainText(todo).replace(REPEATS, () => repeated);
    found[code] = { meaning: plainText(meaning), todo: told };
    above = told;
  }
  return found;
}

/** @returns the source text of src/errors/advice.generated.ts */
export function adviceModule(page: string): string {
  const rows = Object.entries(readAdvice(page)).map(
    ([code, { meaning, todo }]) =>
      `  ${code}: { meaning: ${JSON.stringify(meaning)}, todo: ${JSON.stringify(todo)} },\n`,
  );
  return [
    '/** What docs/errors.md says about each code. Written by `npm run docs`. */\n',
    'export const ADVICE: Readonly<\n',
    '  Record<string, { readonly meaning: string; readonly todo: string }>\n',
    '> = {\n',
    ...rows,
    '};\n',
  ].join('');
}

/**
 * Removes markup: a link keeps its text, and a command keeps the quotes that our messages
 * use.
 */
function plainText(cell: string): string {
  return cell
    .replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1')
    .replaceAll(/`(ledger-mirror [^`]+)`/g, "'$1'")
    .replaceAll(String.raw`\|`, '|')
    .replaceAll('`', '');
}
