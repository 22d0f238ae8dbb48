/** Writes the table of settings in docs/configuration.md anew from the declared one. */
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { SETTINGS, type Setting } from '../src/config/settings.ts';

const PATH = resolve(import.meta.dirname, '../docs/configuration.md');
const HEADER = ['| Setting | Default | Accepted | Meaning |', '|---|---|---|---|'];

function tableRow({ name, secret, fallback, accepted, help }: Setting<unknown>): string {
  const cells = [
    `\`${name}\`${secret === true ? ' (secret)' : ''}`,
    fallback === undefined ? '–' : `\`${fallback}\``,
    accepted,
    help,
  ];
  return `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`;
}

const page = readFileSync(PATH, 'utf8');
const table = [...HEADER, ...Object.values(SETTINGS).map(tableRow)].join('\n');
writeFileSync(
  PATH,
  page.replace(/^\| Setting \|.*\n(?:\|.*\n)*/m, () => `${table}\n`),
);
