/**
 * Turns an accepted response into a single publication. Segments that the source returned
 * unchanged are kept. The other rows become new objects, which replace the coverage of
 * their ranges in one COMMIT.
 */
import { randomUUID } from 'node:crypto';
import { unlink } from 'node:fs/promises';
import { ceilSecond, type Micros, SECOND_MICROS } from '../../time/time.ts';
import type { Received } from '../download/receive-answer.ts';
import { instantOf, later, type Range, secondOf } from '../../ledger/ranges.ts';
import type { ReleaseShown } from '../../ledger/manifest.ts';
import type { TailSum } from '../../ledger/tail-sum.ts';
import type { RequestPlan } from '../planning/remaining.ts';
import type { ExportContext, PublishContext } from '../export-context.ts';
import type { ReceivedSegment } from '../download/answer-rows.ts';
import { RangeSpool } from '../download/range-spool.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { Publication } from '../../catalog/publications.ts';
import type { SourceProfile } from '../planning/profile.ts';
import { isHeld, isSame, rowsOf } from '../validation/compare-rows.ts';
import type { Answered } from '../validation/assess-answer.ts';
import {
  type ManifestFacts,
  nameObjects,
  type NewRange,
  NONE_LEFT_OUT,
  type WrittenRows,
} from './publisher.ts';
import { copyStoredRows } from './stored-rows.ts';

export interface AnswerContext extends ExportContext {
  /**
   * 'open': no range of the response is closed, and all of it is requested again later.
   */
  readonly as: 'closed' | 'open';
  /** The epoch of the source's chain; undefined if no checkpoint is known. */
  readonly epoch: number | undefined;
  /**
   * Open coverage that the source contradicts. It is closed unchanged, although the
   * source did not return its rows. None of it ends after the instant up to which the
   * run can close the ledger.
   */
  readonly closesKept: readonly Coverage[];
  /**
   * Publishes a plan.
   * @returns the plan with the objects that are now in the store, some of which may
   *   have existed before
   */
  readonly publish: (planned: Publication) => Promise<Publication>;
}

/** A response that was published. */
export interface PublishedAnswer {
  readonly publication: Publication;
  /**
   * The number of the response's rows that belong to segments that are kept unchanged.
   */
  readonly held: number;
}

/**
 * A response that was not published, because it has fewer rows than the coverage it
 * would replace.
 */
export interface ShrunkAnswer {
  /** The segments that would have lost rows. */
  readonly shrunk: Coverage[];
}

export async function publishAnswer(
  answered: Answered,
  context: AnswerContext,
): Promise<PublishedAnswer | ShrunkAnswer> {
  const { received } = answered;
  const plan = context.as === 'open' ? openPlan(answered.plan) : answered.plan;
  const unchanged = unchangedSegments(plan, received);
  for (const { segment } of unchanged)
    if (segment.spooled !== undefined) await unlink(segment.spooled.path);

  const changed = received.segments.filter((segment) =>
    unchanged.every((pair) => pair.segment !== segment),
  );
  const remainders = await copyRemainders(plan.trims, context);
  const shrunk = shrunkTrims(plan, remainders, changed);
  if (shrunk.length > 0) return { shrunk };

  const planned = await planPublication(
    { ...answered, plan, unchanged, changed, remainders },
    context,
  );
  return {
    publication: await context.publish(planned),
    held: unchanged.reduce(
      (sum, { segment }) => sum + (segment.spooled?.rows ?? 0),
      0,
    ),
  };
}

/**
 * Returns the plan for a response that is published as an open segment. Such a plan
 * neither confirms nor trims a closed segment.
 */
function openPlan(plan: RequestPlan): RequestPlan {
  return { ...plan, revalidated: [], trims: [] };
}

/**
 * A known segment whose rows the source returned unchanged. It is kept, and its spooled
 * rows are discarded.
 */
interface UnchangedSegment {
  readonly row: Coverage;
  readonly segment: ReceivedSegment;
}

function unchangedSegments(
  plan: RequestPlan,
  { segments, layout }: Received,
): readonly UnchangedSegment[] {
  return plan.revalidated.flatMap((row) => {
    const segment = segments.find((candidate) =>
      isSame(candidate, row, layout.sides),
    );
    return segment === undefined ? [] : [{ row, segment }];
  });
}

