/** How a failed command is told. */
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { tellFailure } from '../../src/cli/failure.ts';
import { PermanentError } from '../../src/core/errors.ts';
import { rememberSecrets } from '../../src/core/secrets.ts';

function collector(): { stream: Writable; text: () => string } {
  const chunks: string[] = [];
  const write = (chunk: Buffer, _encoding: string, done: () => void): void => {
    chunks.push(chunk.toString());
    done();
  };
  return { stream: new Writable({ write }), text: () => chunks.join('') };
}

test('a secret in an error stands neither in the line nor in the document of --json', () => {
  rememberSecrets(['correct-horse-battery']);
  const [stdout, stderr] = [collector(), collector()];
  const error = new PermanentError('Cannot log in: the server refused correct-horse-battery', { code: 'X' });
  const code = tellFailure(
    {
      argv: ['doctor', '--json'],
      env: {},
      cwd: '/',
      stdout: stdout.stream,
      stderr: stderr.stream,
      signal: new AbortController().signal,
    },
    error,
  );
  expect(code).toBe(1);
  expect(JSON.parse(stdout.text())).toMatchObject({ error: { code: 'X' } });
  for (const { text } of [stdout, stderr]) {
    expect(text()).toContain('Cannot log in');
    expect(text()).not.toContain('correct-horse-battery');
  }
});
