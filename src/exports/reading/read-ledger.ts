/**
 * Reads a party's mirrored ledger back from the published objects, as one CSV. A
 * segment that lies entirely inside the query is passed on unchanged, unless its columns
 * differ from those of the response. If the query covers only part of a segment, by range
 * or by asset, its rows are parsed and filtered, and only the frames that can hold the
 * range are read. Segments outside the range are never opened.
 */
import { createHash } from 'node:crypto';
import { PermanentError } from '../../errors/errors.ts';
import { type Micros, SECOND_MICROS } from '../../time/time.ts';
import type { CoverageReader } from '../store/export-repository.ts';
import { RowFilter } from '../../ledger/row-filter.ts';
import { withColumns } from '../../ledger/common-columns.ts';
import { layoutOf } from '../../ledger/header.ts';
import { compressionOf, plainStream } from '../../ledger/object-keys.ts';
import { RowSplitter } from '../../ledger/csv-rows.ts';
import type { ObjectStore, StoredRange } from '../../storage/object-store.ts';
import { findStoredParts } from './stored-parts.ts';
import type { LedgerQuery } from '../../ledger/ledger-range.ts';
import {
  planReading,
  type ReadingFacts,
  type ReadingPlan,
  type ReadSegment,
  refuseMissing,
} from './plan-reading.ts';

const LINE_FEED = 0x0a;
const ETAG_CHARACTERS = 32;

export interface ReaderDeps {
  readonly exports: CoverageReader;
  readonly readFacts: () => Promise<ReadingFacts>;
  readonly objects: Pick<ObjectStore, 'read'>;
}

/** A ledger, or part of it, that can be read. */
export interface LedgerReading extends Pick<
  ReadingPlan,
  'knownFrom' | 'knownTo' | 'provenTo' | 'missing'
> {
  /** Identifies the content of the response: equal tags mean equal bytes. */
  readonly tag: string;
  /**
   * Returns the size of the CSV in bytes. It is computed from the recorded sizes of the
   * segments that are passed on unchanged; the other segments are read to measure them.
   */
  measure(): Promise<bigint>;
  /**
   * Yields the plain CSV: one header line, then the source's lines, unchanged, that
   * match the query. Ending the iteration early releases everything.
   * @param start the number of bytes to skip at the beginning
   */
  rows(start?: bigint): AsyncGenerator<Buffer>;
}

/**
 * Opens the known part of a ledger.
 * @param signal aborting it releases everything
 * @throws PermanentError `LEDGER_NOT_MIRRORED` if the ledger was never exported, or if
 *   part of the range is missing and the query does not accept a partial response: an
 *   empty one would read as "no entries". `meta` has `knownFrom` and `knownTo`
 */
export async function openLedger(
  { exports, readFacts, objects }: ReaderDeps,
  question: LedgerQuery,
  signal: AbortSignal,
): Promise<LedgerReading> {
  const { partyId, assetId, isPartial } = question;
  const coverage = await exports.coverage({ partyId, assetId });
  const plan = planReading(question, coverage, await readFacts());
  if (isPartial !== true) refuseMissing(question, plan);
  const reader = new SegmentReader({ partyId, assetId }, plan, objects, signal);
  const { knownFrom, knownTo, provenTo, missing } = plan;
  const tag = tagOf(question, plan);
  return {
    knownFrom,
    knownTo,
    provenTo,
    missing,
    tag,
    measure: () => reader.measure(),
    rows: (start = 0n) => reader.rows(start),
  };
}

function tagOf(
  { partyId, assetId }: LedgerQuery,
  { segments, columns, from, to }: ReadingPlan,
): string {
  // Only boundaries that fall inside a segment change the exported bytes.
  const parts = segments.map((segment) => [
    segment.objectKey,
    segment.content.digest,
    segment.from < from ? String(from) : '',
    segment.to > to ? String(to) : '',
  ]);
  const text = JSON.stringify([partyId, assetId, columns, parts]);
  return createHash('sha256')
    .update(text)
    .digest('hex')
    .slice(0, ETAG_CHARACTERS);
}

