/**
 * Reads a block of whole rows, and finds out which of them were requested, what they
 * sum to, and where in the block they are. It keeps no state between blocks, so any
 * thread can read any block. The findings of the blocks add up to those of the whole
 * response.
 */
import { hashRow, RowSum } from '../../ledger/digest.ts';
import type { Layout } from '../../ledger/header.ts';
import { RowSplitter } from '../../ledger/csv-rows.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import { RowFilter, type UnreadableRow } from '../../ledger/row-filter.ts';

/** A range in seconds; `to` is exclusive. Either may be infinite. */
export interface Seconds {
  readonly from: number;
  readonly to: number;
}

/**
 * The request that the rows of a response are checked against. Plain data, so that it
 * can be sent to a thread.
 */
export interface RowQuestion {
  readonly scope: ExportScope;
  readonly layout: Layout;
  /**
   * The requested range. Rows of the party from outside this range show that the source
   * does not apply the bounds.
   */
  readonly asked: Seconds;
  /** The range of the rows to keep. Rows outside it are only counted. */
  readonly kept: Seconds;
  /**
   * Boundaries between sums, in seconds and ascending. The rows between two
   * neighbouring boundaries are summed separately.
   */
  readonly borders: readonly number[];
  /**
   * The end of the tail, in seconds. The rows of the newest second before it also get a
   * sum of their own.
   */
  readonly tailEnd: number | undefined;
}

/** The sums of a block's rows. Those of all blocks add up to those of the response. */
export type BlockFindings = ReturnType<BlockReader['findings']>;
/** The sums of the rows between two boundaries. */
export type SpanFindings = BlockFindings['spans'][number];
/** The first row that could not be parsed. The rows after it were not read. */
export type UnreadRow = NonNullable<BlockFindings['unread']>;

/** Reads a block. @param block whole rows, with their line breaks */
export function readBlock(question: RowQuestion, block: Buffer): BlockFindings {
  const reader = new BlockReader(question);
  new RowSplitter((buffer, start, end, next) => {
    // A blank line is not a row; gateways add some between their messages.
    if (end > start) reader.row(buffer, start, end, next);
  }).push(block);
  return reader.findings();
}

/**
 * Returns empty sums for the rows between two boundaries; `from` is -Infinity before
 * the first one.
 */
function newSpan(
  index: number,
  from = Number.NEGATIVE_INFINITY,
  to = Number.POSITIVE_INFINITY,
) {
  return {
    from,
    to,
    index,
    sum: new RowSum(),
    bytes: 0,
    /** The seconds of the earliest and the latest row. */
    earliest: Number.POSITIVE_INFINITY,
    latest: Number.NEGATIVE_INFINITY,
    /** The number of rows that are movements out of one of the party's accounts. */
    fromRows: 0,
    bytesBySecond: new BytesBySecond(),
  };
}
type Span = ReturnType<typeof newSpan>;

