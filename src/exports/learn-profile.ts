/**
 * Records what a run finds out about the source's release. The profile of the release
 * is shared, so it shapes the next requests of all exports.
 */
import { instantOf, later } from '../ledger/ranges.ts';
import { BEGINNING, formatInstant } from '../time/time.ts';
import type { Probe } from './download/fetcher.ts';
import type { Outgrown, Received } from './download/receive-answer.ts';
import type { Lesson } from './export-state.ts';
import type { PlannedRequest } from './planning/next-window.ts';
import {
  afterRefusal,
  BOUNDS_ARE_BROKEN,
  distrustBounds,
  encodeProfile,
  learnFromAnswer,
  type SourceProfile,
} from './planning/profile.ts';
import type { ExportContext } from './export-context.ts';

/** Records whether the source correctly applied the start and the end of a probe. */
export async function learnFromProbe(
  profile: SourceProfile,
  { probe, bounds }: { probe: Probe; bounds: 'right' | 'broken' },
  { repository, request }: ExportContext,
): Promise<void> {
  const came = bounds === 'right' ? 'came' : 'did not come';
  const evidence =
    `an entry of ${formatInstant(probe.from)} was asked for by its second: it ` +
    came;
  const decidedAt = request.clock.seen;
  await repository.learn({ ...profile, bounds, evidence, decidedAt });
}

/**
 * Records what a refusal shows about the source.
 * @returns whether the source refuses requests without a start and an end
 */
export async function learnFromRefusal(
  profile: SourceProfile,
  error: unknown,
  { repository }: ExportContext,
): Promise<boolean> {
  const learned = afterRefusal(profile, error);
  if (learned !== undefined) await repository.learn(learned);
  return learned?.boundsDemanded === true;
}

/**
 * Records the findings from a response.
 * @returns the profile with these findings
 */
export async function learnFromReceived(
  { target, request }: PlannedRequest,
  received: Received | Outgrown,
  { repository, source, lease, request: wanted }: ExportContext,
): Promise<SourceProfile> {
  const { profile } = target;
  const isWhole = received.state === 'complete';
  const traits = isWhole ? received : received.traits;
  if (traits === undefined) return profile;

  const { seen: now, from } = wanted.clock;
  const second =
    from === 'guessed' && isWhole ? received.newestSecond : undefined;
  const shownTo =
    second === undefined
      ? profile.shownTo
      : later(profile.shownTo ?? BEGINNING, instantOf(second));
  const isTimeless = source.hasTimes ? undefined : true;
  const question = { ...lease.scope, ...request };
  const learned = learnFromAnswer(
    { ...profile, isTimeless, shownTo },
    { traits, question, now },
  );
  if (encodeProfile(learned) !== encodeProfile(profile))
    await repository.learn(learned);
  return learned;
}

/**
 * Records what a decision concludes from several responses.
 * @param learned the profile with the findings of the last response, if there is one
 */
export async function learnLesson(
  lesson: Lesson,
  learned: SourceProfile | undefined,
  { repository, request }: ExportContext,
): Promise<void> {
  const profile = learned ?? (await repository.profile());
  const now = request.clock.seen;
  await repository.learn(
    lesson === 'distrust bounds'
      ? distrustBounds(profile, now)
      : { ...profile, ...BOUNDS_ARE_BROKEN, decidedAt: now },
  );
}
