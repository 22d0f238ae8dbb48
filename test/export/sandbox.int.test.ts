/** The whole path against the sandbox network: its books say what the objects must hold. */
import { randomUUID } from 'node:crypto';
import { describe, expect, onTestFinished, test } from 'vitest';
import { exportParty } from '../../src/export/export-party.ts';
import type { ExportOutcome } from '../../src/export/export-unit.ts';
import { RowDigest } from '../../src/ledger/digest.ts';
import type { SandboxOptions } from '../../src/sandbox/options.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import { testSource } from '../source/test-source.ts';
import { freshDatabase } from '../support/database.ts';
import { signal, World } from './export-world.ts';

const database = await freshDatabase({ isMigrated: true });

interface Night {
  readonly sandbox: Sandbox;
  readonly world: World;
  run(partyId: string, assets?: readonly string[]): Promise<ExportOutcome>;
}

async function nights(options: SandboxOptions): Promise<Night> {
  const sandbox = await startSandbox({ parties: 12, rateLimit: 'none', whaleEntries: 3000, ...options });
  const world = await World.open(database);
  onTestFinished(async () => {
    await sandbox.stop();
    await world[Symbol.asyncDispose]();
  });
  const { ledger } = testSource(new URL(sandbox.url));
  return {
    sandbox,
    world,
    run: (partyId, assets) => {
      const seenTime = sandbox.books.head().time;
      const request = { partyId, runId: randomUUID(), seenTime, closedTo: seenTime - 120_000_000n };
      return exportParty(
        request,
        { ...world.deps({ source: ledger, segmentBytesMax: 131_072 }), assets },
        signal,
      );
    },
  };
}

/** The current segments' digests added up, party by party. */
async function digests(world: World): Promise<Map<string, RowDigest>> {
  const sums = new Map<string, RowDigest>();
  const { rows } = await world.pool.query<{ party_id: string; digest: string; rows: string }>(
    `select party_id, digest, rows from mirror.segments where status = 'current'`,
  );
  for (const { party_id: party, digest, rows: count } of rows) {
    const sum = sums.get(party) ?? new RowDigest();
    sum.merge(RowDigest.fromHex(digest, Number(count)));
    sums.set(party, sum);
  }
  return sums;
}

async function expectTheBooks({ sandbox, world }: Night): Promise<void> {
  const kept = await digests(world);
  for (const { id } of sandbox.books.parties()) {
    const { entries, digest } = sandbox.books.party(id);
    const mine = kept.get(id) ?? new RowDigest();
    expect([mine.rows, mine.hex()]).toEqual([entries, digest]);
  }
}

describe('objects hold exactly what the books say', () => {
  test.each([{}, { form: 'messages' }, { zoneMinutes: 330 }] as const)(
    'night after night: %j',
    async (options) => {
      const night = await nights(options);
      for (const passed of [0, 3_600_000, 60_000, 86_400_000]) {
        night.sandbox.advance(passed);
        for (const { id } of night.sandbox.books.parties()) {
          expect(await night.run(id)).toMatchObject({ verdict: 'complete', questions: 1 });
        }
        await expectTheBooks(night);
      }
      const rows = await night.world.rows();
      const books = [...night.sandbox.books.parties()].flatMap(({ id }) => [...night.sandbox.books.rows(id)]);
      expect(rows).toEqual(books.toSorted());
      expect(await night.world.spooled()).toEqual([]);
    },
  );

  test('where the source demands an asset, each configured one is asked for', async () => {
    const night = await nights({ assetRequired: true, whaleEntries: 300 });
    const [whale] = night.sandbox.books.parties();
    if (whale === undefined) throw new Error('an empty network');
    const assets = night.sandbox.books.assetIds();
    expect(await night.run(whale.id)).toMatchObject({ verdict: 'incomplete', evidence: { assets: [] } });
    expect(await night.run(whale.id, assets)).toMatchObject({
      verdict: 'complete',
      evidence: { assets, assetsFrom: 'SOURCE_ASSETS' },
    });
    const { entries, digest } = night.sandbox.books.party(whale.id);
    const mine = (await digests(night.world)).get(whale.id);
    expect([mine?.rows, mine?.hex()]).toEqual([entries, digest]);
  });

  test.each([
    [{ errorAfterBytes: 100_000 }, 'SOURCE_ERROR_IN_STREAM'],
    [{ cutAfterBytes: 100_000 }, 'SOURCE_'],
  ])('%j publishes nothing, and the next try everything', async (fault, code) => {
    const night = await nights({});
    const [whale] = night.sandbox.books.parties();
    if (whale === undefined) throw new Error('an empty network');
    night.sandbox.faults.once('export', fault);
    await expect(night.run(whale.id)).rejects.toThrow(
      expect.objectContaining({ code: expect.stringContaining(code) }),
    );
    expect([await night.world.keys(), await night.world.spooled()]).toEqual([[], []]);
    await night.run(whale.id);
    const mine = (await digests(night.world)).get(whale.id);
    expect(mine?.hex()).toBe(night.sandbox.books.party(whale.id).digest);
  });
});
