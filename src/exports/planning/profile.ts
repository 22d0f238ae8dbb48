/**
 * Learns from the source's answers what its release can be trusted with, since it never
 * names itself. A mistake here costs bytes or a request and never a row, because whether
 * a row belongs is decided row by row. Pure.
 */
import { hash } from 'node:crypto';
import { PermanentError } from '../../errors/errors.ts';
import { DAY_MICROS, type Micros } from '../../time/time.ts';
import type { WindowRequest } from '../ports.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import type { Layout } from '../../ledger/header.ts';
import { instantOf } from '../../ledger/ranges.ts';

/** How long a finding is believed: an upgraded source is noticed after so long. */
const BELIEVED_MICROS = DAY_MICROS;
/**
 * How old a known entry may become: the source must still have it when it is requested.
 */
const KNOWN_AGE_MICROS = 30n * DAY_MICROS;

/** What an answer shows of the release that sent it. */
export interface ReleaseTraits {
  /** The header line as sent, with its line end if there was one. */
  readonly header: Buffer;
  readonly layout: Layout;
  /** Rows so far outside the requested times that the release ignored them. */
  readonly farOutside: number;
  /** Second of the newest row that left the party's accounts; undefined if none did. */
  readonly leavingSecond: number | undefined;
}

type Decided = Pick<SourceProfile, 'bounds' | 'evidence' | 'decidedAt'>;

/** An answer, and the request that it is for. */
interface Lesson {
  readonly traits: ReleaseTraits;
  readonly question: WindowRequest;
  readonly now: Micros;
}

/** Returns the profile with what an answer shows. */
export function learnFromAnswer(
  profile: SourceProfile,
  lesson: Lesson,
): SourceProfile {
  const { traits } = lesson;
  // Alone, the header line may lack its line end.
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
 * Another header means another release. What the answers of the old one showed is void.
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
  // A refusal that came before any header came from the same release.
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
 * What is known once entries that left a party came with a start alone, but not with an
 * end.
 */
export const BOUNDS_ARE_BROKEN = {
  bounds: 'broken',
  evidence:
    'entries that left a party came with a start alone, and not with a start and an end',
} as const;

/**
 * Known rows did not come back as they were: the source must show again how it filters.
 */
export function distrustBounds(
  profile: SourceProfile,
  now: Micros,
): SourceProfile {
  if (profile.bounds === 'unproven' || profile.sides === 'from') return profile;
  const evidence = 'known entries did not come back as they were';
  return { ...profile, bounds: 'unproven', evidence, decidedAt: now };
}

/**
 * Returns whether the source is still believed to demand an asset. A refusal costs it
 * nothing, so a request without an asset tests this once a day.
 */
export function demandsAsset(profile: SourceProfile, now: Micros): boolean {
  return (
    profile.assetRequired === true &&
    now - (profile.assetAskedAt ?? 0n) < BELIEVED_MICROS
  );
}

/**
 * Some sources refuse a request without a start and an end. Returns the profile by which
 * both are sent from now on, or no longer if that did not help; undefined if the error
 * says something else.
 */
export function afterRefusal(
  profile: SourceProfile,
  error: unknown,
): SourceProfile | undefined {
  const isRefused =
    error instanceof PermanentError && error.code === 'EXPORT_REFUSED';
  if (!isRefused || error.meta['status'] !== 400) return undefined;
  const isDemanded = profile.boundsDemanded === true;
  // A source that has answered without them refuses for another reason.
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
    const evidence = `${farOutside} entries far outside of ${given} that was asked for`;
    return { bounds: 'broken', evidence, decidedAt: now };
  }
  // The source may have been upgraded without a change of its header.
  const isOld = now - (base.decidedAt ?? 0n) > BELIEVED_MICROS;
  if (base.bounds !== 'broken' || layout.sides === 'from' || !isOld)
    return undefined;
  const evidence =
    'an answer within its bounds, of a release that did not keep them before';
  return { bounds: 'unproven', evidence, decidedAt: now };
}

/**
 * Returns an entry that left a party. A known one stays while the source should still
 * have it.
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
