/**
 * Every continuation asks again for something whose answer is known. What comes back says whether the
 * question was understood, whether old rows are still served, and whether late ones have appeared.
 */
import type { Received } from '../fetch/receive.ts';
import type { Overlap } from '../plan/remaining.ts';

export type OverlapFinding =
  /** `sides changed`: the source now sends more of each movement; what it sent before is all there. */
  | { readonly state: 'verified' | 'row form changed' | 'sides changed' }
  /**
   * `fewer`: known rows are missing, the answer is not to be trusted; `repeated`: all of them come as often again, as
   * other rows then do as well; `other`: there is more, or different.
   */
  | {
      readonly state: 'fewer' | 'repeated' | 'other';
      readonly expected: OverlapSum;
      readonly received: OverlapSum;
    };

interface OverlapSum {
  readonly rows: string;
  readonly digest: string;
}

export function compareOverlap({ tail, sides }: Overlap, received: Received): OverlapFinding {
  const { before } = received;
  const form = before.form(received.header);
  const digest = before.digest.hex();
  const isSameForm = form === tail.rowForm || tail.rows === 0;
  const hasOtherSides = sides !== 'unknown' && sides !== received.layout.sides;
  // Of both sides sent before, only those that leave come now: how many these were is not known.
  const rows = hasOtherSides && sides === 'from' ? received.beforeFrom : before.rows;
  if (hasOtherSides && (sides === 'both' || rows === tail.rows)) return { state: 'sides changed' };
  if (!hasOtherSides && rows === tail.rows) {
    // Another release or time zone writes every row differently: then only the count can be compared.
    if (!isSameForm) return { state: 'row form changed' };
    if (digest === tail.digest) return { state: 'verified' };
  }
  return {
    state: rows < tail.rows ? 'fewer' : isRepeated(tail, rows, digest) ? 'repeated' : 'other',
    expected: { rows: String(tail.rows), digest: tail.digest },
    received: { rows: String(rows), digest },
  };
}

/** Sums of rows add up: those of rows that come twice are twice theirs. */
function isRepeated({ rows, digest }: Overlap['tail'], received: number, sum: string): boolean {
  if (rows === 0 || received % rows !== 0) return false;
  const times = BigInt(received / rows);
  return BigInt(`0x${sum}`) === BigInt.asUintN(256, BigInt(`0x${digest}`) * times);
}
