/**
 * Adds up the findings of a response's blocks, and writes the rows to one spool file
 * per range. Each range of the plan becomes one object.
 */
import type { Micros } from '../../time/time.ts';
import { RowSum } from '../../ledger/digest.ts';
import { instantOf, secondOf } from '../../ledger/ranges.ts';
import type { RequestPlan } from '../planning/remaining.ts';
import { TimeHistogram } from '../planning/time-histogram.ts';
import type { StreamSeen } from '../planning/window-plan.ts';
import type { BlockFindings, SpanFindings } from './block-reader.ts';
import type { TailSum } from '../../ledger/tail-sum.ts';
import { RangeSpool, type Spooled, type SpoolOptions } from './range-spool.ts';

/**
 * A range of the plan with the rows that were received for it. If `spooled` is
 * undefined, the range has no entries.
 */
export interface ReceivedSegment {
  readonly from: Micros;
  /** The end, exclusive; undefined for the open part of a plan without an end. */
  readonly to: Micros | undefined;
  readonly open: boolean;
  readonly spooled: Spooled | undefined;
}

type Part = Readonly<{
  range: Omit<ReceivedSegment, 'spooled'>;
  spool: RangeSpool;
}>;

export interface AnswerRowsOptions extends SpoolOptions {
  /** Maximum number of bytes that the continuation of a window may request again. */
  readonly tailBytesMax: number;
}

export class AnswerRows implements AsyncDisposable {
  readonly totals = {
    rows: 0,
    /** The number of rows between the parts, all of which are already known. */
    known: 0,
    /**
     * The sum of the rows before the first part. `beforeFrom` counts the movements out
     * of one of the party's accounts among them.
     */
    before: new RowSum(),
    beforeFrom: 0,
    /** Number of rows that do not match the request, by reason. */
    leftOut: { party: 0n, asset: 0n, range: 0n },
    farOutside: 0,
    leaving: 0,
    leavingSecond: undefined as number | undefined,
    /** The newest second of the rows in the parts. */
    newestSecond: undefined as number | undefined,
    oldestSecond: undefined as number | undefined,
  };
  readonly tail: ReturnType<typeof openTail> | undefined;
  readonly #parts: readonly Part[];
  /** The bytes of the closed ranges, by time. */
  readonly #histogram = new TimeHistogram();
  #lastSecond = Number.NEGATIVE_INFINITY;
  #isSorted = true;

