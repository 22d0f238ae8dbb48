/** `notify`: a test notice from the terminal, to a receiver on a real socket. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { notify } from '../../../src/cli/commands/setup.ts';
import { readConfig } from '../../../src/config/environment.ts';
import { openCommandContext } from '../command-context.ts';

async function receiverWith(status: number): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(status).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
}

function run(env: Readonly<Record<string, string>>) {
  const config = readConfig({ env, cwd: import.meta.dirname });
  return notify({}, openCommandContext(config));
}

test.each([
  [200, 0, /^accepted: 127\.0\.0\.1:\d+ accepted the test notice test_/],
  [
    404,
    1,
    /^refused: Cannot post the notice to .*status 404; check NOTIFY_URL/,
  ],
])(
  'notify reports a receiver that answers with %i, and ends with %i',
  async (status, exitCode, text) => {
    const result = await run({ NOTIFY_URL: await receiverWith(status) });
    expect(result.exitCode).toBe(exitCode);
    expect(result.text).toMatch(text);
    expect(result.document).toMatchObject({ results: [{ status }] });
  },
);

test('notify ends with 75 if nobody answers', async () => {
  const result = await run({ NOTIFY_URL: 'http://127.0.0.1:1/hook' });
  expect([result.exitCode, result.text]).toEqual([
    75,
    expect.stringMatching(/^unreachable: .*check NOTIFY_URL\n$/),
  ]);
});

test('notify without NOTIFY_URL says that nobody gets notices', async () => {
  await expect(run({})).rejects.toThrow(
    'notify: NOTIFY_URL is not set, so no notice is sent to anybody; set it first',
  );
});
