/** What is known of the source's release, as JSON in `mirror.source_state`. */
import { z } from 'zod';
import type { SourceProfile } from '../ports.ts';
import { instant } from '../../ledger/json-values.ts';

const schema = z.object({
  bounds: z.enum(['right', 'broken', 'unproven']).optional(),
  sides: z.enum(['from', 'both']).optional(),
  header: z.string().optional(),
  evidence: z.string().optional(),
  decidedAt: instant.optional(),
  known: z.object({ partyId: z.string(), assetId: z.string().optional(), second: instant }).optional(),
  boundsDemanded: z.boolean().optional(),
  shownTo: instant.optional(),
  isTimeless: z.boolean().optional(),
  assetRequired: z.boolean().optional(),
  assetAskedAt: instant.optional(),
});

/** What another version wrote and this one cannot read is learned again. */
export function decodeProfile(json: unknown): SourceProfile {
  const parsed = schema.safeParse(json);
  return parsed.success ? parsed.data : {};
}

export function encodeProfile(profile: SourceProfile): string {
  return JSON.stringify(z.encode(schema, profile));
}
