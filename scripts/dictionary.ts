/**
 * Extracts the warehouse's part of docs/data-dictionary.md, which `npm run schema` writes
 * as the comments of the database.
 */

export interface Described {
  readonly relation: string;
  readonly text: string;
  readonly columns: Readonly<Record<string, string>>;
}

/**
 * @returns one relation for each heading that names a relation of schema `mirror`, in
 *   the page's order
 */
export function describedRelations(page: string): readonly Described[] {
  return page
    .split('\n### `')
    .slice(1)
    .filter((section) => section.startsWith('mirror.'))
    .map((section) => {
      const relation = section.slice(0, section.indexOf('`'));
      const [, text = ''] = /^[^\n]*\n\n([^\n|#][^\n]*)/.exec(section) ?? [];
      const [own = ''] = section.split('\n## ');
      const columns = [
        ...own.matchAll(/^\| `(\w+)` \| [^|]+ \| (.*?) \|$/gm),
      ].map(
        ([, column, meaning]) => [column ?? '', plain(meaning ?? '')] as const,
      );
      return {
        relation,
        text: plain(text),
        columns: Object.fromEntries(columns),
      };
    });
}

function plain(markdown: string): string {
  return markdown.replaceAll('`', '').trim();
}
