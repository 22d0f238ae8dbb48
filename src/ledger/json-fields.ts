/**
 * Codecs for values in the JSON of manifests and records.
 */
import { z } from 'zod';
import { canonicalId, canonicalPartyId } from './ids.ts';
import { formatInstant, parseInstant } from '../time/time.ts';

/**
 * Parses JSON.
 * @returns undefined if the string is not valid JSON
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export const hex64 = z.string().regex(/^[0-9a-f]{64}$/);

export const partyId = z
  .string()
  .refine((text) => canonicalPartyId(text) === text, 'not a party id');

/** The id of an asset. */
export const id = z
  .string()
  .refine((text) => canonicalId(text) === text, 'not an id');

/** An instant: microseconds in memory, RFC 3339 in JSON. */
export const instant = z.codec(z.string(), z.bigint(), {
  decode: (text, context) => {
    const micros = parseInstant(text);
    if (micros !== undefined) return micros;
    context.issues.push({
      code: 'custom',
      input: text,
      message: 'not an instant',
    });
    return z.NEVER;
  },
  encode: formatInstant,
});

/**
 * A count that may be too large for a double to represent exactly; a decimal string in
 * JSON. It has at most 18 digits, so that the number and its successor fit into a
 * Postgres bigint.
 */
export const decimal = z.codec(z.string().regex(/^\d{1,18}$/), z.bigint(), {
  decode: BigInt,
  encode: String,
});
