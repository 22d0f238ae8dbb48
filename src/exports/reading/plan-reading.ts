/**
 * Decides what of a ledger an answer can hold: which segments have its rows, up to when
 * the ledger is known, and which ranges that were asked for are missing. Pure: the rest
 * of the room reads and sends.
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
/** What release 0.71.4 begins an answer without entries with. */
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

/** What a reader has to know besides the coverage of the ledger. */
export interface ReadingFacts {
  /**
   * If the source demands an asset, those that every ledger must be covered in; otherwise
   * none. They are what "every asset" means then.
   */
  readonly demandedAssets: readonly string[];
  /** The header of the mirror's newest segment; undefined if it has none. */
  readonly newestColumns: readonly string[] | undefined;
  /** The present. */
  readonly now: Micros;
}

/** A published object that has rows of the answer. */
export interface ReadSegment extends Range {
  readonly assetId: string | undefined;
  readonly objectKey: string;
  readonly content: SegmentContent;
}

export interface ReadingPlan {
  /** By time. */
  readonly segments: readonly ReadSegment[];
  /** The columns of the answer's header. */
  readonly columns: readonly string[];
  /** The rows of the answer: no row is before `from`, at `to` or behind it. */
  readonly from: Micros;
  readonly to: Micros;
  /**
   * If nothing is known of the beginning of the range: where knowledge of the ledger
   * begins again.
   */
  readonly knownFrom: Micros | undefined;
  /**
   * From the range's beginning up to here, all is known; undefined if its beginning is
   * not. It may lie behind the end of the range.
   */
  readonly knownTo: Micros | undefined;
  /**
   * From the range's beginning up to here, nothing is missing: what is open is not
   * counted. The range's beginning if nothing is proven.
   */
  readonly provenTo: Micros;
  /** Empty if the answer is all that was asked for. */
  readonly missing: readonly MissingRange[];
}

/**
 * A question without an end asks for what there is up to the present, of which a mirror
 * knows as much as its last run brought. Its answer ends at `knownTo`, for every asset
 * alike, so that the next question can go on from there.
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

/** @throws PermanentError `LEDGER_NOT_MIRRORED` if the plan lacks a part of the range */
export function refuseMissing(question: LedgerQuery, plan: ReadingPlan): void {
  const [first] = plan.missing;
  if (first === undefined) return;
  const { knownFrom, knownTo } = plan;
  const state = `nothing is known ${describeMissing(first)}`;
  throw notMirrored(question, state, { knownFrom, knownTo });
}

/**
 * The assets that must be known one by one; undefined stands for every asset at once.
 * Coverage of single assets is not all of a ledger unless these are all that the mirror
 * is to have: what was ordered of one asset says nothing of the others.
 */
function assetsOf(
  { assetId }: LedgerQuery,
  { demandedAssets }: ReadingFacts,
): readonly (string | undefined)[] {
  if (assetId !== undefined) return [assetId];
  return demandedAssets.length === 0 ? [undefined] : demandedAssets;
}

/** What is not known of an asset from an instant on. */
interface Holes {
  readonly assetId: string | undefined;
  readonly ranges: readonly Range[];
}

function holesOf(
  from: Micros,
  assetId: string | undefined,
  coverage: readonly Coverage[],
): Holes {
  // What is known of every asset is known of each.
  const known = coverage.filter(
    (range) => range.assetId === undefined || range.assetId === assetId,
  );
  const to = later(from, END_OF_TIME);
  return { assetId, ranges: subtract({ from, to }, known) };
}

/** Up to where all of the assets are known. */
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

/** Where the last of the assets begins to be known. */
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
  // Whatever is not known yet, nothing can have happened in the future. A day allows for
  // clocks that differ.
  const future = now + DAY_MICROS;
  if (asked.from >= future) return [];
  const end = asked.to ?? END_OF_TIME;
  return ranges.flatMap(({ from, to }) => {
    if (from >= end) return [];
    const isLast = to >= END_OF_TIME;
    // Without an end, as much is asked for as there is, but there must be something.
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
 * An answer without entries has the header of the ledger's other segments, or of the
 * mirror's newest one: a client must not meet another release's columns in it.
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