/** Reads the rows of a plan's segments, starting at any byte of the response. */
class SegmentReader {
  readonly #scope: Pick<LedgerQuery, 'partyId' | 'assetId'>;
  readonly #plan: ReadingPlan;
  readonly #objects: ReaderDeps['objects'];
  readonly #signal: AbortSignal;
  readonly #header: Buffer;
  /** Sizes in bytes of the rows of each segment measured so far. */
  readonly #sizes = new Map<ReadSegment, bigint>();
  readonly #parts = new Map<
    ReadSegment,
    Promise<readonly StoredRange[] | undefined>
  >();
  /** Sizes of the stored header lines in bytes, by the row form of the segment. */
  readonly #headerSizes = new Map<string, number>();

  constructor(
    scope: Pick<LedgerQuery, 'partyId' | 'assetId'>,
    plan: ReadingPlan,
    objects: ReaderDeps['objects'],
    signal: AbortSignal,
  ) {
    this.#scope = scope;
    this.#plan = plan;
    this.#objects = objects;
    this.#signal = signal;
    this.#header = Buffer.from(`${plan.columns.join(',')}\n`);
  }

  async measure(): Promise<bigint> {
    let total = BigInt(this.#header.length);
    for (const segment of this.#plan.segments) {
      const size =
        this.#sizes.get(segment) ?? (await this.#measureSegment(segment));
      this.#sizes.set(segment, size);
      total += size;
    }
    return total;
  }

  async *rows(start: bigint): AsyncGenerator<Buffer> {
    // The header is held back until the first rows have been read, because until then a
    // failure can still be reported through the HTTP status.
    let header = this.#header.subarray(clamp(start, this.#header.length));
    let left = start - BigInt(this.#header.length);
    for (const segment of this.#plan.segments) {
      const size = this.#sizes.get(segment);
      if (size !== undefined && left >= size) {
        left -= size;
        continue;
      }
      for await (const chunk of this.#rowsOf(segment)) {
        const skipped = clamp(left, chunk.length);
        left -= BigInt(chunk.length);
        if (skipped === chunk.length) continue;
        const rest = chunk.subarray(skipped);
        yield header.length > 0 ? Buffer.concat([header, rest]) : rest;
        header = Buffer.alloc(0);
      }
    }
    if (header.length > 0) yield header;
  }

  async #measureSegment(segment: ReadSegment): Promise<bigint> {
    if (this.#isPassedOn(segment)) {
      const { bytes } = segment.content;
      return bytes - BigInt(await this.#headerSize(segment));
    }
    let size = 0n;
    for await (const chunk of this.#rowsOf(segment))
      size += BigInt(chunk.length);
    return size;
  }

  /** Whether all rows of a segment are sent unchanged. */
  #isPassedOn(segment: ReadSegment): boolean {
    return this.#isWhole(segment) && this.#hasColumns(segment);
  }

  #isWhole(segment: ReadSegment): boolean {
    const { assetId } = this.#scope;
    return (
      this.#isInTime(segment) &&
      (assetId === undefined || segment.assetId === assetId)
    );
  }

  #isInTime({ from, to }: ReadSegment): boolean {
    return this.#plan.from <= from && to <= this.#plan.to;
  }

