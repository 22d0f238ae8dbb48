/**
 * The profile of the source's release, and how it is learned from the source's responses,
 * because the source never names its release. It is stored as JSON in
 * `mirror.source_state`; each change replaces the whole value. A mistake here costs bytes
 * or a request, but never a row, because each row is checked individually. Pure.
 */
import { hash } from 'node:crypto';
import { z } from 'zod';
import { PermanentError } from '../../errors/errors.ts';
import { DAY_MICROS, type Micros } from '../../time/time.ts';
import type { WindowRequest } from '../ports.ts';
import type { Layout } from '../../ledger/header.ts';
import { instantOf } from '../../ledger/ranges.ts';
import { instant } from '../../ledger/json-fields.ts';

/**
 * How long a finding is trusted. An upgrade of the source is noticed within this time.
 */
const BELIEVED_MICROS = DAY_MICROS;
/** Maximum age of a known entry. The source must still have it when it is requested. */
const KNOWN_AGE_MICROS = 30n * DAY_MICROS;

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
   * The time of the newest entry of any ledger, if the source reports no time of its own.
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

/** Findings about the release that sent a response. */
export interface ReleaseTraits {
  /** The header line as sent, with its line break if there was one. */
  readonly header: Buffer;
  readonly layout: Layout;
  /**
   * The number of rows so far outside the requested range that the release cannot have
   * applied the bounds.
   */
  readonly farOutside: number;
  /**
   * The second of the newest row that is a movement from one of the party's accounts to
   * another party's account; undefined if there is none.
   */
  readonly leavingSecond: number | undefined;
}

type Decided = Pick<SourceProfile, 'bounds' | 'evidence' | 'decidedAt'>;

/** A response's traits, and its request. */
interface Lesson {
  readonly traits: ReleaseTraits;
  readonly question: WindowRequest;
  readonly now: Micros;
}

/** Returns the profile, updated with the findings from a response. */
export function learnFromAnswer(
  profile: SourceProfile,
  lesson: Lesson,
): SourceProfile {
  const { traits } = lesson;
  // A header line without rows may lack its line break.
  const header = hash(
    'sha256',
    traits.header.toString('latin1').trimEnd(),
    'hex',
  ).slice(0, 16);
  const base =
    header === profile.header
      ? profile
      : profileOfNewRelease(profile, header, lesson);
  return {
    ...base,
    ...boundsShownByRows(base, lesson),
    known: knownEntry(profile, lesson),
  };
}

/**
 * Returns the profile of a new release, as shown by a new header. None of the findings
 * about the old release apply to it.
 */
function profileOfNewRelease(
  profile: SourceProfile,
  header: string,
  { traits, now }: Lesson,
): SourceProfile {
  const { sides } = traits.layout;
  const evidence =
    sides === 'from'
      ? 'no column effect: a release that sends what leaves a party, and filters it ' +
        'rightly'
      : 'a column effect: a release of which some filter wrongly; not shown yet ' +
        'which this is';
  const bounds = sides === 'from' ? 'right' : 'unproven';
  // A different header means a different release, whose refusals no longer count. If no
  // header was known, nothing shows a change, so an earlier refusal still counts.
  const outdated =
    profile.header === undefined
      ? {}
      : { assetRequired: undefined, assetAskedAt: undefined };
  return {
    ...profile,
    ...outdated,
    header,
    sides,
    bounds,
    evidence,
    decidedAt: now,
  };
}

/**
 * The finding that requests with only a start return outgoing entries, but requests with
 * both a start and an end do not.
 */
export const BOUNDS_ARE_BROKEN = {
  bounds: 'broken',
  evidence:
    'outgoing entries were returned for requests with only a start, but ' +
    'not for requests with a start and an end',
} as const;

/**
 * Returns the profile after a response in which known rows were missing or changed. It
 * must then be proven again how the source filters.
 */
export function distrustBounds(
  profile: SourceProfile,
  now: Micros,
): SourceProfile {
  if (profile.bounds === 'unproven' || profile.sides === 'from') return profile;
  const evidence = 'known entries were returned changed, or not at all';
  return { ...profile, bounds: 'unproven', evidence, decidedAt: now };
}

/**
 * Whether the source is still assumed to require an asset. A request without one tests
 * this once a day, because a refusal costs the source nothing.
 */
export function demandsAsset(profile: SourceProfile, now: Micros): boolean {
  return (
    profile.assetRequired === true &&
    now - (profile.assetAskedAt ?? 0n) < BELIEVED_MICROS
  );
}

/**
 * Returns the profile after an error. Some sources refuse a request without a start and
 * an end; both are sent from then on, or dropped again if that did not help. Returns
 * undefined if the error means something else.
 */
export function afterRefusal(
  profile: SourceProfile,
  error: unknown,
): SourceProfile | undefined {
  const isRefused =
    error instanceof PermanentError && error.code === 'EXPORT_REFUSED';
  if (!isRefused || error.meta['status'] !== 400) return undefined;
  const isDemanded = profile.boundsDemanded === true;
  // A source that has accepted requests without bounds must have a different reason to
  // refuse.
  if (profile.header !== undefined && !isDemanded) return undefined;
  return { ...profile, boundsDemanded: isDemanded ? undefined : true };
}

function boundsShownByRows(
  base: SourceProfile,
  { traits, question, now }: Lesson,
): Decided | undefined {
  const { farOutside, layout } = traits;
  const { from, to } = question;
  if (from === undefined) return undefined;
  if (farOutside > 0) {
    if (base.bounds === 'broken') return undefined;
    const given = to === undefined ? 'a start' : 'a start and an end';
    const evidence = `${farOutside} entries far outside ${given} that was requested`;
    return { bounds: 'broken', evidence, decidedAt: now };
  }
  // The source may have been upgraded without a change to its header.
  const isOld = now - (base.decidedAt ?? 0n) > BELIEVED_MICROS;
  if (base.bounds !== 'broken' || layout.sides === 'from' || !isOld)
    return undefined;
  const evidence =
    'an answer within its bounds, of a release that did not keep them before';
  return { bounds: 'unproven', evidence, decidedAt: now };
}

/**
 * Returns an outgoing entry of a party to probe with. The current one is kept as long
 * as the source should still have it.
 */
function knownEntry(
  { known }: SourceProfile,
  { traits, question, now }: Lesson,
): SourceProfile['known'] {
  const { leavingSecond, layout } = traits;
  const { partyId, listedAs, assetId } = question;
  if (leavingSecond === undefined || layout.sides === 'from') return known;
  const second = instantOf(leavingSecond);
  const isKept =
    known !== undefined &&
    (now - known.second < KNOWN_AGE_MICROS || known.second >= second);
  return isKept ? known : { partyId, listedAs, assetId, second };
}
