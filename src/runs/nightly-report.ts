/**
 * The report of a nightly run: what the mirror contained when the run ended, as sums that
 * can be compared later. It is kept in the object store, so that the store's contents can
 * be checked without a database. It is published once, in one piece, and never
 * overwritten.
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
  /** The sum covers everything before this instant (RFC 3339). */
  closedTo: z.string(),
});
const schema = z.object({
  format: z.literal(1),
  program: z.string(),
  runId: z.uuid(),
  subject: z.string(),
  startedAt: z.string(),
  /** The instant at which the sums were taken. */
  heldAt: z.string(),
  warehouseId: z.uuid(),
  sourceUrl: z.string().nullable(),
  verdict: z.enum(['complete', 'incomplete', 'suspicious', 'failed']),
  covers: z.record(z.string(), z.unknown()),
  lists: z.object({ parties: sum, checkpoints: sum }),
  ledgers: sum.extend({ segments: z.string() }),
  /**
   * One entry for each ledger whose segments changed since the previous report. It sums
   * all closed segments of that ledger.
   */
  changed: z.array(holding),
  openDoubts: z.array(z.record(z.string(), z.unknown())),
  knownGaps: z.array(z.record(z.string(), z.unknown())),
  evidence: z.record(z.string(), z.unknown()),
  /** The key of the previous report; null in the first one. */
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
 * Returns the key of a report: `runs/20230510T020000Z.<run id>.json`
 * @param delivery set for a report that replaces one from an earlier delivery of the same
 *   run. Its key sorts before the earlier key, so that a rebuilt database picks up the
 *   run's final verdict.
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
    const message = `Cannot read the report ${where}: it is not the report of a nightly run`;
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
