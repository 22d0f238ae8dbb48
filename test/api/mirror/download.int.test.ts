/**
 * Downloads of a real mirror's ledgers: sizes, tags, ranges, and what curl makes of a line
 * that breaks.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, connect } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type SmallMirror,
  startSmallMirror,
} from '../source-api/small-mirror.ts';

const run = promisify(execFile);
let mirror: SmallMirror;
let folder = '';
let file = '';
let whole = Buffer.alloc(0);
/** More than the tests take before the last one. */
const BUDGET_MIB = 12;

beforeAll(async () => {
  mirror = await startSmallMirror({
    API_DOWNLOADS_PER_HOUR: `${BUDGET_MIB}MiB`,
  });
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-download-'));
  file = await order(mirror.parties[0] ?? '');
  whole = Buffer.from(await (await fetch(file)).arrayBuffer());
});
afterAll(async () => {
  await mirror[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

/** @returns the address of what an order has brought */
async function order(partyId: string): Promise<string> {
  const { runId, verdict, evidence } = await mirror.exportLedger(partyId);
  await mirror.app.jobs.runs.finish(runId, verdict, evidence);
  return `${mirror.url}/mirror/exports/${runId}/download`;
}

function part(range: string, headers: Record<string, string> = {}) {
  return fetch(file, { headers: { range, ...headers } });
}

describe('a download', () => {
  test('has its size and a tag, and is not compressed', async () => {
    const response = await fetch(file, {
      headers: { 'accept-encoding': 'gzip' },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get('content-encoding')).toBeNull();
    expect(response.headers.get('content-length')).toBe(String(whole.length));
    expect(response.headers.get('accept-ranges')).toBe('bytes');
    const tag = response.headers.get('etag') ?? '';
    expect(tag).toMatch(/^"[0-9a-f]{32}"$/);
    await response.body?.cancel();
    const again = await fetch(file, { headers: { 'if-none-match': tag } });
    expect([again.status, await again.text()]).toEqual([304, '']);
    const head = await fetch(file, { method: 'HEAD' });
    expect([
      head.status,
      head.headers.get('content-length'),
      head.headers.get('etag'),
    ]).toEqual([200, String(whole.length), tag]);
  });

  test('equals what the mirrored route sends', async () => {
    const path = `/api/v2/ledgerentry/export?partyId=${mirror.parties[0]}`;
    const mirrored = await fetch(`${mirror.url}${path}`);
    expect(Buffer.from(await mirrored.arrayBuffer())).toEqual(whole);
  });

  test.each([
    ['bytes=0-9', 0, 10],
    ['bytes=5000-5999', 5_000, 6_000],
    ['bytes=-7', -7, undefined],
  ])('sends the part %s', async (range, start, end) => {
    const response = await part(range);
    const expected = whole.subarray(start, end);
    expect(response.status).toBe(206);
    expect(response.headers.get('content-range')).toBe(
      `bytes ${whole.indexOf(expected)}-${whole.indexOf(expected) + expected.length - 1}/${whole.length}`,
    );
    expect(Buffer.from(await response.arrayBuffer())).toEqual(expected);
  });

  test('refuses a part behind its end, and names its size', async () => {
    const response = await part(`bytes=${whole.length}-`);
    expect([
      response.status,
      response.headers.get('content-range'),
      response.headers.get('content-disposition'),
    ]).toEqual([416, `bytes */${whole.length}`, null]);
  });

  test('is whole for a client that has a part of another file', async () => {
    const response = await part('bytes=10-', { 'if-range': '"other"' });
    expect([
      response.status,
      (await response.arrayBuffer()).byteLength,
    ]).toEqual([200, whole.length]);
  });

  test('goes on where curl was cut off, and ends in the same bytes', async () => {
    const path = join(folder, 'resumed.csv');
    const cutAt = Math.floor(whole.length / 2);
    await using line = await startBreakingLine(cutAt);
    const broken = file.replace(mirror.url, line.url);
    await expect(run('curl', ['-sS', '-o', path, broken])).rejects.toThrow(
      /curl/,
    );
    const got = await readFile(path);
    expect(got.length).toBeGreaterThan(0);
    expect(got.length).toBeLessThan(whole.length);
    await run('curl', ['-sS', '-f', '-C', '-', '-o', path, file]);
    expect(await readFile(path)).toEqual(whole);
  });

  test('that curl has wholly is left alone', async () => {
    const path = join(folder, 'whole.csv');
    await writeFile(path, whole);
    await run('curl', ['-sS', '-C', '-', '-o', path, file]);
    expect(await readFile(path)).toEqual(whole);
  });
});

// The last: it uses the budget up.
test('downloads are refused once the bytes of an hour are used up, and the mirrored route is not', async () => {
  const count = Math.ceil((BUDGET_MIB * 2 ** 20) / whole.length) + 1;
  let refused: Response | undefined;
  for (let n = 0; n < count && refused === undefined; n += 1) {
    const response = await fetch(file);
    if (response.status === 429) refused = response;
    else await response.arrayBuffer();
  }
  expect(Number(refused?.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(refused?.headers.get('content-length')).not.toBe(String(whole.length));
  expect(await refused?.json()).toMatchObject({
    code: 8,
    message: expect.stringContaining('API_DOWNLOADS_PER_HOUR') as string,
  });
  const path = `/api/v2/ledgerentry/export?partyId=${mirror.parties[0]}`;
  const mirrored = await fetch(`${mirror.url}${path}`);
  expect([mirrored.status, (await mirrored.arrayBuffer()).byteLength]).toEqual([
    200,
    whole.length,
  ]);
});

/** Passes a connection on to the mirror, and breaks it behind so many bytes. */
async function startBreakingLine(bytesMax: number) {
  const { hostname, port } = new URL(mirror.url);
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    client.on('error', () => upstream.destroy()).pipe(upstream);
    let left = bytesMax;
    upstream.on('error', () => client.destroy());
    upstream.on('data', (chunk: Buffer) => {
      const sent = chunk.subarray(0, left);
      left -= sent.length;
      client.write(sent, () => {
        if (left === 0) client.destroySoon();
      });
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  const opened = typeof address === 'object' ? address?.port : undefined;
  return {
    url: `http://127.0.0.1:${opened}`,
    [Symbol.asyncDispose]: async () => {
      server.close();
    },
  };
}
