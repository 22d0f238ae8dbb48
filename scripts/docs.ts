/**
 * Writes the parts of the docs that come from the source: the table of settings, and the
 * JSON Schema of a run. Also writes the parts of the source that come from the docs: the
 * advice for each error code, and the words that the console explains. Last, writes the
 * links to the next and the previous page at the foot of each page.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { adviceModule } from './advice.ts';
import { readBook, withFoot } from './book.ts';
import { glossaryModule } from './glossary.ts';
import { RUN_OUTPUT_SCHEMA } from './run-schema.ts';
import { SETTINGS, type Setting } from '../src/config/settings.ts';

const PATH = resolve(import.meta.dirname, '../docs/configuration.md');
const SCHEMA = resolve(import.meta.dirname, '../docs/run.schema.json');
const ERRORS = resolve(import.meta.dirname, '../docs/errors.md');
const ADVICE = resolve(
  import.meta.dirname,
  '../src/errors/advice.generated.ts',
);
const GLOSSARY = resolve(import.meta.dirname, '../docs/glossary.md');
const GLOSSARY_MODULE = resolve(
  import.meta.dirname,
  '../src/api/console/page/common/glossary.generated.js',
);
const HEADER = [
  '| Setting | Default | Accepted | Meaning |',
  '|---|---|---|---|',
];

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
writeFileSync(SCHEMA, `${JSON.stringify(RUN_OUTPUT_SCHEMA, undefined, 2)}\n`);
writeFileSync(ADVICE, adviceModule(readFileSync(ERRORS, 'utf8')));
writeFileSync(GLOSSARY_MODULE, glossaryModule(readFileSync(GLOSSARY, 'utf8')));
const book = readBook();
for (const { path } of book) {
  const file = resolve(import.meta.dirname, '..', path);
  writeFileSync(file, withFoot(readFileSync(file, 'utf8'), path, book));
}
// Formats the files as `npm run check` expects them.
execFileSync(
  resolve(import.meta.dirname, '../node_modules/.bin/oxfmt'),
  [SCHEMA],
  {
    stdio: 'inherit',
  },
);
