/**
 * Whom a nightly run is about; what one that began now would ask the source, and how long
 * that should take.
 */
import type { Config } from '../../config/environment.ts';
import type { JobDeps } from '../job.ts';
import {
  countDue,
  type Estimate,
  estimateNightly,
  type NightlyScope,
} from '../store/nightly/nightly-plan.ts';

/** While asking everyone fits into this, everyone is asked every night. */
const NIGHT_MS = 6 * 3_600_000;
/**
 * A sixth of the shortest usual retention of ledgers (six months): nothing can be lost by
 * waiting.
 */
const IDLE_NIGHTS_MAX = 28;
/**
 * Requests for the newest page and one that joins it, of each of the two lists, and one
 * request for `network`.
 */
const LIST_REQUESTS = 5;

export interface NightlyPreview extends Readonly<
  Record<'requests' | 'seconds' | 'ratePerSecond', number>
> {
  /**
   * Nothing is known yet: the first sync asks for every page, and how many there are
   * nobody knows.
   */
  readonly isFirst: boolean;
  readonly lists: Readonly<Record<'requests', number>>;
  readonly exports: Readonly<
    Record<'due' | 'asked' | 'deferred' | 'notDue' | 'quarantined', number>
  >;
}

/** Whether a night is long enough to ask every party, by what an export took lately. */
export function everyPartyFits(
  parties: number,
  secondsPerExport: number | null,
): boolean {
  return (
    secondsPerExport === null || parties * secondsPerExport * 1_000 <= NIGHT_MS
  );
}

/** Whom a run is about, by the configuration and by what an export took lately. */
export async function readNightlyScope({
  db,
  nightlyParties,
  sourceAssets: assetIds,
}: Pick<JobDeps, 'db' | 'nightlyParties' | 'sourceAssets'>): Promise<{
  scope: NightlyScope;
  estimate: Estimate;
}> {
  const partyIds =
    nightlyParties.kind === 'list' ? nightlyParties.ids : undefined;
  const estimate = await estimateNightly(db, { partyIds, assetIds });
  const everyParty = everyPartyFits(
    estimate.parties,
    estimate.secondsPerExport,
  );
  return {
    scope: { partyIds, assetIds, everyParty, idleNightsMax: IDLE_NIGHTS_MAX },
    estimate,
  };
}

/**
 * The lists cost a request or two each where little is new; every due party costs one
 * export. Nothing is asked.
 */
export async function describeNightly(
  jobs: Pick<
    JobDeps,
    'db' | 'nightlyParties' | 'sourceAssets' | 'nightlyExportsMax'
  >,
  { sourceRate }: Pick<Config, 'sourceRate'>,
): Promise<NightlyPreview> {
  const { scope, estimate } = await readNightlyScope(jobs);
  const { isFirst, quarantined, secondsPerExport } = estimate;
  const { parties, due } = await countDue(jobs.db, scope);
  const asked = Math.min(due, jobs.nightlyExportsMax ?? Infinity);
  const requests = asked + LIST_REQUESTS;
  return {
    isFirst,
    lists: { requests: LIST_REQUESTS },
    exports: {
      due,
      asked,
      deferred: due - asked,
      notDue: parties - due,
      quarantined,
    },
    requests,
    seconds: Math.ceil(
      Math.max(requests / sourceRate, asked * (secondsPerExport ?? 0)),
    ),
    ratePerSecond: sourceRate,
  };
}
