/** From an answer that is believed to what one COMMIT makes true: what stands is kept, the rest numbered, published. */
import { randomUUID } from 'node:crypto';
import { unlink } from 'node:fs/promises';
import { ceilSecond, type Micros, SECOND_MICROS } from '../../time/time.ts';
import type { Received } from '../download/receive-answer.ts';
import { instantOf, later, secondOf } from '../../ledger/ranges.ts';
import type { RequestPlan } from '../planning/remaining.ts';
import type { ExportContext, PublishContext } from '../request.ts';
import type { ReceivedSegment } from '../download/answer-rows.ts';
import { RangeSpool } from '../download/range-spool.ts';
import type { ReleaseShown } from '../../ledger/manifest.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { Publication } from '../../catalog/publications.ts';
import { isHeld, isSame, rowsOf } from '../validation/compare-rows.ts';
import type { Answered } from '../validation/assess-answer.ts';
import { nameObjects, type NewRange, NONE_LEFT_OUT } from './publisher.ts';
import { copyStoredRows } from './stored-rows.ts';

export interface AnswerContext extends ExportContext {
  /** `open`: nothing of the answer is closed, and all of it is asked for again. */
  readonly as: 'closed' | 'open';
  readonly epoch: number | undefined;
  /** Open coverage that the source contradicts: closed as it stands, though it did not come back. */
  readonly closesKept: readonly Coverage[];
  /** @returns what was published: objects that lay there already keep the bytes they have */
  readonly publish: (planned: Publication) => Promise<Publication>;
}

/**
 * @returns what was published, and how many rows are held already, in segments that stand; or the segments of which the
 *   answer has less than they do: then nothing is published
 */
export async function publishAnswer(
  { plan: given, received, target, learned }: Answered,
  context: AnswerContext,
): Promise<
  | { readonly publication: Publication; readonly held: number }
  | { readonly shrunk: Coverage[] }
> {
  const { source, repository, compression, request, lease, as } = context;
  const { assetId = null } = lease.scope;
  // Where nothing is closed, nothing that is closed stands, or is cut.
  const plan = as === 'open' ? { ...given, standing: [], trims: [] } : given;
  const stands = standing(plan, received);
  for (const { segment } of stands)
    if (segment.spooled !== undefined) await unlink(segment.spooled.path);
  const fresh = received.segments.filter(
    (segment) => !stands.some((stand) => stand.segment === segment),
  );
  const kept = await trimmed(plan.trims, context);
  const shrunk = shrunkTrims(plan, kept, fresh);
  if (shrunk.length > 0) return { shrunk };
  const tail = as === 'open' ? undefined : received.tail?.result(received.header);
  const closedEnd = plan.closed.at(-1)?.to;
  const tailOf = (to: Micros): typeof tail => (to === closedEnd ? tail : undefined);
  const gone = plan.supersedes.filter(
    (row) => !stands.some((stand) => stand.row === row),
  );
  const supersedes = [...gone, ...plan.trims.map(({ row }) => row)];
  const ranges = fresh.flatMap(
    ({ from, to = openEnd(from, received, request.clock.seen), spooled, ...segment }) => {
      const open = segment.open || as === 'open';
      // An open range without entries claims nothing; where no row tells when it was, it is all there is.
      if (spooled === undefined && open && source.hasTimes) return [];
      const { sides } = received.layout;
      const written = spooled && { ...received, spooled };
      return {
        assetId,
        from,
        to,
        open,
        sides,
        tail: open ? undefined : tailOf(to),
        written,
      };
    },
  );
  const isOther = (row: Coverage) =>
    row.assetId === lease.scope.assetId && !supersedes.includes(row);
  const empty = target.coverage.filter(
    (row) => row.objectKey === undefined && !row.open && isOther(row),
  );
  const merged = mergeEmpty(ranges, empty);
  const { runId, partyId } = request;
  const facts = {
    partyId,
    compression,
    source: source.baseUrl,
    runId,
    epoch: context.epoch,
    release: releaseShown(learned),
  };
  const published = [...merged.ranges, ...kept.flatMap(({ rest }) => rest ?? [])];
  const publication = {
    publicationId: randomUUID(),
    runId,
    ...(await nameObjects(published, facts, repository)),
    supersedes: [...supersedes, ...merged.taken].map(({ coverageId }) => coverageId),
    closes: [
      ...stands.map(({ row: { coverageId, to } }) => ({ coverageId, tail: tailOf(to) })),
      ...context.closesKept.map(({ coverageId }) => ({ coverageId })),
    ],
    epoch: context.epoch,
    lastEntryAt:
      received.newestSecond === undefined ? undefined : instantOf(received.newestSecond),
  };
  return {
    publication: await context.publish(publication),
    held: stands.reduce((sum, { segment }) => sum + (segment.spooled?.rows ?? 0), 0),
  };
}

