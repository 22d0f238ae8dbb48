/** What a build asks of its store: on S3 a small build is its requests. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { buildLake } from '../../../src/lake/build/build.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { openDoubleStore, S3Double } from '../../support/stores/s3-double.ts';
import { entry, type SegmentRows, WarehouseDouble } from '../entries-double.ts';

const signal = new AbortController().signal;
const BUILDS = 6;

function segment(segmentId: number): SegmentRows {
  return {
    segmentId: BigInt(segmentId),
    rows: [entry({ party_id: 'aa'.repeat(32) })],
  };
}

describe('a build on S3', () => {
  test('a build on S3 lists the lake once and reads each commit once', async () => {
    await using double = await S3Double.start();
    const scratchDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-requests-'));
    onTestFinished(() => rm(scratchDir, { recursive: true, force: true }));
    await using objects = openDoubleStore(
      double.endpoint,
      join(scratchDir, 'spool'),
    );
    const warehouse = new WarehouseDouble();
    const deps = {
      repository: warehouse,
      objects,
      scratchDir,
      retentionMs: 7 * 86_400_000,
    };
    const segments: SegmentRows[] = [];
    warehouse.segments = segments;
    for (let build = 1; build < BUILDS; build += 1) {
      segments.push(segment(build));
      await buildLake(deps, signal);
    }
    const logs = [...double.objects.keys()].filter((key) =>
      /_delta_log\/\d{20}\.json$/.test(key),
    ).length;
    const asked = async (): Promise<Readonly<Record<string, number>>> => {
      double.calls.length = 0;
      await buildLake(deps, signal);
      const calls = Map.groupBy(double.calls, (call) => call);
      return Object.fromEntries(
        [...calls].map(([call, of]) => [call, of.length]),
      );
    };
    // Beside the logs: the last moment. What is written is looked up first: a file and a
    // commit of five tables, a moment.
    segments.push(segment(BUILDS));
    expect(await asked()).toEqual({
      'GET list-type&prefix': 1,
      GET: logs + 1 + 11,
      PUT: 11,
    });
    expect(await asked()).toEqual({
      'GET list-type&prefix': 1,
      GET: logs + 5 + 1,
    });
    expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
      problems: [],
    });
  });
});
