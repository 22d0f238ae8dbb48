/**
 * The parties that a nightly run covers, what a run that began now would request from the
 * source, and how long that should take.
 */
import type { Config } from '../../config/environment.ts';
import type { JobDeps } from '../job.ts';
import { chooseAudits } from './export-ledgers.ts';
import {
  countDue,
  type Estimate,
  estimateNightly,
  type NightlyScope,
  readAuditable,
  readListSizes,
} from '../store/nightly/nightly-plan.ts';

/**
 * If requesting every party fits into this time, every party is requested every night.
 */
const NIGHT_MS = 6 * 3_600_000;
/**
 * A sixth of the shortest usual retention of ledgers (six months): nothing can be lost by
 * waiting.
 */
const IDLE_NIGHTS_MAX = 28;
const LISTS = 2;
/** For each list, the newest page and one that joins it to the stored rows. */
const INCREMENT_REQUESTS = 2;
/** One request for the party `network`. */
const NETWORK_REQUESTS = 1;

export interface ListPreview {
  readonly list: 'parties' | 'checkpoints';
  /** The number of stored rows. */
  readonly rows: string;
  /** Whether the whole list is read again, or only what is new. */
  readonly isWhole: boolean;
  readonly requests: number;
}

export interface NightlyPreview extends Readonly<
  Record<'requests' | 'seconds' | 'ratePerSecond', number>
> {
  /**
   * Nothing is known yet: the first sync reads every page, and the number of pages is
   * unknown.
   */
  readonly isFirst: boolean;
  readonly lists: {
    readonly requests: number;
    /**
     * The number of requests that a separate sync makes, which reads only what is new.
     */
    readonly requestsForNew: number;
    /** The lists that have been read before. */
    readonly each: readonly ListPreview[];
  };
  /**
   * Closed segments that are requested again and compared. They travel with their
   * ledgers' exports, so they add bytes but no requests.
   */
  readonly audits: {
    readonly segments: string;
    /**
     * The least size, as plain CSV: an answer begins at the segment and may reach
     * further.
     */
    readonly bytes: string;
  };
  readonly exports: Readonly<
    Record<'due' | 'asked' | 'deferred' | 'notDue' | 'quarantined', number>
  >;
}

/**
 * Whether a night is long enough to request every party, judging by how long an export
 * took lately.
 */
export function everyPartyFits(
  parties: number,
  secondsPerExport: number | null,
): boolean {
  return (
    secondsPerExport === null || parties * secondsPerExport * 1_000 <= NIGHT_MS
  );
}

/** Reads which parties a run covers, using how long an export took lately. */
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

/** The settings that the preview depends on; `Config` has all of them. */
type PreviewSettings = Pick<
  Config,
  'sourceRate' | 'sourcePageSize' | 'sourceRetention'
>;

/**
 * Describes what a nightly run would request: the pages of the lists, and one export for
 * each due party. Makes no requests itself.
 */
export async function describeNightly(
  jobs: Pick<
    JobDeps,
    | 'db'
    | 'nightlyParties'
    | 'sourceAssets'
    | 'nightlyExportsMax'
    | 'nightlyListRows'
    | 'nightlyAuditShare'
    | 'nightlyAuditWithin'
    | 'schedule'
  >,
  settings: PreviewSettings,
): Promise<NightlyPreview> {
  const { sourceRate, sourceRetention } = settings;
  const { scope, estimate } = await readNightlyScope(jobs);
  const { isFirst, quarantined, secondsPerExport } = estimate;
  const { parties, due } = await countDue(jobs.db, scope);
  const lists = await previewLists(jobs, settings);
  const { auditShare = 0 } = chooseAudits(jobs);
  const auditable = await readAuditable(jobs.db, scope, sourceRetention);
  const asked = Math.min(due, jobs.nightlyExportsMax ?? Infinity);
  const requests = asked + lists.requests;
  return {
    isFirst,
    lists,
    exports: {
      due,
      asked,
      deferred: due - asked,
      notDue: parties - due,
      quarantined,
    },
    audits: {
      segments: share(auditable.segments, auditShare),
      bytes: share(auditable.bytes, auditShare),
    },
    requests,
    seconds: Math.ceil(
      Math.max(requests / sourceRate, asked * (secondsPerExport ?? 0)),
    ),
    ratePerSecond: sourceRate,
  };
}

/**
 * Estimates the requests for each list. The cost of a list that was never read is
 * unknown, and counts as two requests.
 */
async function previewLists(
  { db, nightlyListRows }: Pick<JobDeps, 'db' | 'nightlyListRows'>,
  { sourcePageSize }: Pick<PreviewSettings, 'sourcePageSize'>,
): Promise<NightlyPreview['lists']> {
  const held = await readListSizes(db);
  const each = held.map(({ list, rows, isConfirmed }) => {
    const isWhole = !isConfirmed || rows <= BigInt(nightlyListRows);
    const pages = Number(rows / BigInt(sourcePageSize)) + 1;
    // The newest page is requested first, and shows how far there is to read.
    const requests = isWhole ? pages + 1 : INCREMENT_REQUESTS;
    return { list, rows: String(rows), isWhole, requests };
  });
  const unread = LISTS - each.length;
  const requests = each.reduce(
    (sum, list) => sum + list.requests,
    NETWORK_REQUESTS + unread * INCREMENT_REQUESTS,
  );
  const requestsForNew = NETWORK_REQUESTS + LISTS * INCREMENT_REQUESTS;
  return { requests, requestsForNew, each };
}

/**
 * Returns a part of a count, rounded up. It calculates in millionths with bigints,
 * because the count may exceed a JavaScript number.
 */
function share(all: bigint, part: number): string {
  const millionths = BigInt(Math.ceil(part * 1_000_000));
  return String((all * millionths + 999_999n) / 1_000_000n);
}