/**
 * What is left of known ranges; undefined for an open one without entries, which claims nothing.
 * @throws RetryableError `SEGMENT_UNREADABLE` where the object does not hold what is known of it: then all of its
 *   range is to be asked for
 */
async function trimmed(trims: RequestPlan['trims'], context: PublishContext) {
  const kept: Kept[] = [];
  for (const { row, keeps } of trims) {
    const { objectKey, open, sides, assetId = null } = row;
    await using stack = new AsyncDisposableStack();
    const spools = keeps.map(({ from, to }) =>
      stack.use(new RangeSpool(secondOf(from), secondOf(to), context)),
    );
    const layout =
      objectKey &&
      (await copyStoredRows({ ...row, objectKey }, spools, 'keep a part of', context));
    for (const [index, range] of keeps.entries()) {
      const spooled = await spools[index]?.finish();
      const written =
        spooled && layout ? { leftOut: NONE_LEFT_OUT, spooled, layout } : undefined;
      const isEnd =
        range.to === row.to && row.tail !== undefined && row.tail.from >= range.from;
      const rest = {
        ...range,
        open,
        sides,
        assetId,
        tail: isEnd ? row.tail : undefined,
        written,
      };
      kept.push({ row, rest: written === undefined && open ? undefined : rest });
    }
  }
  return kept;
}

type Kept = Readonly<{ row: Coverage; rest: NewRange | undefined }>;

/** Segments of which the answer takes a part, and has less in it than they do. */
function shrunkTrims(
  { trims }: RequestPlan,
  kept: readonly Kept[],
  received: readonly ReceivedSegment[],
) {
  const losing = trims.flatMap(({ row }) => {
    const parts = kept.filter((part) => part.row === row);
    const taken = parts.reduce(
      (rows, { rest }) => rows - BigInt(rest?.written?.spooled.rows ?? 0),
      row.rows,
    );
    return isHeld(row) && taken > 0n ? [{ row, taken }] : [];
  });
  const known = losing.reduce((sum, { taken }) => sum + taken, 0n);
  return known > rowsOf(received.filter(({ open }) => !open))
    ? losing.map(({ row }) => row)
    : [];
}

/** Segments that hold the same rows as what is known in their range. */
function standing(plan: RequestPlan, { segments, layout }: Received) {
  return plan.revalidated.flatMap((row) => {
    const segment = segments.find((candidate) => isSame(candidate, row, layout.sides));
    return segment === undefined ? [] : [{ row, segment }];
  });
}

function openEnd(from: Micros, received: Received, seenTime: Micros): Micros {
  const newest = instantOf(received.newestSecond ?? 0) + SECOND_MICROS;
  return [ceilSecond(seenTime), newest].reduce(later, from + SECOND_MICROS);
}

/**
 * Ranges without entries that touch become one row, so that an idle party keeps one row for ever.
 * @param known those without entries: the ones that are taken are to be superseded
 */
function mergeEmpty(ranges: readonly NewRange[], known: readonly Coverage[]) {
  const merged: NewRange[] = [];
  const taken: Coverage[] = [];
  for (const range of ranges) {
    const last = merged.at(-1);
    const before = known.find(
      ({ to, sides }) => to === range.from && sides === range.sides,
    );
    if (range.written !== undefined) merged.push(range);
    else if (last?.to === range.from && last.written === undefined)
      merged[merged.length - 1] = { ...range, from: last.from };
    else {
      if (before !== undefined) taken.push(before);
      merged.push({ ...range, from: before?.from ?? range.from });
    }
  }
  return { ranges: merged, taken };
}

/** What manifests record of the source's profile: enough for a rebuilt database to know the release. */
function releaseShown(profile: SourceProfile): ReleaseShown {
  const { bounds, sides, header, evidence, decidedAt } = profile;
  return { bounds, sides, header, evidence, decidedAt };
}
