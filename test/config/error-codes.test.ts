/**
 * docs/errors.md explains every code that an error, a finding or a verdict's reason can
 * carry.
 */
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseSync, Visitor } from 'oxc-parser';
import { describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
/** The sandbox, the encodings and the settings speak in capitals of their own. */
const FILES = globSync('{src,jobs}/**/*.ts', {
  cwd: ROOT,
  exclude: ['src/sandbox/**', 'src/config/**', 'src/ledger/encodings.ts'],
});
const CODE = /^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*$/;
/**
 * Codes of others: Node, its HTTP parser, drivers, Postgres' SQLSTATE, the environment.
 */
const NOT_OURS =
  /^(?:ERR_.*|UND_ERR_.*|HPE_.*|DATABASE_\d[0-9A-Z]{4}|AWS_.*|OTEL_.*|EAI_AGAIN|PG_VERSION|HTTPS?_PROXY|NO_PROXY|NODE_EXTRA_CA_CERTS|SOURCE_ASSETS|WHEN_REQUIRED)$/;

/** Every literal of words in capitals, and single words that stand as a `code`. */
function codesIn(path: string, text: string): string[] {
  const { program, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path} does not parse`);
  const codes: string[] = [];
  const add = (value: unknown): void => {
    if (typeof value === 'string' && CODE.test(value) && !NOT_OURS.test(value))
      codes.push(value);
  };
  new Visitor({
    Literal({ value }) {
      if (typeof value === 'string' && value.includes('_')) add(value);
    },
    Property({ key, value }) {
      if (
        key.type === 'Identifier' &&
        key.name === 'code' &&
        value.type === 'Literal'
      )
        add(value.value);
    },
  }).visit(program);
  return [...new Set(codes)];
}

describe('docs/errors.md', () => {
  const used = FILES.flatMap((path) =>
    codesIn(path, readFileSync(resolve(ROOT, path), 'utf8')),
  );
  const text = readFileSync(resolve(ROOT, 'docs/errors.md'), 'utf8');
  const documented = [...text.matchAll(/^\| `([A-Z0-9_]+)` \|(.*)$/gm)];
  const names = documented.map(([, code]) => code ?? '');

  test('the codes were found', () => {
    expect(used.length).toBeGreaterThan(30);
    expect(used).toEqual(
      expect.arrayContaining([
        'USAGE',
        'FENCED',
        'OBJECT_MISSING',
        'PAGE_SHAPE',
      ]),
    );
  });

  test('explains every code of the sources', () => {
    expect([...new Set(used)].filter((code) => !names.includes(code))).toEqual(
      [],
    );
  });

  test('explains no code that is not there', () => {
    const inSources = FILES.map((path) =>
      readFileSync(resolve(ROOT, path), 'utf8'),
    ).join('\n');
    expect(names.filter((code) => !inSources.includes(`'${code}'`))).toEqual(
      [],
    );
  });

  test('explains each once, with a meaning and a remedy', () => {
    expect(new Set(names).size).toBe(names.length);
    for (const [row] of documented)
      expect(row).toMatch(/^\| `[A-Z0-9_]+` \| [^|]{10,} \| [^|]{4,} \|$/);
  });
});

test('the reader of codes sees literals, choices and helpers', () => {
  const text = `
    throw new PermanentError('x', { code: isBan ? 'SOURCE_BANNED' : 'SOURCE_RATE_LIMITED' });
    throw rowError('BAD_ROW', 'text');
    fail({ code: 'FENCED' });
    refuseProxy('HTTP_PROXY', url);
    if (error.code === 'ENOENT') return;
  `;
  expect(codesIn('x.ts', `function f() {${text}}`)).toEqual([
    'SOURCE_BANNED',
    'SOURCE_RATE_LIMITED',
    'BAD_ROW',
    'FENCED',
  ]);
});
