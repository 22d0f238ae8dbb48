/** What came of every answer: received = published + left out + already held, checked before it counts. */
import { PermanentError } from '../../errors/errors.ts';
import { formatInstant } from '../../time/time.ts';
import type { Outgrown, Received } from '../download/receive-answer.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import { rowsOf } from './compare-rows.ts';

export class RowCounter {
  /** Over all answers that came to their end. */
  rows = 0;
  bytes = 0;
  #cancelled = 0;
  readonly #leftOut = { party: 0n, asset: 0n, range: 0n };
  #held = 0;
  /** Of answers that were not published, and asked for again. */
  #unused = 0;
  /** Ranges that were asked for once more. */
  readonly #audited: object[] = [];
  readonly #kept: object[] = [];

  count(received: Received | Outgrown): void {
    this.bytes += received.seen.bytes;
    if (received.state === 'outgrown') this.#cancelled += 1;
    else {
      this.rows += received.rows;
      this.#unused += received.rows;
    }
  }

  /** @throws PermanentError `BOOKS_UNBALANCED` where a row of the answer is in none of them */
  balance({ leftOut, before, known, rows, segments }: Received, heldRows: number): void {
    const held = before.rows + known + heldRows;
    const left = leftOut.party + leftOut.asset + leftOut.range;
    const spooled = rowsOf(segments);
    if (BigInt(rows) !== BigInt(before.rows + known) + spooled + left) {
      throw new PermanentError(
        `Cannot export: of ${rows} rows received ${spooled} are published, ${left} left out and ${held} held; report this`,
        {
          code: 'BOOKS_UNBALANCED',
          meta: { rows, spooled, held, leftOut: { ...leftOut } },
        },
      );
    }
    this.#held += held;
    for (const why of ['party', 'asset', 'range'] as const)
      this.#leftOut[why] += leftOut[why];
    this.#unused -= rows;
  }

  kept(rows: readonly Coverage[], reason: string): void {
    this.#kept.push(...rows.map((row) => ({ ...rangeOf(row), reason })));
  }

  audited(row: Coverage, isSame: boolean): void {
    const found = isSame ? 'the same' : 'other rows than were published; replaced';
    this.#audited.push({ ...rangeOf(row), found });
  }

  evidence(): Record<string, unknown> {
    const { party, asset, range } = this.#leftOut;
    return {
      ...(this.#cancelled === 0 ? {} : { cancelled: this.#cancelled }),
      receivedRows: String(this.rows),
      receivedBytes: String(this.bytes),
      heldRows: String(this.#held),
      ...(this.#unused <= 0 ? {} : { rowsOfAnswersNotUsed: String(this.#unused) }),
      leftOut: { party: String(party), asset: String(asset), range: String(range) },
      ...(this.#kept.length === 0 ? {} : { kept: this.#kept }),
      ...(this.#audited.length === 0 ? {} : { audited: this.#audited }),
    };
  }
}

function rangeOf({ from, to }: Coverage): { from: string; to: string } {
  return { from: formatInstant(from), to: formatInstant(to) };
}
