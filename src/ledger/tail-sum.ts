/**
 * The sum of a range's last rows. Whenever an export continues a ledger, these rows are
 * requested again and compared with the sum, which is how the mirror notices that a
 * source has lost or changed its history.
 */
import { z } from 'zod';
import { hex64, instant } from './json-fields.ts';

export const tailSum = z.object({
  /** The whole second at which the tail begins. The tail ends where its range ends. */
  from: instant,
  /** Number of rows in the tail. */
  rows: z.int().nonnegative(),
  /** The additive digest of these rows, as 64 hex digits. */
  digest: hex64,
  /**
   * The encoding of the rows that were summed. Digests with different row forms cannot
   * be compared.
   */
  rowForm: z.string(),
});

export type TailSum = z.output<typeof tailSum>;