/** What remains of a known range when a response replaces part of it. */
interface Remainder {
  readonly row: Coverage;
  /**
   * The remaining range; undefined if it is open and empty, because it then claims
   * nothing.
   */
  readonly rest: NewRange | undefined;
}

/**
 * Copies the remainders of known ranges into new spool files.
 * @throws RetryableError `SEGMENT_UNREADABLE` if an object no longer has its published
 *   content; its whole range is then requested again
 */
async function copyRemainders(
  trims: RequestPlan['trims'],
  context: PublishContext,
): Promise<readonly Remainder[]> {
  const remainders: Remainder[] = [];
  for (const { row, keeps } of trims)
    remainders.push(...(await copyRemaindersOf(row, keeps, context)));
  return remainders;
}

async function copyRemaindersOf(
  row: Coverage,
  keeps: readonly Range[],
  context: PublishContext,
): Promise<readonly Remainder[]> {
  const { objectKey, open, sides, assetId = null } = row;
  await using stack = new AsyncDisposableStack();
  const spools = keeps.map(({ from, to }) =>
    stack.use(new RangeSpool(secondOf(from), secondOf(to), context)),
  );
  const layout =
    objectKey === undefined
      ? undefined
      : await copyStoredRows(
          { ...row, objectKey },
          spools,
          'keep a part of',
          context,
        );

  const remainders: Remainder[] = [];
  for (const [index, range] of keeps.entries()) {
    const spooled = await spools[index]?.finish();
    const written: WrittenRows | undefined =
      spooled && layout
        ? { leftOut: NONE_LEFT_OUT, spooled, layout }
        : undefined;
    const claimsNothing = written === undefined && open;
    const tail = endsWithTail(range, row) ? row.tail : undefined;
    const rest = { ...range, open, sides, assetId, tail, written };
    remainders.push({ row, rest: claimsNothing ? undefined : rest });
  }
  return remainders;
}

/** Whether a remainder contains all rows of its range's tail. */
function endsWithTail(
  { from, to }: Range,
  { to: end, tail }: Coverage,
): boolean {
  return to === end && tail !== undefined && tail.from >= from;
}

/**
 * Returns the segments that would lose rows, because the response would replace more of
 * their rows than it contains.
 */
function shrunkTrims(
  { trims }: RequestPlan,
  remainders: readonly Remainder[],
  changed: readonly ReceivedSegment[],
): Coverage[] {
  const losing: Coverage[] = [];
  let lostRows = 0n;
  for (const { row } of trims) {
    const keptRows = remainders
      .filter((remainder) => remainder.row === row)
      .reduce(
        (sum, { rest }) => sum + BigInt(rest?.written?.spooled.rows ?? 0),
        0n,
      );
    const taken = row.rows - keptRows;
    if (!isHeld(row) || taken <= 0n) continue;
    losing.push(row);
    lostRows += taken;
  }
  const closed = changed.filter(({ open }) => !open);
  return lostRows > rowsOf(closed) ? losing : [];
}

/** A response, and the decision about each of its segments. */
interface SortedAnswer extends Answered {
  readonly unchanged: readonly UnchangedSegment[];
  /** Segments of the response that become new ranges. */
  readonly changed: readonly ReceivedSegment[];
  readonly remainders: readonly Remainder[];
}

