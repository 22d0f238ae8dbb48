/**
 * What is left of a known segment when an answer takes the place of a part of it: its rows outside of that part,
 * read from the store and written anew. The source is not asked.
 */
import { errorCode, errorLine, RetryableError } from '../../core/errors.ts';
import type { Layout } from '../../ledger/header.ts';
import { type Compression, compressionOf } from '../../ledger/objects/object-keys.ts';
import { plainStream } from '../../ledger/objects/plain-stream.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Range } from '../plan/ranges.ts';
import type { Trim } from '../plan/remaining.ts';
import type { Coverage } from '../ports.ts';
import { type Spooled, SpoolWriter, Tally } from '../spool/spool-writer.ts';
import { secondOf } from '../validate/tail.ts';
import { StoredRows, type StoredTarget } from './stored-rows.ts';

export interface TrimContext {
  readonly objects: ObjectStore;
  readonly compression: Compression;
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
  readonly signal: AbortSignal;
  /** Told of an object that does not hold what was published. */
  readonly onUnreadable: (objectKey: string, message: string) => Promise<void>;
}

interface Target extends StoredTarget {
  readonly range: Range;
  writer: SpoolWriter | undefined;
}

/** A range that is kept, with its rows where it has any. */
export interface Kept {
  readonly row: Coverage;
  readonly range: Range;
  readonly written: { readonly spooled: Spooled; readonly layout: Layout } | undefined;
}

/**
 * @throws RetryableError `SEGMENT_UNREADABLE` where the object does not hold what is known of it: then all of its
 *   range is to be asked for
 */
export async function trimmed(trims: readonly Trim[], context: TrimContext): Promise<readonly Kept[]> {
  const kept: Kept[] = [];
  for (const { row, keeps } of trims) {
    if (row.objectKey === undefined) kept.push(...keeps.map((range) => ({ row, range, written: undefined })));
    else kept.push(...(await readable(row, row.objectKey, keeps, context)));
  }
  return kept;
}

async function readable(
  row: Coverage,
  objectKey: string,
  keeps: readonly Range[],
  context: TrimContext,
): Promise<Kept[]> {
  try {
    return await rewritten(row, objectKey, keeps, context);
  } catch (error) {
    context.signal.throwIfAborted();
    const code = errorCode(error);
    if (code !== 'SEGMENT_UNREADABLE' && code !== 'OBJECT_MISSING' && !/^(?:ZSTD_|Z_)/.test(code))
      throw error;
    await context.onUnreadable(objectKey, errorLine(error));
    throw unreadable(objectKey, error);
  }
}

function unreadable(objectKey: string, cause?: unknown): RetryableError {
  return new RetryableError(
    `Cannot keep a part of ${objectKey}: it does not hold what was published; its range is asked for again`,
    { code: 'SEGMENT_UNREADABLE', meta: { key: objectKey }, cause },
  );
}

async function rewritten(
  row: Coverage,
  objectKey: string,
  keeps: readonly Range[],
  { objects, compression, spoolFile, signal }: TrimContext,
): Promise<Kept[]> {
  await using writers = new AsyncDisposableStack();
  const targets = keeps.map((range): Target => {
    const [from, to] = [secondOf(range.from), secondOf(range.to)];
    return { range, from, to, tally: new Tally(), writer: undefined, pending: [] };
  });
  const reading = new StoredRows(targets);
  const stored = await objects.read(objectKey, signal);
  for await (const chunk of plainStream(stored, compressionOf(objectKey))) {
    reading.push(chunk as Buffer);
    for (const target of targets) {
      if (target.pending.length === 0) continue;
      target.writer ??= writers.use(
        await SpoolWriter.create(await spoolFile(), reading.header, compression, target.tally),
      );
      await target.writer.writeJoined(target.pending.splice(0));
    }
  }
  if (reading.sum.rows !== Number(row.rows) || reading.sum.hex() !== row.content?.digest) {
    throw unreadable(objectKey);
  }
  const kept: Kept[] = [];
  for (const { range, writer } of targets) {
    const spooled = await writer?.finish();
    const written = spooled === undefined ? undefined : { spooled, layout: reading.layout };
    kept.push({ row, range, written });
  }
  return kept;
}
