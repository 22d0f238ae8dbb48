/** Writes what docs take from the source: the table of settings, and the JSON Schema of a run. */
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { RUN_OUTPUT_SCHEMA } from '../src/runs/run-document.ts';
import { SETTINGS, type Setting } from '../src/config/settings.ts';

const PATH = resolve(import.meta.dirname, '../docs/configuration.md');
const HEADER = ['| Setting | Default | Accepted | Meaning |', '|---|---|---|---|'];

function tableRow({ name, secret, fallback, accepted, help }: Setting): string {
  const cells = [
    `\`${name}\`${secret === true ? ' (secret)' : ''}`,
    fallback === undefined ? '–' : `\`${fallback}\``,
    accepted,
    help,
  ];
  return `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`;
}

const page = readFileSync(PATH, 'utf8');
const table = [...HEADER, ...SETTINGS.map(tableRow)].join('\n');
writeFileSync(
  PATH,
  page.replace(/^\| Setting \|.*\n(?:\|.*\n)*/m, () => `${table}\n`),
);
writeFileSync(
  resolve(import.meta.dirname, '../docs/run.schema.json'),
  `${JSON.stringify(RUN_OUTPUT_SCHEMA, undefined, 2)}\n`,
);
