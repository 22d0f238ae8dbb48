/** What the console's page asks of parties and their ledgers. */
import { z } from 'zod';
import { PARTY_ID_BYTES_MAX } from '../../core/ids.ts';

const ID = z.string().max(66);
const WORD = z.string().max(100);
const DAY = z.string().meta({ format: 'date' }).optional();

export const PARTIES = z.strictObject({
  view: z.enum(['recent', 'id', 'quarantined']).default('id'),
  /** A whole id, or as it is shown cut; only with the view `id`. */
  search: ID.default(''),
  /** `next` of the page before. */
  after: z.string().max(PARTY_ID_BYTES_MAX).optional(),
});

export const FLOWS = z.strictObject({ asset: ID, zone: WORD.default('UTC') });

export const ACCOUNT = z.strictObject({ asset: ID, type: WORD, market: ID.optional() });

export const ENTRIES = z.strictObject({
  asset: ID.optional(),
  type: WORD.optional(),
  /** Days of UTC, both included. */
  since: DAY,
  until: DAY,
  /** `next` of the page before: the instant that it ended at, and how many of its rows were shown. */
  after: z
    .string()
    .regex(/^\d{4}-\d\d-\d\dT[\d:.]{8,15}Z~\d{1,9}$/)
    .optional(),
});

export type PartiesQuestion = z.infer<typeof PARTIES>;
export type AccountQuestion = z.infer<typeof ACCOUNT>;
export type EntriesQuestion = z.infer<typeof ENTRIES>;
