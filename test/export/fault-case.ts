/** One export as a worker runs it: real source client, warehouse, store and hints, in whichever process. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { exportUnit } from '../../src/export/export-unit.ts';
import type { ExportDeps, ExportOutcome } from '../../src/export/request.ts';
import { FileStore } from '../../src/objects/file-store.ts';
import { openSource } from '../../src/source/source.ts';
import { openRedisState } from '../../src/state/redis-state.ts';
import type { ResumeState } from '../../src/state/resume-state.ts';
import { openWarehouse } from '../../src/warehouse/database.ts';
import { ExportStore } from '../../src/warehouse/export-store.ts';

export interface FaultCase {
  readonly sourceUrl: string;
  readonly databaseUrl: string;
  readonly redisUrl: string;
  readonly folder: string;
  readonly partyId: string;
  /** Microseconds, as text. */
  readonly seenTime: string;
  readonly segmentBytesMax: number;
}

const RATE = 100_000;
const MARGIN_MICROS = 120_000_000n;

export async function openHints({ redisUrl }: FaultCase): Promise<AsyncDisposable & { state: ResumeState }> {
  const state = openRedisState({ url: redisUrl, prefix: 'faults', onConnectionError: () => undefined });
  return { state, [Symbol.asyncDispose]: () => state.close() };
}

export async function exportFrom(
  given: FaultCase,
  changes: Partial<ExportDeps>,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  await using source = openSource(
    {
      sourceUrl: new URL(given.sourceUrl),
      sourceRate: RATE,
      sourceExportPath: '/api/v2/ledgerentry/export',
      sourceExportParamParty: 'partyId',
      sourceExportParamAsset: 'assetId',
      sourceExportParamFrom: 'dateRange.startTimestamp',
      sourceExportParamTo: 'dateRange.endTimestamp',
      sourceExportTime: 'ns',
      ambient: {},
    },
    { acceptGzip: false },
  );
  await using warehouse = openWarehouse({ url: given.databaseUrl, onIdleError: () => undefined });
  const seenTime = BigInt(given.seenTime);
  return await exportUnit(
    { partyId: given.partyId, runId: randomUUID(), seenTime, closedTo: seenTime - MARGIN_MICROS },
    {
      source: source.ledger,
      books: new ExportStore(warehouse.db),
      objects: new FileStore(join(given.folder, 'objects')),
      compression: 'zstd',
      segmentBytesMax: given.segmentBytesMax,
      slotsMax: 1,
      waitMs: 20_000,
      ...changes,
    },
    signal,
  );
}
