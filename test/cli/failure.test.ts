/** How a failed command is told. */
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { tellFailure } from '../../src/cli/program.ts';
import { PermanentError } from '../../src/errors/errors.ts';
import { rememberSecrets } from '../../src/secrets/secret-masking.ts';

function collector(): { stream: Writable; text: () => string } {
  const chunks: string[] = [];
  const write = (chunk: Buffer, _encoding: string, done: () => void): void => {
    chunks.push(chunk.toString());
    done();
  };
  return { stream: new Writable({ write }), text: () => chunks.join('') };
}

/** What `ledger-mirror doctor --json` writes where it fails so. */
function told(error: unknown): {
  code: number;
  stdout: string;
  stderr: string;
} {
  const stdout = collector();
  const stderr = collector();
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
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}

test('a secret in an error stands neither in the line nor in the document of --json', () => {
  rememberSecrets(['correct-horse-battery']);
  const failed = told(
    new PermanentError(
      'Cannot log in: the server refused correct-horse-battery',
      {
        code: 'X',
      },
    ),
  );
  expect(failed.code).toBe(1);
  expect(JSON.parse(failed.stdout)).toMatchObject({ error: { code: 'X' } });
  for (const text of [failed.stdout, failed.stderr]) {
    expect(text).toContain('Cannot log in');
    expect(text).not.toContain('correct-horse-battery');
  }
});

test('a command that a message names, from whichever room, is named as it is typed in this checkout', () => {
  const message =
    "Cannot read version 3 of lake: its log is no longer kept; 'ledger-mirror lake' shows them, `ledger-mirror load` makes one";
  const { stdout, stderr } = told(new PermanentError(message, { code: 'X' }));
  const named =
    "'npx ledger-mirror lake' shows them, `npx ledger-mirror load` makes one";
  expect(stderr).toBe(
    `ledger-mirror: Cannot read version 3 of lake: its log is no longer kept; ${named}\n`,
  );
  expect(JSON.parse(stdout)).toMatchObject({
    error: { message: expect.stringContaining(named) as string },
  });
});

test('a failure that is followed by others while everything is closed is told, and not these', async () => {
  const failed = told(await failThreeTimes().catch((error: unknown) => error));
  expect(failed.code).toBe(1);
  expect(failed.stderr).toContain('the secret is refused');
  expect(JSON.parse(failed.stdout)).toMatchObject({
    error: { code: 'SECRET_REFUSED' },
  });
});

async function failThreeTimes(): Promise<void> {
  await using stack = new AsyncDisposableStack();
  stack.defer(() => Promise.reject(new Error('no goodbye')));
  stack.defer(() => Promise.reject(new Error('no goodbye either')));
  throw new PermanentError('the secret is refused', { code: 'SECRET_REFUSED' });
}
