/** From an answer that is believed to what one COMMIT makes true: what stands is kept, the rest numbered, published. */
import { unlink } from 'node:fs/promises';
import { buildPublication, type PublicationContext } from './build-publication.ts';
import type { SpoolOptions } from '../spool/range-spool.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { ExportLease } from '../store/leases.ts';
import type { Publication } from '../store/publications.ts';
import { publish, type PublishDeps } from './publish.ts';
import type { Received } from '../fetch/receive.ts';
import type { AskPlan } from '../plan/remaining.ts';
import type { ExportDeps } from '../request.ts';
import type { ReceivedSegment } from '../spool/answer-rows.ts';
import { isHeld, isSame } from '../validate/judge.ts';
import { type Kept, trimmed } from './trim.ts';

export interface AnswerContext
  extends Pick<PublicationContext, 'request' | 'as' | 'epoch' | 'closesKept'>, SpoolOptions {
  readonly lease: ExportLease;
  readonly deps: ExportDeps;
  readonly publishing: PublishDeps;
  /** Told before the intent: from then on the spool belongs to it. */
  readonly onIntend: (segments: number) => void;
  readonly signal: AbortSignal;
}

export interface PublishedAnswer {
  readonly publication: Publication;
  /** Rows that are held already, in segments that stand. */
  readonly held: number;
}

export async function publishAnswer(
  plan: AskPlan,
  received: Received,
  coverage: readonly Coverage[],
  context: AnswerContext,
): Promise<PublishedAnswer | { readonly shrunk: readonly Coverage[] }> {
  const { deps, request, lease, as, signal } = context;
  const stands = as === 'open' ? [] : standing(plan, received);
  for (const { segment } of stands) if (segment.spooled !== undefined) await unlink(segment.spooled.path);
  const fresh = received.segments
    .filter((segment) => !stands.some((stand) => stand.segment === segment))
    .map((segment) => (as === 'open' ? { ...segment, open: true } : segment));
  const kept = await trimmed(as === 'open' ? [] : plan.trims, context, deps, signal);
  const shrunk = as === 'open' ? [] : shrunkTrims(plan, kept, fresh);
  if (shrunk.length > 0) return { shrunk };
  const segments =
    fresh.filter(({ spooled }) => spooled !== undefined).length +
    kept.filter(({ written }) => written !== undefined).length;
  const { compression } = context;
  const { source } = deps;
  const parts = { fresh, kept, stands: stands.map(({ row }) => row) };
  const publication = buildPublication(plan, received, parts, coverage, {
    ...context,
    scope: lease.scope,
    manifests:
      segments === 0
        ? undefined
        : {
            ...(await deps.repository.nextSeq()),
            compression,
            source: source.baseUrl,
            runId: request.runId,
          },
    isTimeless: !source.hasTimes,
  });
  context.onIntend(segments);
  return {
    publication: await publish(lease, publication, context.publishing, signal),
    held: stands.reduce((sum, { segment }) => sum + (segment.spooled?.rows ?? 0), 0),
  };
}

/** Segments of which the answer takes a part, and has less in it than they do. */
function shrunkTrims(
  { trims }: AskPlan,
  kept: readonly Kept[],
  received: readonly ReceivedSegment[],
): readonly Coverage[] {
  const taken = (row: Coverage): bigint =>
    kept
      .filter((part) => part.row === row)
      .reduce((rows, { written }) => rows - BigInt(written?.spooled.rows ?? 0), row.rows);
  const believed = trims.map(({ row }) => row).filter((row) => isHeld(row) && taken(row) > 0n);
  const closed = received.filter(({ open }) => !open);
  const rows = closed.reduce((sum, { spooled }) => sum + BigInt(spooled?.rows ?? 0), 0n);
  return believed.reduce((sum, row) => sum + taken(row), 0n) > rows ? believed : [];
}

interface Stand {
  readonly row: Coverage;
  readonly segment: ReceivedSegment;
}

/** Segments that hold the same rows as what is known in their range. */
function standing(plan: AskPlan, { segments, layout }: Received): readonly Stand[] {
  return plan.standing.flatMap((row) => {
    const segment = segments.find((candidate) => isSame(candidate, row, layout.sides));
    return segment === undefined ? [] : [{ row, segment }];
  });
}
