/**
 * Counts the rows of every response of an export. A response counts as used only if
 * received = published + left out + already stored.
 */
import { PermanentError } from '../../errors/errors.ts';
import { formatInstant } from '../../time/time.ts';
import type { Outgrown, Received } from '../download/receive-answer.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import { rowsOf } from './compare-rows.ts';

export class RowCounter {
  /** Rows and bytes of all responses that were received to their end. */
  rows = 0;
  bytes = 0;
  #cancelled = 0;
  readonly #leftOut = { party: 0n, asset: 0n, range: 0n };
  #stored = 0;
  /** Rows of responses that were not published, whose ranges were requested again. */
  #unused = 0;
  /** Ranges that were requested again. */
  readonly #audited: object[] = [];
  /** Ranges that are kept although the source has fewer rows in them. */
  readonly #kept: object[] = [];

  /** Counts a response. Its rows are unused until it is published. */
  count(received: Received | Outgrown): void {
    this.bytes += received.seen.bytes;
    if (received.state === 'outgrown') {
      this.#cancelled += 1;
      return;
    }
    this.rows += received.rows;
    this.#unused += received.rows;
  }

  /**
   * Checks a published response and counts its rows as used.
   * @param storedRows the number of rows that were received again and are already
   *   stored in segments that are kept
   * @throws PermanentError `BOOKS_UNBALANCED` if a row is neither published, left out
   *   nor stored
   */
  balance(
    { leftOut, before, known, rows, segments }: Received,
    storedRows: number,
  ): void {
    const held = before.rows + known + storedRows;
    const left = leftOut.party + leftOut.asset + leftOut.range;
    const spooled = rowsOf(segments);
    if (BigInt(rows) !== BigInt(before.rows + known) + spooled + left) {
      throw new PermanentError(
        `Cannot export: of ${rows} rows received, ${spooled} were ` +
          `published, ${left} left out and ${held} already stored. This is ` +
          'a bug: please report it',
        {
          code: 'BOOKS_UNBALANCED',
          meta: { rows, spooled, held, leftOut: { ...leftOut } },
        },
      );
    }
    this.#stored += held;
    for (const why of ['party', 'asset', 'range'] as const)
      this.#leftOut[why] += leftOut[why];
    this.#unused -= rows;
  }

  /** Records coverage that is kept although the source has fewer rows in it. */
  recordKept(rows: readonly Coverage[], reason: string): void {
    this.#kept.push(...rows.map((row) => ({ ...rangeOf(row), reason })));
  }

  /**
   * Records whether the source returned the same rows for a range that was requested
   * again.
   */
  recordAudited(row: Coverage, isSame: boolean): void {
    const found = isSame
      ? 'the same'
      : 'not the rows that were published; replaced';
    this.#audited.push({ ...rangeOf(row), found });
  }

  evidence(): Record<string, unknown> {
    const { party, asset, range } = this.#leftOut;
    return {
      ...(this.#cancelled === 0 ? {} : { cancelled: this.#cancelled }),
      receivedRows: String(this.rows),
      receivedBytes: String(this.bytes),
      heldRows: String(this.#stored),
      ...(this.#unused <= 0
        ? {}
        : { rowsOfAnswersNotUsed: String(this.#unused) }),
      leftOut: {
        party: String(party),
        asset: String(asset),
        range: String(range),
      },
      ...(this.#kept.length === 0 ? {} : { kept: this.#kept }),
      ...(this.#audited.length === 0 ? {} : { audited: this.#audited }),
    };
  }
}

function rangeOf({ from, to }: Coverage): { from: string; to: string } {
  return { from: formatInstant(from), to: formatInstant(to) };
}
