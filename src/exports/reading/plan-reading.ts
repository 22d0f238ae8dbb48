/**
 * Decides which part of a ledger a response can contain: which segments have its rows,
 * up to which instant the ledger is known, and which requested ranges are missing.
 * Pure: read-ledger.ts does the reading.
 */
import { PermanentError } from '../../errors/errors.ts';
import type { Coverage, SegmentContent } from '../../catalog/coverage-rows.ts';
import { commonColumns } from '../../ledger/common-columns.ts';
import type { LedgerQuery } from '../../ledger/ledger-range.ts';
import {
  describeMissing,
  type MissingRange,
} from '../../ledger/missing-range.ts';
import {
  earlier,
  later,
  overlaps,
  type Range,
  subtract,
} from '../../ledger/ranges.ts';
import { BEGINNING, DAY_MICROS, type Micros } from '../../time/time.ts';

const END_OF_TIME: Micros = 2n ** 62n;
/** The header that release 0.71.4 sends in a response without entries. */
const HEADER_OF_0_71_4: readonly string[] = [
  'vega_time',
  'quantity',
  'transfer_type',
  'asset_id',
  'account_from_market_id',
  'account_from_party_id',
  'account_from_account_type',
  'account_to_market_id',
  'account_to_party_id',
  'account_to_account_type',
  'account_from_balance',
  'account_to_balance',
];

/** The facts that a reading depends on besides the coverage of the ledger. */
export interface ReadingFacts {
  /**
   * If the source requires an asset, the assets in which every ledger must be covered;
   * "every asset" then means these. Otherwise empty.
   */
  readonly demandedAssets: readonly string[];
  /** The header of the mirror's newest segment; undefined if it has none. */
  readonly newestColumns: readonly string[] | undefined;
  /** The current time. */
  readonly now: Micros;
}

/** A published object that has rows of the response. */
export interface ReadSegment extends Range {
  readonly assetId: string | undefined;
  readonly objectKey: string;
  readonly content: SegmentContent;
}

export interface ReadingPlan {
  /** The segments that have rows of the response, ordered by time. */
  readonly segments: readonly ReadSegment[];
  /** The columns of the response's header. */
  readonly columns: readonly string[];
  /** The range of the response's rows: `from` is inclusive, `to` exclusive. */
  readonly from: Micros;
  readonly to: Micros;
  /**
   * Where the known part of the ledger starts if the beginning of the range is not
   * known; otherwise undefined.
   */
  readonly knownFrom: Micros | undefined;
  /**
   * The ledger is known from the range's beginning up to this instant, which may be after
   * the range's end; undefined if the beginning is not known.
   */
  readonly knownTo: Micros | undefined;
  /**
   * The ledger is complete from the range's beginning up to this instant; open segments
   * do not count as complete. Equal to the range's beginning if nothing is proven.
   */
  readonly provenTo: Micros;
  /**
   * The ranges that the response lacks; empty if it has everything that was requested.
   */
  readonly missing: readonly MissingRange[];
}

/**
 * Plans a response. A query without an end requests everything up to the present, but a
 * mirror has only the entries up to its last run. The response then ends at `knownTo`
 * for every asset alike, so that the next query can continue from there.
 * @throws PermanentError `LEDGER_NOT_MIRRORED` if the ledger was never exported
 */
export function planReading(
  question: LedgerQuery,
  coverage: readonly Coverage[],
  facts: ReadingFacts,
): ReadingPlan {
  if (coverage.length === 0)
    throw notMirrored(question, 'it was never exported', {});
  const { isProofNeeded, isPartial, assetId } = question;
  const from = later(question.from ?? BEGINNING, BEGINNING);
  const isProof = ({ open, isFaulty, assetId: of }: Coverage) =>
    !open && isFaulty !== true && (of === undefined || of === assetId);
  const believed = isProofNeeded === true ? coverage.filter(isProof) : coverage;
  const assets = assetsOf(question, facts);
  const groups = assets.map((asset) => holesOf(from, asset, believed));
  const proven = coverage.filter(isProof);
  const provenGroups = assets.map((asset) => holesOf(from, asset, proven));
  const knownTo = leastKnownTo(groups, from);
  const missing = groups.flatMap((holes) =>
    missingOf(holes, { from, to: question.to }, facts.now),
  );
  const to =
    question.to ??
    (isPartial === true ? END_OF_TIME : (knownTo ?? END_OF_TIME));
  const segments = segmentsWithin(coverage, { from, to });
  return {
    segments,
    columns: columnsOf(segments, coverage, facts),
    from,
    to,
    knownFrom: knownTo === undefined ? knownFromOf(groups, from) : undefined,
    knownTo,
    provenTo: leastKnownTo(provenGroups, from) ?? from,
    missing,
  };
}

