/**
 * The report of a nightly run: what the mirror held when it ended, as sums that can be
 * compared later. It lies in the object store, so that the store alone says what it
 * holds; it is published whole, once, and never overwritten.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { Run } from './store/run-store.ts';

export const REPORTS_PREFIX = 'runs/';
const REPORT_BYTES_MAX = 256 * 2 ** 20;

const sum = z.object({
  rows: z.string().regex(/^\d+$/),
  sum: z.string().regex(/^[0-9a-f]{64}$/),
});
const holding = sum.extend({
  partyId: z.string(),
  assetId: z.string().nullable(),
  /** Everything before this instant is in the sum; RFC 3339. */
  closedTo: z.string(),
});
const schema = z.object({
  format: z.literal(1),
  program: z.string(),
  runId: z.uuid(),
  subject: z.string(),
  startedAt: z.string(),
  /** The instant that the sums are of. */
  heldAt: z.string(),
  warehouseId: z.uuid(),
  sourceUrl: z.string().nullable(),
  verdict: z.enum(['complete', 'incomplete', 'suspicious', 'failed']),
  covers: z.record(z.string(), z.unknown()),
  lists: z.object({ parties: sum, checkpoints: sum }),
  ledgers: sum.extend({ segments: z.string() }),
  /**
   * Of each ledger whose segments changed since the report before: all of its closed
   * segments.
   */
  changed: z.array(holding),
  openDoubts: z.array(z.record(z.string(), z.unknown())),
  knownGaps: z.array(z.record(z.string(), z.unknown())),
  evidence: z.record(z.string(), z.unknown()),
  /** The key of the report before; null in the first. */
  previous: z.string().nullable(),
});

export type NightlyReport = z.output<typeof schema>;
export type Holding = z.output<typeof holding>;
export type RowSum = z.output<typeof sum>;
export type ReportSource = Readonly<{
  objects: ObjectStore;
  signal: AbortSignal;
}>;

/**
 * `runs/20230510T020000Z.<run id>.json`
 * @param delivery for a report that replaces the one of an earlier delivery of the same
 *   run. Its key sorts before that one's, so that a database that is rebuilt takes the
 *   run's last word.
 */
export function reportKey(
  { runId, startedAt, queuedAt }: Run,
  delivery?: number,
): string {
  const start = new Date(startedAt ?? queuedAt)
    .toISOString()
    .replaceAll(/[-:]|\.\d+/g, '');
  const suffix = delivery === undefined ? '' : `.${delivery}`;
  return `${REPORTS_PREFIX}${start}.${runId}${suffix}.json`;
}

/** @throws PermanentError `REPORT_INVALID` */
export function decodeReport(
  content: Buffer | string,
  where: string,
): NightlyReport {
  try {
    return schema.parse(JSON.parse(content.toString('utf8')));
  } catch (error) {
    const message = `Cannot read the report ${where}: it is no report of a nightly run`;
    throw new PermanentError(message, {
      code: 'REPORT_INVALID',
      meta: { where },
      cause: error,
    });
  }
}

/** @throws PermanentError `OBJECT_MISSING` or `REPORT_INVALID` */
export async function readReport(
  key: string,
  { objects, signal }: ReportSource,
): Promise<NightlyReport> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of (await objects.read(
    key,
    signal,
  )) as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > REPORT_BYTES_MAX) break;
    chunks.push(chunk);
  }
  return decodeReport(Buffer.concat(chunks), key);
}
