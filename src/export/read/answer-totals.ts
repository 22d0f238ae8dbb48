/** What the blocks of an answer add up to, in the order of the answer. */
import { RowSum } from '../../ledger/row-sum.ts';
import type { BlockFindings, SpanFindings } from './block-reader.ts';
import type { SegmentSpools } from '../spool/segment-spool.ts';
import type { Tail } from '../validate/tail.ts';

export class AnswerTotals {
  rows = 0;
  /** Rows that lie between the parts, known already. */
  known = 0;
  /** Of the rows before the first part, and how many of them are out of an account of the party. */
  readonly before = new RowSum();
  beforeFrom = 0;
  /** Rows that were not asked for. */
  readonly left = { party: 0, asset: 0, range: 0 };
  farOutside = 0;
  leaving = 0;
  leavingSecond: number | undefined;
  newestSecond: number | undefined;
  oldestSecond: number | undefined;
  readonly #parts: SegmentSpools;
  readonly #tail: Tail | undefined;
  #lastSecond = Number.NEGATIVE_INFINITY;
  #isSorted = true;

  constructor(parts: SegmentSpools, tail: Tail | undefined) {
    this.#parts = parts;
    this.#tail = tail;
  }

  /** The last second, where none came before an earlier one. */
  get sortedTo(): number | undefined {
    return this.#isSorted && Number.isFinite(this.#lastSecond) ? this.#lastSecond : undefined;
  }

  add(findings: BlockFindings): void {
    const { leftOut, leavingSecond } = findings;
    this.rows += findings.rows;
    this.left.party += leftOut.party;
    this.left.asset += leftOut.asset;
    this.left.range += leftOut.range;
    this.farOutside += findings.farOutside;
    this.leaving += findings.leaving;
    if (findings.leaving > 0)
      this.leavingSecond = Math.max(leavingSecond, this.leavingSecond ?? leavingSecond);
    if (!findings.isSorted || findings.firstSecond < this.#lastSecond) this.#isSorted = false;
    if (findings.rows > 0) this.#lastSecond = findings.lastSecond;
    this.#tail?.add(findings.spans, findings.newest);
    for (const span of findings.spans) this.#addSpan(span);
  }

  #addSpan(span: SpanFindings): void {
    const { from, sum, fromRows, newestSecond, oldestSecond } = span;
    if (this.#parts.count(span)) {
      this.newestSecond = Math.max(newestSecond, this.newestSecond ?? newestSecond);
      this.oldestSecond = Math.min(oldestSecond, this.oldestSecond ?? oldestSecond);
    } else if (from < this.#parts.firstSecond) {
      this.before.merge(sum);
      this.beforeFrom += fromRows;
    } else if (from >= this.#parts.endSecond) this.left.range += sum.rows;
    else this.known += sum.rows;
  }
}