/**
 * Rejects a plan that lacks part of the requested range.
 * @throws PermanentError `LEDGER_NOT_MIRRORED`
 */
export function refuseMissing(question: LedgerQuery, plan: ReadingPlan): void {
  const [first] = plan.missing;
  if (first === undefined) return;
  const { knownFrom, knownTo } = plan;
  const state = `nothing is known ${describeMissing(first)}`;
  throw notMirrored(question, state, { knownFrom, knownTo });
}

/**
 * Returns the assets that must be covered individually; undefined means all assets at
 * once. Coverage of single assets adds up to the whole ledger only if these are all the
 * assets that the mirror is meant to have, because an export of one asset shows nothing
 * about the others.
 */
function assetsOf(
  { assetId }: LedgerQuery,
  { demandedAssets }: ReadingFacts,
): readonly (string | undefined)[] {
  if (assetId !== undefined) return [assetId];
  return demandedAssets.length === 0 ? [undefined] : demandedAssets;
}

/** The ranges of an asset that are not covered. */
interface Holes {
  readonly assetId: string | undefined;
  readonly ranges: readonly Range[];
}

function holesOf(
  from: Micros,
  assetId: string | undefined,
  coverage: readonly Coverage[],
): Holes {
  // Coverage of all assets also covers each single asset.
  const known = coverage.filter(
    (range) => range.assetId === undefined || range.assetId === assetId,
  );
  const to = later(from, END_OF_TIME);
  return { assetId, ranges: subtract({ from, to }, known) };
}

/** Returns the instant up to which all of the assets are known. */
function leastKnownTo(
  groups: readonly Holes[],
  from: Micros,
): Micros | undefined {
  return groups
    .map((holes) => knownToOf(holes, from))
    .reduce((least, to) =>
      least === undefined || to === undefined ? undefined : earlier(least, to),
    );
}

function knownToOf({ ranges }: Holes, from: Micros): Micros | undefined {
  const [first] = ranges;
  if (first === undefined) return END_OF_TIME;
  return first.from > from ? first.from : undefined;
}

/** Returns the instant from which all of the assets are known. */
function knownFromOf(
  groups: readonly Holes[],
  start: Micros,
): Micros | undefined {
  const starts = groups.map(({ ranges: [first] }) =>
    first === undefined || first.from > start ? start : first.to,
  );
  const latest = starts.reduce(later, start);
  return latest < END_OF_TIME ? latest : undefined;
}

function missingOf(
  { assetId, ranges }: Holes,
  asked: { readonly from: Micros; readonly to: Micros | undefined },
  now: Micros,
): readonly MissingRange[] {
  // Nothing can be missing from the future, where nothing has happened yet. The extra
  // day allows for clock skew.
  const future = now + DAY_MICROS;
  if (asked.from >= future) return [];
  const end = asked.to ?? END_OF_TIME;
  return ranges.flatMap(({ from, to }) => {
    if (from >= end) return [];
    const isLast = to >= END_OF_TIME;
    // A query without an end gets everything that is known, but its start must be
    // known.
    if (asked.to === undefined && isLast && from > asked.from) return [];
    return [{ assetId, from, to: isLast ? undefined : earlier(to, end) }];
  });
}

function segmentsWithin(
  coverage: readonly Coverage[],
  asked: Range,
): readonly ReadSegment[] {
  return coverage.flatMap(({ objectKey, content, assetId, from, to }) =>
    objectKey !== undefined &&
    content !== undefined &&
    overlaps({ from, to }, asked)
      ? [{ assetId, from, to, objectKey, content }]
      : [],
  );
}

/**
 * Returns the columns of the response. Without entries, the response gets the header of
 * the ledger's other segments, or of the mirror's newest segment, so that its columns
 * are not those of a different release.
 */
function columnsOf(
  segments: readonly ReadSegment[],
  coverage: readonly Coverage[],
  { newestColumns }: ReadingFacts,
): readonly string[] {
  if (segments.length > 0)
    return commonColumns(segments.map(({ content }) => content.columns));
  const latest = coverage.findLast(({ content }) => content !== undefined);
  return latest?.content?.columns ?? newestColumns ?? HEADER_OF_0_71_4;
}

function notMirrored(
  { partyId, assetId }: LedgerQuery,
  state: string,
  known: Partial<Pick<ReadingPlan, 'knownFrom' | 'knownTo'>>,
): PermanentError {
  return new PermanentError(
    `Cannot read the ledger of ${partyId}: ${state}; order an export of it, or ask ` +
      'for less',
    { code: 'LEDGER_NOT_MIRRORED', meta: { partyId, assetId, ...known } },
  );
}
