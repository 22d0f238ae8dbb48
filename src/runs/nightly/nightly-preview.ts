/**
 * The parties that a nightly run covers; what a run that began now would ask the source,
 * and how long that should take.
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

/** While asking everyone fits into this, everyone is asked every night. */
const NIGHT_MS = 6 * 3_600_000;
/**
 * A sixth of the shortest usual retention of ledgers (six months): nothing can be lost by
 * waiting.
 */
const IDLE_NIGHTS_MAX = 28;
const LISTS = 2;
/** Of each list the newest page, and one that joins it to what is held. */
const INCREMENT_REQUESTS = 2;
/** One request for the party `network`. */
const NETWORK_REQUESTS = 1;

export interface ListPreview {
  readonly list: 'parties' | 'checkpoints';
  /** As it is held now. */
  readonly rows: string;
  /** Whether all of it is read again, or only what is new. */
  readonly isWhole: boolean;
  readonly requests: number;
}

export interface NightlyPreview extends Readonly<
  Record<'requests' | 'seconds' | 'ratePerSecond', number>
> {
  /**
   * Nothing is known yet: the first sync asks for every page, and how many there are
   * nobody knows.
   */
  readonly isFirst: boolean;
  readonly lists: {
    readonly requests: number;
    /** What a sync by itself takes, which reads only what is new. */
    readonly requestsForNew: number;
    /** The lists that were read before. */
    readonly each: readonly ListPreview[];
  };
  /**
   * Closed segments that are asked for once more and compared. They come with their
   * ledgers' exports, so they add bytes and no requests.
   */
  readonly audits: {
    readonly segments: string;
    /** Plain CSV, at least: an answer begins at the segment and may reach further. */
    readonly bytes: string;
  };
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

/** Reads which parties a run covers, and what an export took lately. */
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

/** What the preview goes by; `Config` has all of it. */
type PreviewSettings = Pick<
  Config,
  'sourceRate' | 'sourcePageSize' | 'sourceRetention'
>;

/**
 * The lists cost their pages, every due party one export. Nothing is asked.
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

/** A list that nobody read yet costs nobody knows how much, and counts as two requests. */
async function previewLists(
  { db, nightlyListRows }: Pick<JobDeps, 'db' | 'nightlyListRows'>,
  { sourcePageSize }: Pick<PreviewSettings, 'sourcePageSize'>,
): Promise<NightlyPreview['lists']> {
  const held = await readListSizes(db);
  const each = held.map(({ list, rows, isConfirmed }) => {
    const isWhole = !isConfirmed || rows <= BigInt(nightlyListRows);
    const pages = Number(rows / BigInt(sourcePageSize)) + 1;
    // The newest page comes first, and says up to where there is to read.
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

/** Rounded up, without a number of JavaScript between: in millionths. */
function share(all: bigint, part: number): string {
  const millionths = BigInt(Math.ceil(part * 1_000_000));
  return String((all * millionths + 999_999n) / 1_000_000n);
}