  #hasColumns({ content }: ReadSegment): boolean {
    return content.columns.join() === this.#plan.columns.join();
  }

  /**
   * Returns the size of a segment's header line in bytes. The line is stored as the
   * source sent it, and may be longer than the column names. All segments with the same
   * row form have the same line.
   */
  async #headerSize(segment: ReadSegment): Promise<number> {
    const { rowForm } = segment.content;
    const known = this.#headerSizes.get(rowForm);
    if (known !== undefined) return known;
    let size = 0;
    for await (const chunk of this.#plain(segment)) {
      const end = chunk.indexOf(LINE_FEED);
      size += end === -1 ? chunk.length : end + 1;
      if (end !== -1) break;
    }
    this.#headerSizes.set(rowForm, size);
    return size;
  }

  async *#rowsOf(segment: ReadSegment): AsyncGenerator<Buffer> {
    const parts = await this.#partsOf(segment);
    const chunks = parts
      ? this.#rowsOfParts(segment, parts)
      : this.#withoutHeader(segment);
    const kept = this.#isWhole(segment) ? chunks : this.#kept(chunks, segment);
    yield* this.#hasColumns(segment)
      ? kept
      : withColumns(kept, segment.content.columns, this.#plan.columns);
  }

  /**
   * Returns the parts of a segment's object that hold the query's range; undefined if
   * the object is read whole.
   */
  async #partsOf(
    segment: ReadSegment,
  ): Promise<readonly StoredRange[] | undefined> {
    if (this.#isInTime(segment)) return undefined;
    const { objectKey, content } = segment;
    const found =
      this.#parts.get(segment) ??
      findStoredParts(
        { objectKey, plainBytes: content.bytes },
        this.#plan,
        this.#objects,
        this.#signal,
      );
    this.#parts.set(segment, found);
    return await found;
  }

  /** Yields the rows of some parts of a segment's object, without the header line. */
  async *#rowsOfParts(
    segment: ReadSegment,
    parts: readonly StoredRange[],
  ): AsyncGenerator<Buffer> {
    for (const part of parts) {
      // The header is at the beginning of the object.
      if (part.start === 0n) yield* this.#withoutHeader(segment, part);
      else yield* this.#plain(segment, part);
    }
  }

  async *#plain(
    { objectKey }: ReadSegment,
    part?: StoredRange,
  ): AsyncGenerator<Buffer> {
    const stored = await this.#objects.read(objectKey, this.#signal, part);
    const plain = plainStream(stored, compressionOf(objectKey));
    try {
      yield* plain as AsyncIterable<Buffer>;
    } finally {
      plain.destroy();
      stored.destroy();
    }
  }

  /**
   * Yields a segment's rows without the header line.
   * @throws PermanentError `LEDGER_SIZE` if the header line does not have the measured
   *   length
   */
  async *#withoutHeader(
    segment: ReadSegment,
    part?: StoredRange,
  ): AsyncGenerator<Buffer> {
    const isMeasured = this.#sizes.has(segment) && this.#isPassedOn(segment);
    const measured = isMeasured
      ? this.#headerSizes.get(segment.content.rowForm)
      : undefined;
    let headerSize = 0;
    let isHeader = true;
    for await (const chunk of this.#plain(segment, part)) {
      // Column names contain no line breaks, so the first line break ends the header.
      const start = isHeader ? chunk.indexOf(LINE_FEED) + 1 : 0;
      if (isHeader) headerSize += start === 0 ? chunk.length : start;
      if (isHeader && start === 0) continue;
      if (isHeader && measured !== undefined && measured !== headerSize)
        throw new PermanentError(
          `Cannot send the ledger of ${this.#scope.partyId}: the header of ` +
            `${segment.objectKey} has ${headerSize} bytes, that of its kind ${measured}`,
          { code: 'LEDGER_SIZE', meta: { objectKey: segment.objectKey } },
        );
      isHeader = false;
      if (start < chunk.length) yield chunk.subarray(start);
    }
  }

  async *#kept(
    chunks: AsyncIterable<Buffer>,
    segment: ReadSegment,
  ): AsyncGenerator<Buffer> {
    const filter = new RowFilter(
      this.#scope,
      layoutOf(segment.content.columns),
      false,
    );
    const fromSecond = toSeconds(this.#plan.from);
    const toSecond = toSeconds(this.#plan.to);
    const isKept = (buffer: Buffer, start: number, end: number): boolean =>
      filter.check(buffer, start, end) === 'ok' &&
      filter.time.second >= fromSecond &&
      filter.time.second < toSecond;
    // Neighbouring rows of a buffer share one slice.
    const kept: { buffer: Buffer; start: number; end: number }[] = [];
    const splitter = new RowSplitter((buffer, start, end, next) => {
      if (!isKept(buffer, start, end)) return;
      const last = kept.at(-1);
      if (last?.buffer === buffer && last.end === start) last.end = next;
      else kept.push({ buffer, start, end: next });
    });
    for await (const chunk of chunks) {
      splitter.push(chunk);
      for (const { buffer, start, end } of kept.splice(0))
        yield buffer.subarray(start, end);
    }
  }
}

/**
 * Converts a boundary to seconds. Boundaries are whole seconds, which a double
 * represents exactly for every possible time.
 */
function toSeconds(instant: Micros): number {
  return Number(instant / SECOND_MICROS);
}

/** Returns `value` as a number, clamped to the range from 0 to `max`. */
function clamp(value: bigint, max: number): number {
  if (value <= 0n) return 0;
  return value >= BigInt(max) ? max : Number(value);
}
