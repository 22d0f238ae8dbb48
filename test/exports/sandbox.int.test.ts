/**
 * The whole path against the sandbox network: its repository say what the objects must
 * hold.
 */
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parseInstant } from '../../src/time/time.ts';
import type { ExportDeps } from '../../src/exports/export-context.ts';
import type { TruthWindow } from '../support/sandbox-truth.ts';
import type { SandboxOptions } from '../support/sandbox.ts';
import { freshDatabase } from '../support/database.ts';
import { openDoubleStore, S3Double } from '../support/stores/s3-double.ts';
import {
  digests,
  expectTruth,
  type Night,
  openNights,
} from './sandbox-nightly.ts';
import { publishedSegments } from '../support/mirror-state.ts';

const database = await freshDatabase({ isMigrated: true });

function nights(
  options: SandboxOptions,
  changes: Partial<ExportDeps> = {},
): Promise<Night> {
  return openNights(database, options, changes);
}

describe('the objects of all exports hold exactly the rows of the source', () => {
  test.each([{}, { form: 'messages' }] as const)(
    'after every nightly run with %j',
    async (options) => {
      const night = await nights(options);
      for (const passed of [0, 3_600_000, 60_000, 86_400_000]) {
        night.sandbox.advance(passed);
        for (const { id } of night.sandbox.truth.parties()) {
          expect(await night.run(id)).toMatchObject({
            verdict: 'complete',
            requests: 1,
          });
        }
        await expectTruth(night);
      }
      const rows = await night.world.rows();
      const repository = [...night.sandbox.truth.parties()].flatMap(
        ({ id }) => [...night.sandbox.truth.rows(id)],
      );
      expect(rows).toEqual(repository.toSorted());
      expect(await night.world.spooled()).toEqual([]);
    },
  );

  test.each(['0.71.6', '0.73'] as const)(
    'with both sides of release %s, after every nightly run',
    async (release) => {
      const night = await nights({ release, whaleEntries: 600 });
      for (const passed of [0, 3_600_000, 60_000, 86_400_000]) {
        night.sandbox.advance(passed);
        for (const { id } of night.sandbox.truth.parties()) {
          expect(await night.run(id)).toMatchObject({
            verdict: 'complete',
            requests: 1,
          });
        }
        await expectTruth(night);
      }
      expect((await night.world.repository.profile()).bounds).toBe(
        release === '0.71.6' ? 'broken' : 'unproven',
      );
      expect(night.sandbox.fatalQuestions()).toBe(0);
    },
  );

  test.each(['0.71.4', '0.71.6', '0.73'] as const)(
    'ranges and assets of release %s, then all of it',
    async (release) => {
      const night = await nights({
        release,
        whaleEntries: 900,
        parties: 2,
        onFatalQuestion: 'crash',
      });
      const [whale] = night.sandbox.truth.parties();
      if (whale === undefined) throw new Error('an empty network');
      const [assetId] = night.sandbox.truth.assetIds();
      const day = (text: string): bigint =>
        parseInstant(`2023-05-0${text}Z`) ?? 0n;
      const ranges: TruthWindow[] = [
        { from: day('3T00:00:00'), to: day('3T12:00:00') },
        { from: day('3T11:00:00'), to: day('4T00:00:00') },
        { to: day('2T00:00:00') },
        {
          from: day('5T00:00:00'),
          to: day('5T06:00:00'),
          ...(assetId === undefined ? {} : { assetId }),
        },
      ];
      for (const range of ranges) {
        expect(await night.run(whale.id, [], range)).toMatchObject({
          verdict: 'complete',
        });
      }
      const truth = ranges.flatMap((range) => [
        ...night.sandbox.truth.rows(whale.id, range),
      ]);
      const overlap = { from: day('3T11:00:00'), to: day('3T12:00:00') };
      const twice = [...night.sandbox.truth.rows(whale.id, overlap)];
      for (const row of twice) truth.splice(truth.indexOf(row), 1);
      expect(await night.world.rows()).toEqual(truth.toSorted());
      expect(await night.run(whale.id)).toMatchObject({ verdict: 'complete' });
      await expectTruth({ ...night, parties: [whale.id] });
      // It was shown by asking for a known entry, before both bounds were ever relied on.
      const bounds = {
        '0.71.4': 'right',
        '0.71.6': 'broken',
        '0.73': 'right',
      } as const;
      expect((await night.world.repository.profile()).bounds).toBe(
        bounds[release],
      );
      expect(night.sandbox.fatalQuestions()).toBe(0);
    },
  );

  test.each(['0.71.4', '0.71.6', '0.73'] as const)(
    'much more than fits a stream, from release %s',
    async (release) => {
      const segmentBytesMax = 131_072;
      const night = await nights({ release, parties: 2 }, { segmentBytesMax });
      const [whale] = night.sandbox.truth.parties();
      if (whale === undefined) throw new Error('an empty network');
      const outcome = await night.run(whale.id);
      expect(outcome.verdict).toBe('complete');
      await expectTruth({ ...night, parties: [whale.id] });
      const received = Number(outcome.evidence['receivedBytes']);
      expect(received / Number(outcome.bytes)).toBeLessThan(3);
      const segments = await publishedSegments(night.world.pool);
      const largest = Math.max(...segments.map(({ bytes }) => bytes));
      // A release that cannot be asked in windows is one object, however large. Of
      // unsorted rows an object may be larger where another cancelled stream would ask
      // for more than twice the ledger.
      const isSorted = release === '0.73';
      expect(largest <= segmentBytesMax * (isSorted ? 1 : 1.5)).toBe(
        release !== '0.71.6',
      );
      // What comes in comes with every piece: such a release is asked once for all, after
      // it was found out.
      expect(outcome.requests > 4).toBe(release !== '0.71.6');
      night.sandbox.advance(86_400_000);
      expect(await night.run(whale.id)).toMatchObject({ verdict: 'complete' });
      await expectTruth({ ...night, parties: [whale.id] });
      expect(await night.world.spooled()).toEqual([]);
    },
  );

  test('in an S3 double that fails now and then', async () => {
    await using double = await S3Double.start();
    const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-s3-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    await using objects = openDoubleStore(
      double.endpoint,
      join(folder, 'spool'),
    );
    let calls = 0;
    double.fault = (call, stage) => {
      calls += 1;
      return call.method === 'PUT' && stage === 'after' && calls % 7 === 0
        ? 'InternalError'
        : undefined;
    };
    const night = await nights({}, { objects });
    for (const passed of [0, 3_600_000]) {
      night.sandbox.advance(passed);
      for (const { id } of night.sandbox.truth.parties()) await night.run(id);
      await expectTruth(night);
    }
    for (const {
      objectKey: key,
      objectSha256: sha256,
    } of await publishedSegments(night.world.pool)) {
      const stored = double.objects.get(`mirror/${key}`);
      expect(
        createHash('sha256')
          .update(stored?.content ?? '')
          .digest('hex'),
      ).toBe(sha256);
      expect(double.objects.has(`mirror/${key}.manifest.json`)).toBe(true);
    }
    expect(await readdir(join(folder, 'spool'))).toEqual([]);
  });

  test('for each configured asset where the source demands one', async () => {
    const night = await nights({ assetRequired: true, whaleEntries: 300 });
    const [whale] = night.sandbox.truth.parties();
    if (whale === undefined) throw new Error('an empty network');
    const assets = night.sandbox.truth.assetIds();
    expect(await night.run(whale.id)).toMatchObject({
      verdict: 'incomplete',
      evidence: { assets: [] },
    });
    expect(await night.run(whale.id, assets)).toMatchObject({
      verdict: 'complete',
      evidence: { assets, assetsFrom: 'SOURCE_ASSETS' },
    });
    const { entries, digest } = night.sandbox.truth.party(whale.id);
    const mine = (await digests(night.world)).get(whale.id);
    expect([mine?.rows, mine?.hex()]).toEqual([entries, digest]);
  });

  test.each([
    [{ errorAfterBytes: 100_000 }, 'SOURCE_ERROR_IN_STREAM'],
    [{ cutAfterBytes: 100_000 }, 'SOURCE_'],
  ])(
    '%j publishes nothing, and the next try everything',
    async (fault, code) => {
      const night = await nights({});
      const [whale] = night.sandbox.truth.parties();
      if (whale === undefined) throw new Error('an empty network');
      night.sandbox.faults.once('export', fault);
      await expect(night.run(whale.id)).rejects.toThrow(
        expect.objectContaining({ code: expect.stringContaining(code) }),
      );
      expect([await night.world.keys(), await night.world.spooled()]).toEqual([
        [],
        [],
      ]);
      await night.run(whale.id);
      const mine = (await digests(night.world)).get(whale.id);
      expect(mine?.hex()).toBe(night.sandbox.truth.party(whale.id).digest);
    },
  );
});