  constructor(
    { closed, open, question, isWindow }: RequestPlan,
    options: AnswerRowsOptions,
  ) {
    const closedEnd = closed.at(-1)?.to;
    if (closedEnd !== undefined)
      this.tail = openTail(
        question.from ?? 0n,
        closedEnd,
        isWindow ? options.tailBytesMax : undefined,
      );
    const ranges: Part['range'][] = closed.map((range) => ({
      ...range,
      open: false,
    }));
    if (open !== undefined)
      ranges.push({ from: open.from, to: open.to, open: true });
    this.#parts = ranges.map((range) => {
      const to = range.to === undefined ? Infinity : secondOf(range.to);
      return {
        range,
        spool: new RangeSpool(secondOf(range.from), to, options),
      };
    });
  }

  /** The boundaries, in seconds, between rows that are summed separately. */
  get borders(): number[] {
    return [
      ...this.#parts.flatMap(({ spool }) => [spool.from, spool.to]),
      ...(this.tail === undefined ? [] : [this.tail.from, this.tail.end]),
    ];
  }

  /**
   * Returns the bytes of the closed ranges by time. If the rows were sorted by time,
   * also returns their last second.
   */
  seen(): Omit<StreamSeen, 'bytes'> {
    const isSorted = this.#isSorted && Number.isFinite(this.#lastSecond);
    return {
      stretches: this.#histogram.stretches(),
      sortedTo: isSorted ? this.#lastSecond : undefined,
    };
  }

  /**
   * Adds a block's findings. Blocks must be added in the order in which they were
   * received.
   */
  add(findings: BlockFindings): void {
    const { leftOut, leaving, leavingSecond } = findings;
    const { totals } = this;
    totals.rows += findings.rows;
    for (const why of ['party', 'asset', 'range'] as const)
      totals.leftOut[why] += BigInt(leftOut[why]);
    totals.farOutside += findings.farOutside;
    totals.leaving += leaving;
    if (leaving > 0)
      totals.leavingSecond = Math.max(
        leavingSecond,
        totals.leavingSecond ?? leavingSecond,
      );
    if (!findings.isSorted || findings.firstSecond < this.#lastSecond)
      this.#isSorted = false;
    if (findings.rows > 0) this.#lastSecond = findings.lastSecond;
    this.tail?.add(findings.spans, findings.newest);
    for (const span of findings.spans) this.#addSpan(span);
  }

  /**
   * Writes a block's rows to the spool files of their ranges. Resolves when the block can
   * be reused.
   */
  write(
    header: Buffer,
    block: Buffer,
    { spans, runs }: BlockFindings,
  ): Promise<unknown> {
    const parts = spans.map((span) => this.#partOf(span));
    for (let at = 0; at < runs.length; at += 3) {
      const index = runs[at] ?? 0;
      const span = spans[index];
      if (span !== undefined)
        parts[index]?.spool.add(
          block.subarray(runs[at + 1], runs[at + 2]),
          span,
        );
    }
    return Promise.all(this.#parts.map(({ spool }) => spool.flush(header)));
  }

  async finish(): Promise<ReceivedSegment[]> {
    return Promise.all(
      this.#parts.map(async ({ range, spool }) => ({
        ...range,
        spooled: await spool.finish(),
      })),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { spool } of this.#parts) await spool[Symbol.asyncDispose]();
  }

  #addSpan(span: SpanFindings): void {
    const { from, sum, earliest, latest, bytesBySecond } = span;
    const part = this.#partOf(span);
    if (part === undefined) {
      this.#addOther(span);
      return;
    }
    part.spool.sum.merge(sum);
    const { totals } = this;
    totals.newestSecond = Math.max(latest, totals.newestSecond ?? latest);
    totals.oldestSecond = Math.min(earliest, totals.oldestSecond ?? earliest);
    if (part.range.open) return;
    for (let at = 0; at < bytesBySecond.length; at += 2)
      this.#histogram.add(
        bytesBySecond[at] ?? from,
        bytesBySecond[at + 1] ?? 0,
      );
  }

  /** Counts rows that belong to no part and are therefore not written. */
  #addOther({ from, sum, fromRows }: SpanFindings): void {
    const first = this.#parts[0];
    const last = this.#parts.at(-1);
    if (first === undefined || from < first.spool.from) {
      this.totals.before.merge(sum);
      this.totals.beforeFrom += fromRows;
    } else if (last !== undefined && from >= last.spool.to)
      this.totals.leftOut.range += BigInt(sum.rows);
    else this.totals.known += sum.rows;
  }

  /**
   * Returns the part that contains a span, if any. A span never straddles two parts,
   * because parts begin and end at span boundaries.
   */
  #partOf({ from }: SpanFindings): Part | undefined {
    return this.#parts.find(({ spool }) => spool.holds(from));
  }
}

const TAIL_SECONDS = 3600;

/**
 * Sums the tail of a closed range: its rows from the last hour or, if there are none,
 * from the newest second that has any. Rows may arrive in any order. In a window of a
 * larger range, if the last hour has too many bytes, the newest second alone is summed.
 * That is enough because the next request continues the window at once.
 * @param asked the start of the request; the tail cannot begin before it
 * @param bytesMax maximum number of bytes that a continuation may request again; given
 *   only if the range is a window of a larger one
 */
function openTail(asked: Micros, endsAt: Micros, bytesMax = Infinity) {
  const end = secondOf(endsAt);
  const from = Math.max(secondOf(asked), end - TAIL_SECONDS);
  const hour = { from, sum: new RowSum() };
  let hourBytes = 0;
  let newest = { from: -Infinity, sum: new RowSum() };
  return {
    /** The range of the tail, in seconds. */
    from,
    end,

    /**
     * Adds the findings of a block. The tail begins and ends at span boundaries, so
     * each span is either inside or outside it.
     */
    add(spans: readonly SpanFindings[], found: BlockFindings['newest']) {
      for (const span of spans) {
        if (span.from < from || span.from >= end) continue;
        hour.sum.merge(span.sum);
        hourBytes += span.bytes;
      }
      if (found === undefined || found.second < newest.from) return;
      if (found.second > newest.from)
        newest = { from: found.second, sum: new RowSum() };
      newest.sum.merge(found.sum);
    },

    result(header: Buffer): TailSum {
      const isFitting = hour.sum.rows > 0 && hourBytes <= bytesMax;
      const { from: second, sum } =
        !isFitting && newest.sum.rows > 0 ? newest : hour;
      return {
        from: instantOf(second),
        rows: sum.rows,
        digest: sum.digest.hex(),
        rowForm: sum.form(header),
      };
    },
  };
}
