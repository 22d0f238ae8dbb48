/**
 * The sum of a range's last rows. Every continuation of a ledger requests these rows
 * again and compares them with the sum: that is how the mirror notices a source that has
 * lost or changed its history.
 */
import { z } from 'zod';
import { hex64, instant } from './json-fields.ts';

export const tailSum = z.object({
  /** The whole second at which the tail begins. The tail ends where its range ends. */
  from: instant,
  /** How many rows the tail has. */
  rows: z.int().nonnegative(),
  /** The additive digest of those rows, as 64 hex digits. */
  digest: hex64,
  /**
   * The form in which the rows were summed; digests of different forms cannot be
   * compared.
   */
  rowForm: z.string(),
});

export type TailSum = z.output<typeof tailSum>;
