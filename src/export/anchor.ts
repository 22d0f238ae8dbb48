/**
 * Every continuation asks again for something whose answer is known. What comes back says whether the
 * question was understood, whether old rows are still served, and whether late ones have appeared.
 */
import type { TailSum } from './ports.ts';
import type { Received } from './receive.ts';
import { withoutLineEnd } from './spool-writer.ts';

export type AnchorFinding =
  | { readonly state: 'verified' | 'row form changed' }
  /** `fewer`: known rows are missing, the answer is not to be trusted; `other`: there is more, or different. */
  | { readonly state: 'fewer' | 'other'; readonly expected: AnchorSum; readonly received: AnchorSum };

interface AnchorSum {
  readonly rows: string;
  readonly digest: string;
}

export function compareAnchor(tail: TailSum, received: Received): AnchorFinding {
  const { before } = received;
  const form = before.form(withoutLineEnd(received.header));
  const digest = before.digest.hex();
  const isSameForm = form === tail.rowForm || tail.rows === 0;
  if (before.rows === tail.rows) {
    // Another release or time zone writes every row differently: then only the count can be compared.
    if (!isSameForm) return { state: 'row form changed' };
    if (digest === tail.digest) return { state: 'verified' };
  }
  return {
    state: before.rows < tail.rows ? 'fewer' : 'other',
    expected: { rows: String(tail.rows), digest: tail.digest },
    received: { rows: String(before.rows), digest },
  };
}
