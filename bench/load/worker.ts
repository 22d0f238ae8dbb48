/**
 * Runs stages in a separate process, to measure its peak memory: `worker.ts
 * load|lake|both URL OBJECTS SCRATCH`.
 */
import { buildLake } from '../../src/lake/build/build.ts';
import { scratchFolder } from '../../src/lake/local/scratch.ts';
import { LineFiles } from '../../src/warehouse/line-files.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import {
  LakeStore,
  type WarehouseReader,
} from '../../src/lake/store/lake-store.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';

let rowsSent = 0;

/** A store that counts the rows that the warehouse sends to the build. */
class CountingStore extends LakeStore {
  override withLakeLock<Result>(
    work: (reader: WarehouseReader) => Promise<Result>,
    lockSignal: AbortSignal,
  ): Promise<Result> {
    return super.withLakeLock(async (reader) => {
      const months = await reader.segmentMonths();
      const rowsOf: WarehouseReader['rows'] = (month, segmentIds, ...rest) => {
        for (const part of months)
          if (part.month === month && segmentIds.includes(part.segmentId))
            rowsSent += Number(part.rows);
        return reader.rows(month, segmentIds, ...rest);
      };
      return work({ ...reader, rows: rowsOf });
    }, lockSignal);
  }
}

const [stage = '', url = '', objectsDir = '', scratchDir = ''] =
  process.argv.slice(2);
const signal = new AbortController().signal;
const warehouse = openWarehouse({ url, onIdleError: () => undefined });
const objects = openFileStore(objectsDir);
const startMs = performance.now();
let rows = 0n;
await using folder = await scratchFolder(scratchDir);
await using lineFiles = await LineFiles.open(folder.path);
if (stage !== 'lake')
  rows = (
    await loadAll(
      {
        repository: new LoadStore(warehouse),
        objects,
        lineFiles: stage === 'both' ? lineFiles : undefined,
      },
      signal,
    )
  ).rows;
if (stage !== 'load') {
  const repository = new CountingStore(warehouse.pool);
  rows = (
    await buildLake(
      {
        repository,
        objects,
        scratchDir,
        retentionMs: 7 * 86_400_000,
        loadedLines: lineFiles,
      },
      signal,
    )
  ).rows;
}
const seconds = (performance.now() - startMs) / 1000;
const { user, system } = process.cpuUsage();
const cpuSeconds = (user + system) / 1e6;
const peakMb = process.resourceUsage().maxRSS / 1024;
process.stdout.write(
  `${JSON.stringify({ rows: Number(rows), rowsSent, seconds, cpuSeconds, peakMb })}\n`,
);
await warehouse[Symbol.asyncDispose]();
