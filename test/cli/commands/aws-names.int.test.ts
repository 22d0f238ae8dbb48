/** AWS's names mean the same in `.env` as in the environment. */
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { openHome } from '../mirror-home.ts';

const database = await freshDatabase();

/** A store that answers nobody, and remembers by which key it was asked. */
async function openStore() {
  const keys = new Set<string>();
  const server = createServer(({ headers }, response) => {
    const key = /Credential=([^/]+)\//.exec(headers.authorization ?? '')?.[1];
    if (key !== undefined) keys.add(key);
    response.writeHead(403).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    keys,
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const credentials = (key: string): string =>
  `[default]\naws_access_key_id = ${key}\naws_secret_access_key = secret\n`;

test.each([
  ['the file that .env names', {}, 'OF_DOT_ENV'],
  [
    'the file that the environment names, if both name one',
    { AWS_SHARED_CREDENTIALS_FILE: 'of-environment' },
    'OF_ENVIRONMENT',
  ],
])('credentials come from %s', async (_which, env, expected) => {
  await using store = await openStore();
  await using home = await openHome({
    DATABASE_URL: database.url,
    SOURCE_URL: 'http://127.0.0.1:9',
    OBJECT_STORE_URL: `s3://bucket?endpoint=${store.url}`,
    // Neither the machine's own credentials nor its role.
    HOME: '/nonexistent',
    AWS_EC2_METADATA_DISABLED: 'true',
    AWS_ACCESS_KEY_ID: undefined,
    AWS_SECRET_ACCESS_KEY: undefined,
    ...env,
  });
  const inHome = (name: string) => join(home.dir, name);
  await writeFile(inHome('of-dot-env'), credentials('OF_DOT_ENV'));
  await writeFile(inHome('of-environment'), credentials('OF_ENVIRONMENT'));
  await writeFile(
    inHome('.env'),
    `AWS_SHARED_CREDENTIALS_FILE=${inHome('of-dot-env')}\n`,
  );
  await home.run(['doctor'], {
    ...('AWS_SHARED_CREDENTIALS_FILE' in env && {
      AWS_SHARED_CREDENTIALS_FILE: inHome('of-environment'),
    }),
  });
  expect([...store.keys]).toEqual([expected]);
});
