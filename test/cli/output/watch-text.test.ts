import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { watchText } from '../../../src/cli/output/watch-text.ts';

/** Moves a terminal's cursor to the upper left corner, and clears the screen. */
const CLEAR = '\u001B[H\u001B[2J';

/** Shows each look once; the last one tells the command to stop. */
async function watch(
  looks: readonly (string | Error)[],
  isTTY: boolean,
): Promise<string> {
  const stdout = Object.assign(new PassThrough(), { isTTY });
  const told = new AbortController();
  let at = 0;
  await watchText(
    async () => {
      const found = looks[at] ?? '';
      at += 1;
      if (at === looks.length) told.abort();
      if (found instanceof Error) throw found;
      return found;
    },
    { stdout, signal: told.signal },
  );
  return String(stdout.read());
}

test('a watched text is written again only when it has changed', async () => {
  expect(await watch(['one\n', 'one\n', 'two\n'], false)).toBe(
    'one\n\ntwo\n\n',
  );
});

test('on a terminal a text takes the place of the last', async () => {
  expect(await watch(['one\n', 'two\n'], true)).toBe(
    `${CLEAR}one\n${CLEAR}two\n`,
  );
});

test('a look that fails is told and tried again', async () => {
  const away = new Error('Cannot reach the database');
  expect(await watch(['one\n', away, 'one\n'], false)).toBe(
    'one\n\nCannot reach the database; trying again\n\none\n\n',
  );
});

test('watching ends when nobody reads any more', async () => {
  const stdout = Object.assign(new PassThrough(), { isTTY: false });
  const { signal } = new AbortController();
  const ended = watchText(async () => 'one\n', { stdout, signal });
  stdout.destroy(new Error('EPIPE'));
  await expect(ended).resolves.toBeUndefined();
});
