/** Connections that a balancer keeps between two requests. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { listen } from '../../../src/api/server/server.ts';
import { apiWithoutDatabase } from '../mirror.ts';

const DOCS = resolve(import.meta.dirname, '../../../docs');
/** The longest idle timeout that load balancers have by default. */
const BALANCER_SECONDS = 600;

test('idle connections are kept as long as the docs say, and longer than balancers keep them', async () => {
  const server = await apiWithoutDatabase({});
  const address = { host: '127.0.0.1', port: 0, token: undefined };
  await using mirror = await listen(server, address);
  const { headers } = await fetch(`${mirror.url}/healthz`);
  const told = /timeout=(\d+)/.exec(headers.get('keep-alive') ?? '')?.[1];
  expect(Number(told)).toBeGreaterThan(BALANCER_SECONDS);
  // The header is what clients go by, and this is what the server does.
  expect(server.server.keepAliveTimeout).toBe(Number(told) * 1_000);
  for (const page of ['api.md', 'deployment.md'])
    expect(await readFile(`${DOCS}/${page}`, 'utf8')).toContain(`${told} s`);
});
