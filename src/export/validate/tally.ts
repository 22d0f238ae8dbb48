/** What came of every answer: received = published + left out + already held, checked before it counts. */
import { PermanentError } from '../../core/errors.ts';
import { formatInstant } from '../../core/time.ts';
import type { Outgrown, Received } from '../fetch/receive.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { ExportScope } from '../ports.ts';

export class Tally {
  /** Over all answers that came to their end. */
  received = 0;
  bytes = 0;
  cancelled = 0;
  readonly leftOut = { party: 0n, asset: 0n, range: 0n };
  held = 0;
  /** Of answers that were not published, and asked for again. */
  unused = 0;
  /** Ranges that were asked for once more. */
  readonly audits: { readonly from: string; readonly to: string; readonly found: string }[] = [];
  readonly keptNotes: { readonly from: string; readonly to: string; readonly reason: string }[] = [];

  count(received: Received | Outgrown): void {
    this.bytes += received.bytes;
    if (received.state === 'outgrown') this.cancelled += 1;
    else {
      this.received += received.rows;
      this.unused += received.rows;
    }
  }

  /** @throws PermanentError `BOOKS_UNBALANCED` where a row of the answer is in none of them */
  balance(received: Received, heldRows: number): void {
    const { leftOut, before, known, rows } = received;
    const held = before.rows + known + heldRows;
    const left = leftOut.party + leftOut.asset + leftOut.range;
    const spooled = received.segments.reduce((sum, segment) => sum + (segment.spooled?.rows ?? 0), 0);
    if (BigInt(rows) !== BigInt(before.rows + known + spooled) + left) {
      throw new PermanentError(
        `Cannot export: of ${rows} rows received ${spooled} are published, ${left} left out and ${held} held; report this`,
        { code: 'BOOKS_UNBALANCED', meta: { rows, spooled, held, leftOut: { ...leftOut } } },
      );
    }
    this.held += held;
    this.leftOut.party += leftOut.party;
    this.leftOut.asset += leftOut.asset;
    this.leftOut.range += leftOut.range;
    this.unused -= rows;
  }

  kept(rows: readonly Coverage[], reason: string): void {
    for (const { from, to } of rows)
      this.keptNotes.push({ from: formatInstant(from), to: formatInstant(to), reason });
  }

  audited({ from, to }: Coverage, isSame: boolean): void {
    const found = isSame ? 'the same' : 'other rows than were published; replaced';
    this.audits.push({ from: formatInstant(from), to: formatInstant(to), found });
  }

  /** Rows of others where a source can send none. */
  hasStrangers({ leftOut, layout }: Received, { assetId }: ExportScope): boolean {
    const isForeignAsset = assetId !== undefined && layout.sides === 'from' && leftOut.asset > 0n;
    return leftOut.party > 0n || isForeignAsset;
  }
}
