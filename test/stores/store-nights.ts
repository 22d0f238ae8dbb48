/** The mirror's whole work on a real S3 server, through the real commands. */
import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { ListMultipartUploadsCommand } from '@aws-sdk/client-s3';
import { describe, expect, test } from 'vitest';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';
import { expectLedgers } from '../cli/expect-truth.ts';
import {
  type Document,
  type MirrorHome,
  openHome,
} from '../cli/mirror-home.ts';
import { type FreshDatabase, openFreshDatabase } from '../support/database.ts';
import {
  awsVariables,
  rawClient,
  type RealStore,
  storeUrl,
} from '../support/stores/real-store.ts';
import { waitFor } from '../support/wait-for.ts';
import { openStoreOn, type StoreUnderTest } from './store-under-test.ts';
import { loadedRows, publishedSegments } from '../support/mirror-state.ts';

const HOUR_MS = 3_600_000;
/** Some 30 MB of CSV in one ledger, and as nothing is compressed, an object in parts. */
const WHALE_ENTRIES = 100_000;
const PART_BYTES = 16 * 2 ** 20;
const signal = new AbortController().signal;

interface World extends AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly database: FreshDatabase;
  readonly home: MirrorHome;
  readonly prefix: string;
}

async function openWorld(server: RealStore, whaleEntries = 0): Promise<World> {
  await using stack = new AsyncDisposableStack();
  const sandbox = stack.use(
    await startSandbox({
      parties: 12,
      entriesMean: 40,
      whaleEntries,
      checkpointIntervalMs: HOUR_MS,
      rateLimit: 'none',
    }),
  );
  const database = stack.use(await openFreshDatabase());
  const prefix = randomUUID();
  const home = stack.use(
    await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: database.url,
      OBJECT_STORE_URL: storeUrl(server, prefix).href,
      EXPORT_COMPRESSION: 'none',
      ...awsVariables(server.keys),
    }),
  );
  const owned = stack.move();
  return {
    sandbox,
    database,
    home,
    prefix,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/**
 * Brings the ledgers' objects into the home's folder, and compares all with the truth.
 */
async function expectWhole(
  server: RealStore,
  { sandbox, home, prefix }: World,
  database: FreshDatabase,
): Promise<void> {
  await using store = openStoreOn(server, { prefix });
  await rm(home.objectsDir, { recursive: true, force: true });
  for await (const { key } of store.list('ledger/', signal)) {
    const path = join(home.objectsDir, key);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, await buffer(await store.read(key, signal)));
  }
  await expectLedgers(database.pool, sandbox.truth, home.objectsDir);
}

async function isUploading(
  server: RealStore,
  prefix: string,
): Promise<boolean> {
  const client = rawClient(server);
  const command = new ListMultipartUploadsCommand({
    Bucket: server.bucket,
    Prefix: `${prefix}/ledger/`,
  });
  const { Uploads: uploads = [] } = await client.send(command);
  client.destroy();
  return uploads.length > 0;
}

function expectComplete({
  code,
  document,
}: {
  code: number | null;
  document: Document;
}): void {
  const evidence =
    document.verdict === 'complete' ? '' : JSON.stringify(document);
  expect({ code, verdict: document.verdict, evidence }).toEqual({
    code: 0,
    verdict: 'complete',
    evidence: '',
  });
}

export function describeNights(running: StoreUnderTest): void {
  describe('the mirror', () => {
    test('the mirror works on this store: nightly runs with multipart objects, verify --deep, query, a rebuild', async () => {
      const server = running();
      await using world = await openWorld(server, WHALE_ENTRIES);
      const { home, sandbox, database } = world;
      const first = await home.json(['nightly']);
      expectComplete(first);
      sandbox.advance(HOUR_MS * 30);
      const second = await home.json(['nightly']);
      expectComplete(second);
      await expectWhole(server, world, database);
      const sizes = (await publishedSegments(database.pool)).map(
        ({ objectBytes }) => objectBytes,
      );
      expect(Math.max(...sizes)).toBeGreaterThan(PART_BYTES);
      const verified = await home.json(['verify', '--deep']);
      expect([verified.code, verified.document.verdict]).toEqual([
        0,
        'complete',
      ]);
      const counted = await home.run([
        'query',
        'select count(*) as n from ledger_entries',
        '--format',
        'csv',
      ]);
      expect(counted.stdout.trim().split(/\s+/)).toEqual([
        'n',
        String(await loadedRows(database.pool)),
      ]);
      await using empty = await openFreshDatabase();
      const again = { DATABASE_URL: empty.url, SOURCE_URL: undefined };
      const rebuilt = await home.json(['load', '--all', '--take-over'], again);
      expectComplete(rebuilt);
      await expectWhole(server, world, empty);
      expect(await home.spooled()).toEqual([]);
    });

    test('the mirror continues from its spool after kill -9 during an upload', async () => {
      const server = running();
      await using world = await openWorld(server, WHALE_ENTRIES);
      const { home, sandbox, database, prefix } = world;
      const killed = home.start(['nightly']);
      await waitFor(
        () => {
          if (!killed.isRunning)
            throw new Error(
              `the run ended before an upload:\n${killed.stderr}`,
            );
          return isUploading(server, prefix);
        },
        { what: 'an upload on its way' },
      );
      await killed.end('SIGKILL');
      const next = await home.json(['nightly']);
      expectComplete(next);
      const asked = sandbox.requests
        .all()
        .filter(({ route }) => route === 'export');
      const bytesAsked = asked.reduce((sum, { bytes }) => sum + bytes, 0);
      const bytes = (await publishedSegments(database.pool)).reduce(
        (sum, segment) => sum + segment.bytes,
        0,
      );
      // What had been received was not asked for again.
      expect(bytesAsked).toBeLessThan(bytes * 1.25);
      await expectWhole(server, world, database);
      const verified = await home.json(['verify', '--deep']);
      expect([verified.code, verified.document.verdict]).toEqual([
        0,
        'complete',
      ]);
    });

    test('the mirror outlasts ten seconds without its store and requests every ledger once', async () => {
      const server = running();
      await using world = await openWorld(server);
      const { home, sandbox, database } = world;
      const night = home.start(['nightly', '--json']);
      await waitFor(() => sandbox.requests.of('export') > 2, {
        what: 'exports on their way',
      });
      await server.killGateway();
      await sleep(10_000);
      await server.startGateway();
      const { code } = await night.end(undefined, 240_000);
      expect(code).not.toBe(75);
      expectComplete({ code, document: JSON.parse(night.stdout) as Document });
      await expectWhole(server, world, database);
    });

    test('the mirror requests nothing from the source if the store refuses its secret', async () => {
      await using world = await openWorld(running());
      const { home, sandbox } = world;
      const night = await home.json(['nightly'], {
        AWS_SECRET_ACCESS_KEY: 'of-nobody-at-all',
      });
      expect([night.code, night.document.verdict]).toEqual([2, 'failed']);
      expect(JSON.stringify(night.document.evidence)).toContain(
        'SignatureDoesNotMatch',
      );
      expect(sandbox.requests.of()).toBe(0);
      const found = await home.run(['doctor'], {
        AWS_SECRET_ACCESS_KEY: 'of-nobody-at-all',
      });
      expect(found.stdout).toMatch(
        /WRONG +object store: .*SignatureDoesNotMatch/,
      );
    });
  });
}