class BlockReader {
  readonly #question: RowQuestion;
  readonly #filter: RowFilter;
  readonly #spans: Span[] = [];
  /** The span of the previous row. */
  #span: Span | undefined;
  /**
   * Flat list of triples in row order: the index of a span, and the start and end
   * offsets of a run of consecutive rows of that span.
   */
  readonly #runs: number[] = [];
  readonly #found = {
    /** The number of rows before the first row that could not be parsed. */
    rows: 0,
    /** Number of rows that do not match the request, by reason. */
    leftOut: { party: 0, asset: 0, range: 0 },
    farOutside: 0,
    /**
     * The number of kept rows that are movements from one of the party's accounts to
     * another party's account.
     */
    leaving: 0,
    /** The second of the newest of these movements. */
    leavingSecond: Number.NEGATIVE_INFINITY,
    /** The second of the first row, kept or not; NaN if there are no rows. */
    firstSecond: Number.NaN,
    lastSecond: Number.NaN,
    isSorted: true,
  };
  /** The sum of the rows in the newest second of the tail. */
  #newestSum = new RowSum();
  #newestSecond = Number.NEGATIVE_INFINITY;
  #unread:
    | {
        readonly finding: UnreadableRow;
        /** The column of the offending value, if a single value is at fault. */
        readonly column: string | undefined;
        readonly fieldCount: number;
        /** Where the row is in the block; `end` excludes the line break. */
        readonly start: number;
        readonly end: number;
      }
    | undefined;

  constructor(question: RowQuestion) {
    this.#question = question;
    this.#filter = new RowFilter(question.scope, question.layout);
  }

  row(buffer: Buffer, start: number, end: number, next: number): void {
    if (this.#unread !== undefined) return;
    const filter = this.#filter;
    const finding = filter.check(buffer, start, end);
    if (finding !== 'ok' && finding !== 'party' && finding !== 'asset') {
      this.#unread = {
        finding,
        column: filter.column,
        fieldCount: filter.fields.count,
        start,
        end,
      };
      return;
    }
    const { second } = filter.time;
    if (!this.#count(finding, second)) return;
    if (filter.leaves) {
      this.#found.leaving += 1;
      if (second > this.#found.leavingSecond)
        this.#found.leavingSecond = second;
    }
    this.#keep(buffer, start, end, next);
  }

  findings() {
    const newest = { second: this.#newestSecond, sum: this.#newestSum.plain() };
    return {
      ...this.#found,
      spans: this.#spans.map(
        ({ from, sum, bytes, earliest, latest, fromRows, bytesBySecond }) => ({
          from,
          sum: sum.plain(),
          bytes,
          earliest,
          latest,
          fromRows,
          bytesBySecond: bytesBySecond.pairs(),
        }),
      ),
      runs: new Float64Array(this.#runs),
      newest: newest.sum.rows === 0 ? undefined : newest,
      unread: this.#unread,
    };
  }

  /** Counts a row. @returns whether it is kept */
  #count(finding: 'ok' | 'party' | 'asset', second: number): boolean {
    const found = this.#found;
    found.rows += 1;
    if (second < found.lastSecond) found.isSorted = false;
    if (Number.isNaN(found.firstSecond)) found.firstSecond = second;
    found.lastSecond = second;
    const { asked, kept } = this.#question;
    if (finding !== 'party' && (second < asked.from || second >= asked.to))
      found.farOutside += 1;
    const isKept = second >= kept.from && second < kept.to;
    if (finding !== 'ok') found.leftOut[finding] += 1;
    else if (!isKept) found.leftOut.range += 1;
    return finding === 'ok' && isKept;
  }

  #keep(buffer: Buffer, start: number, end: number, next: number): void {
    const { second, zoneSeconds } = this.#filter.time;
    const span = this.#spanOf(second);
    const hash = hashRow(buffer, start, end);
    span.sum.add(hash, zoneSeconds);
    span.bytes += next - start;
    if (second < span.earliest) span.earliest = second;
    if (second > span.latest) span.latest = second;
    if (this.#filter.isFrom) span.fromRows += 1;
    span.bytesBySecond.add(second, next - start);
    const runs = this.#runs;
    if (runs.at(-1) === start && runs.at(-3) === span.index)
      runs[runs.length - 1] = next;
    else runs.push(span.index, start, next);
    const { tailEnd } = this.#question;
    if (
      tailEnd === undefined ||
      second < this.#newestSecond ||
      second >= tailEnd
    )
      return;
    if (second > this.#newestSecond) this.#newestSum = new RowSum();
    this.#newestSecond = second;
    this.#newestSum.add(hash, zoneSeconds);
  }

  #spanOf(second: number): Span {
    const isOf = ({ from, to }: Span): boolean => second >= from && second < to;
    if (this.#span !== undefined && isOf(this.#span)) return this.#span;
    this.#span = this.#spans.find(isOf);
    if (this.#span !== undefined) return this.#span;
    const { borders } = this.#question;
    const from = borders.findLast((border) => border <= second);
    const to = borders.find((border) => border > second);
    this.#span = newSpan(this.#spans.length, from, to);
    this.#spans.push(this.#span);
    return this.#span;
  }
}

/** Adds up the bytes of rows by their second. */
class BytesBySecond {
  readonly #sums = new Map<number, number>();
  /** The sum of the last second, which is not in the map yet: rows often share it. */
  #second = Number.NaN;
  #bytes = 0;

  add(second: number, bytes: number): void {
    if (second !== this.#second) {
      this.#close();
      this.#second = second;
    }
    this.#bytes += bytes;
  }

  /** Returns a flat list of `second, bytes` pairs, one pair for each second. */
  pairs(): Float64Array<ArrayBuffer> {
    this.#close();
    const pairs = new Float64Array(2 * this.#sums.size);
    let at = 0;
    for (const [second, bytes] of this.#sums) {
      pairs[at] = second;
      pairs[at + 1] = bytes;
      at += 2;
    }
    return pairs;
  }

  #close(): void {
    if (this.#bytes === 0) return;
    const sum = this.#sums.get(this.#second) ?? 0;
    this.#sums.set(this.#second, sum + this.#bytes);
    this.#bytes = 0;
  }
}
