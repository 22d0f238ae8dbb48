/** The pages that readers have, and what is in them. */
import { readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';

export const ROOT = resolve(import.meta.dirname, '../..');

/** Every page of README, docs, bench and deploy, by its path from the root. */
export const PAGES: readonly string[] = [
  ...namesBelow('.', false),
  ...['docs', 'bench', 'deploy'].flatMap((folder) => namesBelow(folder, true)),
];

function namesBelow(folder: string, isRecursive: boolean): string[] {
  return readdirSync(join(ROOT, folder), {
    recursive: isRecursive,
    encoding: 'utf8',
  })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join(folder, name));
}

export function readPage(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** The blocks of one language, without the indent of the list that they stand in. */
export function blocksOf(page: string, language: string): string[] {
  return blocksIn(readPage(page), language);
}

/** The shell blocks below each heading of the second level that has some. */
export function sectionsOf(page: string): ReadonlyMap<string, string[]> {
  const sections = readPage(page).split(/^## /m).slice(1);
  const blocks = sections.map((section): [string, string[]] => {
    const [heading = ''] = section.split('\n', 1);
    return [heading, blocksIn(section, 'sh')];
  });
  return new Map(blocks.filter(([, found]) => found.length > 0));
}

function blocksIn(content: string, language: string): string[] {
  const fences = new RegExp(
    String.raw`^( *)\`\`\`${language}\n(.*?)^ *\`\`\``,
    'gms',
  );
  return [...content.matchAll(fences)].map(([, indent = '', text = '']) =>
    text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  );
}

/**
 * The commands of a shell block, each with the lines that it goes on in; comments left
 * out.
 */
export function commandsOf(block: string): string[] {
  return block
    .replaceAll(/\\\n */g, '')
    .split('\n')
    .map((line) => line.replace(/(^|\s)#.*$/, '').trim())
    .filter((line) => line !== '');
}
