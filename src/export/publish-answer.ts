/** From an answer that is believed to what one COMMIT makes true: cut to size, numbered, published. */
import { unlink } from 'node:fs/promises';
import { buildPublication } from './build-publication.ts';
import { type ClosedPart, cutPart } from './cut.ts';
import type { ReceivedPart } from './parts.ts';
import type { Coverage, Publication, UnitClaim } from './ports.ts';
import { publish, type PublishDeps } from './publish.ts';
import type { Received } from './receive.ts';
import type { AskPlan } from './remaining.ts';
import type { ExportDeps, ExportRequest } from './request.ts';

export interface AnswerContext {
  readonly claim: UnitClaim;
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
  const { warehouseId } = await deps.books.identity();
  const seq = segments === 0 ? 0n : await deps.books.nextSeq();
  const publication = buildPublication(plan, received, parts, coverage, {
    unit: claim.unit,
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
function unchanged({ standing }: AskPlan, received: Received): ReceivedPart | undefined {
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
  received: readonly ReceivedPart[],
  { header, layout }: Received,
  { deps, spoolFile, signal }: AnswerContext,
): Promise<ReceivedPart[]> {
  const options = {
    segmentBytesMax: deps.segmentBytesMax,
    compression: deps.compression,
    header,
    columns: layout.columns,
    spoolFile,
  };
  const parts: ReceivedPart[] = [];
  for (const part of received) {
    if (isCuttable(part)) parts.push(...(await cutPart(part, options, signal)));
    else parts.push(part);
  }
  return parts;
}

function isCuttable(part: ReceivedPart): part is ClosedPart {
  return !part.open && part.to !== undefined && part.spooled !== undefined;
}
