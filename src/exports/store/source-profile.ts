/**
 * What the source's answers have shown of its release, as JSON in `mirror.source_state`.
 * Learning replaces all of it.
 */
import { z } from 'zod';
import { instant } from '../../ledger/json-fields.ts';

const schema = z.object({
  /**
   * 'right': a start and an end may be sent together. 'broken': the release filters them
   * wrongly; only a start is sent, and no range is divided, since every window would
   * repeat what comes in at any time.
   */
  bounds: z.enum(['right', 'broken', 'unproven']).optional(),
  sides: z.enum(['from', 'both']).optional(),
  /** Names the header line that this was decided by; another header, another release. */
  header: z.string().optional(),
  /** What showed it, in words, and when. */
  evidence: z.string().optional(),
  decidedAt: instant.optional(),
  /** An entry that left a party: what a question with both bounds must bring back. */
  known: z
    .object({
      partyId: z.string(),
      listedAs: z.string().optional(),
      assetId: z.string().optional(),
      second: instant,
    })
    .optional(),
  /** It refuses a request without a start and an end. */
  boundsDemanded: z.boolean().optional(),
  /**
   * For a source that shows no time: its newest entry of any ledger. It had all of its
   * blocks before that one.
   */
  shownTo: instant.optional(),
  /**
   * Its rows have no times: what is open of a ledger, asked for whole, is all that can be
   * covered.
   */
  isTimeless: z.boolean().optional(),
  assetRequired: z.boolean().optional(),
  assetAskedAt: instant.optional(),
});
export type SourceProfile = Readonly<z.output<typeof schema>>;

/** What another version wrote and this one cannot read is learned again. */
export function decodeProfile(json: unknown): SourceProfile {
  return schema.safeParse(json).data ?? {};
}

export function encodeProfile(profile: SourceProfile): string {
  return JSON.stringify(schema.encode(profile));
}
