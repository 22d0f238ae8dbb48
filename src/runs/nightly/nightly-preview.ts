/**
 * The parties that a nightly run covers, what a run started now would request from the
 * source, and how long that should take.
 */
import type { Config } from '../../config/environment.ts';
import { isExportableParty } from '../../ledger/ids.ts';
import type { ListSize } from '../../lists/list-size.ts';
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
 * If every party can be requested within this time, all of them are requested every
 * night.
 */
const NIGHT_MS = 6 * 3_600_000;
/**
 * A sixth of the shortest usual retention of ledgers (six months), so nothing can be lost
 * by waiting.
 */
const IDLE_NIGHTS_MAX = 28;
const LISTS = 2;
/** For each list, the newest page and one that connects it to the stored rows. */
const INCREMENT_REQUESTS = 2;
/** One request for the party `network`. */
const NETWORK_REQUESTS = 1;

export interface ListPreview {
  readonly list: 'parties' | 'checkpoints';
  /** The number of stored rows. */
  readonly rows: string;
  /** Whether the whole list is read again, or only the new rows. */
  readonly isWhole: boolean;
  readonly requests: number;
}

export interface NightlyPreview extends Readonly<
  Record<'requests' | 'seconds' | 'ratePerSecond', number>
> {
  /**
   * True if nothing is known yet: the first sync reads every page, and the number of
   * pages is unknown.
   */
  readonly isFirst: boolean;
  readonly lists: {
    readonly requests: number;
    /**
     * The number of requests that a separate sync makes; such a sync reads only the new
     * rows.
     */
    readonly requestsForNew: number;
    /** The lists that have been read before. */
    readonly each: readonly ListPreview[];
  };
  /**
   * Closed segments that are requested again and compared. They are part of their
   * ledgers' exports, so they add bytes but no requests.
   */
  readonly audits: {
    readonly segments: string;
    /**
     * Minimum size, as plain CSV. A response starts at the segment and may extend past
     * it.
     */
    readonly bytes: string;
  };
  readonly exports: Readonly<
    Record<'due' | 'asked' | 'deferred' | 'notDue' | 'quarantined', number>
  >;
}

/**
 * Whether a night is long enough to request every party, judging by how long recent
 * exports took.
 */
export function everyPartyFits(
  parties: number,
  secondsPerExport: number | null,
): boolean {
  return (
    secondsPerExport === null || parties * secondsPerExport * 1_000 <= NIGHT_MS
  );
}

/** Reads which parties a run covers, judging by how long recent exports took. */
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
 * each due party. This makes no requests itself.
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

/** What two requests per list reveal about the first nightly run. */
export interface FirstRunPreview {
  readonly lists: readonly FirstListPreview[];
  /** Exports, one for each party with a ledger; the party `network` has none. */
  readonly exports: PreviewRange;
  /** Requests for the party `network` alone, which shows which network it is. */
  readonly networkRequests: number;
  /**
   * The requests of the whole run: the sum of all the above; null if no upper bound is
   * known.
   */
  readonly requests: PreviewRange;
  readonly seconds: PreviewRange;
  /** Size of the lists' JSON, in bytes; null if no row was served. */
  readonly listBytes: PreviewRange | null;
}

/** `most` is null if the source gives no basis for an estimate. */
export interface PreviewRange {
  readonly least: number;
  readonly most: number | null;
}

export interface FirstListPreview {
  readonly list: 'parties' | 'checkpoints';
  readonly rows: PreviewRange;
  readonly requests: PreviewRange;
}

/** Each list is read until two consecutive readings agree. */
const FIRST_READINGS = 2;
/** How many rows of the previous page a page usually repeats at its start. */
const PAGE_OVERLAP_ROWS = 2;

/**
 * Estimates the first nightly run: every page of both lists, and at least one export for
 * each listed party.
 */
export function previewFirstRun(
  sizes: readonly ListSize[],
  {
    nightlyParties,
    nightlyExportsMax,
  }: Pick<JobDeps, 'nightlyParties' | 'nightlyExportsMax'>,
  { sourceRate }: Pick<PreviewSettings, 'sourceRate'>,
): FirstRunPreview {
  const lists = sizes.map(previewFirstList);
  const listed = lists.find(({ list }) => list === 'parties')?.rows;
  const hasNetwork = sizes.some((size) => size.hasNetwork);
  const chosen =
    nightlyParties.kind === 'list'
      ? nightlyParties.ids.filter(isExportableParty).length
      : undefined;
  const exportsMax = nightlyExportsMax ?? Infinity;
  const exported = (rows: number): number =>
    Math.min(chosen ?? Math.max(rows - Number(hasNetwork), 0), exportsMax);
  const exports: PreviewRange = {
    least: exported(listed?.least ?? 0),
    most:
      chosen !== undefined || listed?.most != null
        ? exported(listed?.most ?? 0)
        : null,
  };
  const requests = [...lists.map((list) => list.requests), exports].reduce(
    addRanges,
    { least: NETWORK_REQUESTS, most: NETWORK_REQUESTS },
  );
  // The pages of a list are read one after another, so each costs at least its latency.
  const pageMs = Math.max(0, ...sizes.map((size) => size.pageMs));
  const secondsPerPage = Math.max(1 / sourceRate, pageMs / 1_000);
  const pages = lists.map((list) => list.requests).reduce(addRanges);
  const seconds = addRanges(
    mapRange(pages, (count) => count * secondsPerPage),
    mapRange(exports, (count) => count / sourceRate),
  );
  const bytes = sizes.map(({ bytesPerRow }, index) => {
    const rows = lists[index]?.rows ?? { least: 0, most: 0 };
    return mapRange(rows, (count) =>
      Math.round(count * FIRST_READINGS * (bytesPerRow ?? 0)),
    );
  });
  const isServed = sizes.some(({ bytesPerRow }) => bytesPerRow !== undefined);
  return {
    lists,
    exports,
    networkRequests: NETWORK_REQUESTS,
    requests,
    seconds: mapRange(seconds, Math.ceil),
    listBytes: isServed ? bytes.reduce(addRanges) : null,
  };
}

function previewFirstList(size: ListSize): FirstListPreview {
  const { list, exactRows, rowsMin, estimate, pageRows } = size;
  const rows: PreviewRange =
    exactRows === undefined
      ? {
          least: Math.max(rowsMin, estimate?.low ?? 0),
          most: estimate?.high ?? null,
        }
      : { least: exactRows, most: exactRows };
  const newPerPage = Math.max(pageRows - PAGE_OVERLAP_ROWS, 1);
  // Each reading finishes with the newest page, which shows that the end has been
  // reached.
  const requests = mapRange(
    rows,
    (count) => FIRST_READINGS * (Math.ceil(count / newPerPage) + 1),
  );
  return { list, rows, requests };
}

function mapRange(
  { least, most }: PreviewRange,
  change: (count: number) => number,
): PreviewRange {
  return { least: change(least), most: most === null ? null : change(most) };
}

function addRanges(one: PreviewRange, other: PreviewRange): PreviewRange {
  const most =
    one.most === null || other.most === null ? null : one.most + other.most;
  return { least: one.least + other.least, most };
}

/**
 * Estimates the requests for each list. The cost of a list that has never been read is
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
    // The newest page is requested first, to show how far there is to read.
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
 * Returns a fraction of a count, rounded up. Calculates in millionths with bigints,
 * because the count may be too large for a JavaScript number.
 */
function share(all: bigint, part: number): string {
  const millionths = BigInt(Math.ceil(part * 1_000_000));
  return String((all * millionths + 999_999n) / 1_000_000n);
}
