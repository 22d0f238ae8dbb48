/**
 * One export as a worker runs it: real source client, warehouse, store and hints, in
 * whichever process.
 */
import { clockAt } from '../ledger-double.ts';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { exportLedger } from '../../../src/exports/export-ledger.ts';
import type { RowQuestion } from '../../../src/exports/download/block-reader.ts';
import type {
  ExportDeps,
  ExportOutcome,
} from '../../../src/exports/export-context.ts';
import { RowPool } from '../../../src/exports/download/row-pool.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import { openSource } from '../../../src/source/source-client.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { ExportStore } from '../../../src/exports/store/export-store.ts';
import { localState, sourceConfig } from '../../support/source-config.ts';

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

/** So small that threads read most of what a test exports. */
const BLOCK_SIZES = { beginningBytes: 2 ** 14, blockBytes: 2 ** 14 };
const MARGIN_MICROS = 120_000_000n;

/** Threads as `up` and `worker` have them: one pool a process, for all its exports. */
export class TestRowPool extends RowPool {
  /** Blocks that threads were given. */
  blocks = 0;

  constructor() {
    super(2, undefined, BLOCK_SIZES);
  }

  override read(
    ...block: Parameters<RowPool['read']>
  ): ReturnType<RowPool['read']> {
    this.blocks += 1;
    return super.read(...block);
  }

  /** A block that kills the thread that reads it. */
  async kill(): Promise<void> {
    const poison = { layout: undefined } as unknown as RowQuestion;
    await super.read(poison, Buffer.alloc(8)).catch(() => undefined);
  }
}

export async function exportFrom(
  given: FaultCase,
  changes: Partial<ExportDeps> & Required<Pick<ExportDeps, 'rowPool'>>,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  await using source = openSource(sourceConfig(given.sourceUrl), {
    ...localState(),
    acceptGzip: false,
  });
  await using warehouse = openWarehouse({
    url: given.databaseUrl,
    onIdleError: () => undefined,
  });
  const clock = clockAt(BigInt(given.seenTime), MARGIN_MICROS);
  return await exportLedger(
    { partyId: given.partyId, runId: randomUUID(), clock },
    {
      source: source.ledger,
      repository: new ExportStore(warehouse.db),
      objects: openFileStore(join(given.folder, 'objects')),
      compression: 'zstd',
      segmentBytesMax: given.segmentBytesMax,
      exportLimit: 1,
      waitMs: 120_000,
      ...changes,
    },
    signal,
  );
}
