/**
 * The findings about the source's release from its responses, stored as JSON in
 * `mirror.source_state`. Each change replaces the whole value.
 */
import { z } from 'zod';
import { instant } from '../../ledger/json-fields.ts';

const schema = z.object({
  /**
   * 'right': a start and an end may be sent together. 'broken': the release filters
   * wrongly if both are sent. Then only a start is sent, and no range is divided,
   * because the response to every window would contain all incoming entries again.
   */
  bounds: z.enum(['right', 'broken', 'unproven']).optional(),
  sides: z.enum(['from', 'both']).optional(),
  /**
   * A hash of the header line that this profile was learned from. A different header
   * means a different release.
   */
  header: z.string().optional(),
  /**
   * A sentence that describes the evidence for `bounds`. `decidedAt` is when the
   * conclusion was drawn.
   */
  evidence: z.string().optional(),
  decidedAt: instant.optional(),
  /**
   * A known outgoing entry of a party. A request with both bounds around its time must
   * return it.
   */
  known: z
    .object({
      partyId: z.string(),
      listedAs: z.string().optional(),
      assetId: z.string().optional(),
      second: instant,
    })
    .optional(),
  /** Whether the source refuses a request without a start and an end. */
  boundsDemanded: z.boolean().optional(),
  /**
   * The time of the newest entry of any ledger, if the source shows no time of its own.
   * The source had all blocks before that entry.
   */
  shownTo: instant.optional(),
  /**
   * Whether the source's rows have no times. A ledger can then be covered only by a
   * single open range, which is requested whole each time.
   */
  isTimeless: z.boolean().optional(),
  assetRequired: z.boolean().optional(),
  assetAskedAt: instant.optional(),
});
export type SourceProfile = Readonly<z.output<typeof schema>>;

/**
 * Decodes a stored profile. If another version wrote it and this one cannot read it,
 * the profile is empty and is learned again.
 */
export function decodeProfile(json: unknown): SourceProfile {
  return schema.safeParse(json).data ?? {};
}

export function encodeProfile(profile: SourceProfile): string {
  return JSON.stringify(schema.encode(profile));
}
