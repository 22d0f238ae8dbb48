/**
 * Reads a block of whole rows: which of them are what was asked for, how they add up, and
 * where they lie. It keeps nothing from one block to the next, so that any thread can
 * read any block, and what is found in the blocks of an answer adds up to what is in the
 * answer.
 */
import { hashRow, RowSum } from '../../ledger/digest.ts';
import type { Layout } from '../../ledger/header.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import { RowFilter, type UnreadableRow } from '../../ledger/row-filter.ts';

/** In seconds, `to` exclusive; either may be infinite. */
export interface Seconds {
  readonly from: number;
  readonly to: number;
}

/** What the rows of an answer are held against. Plain data. */
export interface RowQuestion {
  readonly scope: ExportScope;
  readonly layout: Layout;
  /** Rows of the party that lie outside of it show that bounds are not applied. */
  readonly asked: Seconds;
  /** Rows outside of it are counted, and no more. */
  readonly kept: Seconds;
  /**
   * Ascending. The rows between two of them are summed together, and apart from others.
   */
  readonly borders: readonly number[];
  /** The rows of the newest second before this one are summed by themselves, too. */
  readonly tailEnd: number | undefined;
}

/**
 * Rows of an answer's block, added up; what is found in the blocks of an answer adds up
 * to what is in it.
 */
export type BlockFindings = ReturnType<BlockReader['findings']>;
/** What is found in the rows between two borders. */
export type SpanFindings = BlockFindings['spans'][number];
/** The first row that is not understood: nothing behind it was read. */
export type UnreadRow = NonNullable<BlockFindings['unread']>;

/** @param block whole rows, with their line ends */
export function readBlock(question: RowQuestion, block: Buffer): BlockFindings {
  const reader = new BlockReader(question);
  new RowSplitter((buffer, start, end, next) => {
    // A blank line is not a row; gateways add some between their messages.
    if (end > start) reader.row(buffer, start, end, next);
  }).push(block);
  return reader.findings();
}

/** Sums of the rows between two borders; `from` is -Infinity before the first border. */
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
    /** How many of the rows are out of an account of the party. */
    fromRows: 0,
    /**
     * Pairs in the order of the rows: a second, and the bytes of the rows in it that
     * follow one another.
     */
    bytesBySecond: [] as number[],
  };
}
type Span = ReturnType<typeof newSpan>;

class BlockReader {
  readonly #question: RowQuestion;
  readonly #filter: RowFilter;
  readonly #spans: Span[] = [];
  /** The span of the row before. */
  #span: Span | undefined;
  /**
   * Triples in the order of the rows: the number of a span, and where a run of its rows
   * lies.
   */
  readonly #runs: number[] = [];
  readonly #found = {
    /** All rows but the one that is not understood and what follows it. */
    rows: 0,
    /** Rows that were not asked for. */
    leftOut: { party: 0, asset: 0, range: 0 },
    farOutside: 0,
    /** Rows in the range that left the party, and the second of the newest. */
    leaving: 0,
    leavingSecond: Number.NEGATIVE_INFINITY,
    /** The first second of all rows, kept or not; NaN if there are no rows. */
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
        /** The column of the offending value, if it is one value. */
        readonly column: string | undefined;
        readonly fieldCount: number;
        /** In the block; the end without the line end. */
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
        ({ from, sum, bytes, fromRows, bytesBySecond }) => ({
          from,
          sum: sum.plain(),
          bytes,
          fromRows,
          bytesBySecond: new Float64Array(bytesBySecond),
        }),
      ),
      runs: new Float64Array(this.#runs),
      newest: newest.sum.rows === 0 ? undefined : newest,
      unread: this.#unread,
    };
  }

  /** @returns whether the row is to be kept */
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
    if (this.#filter.isFrom) span.fromRows += 1;
    addBytes(span.bytesBySecond, second, next - start);
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

/** @param pairs of a second and the bytes in it */
function addBytes(pairs: number[], second: number, bytes: number): void {
  const last = pairs.length - 1;
  if (pairs[last - 1] === second) pairs[last] = (pairs[last] ?? 0) + bytes;
  else pairs.push(second, bytes);
}
