/**
 * What a mirror serves is what is asked for: an answer that lacks a part of it is an error
 * that says what is known, over HTTP and on the command line alike.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { SECOND_MICROS } from '../../../src/time/time.ts';
import { call, type SmallMirror, startSmallMirror } from './small-mirror.ts';

let mirror: SmallMirror;
beforeAll(async () => {
  mirror = await startSmallMirror();
});
afterAll(() => mirror[Symbol.asyncDispose]());

function ask(path: string): Promise<Response> {
  return fetch(`${mirror.url}/api/v2/${path}`);
}

const route = (partyId: string, more = '') =>
  ask(`ledgerentry/export?partyId=${partyId}${more}`);

test('a list is an error until it was read to its end', async () => {
  expect((await ask('parties')).status).toBe(503);
  const { runId } = await mirror.app.jobs.runs.create({
    kind: 'sync',
    subject: 'parties',
  });
  const ended = await mirror.app.jobs.stages.sync(
    {
      runId,
      list: 'parties',
      full: false,
      acceptNewNetwork: false,
      acceptShrunk: false,
    },
    call,
  );
  expect(ended.verdict).toBe('complete');
  // The head of a list is read once a second.
  await expect
    .poll(async () => (await ask('parties')).status, { timeout: 10_000 })
    .toBe(200);
});

test('every asset is not served from an export of one', async () => {
  const [party = ''] = mirror.parties;
  const text = await (
    await fetch(
      `${mirror.sandbox.url}/api/v2/ledgerentry/export?partyId=${party}`,
    )
  ).text();
  const [header = '', first = ''] = text.split('\n');
  const column = header.split(',').indexOf('asset_id');
  const asset = first.split(',')[column]?.replace(/^\\x/, '') ?? '';
  expect(asset).toMatch(/^[0-9a-f]{64}$/);
  await mirror.exportLedger(party, asset);
  expect((await route(party, `&assetId=${asset}`)).status).toBe(200);
  const all = await route(party);
  expect([all.status, await all.json()]).toMatchObject([
    404,
    { error: { code: 5, details: [{ code: 260_002 }] } },
  ]);
  const partial = await route(party, '&mirror.partial=true');
  expect(partial.status).toBe(200);
  expect(partial.headers.get('x-mirror-missing')).toBe(
    '1970-01-01T00:00:00.000000Z/..',
  );
  expect((await route(party, `&assetId=${'d'.repeat(64)}`)).status).toBe(404);
});

test('a range that reaches beyond what is known is an error that says up to when it is', async () => {
  const [, party = ''] = mirror.parties;
  expect((await mirror.exportLedger(party)).verdict).toBe('complete');
  const open = await route(party);
  expect(open.status).toBe(200);
  const knownTo = open.headers.get('x-mirror-known-to') ?? '';
  expect(Date.parse(knownTo)).toBeGreaterThan(0);
  const text = await open.text();

  const endOf = (seconds: number) =>
    `&dateRange.endTimestamp=${BigInt(Date.parse(knownTo) + seconds * 1_000) * SECOND_MICROS}`;
  const known = await route(party, endOf(0));
  expect([known.status, await known.text()]).toEqual([200, text]);
  const beyond = await route(party, endOf(60));
  expect([
    beyond.status,
    beyond.headers.get('content-type'),
    beyond.headers.get('x-mirror-known-to'),
    beyond.headers.get('content-disposition'),
  ]).toEqual([404, 'application/json', knownTo, null]);
  const partial = await route(party, `${endOf(60)}&mirror.partial=1`);
  expect([partial.status, await partial.text()]).toEqual([200, text]);
  expect(partial.headers.get('x-mirror-missing')).toBe(`${knownTo}/..`);
});
