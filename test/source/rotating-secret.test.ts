/** A source that refuses the token of before, while its file holds the next one or does not yet. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openSourceCredentials } from '../../src/app/rotating-secrets.ts';
import { readConfig } from '../../src/config/environment.ts';
import { hideSecrets } from '../../src/secrets/secret-masking.ts';
import { failureOf, NEVER, PARTY, testSource } from './test-source.ts';
import { errorJson, pageJson, send, serve } from './wire/wire-server.ts';

const PAGE = { list: 'parties', newestFirst: true, size: 10 } as const;
const GOOD = pageJson('parties', [{ id: PARTY }]);
const OLD = 'Bearer token-of-yesterday';
const NEW = 'Bearer token-of-today-0815';

test.each([
  [401, 'authorization'],
  [403, 'authorization'],
  [401, 'x-api-key'],
])(
  'a source that starts to answer %i is sent what the file of %s holds by then',
  async (status, header) => {
    const world = await openWorld(status, header);
    await world.source.lists.page(PAGE, NEVER);
    world.accept(NEW);
    world.write(NEW);
    expect((await world.source.lists.page(PAGE, NEVER)).rows).toHaveLength(1);
    expect(world.sent).toEqual([OLD, OLD, NEW]);
    // It waits for nothing between the two.
    expect(
      world.source.waits.filter(({ reason }) => reason === 'retry'),
    ).toEqual([]);
    expect(hideSecrets(`got ${NEW}`)).not.toContain('0815');
  },
);

test('requests that are refused together all go on with the new token', async () => {
  const world = await openWorld(401, 'authorization');
  world.accept(NEW);
  world.write(NEW);
  const pages = await Promise.all(
    Array.from({ length: 5 }, () => world.source.lists.page(PAGE, NEVER)),
  );
  expect(pages.map(({ rows }) => rows.length)).toEqual([1, 1, 1, 1, 1]);
});

test('a token stays in use while the source takes it, whatever its file holds', async () => {
  const world = await openWorld(401, 'authorization');
  world.write(NEW);
  await world.source.lists.page(PAGE, NEVER);
  expect(world.sent).toEqual([OLD]);
});

test.each(['the same', 'empty', 'gone'])(
  'a refused token whose file is %s is sent once, and the error names the file',
  async (state) => {
    const world = await openWorld(401, 'authorization');
    world.accept(NEW);
    if (state === 'empty') world.write('');
    if (state === 'gone') rmSync(world.path);
    const error = await failureOf(world.source.lists.page(PAGE, NEVER));
    expect(error).toMatchObject({
      code: 'SOURCE_UNAUTHORIZED',
      message: expect.stringContaining(
        `SOURCE_AUTHORIZATION_FILE (${world.path}), which was read again`,
      ),
    });
    expect(world.sent).toEqual([OLD]);
    // The next request finds it, without a restart.
    world.write(NEW);
    await world.source.lists.page(PAGE, NEVER);
    expect(world.sent).toEqual([OLD, OLD, NEW]);
  },
);

async function openWorld(status: number, header: string) {
  const dir = mkdtempSync(join(tmpdir(), 'lm-secret-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const path = join(dir, 'secret');
  const isOwn = header === 'authorization';
  const write = (value: string): void =>
    writeFileSync(path, isOwn || value === '' ? value : `${header}: ${value}`);
  write(OLD);
  const sent: (string | undefined)[] = [];
  let accepted = OLD;
  const server = await serve((request, response) => {
    const given = request.headers[header] as string | undefined;
    sent.push(given);
    if (given === accepted) send(response, 200, GOOD);
    else send(response, status, errorJson(16, 'Unauthenticated error'));
  });
  const name = isOwn ? 'SOURCE_AUTHORIZATION_FILE' : 'SOURCE_HEADERS_FILE';
  const config = readConfig({ env: { [name]: path }, cwd: dir });
  const source = testSource(
    server.url,
    {},
    { credentials: openSourceCredentials(config) },
  );
  return {
    path,
    source,
    sent,
    write,
    accept: (value: string): void => {
      accepted = value;
    },
  };
}
