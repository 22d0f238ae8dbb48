/** From an answer that is believed to what one COMMIT makes true: cut to size, numbered, published. */
import { unlink } from 'node:fs/promises';
import { buildPublication } from './build-publication.ts';
import { type ClosedPart, cutPart } from '../spool/cut.ts';
import type { ReceivedSegment } from '../spool/segment-spool.ts';
import type { Coverage, Publication, ExportLease } from '../ports.ts';
import { publish, type PublishDeps } from './publish.ts';
import type { Received } from '../fetch/receive.ts';
import type { AskPlan } from '../plan/remaining.ts';
import type { ExportDeps, ExportRequest } from '../request.ts';

export interface AnswerContext {
  readonly claim: ExportLease;
  readonly request: ExportRequest;
  readonly deps: ExportDeps;
  readonly publishing: PublishDeps;
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
  /** Told before the intent: from then on the spool belongs to it. */
  readonly onIntend: (segments: number) => void;
  readonly signal: AbortSignal;
}

export async function publishAnswer(
  plan: AskPlan,
  received: Received,
  coverage: readonly Coverage[],
  context: AnswerContext,
): Promise<Publication> {
  const { deps, request, claim } = context;
  const standing = unchanged(plan, received);
  const rest = received.parts.filter((part) => part !== standing);
  if (standing?.spooled !== undefined) await unlink(standing.spooled.path);
  const parts = await cutAll(rest, received, context);
  const segments = parts.filter((part) => part.spooled !== undefined).length;
  const { warehouseId } = await deps.repository.identity();
  const seq = segments === 0 ? 0n : await deps.repository.nextSeq();
  const publication = buildPublication(plan, received, parts, coverage, {
    scope: claim.scope,
    runId: request.runId,
    source: deps.source.baseUrl,
    warehouseId,
    seq,
    compression: deps.compression,
    seenTime: request.seenTime,
    isStanding: standing !== undefined,
  });
  context.onIntend(segments);
  return await publish(claim, publication, context.publishing, context.signal);
}

/** The part that holds the same rows as the open segment before it: that one is closed as it stands. */
function unchanged({ standing }: AskPlan, received: Received): ReceivedSegment | undefined {
  const content = standing?.content;
  if (standing === undefined || content === undefined) return undefined;
  return received.parts.find(
    ({ from, to, open, spooled }) =>
      !open &&
      from === standing.from &&
      to === standing.to &&
      spooled !== undefined &&
      BigInt(spooled.rows) === standing.rows &&
      spooled.digest === content.digest &&
      spooled.rowForm === content.rowForm &&
      received.layout.sides === standing.sides,
  );
}

async function cutAll(
  received: readonly ReceivedSegment[],
  { header, layout }: Received,
  { deps, spoolFile, signal }: AnswerContext,
): Promise<ReceivedSegment[]> {
  const options = {
    segmentBytesMax: deps.segmentBytesMax,
    compression: deps.compression,
    header,
    columns: layout.columns,
    spoolFile,
  };
  const parts: ReceivedSegment[] = [];
  for (const part of received) {
    if (isCuttable(part)) parts.push(...(await cutPart(part, options, signal)));
    else parts.push(part);
  }
  return parts;
}

function isCuttable(part: ReceivedSegment): part is ClosedPart {
  return !part.open && part.to !== undefined && part.spooled !== undefined;
}
