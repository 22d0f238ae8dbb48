/** docs/errors.md explains every code that an error, a finding or a verdict's reason can carry. */
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseSync, Visitor } from 'oxc-parser';
import { describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
/** The sandbox speaks the codes of the service that it stands for. */
const FILES = globSync('{src,jobs}/**/*.ts', { cwd: ROOT, exclude: ['src/sandbox/**'] });
const CODE = /^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*$/;
const CODE_OF_WORDS = /^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$/;
/** Functions that take a code first and make the error. */
const MAKES_ERROR = /(?:refuse|refused|[eE]rror)$/;

/** Every literal that stands as a `code`, or goes first into a function that makes an error. */
function codesIn(path: string, text: string): string[] {
  const codes: string[] = [];
  const { program, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path} does not parse`);
  const literals = (start: number, end: number, pattern: RegExp): void => {
    for (const [, literal] of text.slice(start, end).matchAll(/'([^'\n]*)'/g)) {
      if (literal !== undefined && pattern.test(literal)) codes.push(literal);
    }
  };
  new Visitor({
    Property({ key, value }) {
      if (key.type === 'Identifier' && key.name === 'code') literals(value.start, value.end, CODE);
    },
    CallExpression({ callee, arguments: [first] }) {
      const makesError = MAKES_ERROR.test(text.slice(callee.start, callee.end));
      if (makesError && first?.type === 'Literal') literals(first.start, first.end, CODE_OF_WORDS);
    },
  }).visit(program);
  return codes;
}

describe('docs/errors.md', () => {
  const used = FILES.flatMap((path) => codesIn(path, readFileSync(resolve(ROOT, path), 'utf8')));
  const text = readFileSync(resolve(ROOT, 'docs/errors.md'), 'utf8');
  const documented = [...text.matchAll(/^\| `([A-Z0-9_]+)` \|(.*)$/gm)];
  const names = documented.map(([, code]) => code ?? '');

  test('the codes were found', () => {
    expect(used.length).toBeGreaterThan(30);
    expect(used).toEqual(expect.arrayContaining(['USAGE', 'FENCED', 'OBJECT_MISSING', 'PAGE_SHAPE']));
  });

  test('explains every code of the sources', () => {
    expect([...new Set(used)].filter((code) => !names.includes(code))).toEqual([]);
  });

  test('explains no code that is not there', () => {
    const inSources = FILES.map((path) => readFileSync(resolve(ROOT, path), 'utf8')).join('\n');
    expect(names.filter((code) => !inSources.includes(`'${code}'`))).toEqual([]);
  });

  test('explains each once, with a meaning and a remedy', () => {
    expect(new Set(names).size).toBe(names.length);
    for (const [row] of documented) expect(row).toMatch(/^\| `[A-Z0-9_]+` \| [^|]{10,} \| [^|]{4,} \|$/);
  });
});

test('the reader of codes sees literals, choices and helpers', () => {
  const text = `
    throw new PermanentError('x', { code: isBan ? 'SOURCE_BANNED' : 'SOURCE_RATE_LIMITED' });
    throw this.#rowError('BAD_ROW', 'text');
    refuseProxy('HTTP_PROXY', url);
    if (error.code === 'ENOENT') return;
  `;
  expect(codesIn('x.ts', `function f() {${text}}`)).toEqual([
    'SOURCE_BANNED',
    'SOURCE_RATE_LIMITED',
    'BAD_ROW',
  ]);
});