async function planPublication(
  answer: SortedAnswer,
  context: AnswerContext,
): Promise<Publication> {
  const { plan, received, target, learned, unchanged, remainders } = answer;
  const { source, repository, compression, request, lease, epoch, closesKept } =
    context;
  const { runId, partyId } = request;
  const tailAt = tailOf(answer, context);

  const replaced = plan.supersedes.filter((row) =>
    unchanged.every((pair) => pair.row !== row),
  );
  const supersedes = [...replaced, ...plan.trims.map(({ row }) => row)];
  const ownEmpty = target.coverage.filter(
    (row) =>
      row.objectKey === undefined &&
      !row.open &&
      row.assetId === lease.scope.assetId &&
      !supersedes.includes(row),
  );
  const merged = mergeEmpty(newRanges(answer, tailAt, context), ownEmpty);
  const ranges = [
    ...merged.ranges,
    ...remainders.flatMap(({ rest }) => rest ?? []),
  ];
  const facts: ManifestFacts = {
    partyId,
    compression,
    source: source.baseUrl,
    runId,
    epoch,
    release: releaseShown(learned),
  };
  const { newestSecond } = received;
  return {
    publicationId: randomUUID(),
    runId,
    ...(await nameObjects(ranges, facts, repository)),
    supersedes: [...supersedes, ...merged.taken].map(
      ({ coverageId }) => coverageId,
    ),
    closes: [
      ...unchanged.map(({ row: { coverageId, to } }) => ({
        coverageId,
        tail: tailAt(to),
      })),
      ...closesKept.map(({ coverageId }) => ({ coverageId })),
    ],
    epoch,
    lastEntryAt:
      newestSecond === undefined ? undefined : instantOf(newestSecond),
  };
}

/**
 * Returns a function that looks up the tail of the closed range ending at a given
 * instant. Only the last closed range has a tail.
 */
function tailOf(
  { plan, received }: Answered,
  { as }: AnswerContext,
): (to: Micros) => TailSum | undefined {
  if (as === 'open') return () => undefined;
  const tail = received.tail?.result(received.header);
  const closedEnd = plan.closed.at(-1)?.to;
  return (to) => (to === closedEnd ? tail : undefined);
}

/** Returns the ranges that become known through the segments of the response. */
function newRanges(
  { changed, received }: SortedAnswer,
  tailAt: (to: Micros) => TailSum | undefined,
  { as, source, request, lease }: AnswerContext,
): readonly NewRange[] {
  const { assetId = null } = lease.scope;
  const { layout, leftOut } = received;
  const ranges: NewRange[] = [];
  for (const { spooled, ...segment } of changed) {
    const { from } = segment;
    const to = segment.to ?? openEnd(from, received, request.clock.seen);
    const open = segment.open || as === 'open';
    // An empty open range claims nothing, so it is left out. If rows have no times,
    // though, it is all that can be covered.
    if (spooled === undefined && open && source.hasTimes) continue;
    const written =
      spooled === undefined ? undefined : { spooled, layout, leftOut };
    const tail = open ? undefined : tailAt(to);
    ranges.push({
      assetId,
      from,
      to,
      open,
      sides: layout.sides,
      tail,
      written,
    });
  }
  return ranges;
}

/**
 * Returns the end of an open range that was requested without an end. It is later than
 * both the present and the newest entry.
 */
function openEnd(from: Micros, received: Received, seenTime: Micros): Micros {
  const newest = instantOf(received.newestSecond ?? 0) + SECOND_MICROS;
  return [ceilSecond(seenTime), newest].reduce(later, from + SECOND_MICROS);
}

/** New ranges, and the known ranges that were merged into them. */
interface MergedRanges {
  readonly ranges: readonly NewRange[];
  /** The known ranges that were merged and are to be superseded. */
  readonly taken: readonly Coverage[];
}

/**
 * Merges adjacent empty ranges, so that an idle party keeps a single row of coverage.
 * @param known the known empty ranges
 */
function mergeEmpty(
  ranges: readonly NewRange[],
  known: readonly Coverage[],
): MergedRanges {
  const merged: NewRange[] = [];
  const taken: Coverage[] = [];
  for (const range of ranges) {
    const last = merged.at(-1);
    if (range.written !== undefined) {
      merged.push(range);
      continue;
    }
    if (last?.to === range.from && last.written === undefined) {
      merged[merged.length - 1] = { ...range, from: last.from };
      continue;
    }
    const before = known.find(
      ({ to, sides }) => to === range.from && sides === range.sides,
    );
    if (before !== undefined) taken.push(before);
    merged.push({ ...range, from: before?.from ?? range.from });
  }
  return { ranges: merged, taken };
}

/**
 * Returns what manifests record about the source's release: enough for a rebuilt
 * database to recognize the release.
 */
function releaseShown(profile: SourceProfile): ReleaseShown {
  const { bounds, sides, header, evidence, decidedAt } = profile;
  return { bounds, sides, header, evidence, decidedAt };
}
