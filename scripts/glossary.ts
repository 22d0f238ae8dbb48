/**
 * Reads the tables of docs/glossary.md as a script of the console, which explains each
 * word where it appears. The docs themselves are not shipped with the program.
 */

/**
 * Returns the meaning of each word. A row of several words, such as `rate limit, export
 * limit`, gives each of them the same meaning. The table of older names is left out: its
 * rows name a current word, not a meaning.
 * @param page the text of docs/glossary.md
 */
export function readGlossary(page: string): Readonly<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const [, words = '', meaning = ''] of page.matchAll(
    /^\| ([^|]+) \| ([^|]+) \|$/gm,
  )) {
    if (words === 'word') continue;
    for (const word of plainText(words).split(', '))
      found[word] = plainText(meaning);
  }
  return found;
}

/** @returns the source text of the console's glossary.generated.js */
export function glossaryModule(page: string): string {
  const rows = Object.entries(readGlossary(page)).map(
    ([word, meaning]) =>
      `  [${JSON.stringify(word)}, ${JSON.stringify(meaning)}],\n`,
  );
  return [
    '// The words of docs/glossary.md, each with its meaning. Written by `npm run docs`.\n',
    'export const GLOSSARY = new Map([\n',
    ...rows,
    ']);\n',
  ].join('');
}

/** Removes markup: a link keeps its text. */
function plainText(cell: string): string {
  return cell.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1').replaceAll('`', '');
}
