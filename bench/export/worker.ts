/**
 * Runs one export in a separate process, so that only its own memory and event loop are
 * measured. Prints JSON.
 */
import { randomUUID } from 'node:crypto';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { parseInstant } from '../../src/time/time.ts';
import { exportLedger } from '../../src/exports/export-ledger.ts';
import type { Compression } from '../../src/ledger/object-keys.ts';
import { RowPool } from '../../src/exports/download/row-pool.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { openSource } from '../../src/source/source-client.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { ExportStore } from '../../src/exports/store/export-store.ts';
import { localState } from '../../test/support/source-config.ts';

const LIFTED_RATE = 1_000_000;
const [
  url = '',
  path = '',
  databaseUrl = '',
  folder = '',
  compression = 'none',
] = process.argv.slice(2);
const names = {
  sourceExportParamParty: 'partyId',
  sourceExportParamAsset: 'assetId',
  sourceExportParamFrom: 'from',
  sourceExportParamTo: 'to',
};
await using source = openSource(
  {
    sourceUrl: new URL(url),
    sourceRate: LIFTED_RATE,
    sourceExportPath: path,
    ...names,
    sourceExportTime: 'ns',
    ambient: {},
  },
  { ...localState(), acceptGzip: false },
);
await using warehouse = openWarehouse({
  url: databaseUrl,
  onIdleError: () => undefined,
});
const repository = new ExportStore(warehouse.db);
await repository.profile();
await using rowPool = new RowPool();
const seen = parseInstant('2023-06-01') ?? 0n;
const delay = monitorEventLoopDelay({ resolution: 5 });
delay.enable();
let peakRss = 0;
const watch = setInterval(() => {
  peakRss = Math.max(peakRss, process.memoryUsage.rss());
}, 20);
const startMs = performance.now();
const { verdict, bytes, rows } = await exportLedger(
  {
    partyId: 'ab'.repeat(32),
    runId: randomUUID(),
    clock: { seen, closedTo: seen, from: 'source' },
  },
  {
    source: source.ledger,
    repository,
    objects: openFileStore(folder),
    compression: compression as Compression,
    rowPool,
    // Everything goes into one object, because a single stream is measured.
    segmentBytesMax: 2 ** 40,
    exportLimit: 1,
  },
  new AbortController().signal,
);
const seconds = (performance.now() - startMs) / 1000;
clearInterval(watch);
const delayP99Ms = delay.percentile(99) / 1e6;
process.stdout.write(
  `${JSON.stringify({ verdict, rows: Number(rows), bytes: Number(bytes), seconds, delayP99Ms, peakMb: peakRss / 1e6 })}\n`,
);
