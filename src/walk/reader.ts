/**
 * Reads one direction from an anchor, stitched page by stitched page, one page ahead of the committer.
 * It decides nothing about the other chain; where a page may reach it, it waits.
 */
import { errorCode, PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import { askPage, PAGE_SIZE_MAX, PAGE_SIZE_MIN, type WalkContext } from './context.ts';
import { cutPage, type CutPage, type RowGroup } from './groups.ts';
import { checkEnvelope, checkOrder } from './guards.ts';
import type { Anchor, Direction, Page, Violation } from './ports.ts';
import { accept, nextAnchor } from './stitch.ts';

/** A page that continues what is held. */
export interface Stretch {
  readonly after: string;
  readonly size: number;
  readonly page: Page;
  readonly cut: CutPage;
  /** Whole groups behind the edge; at least one. */
  readonly fresh: readonly RowGroup[];
  readonly next: Anchor;
  /** Whether it may reach the chain on the other side of the gap. */
  readonly mayJoin: boolean;
}

export type ReaderEvent =
  | { readonly kind: 'stretch'; readonly stretch: Stretch }
  /** The source says that there is no more, asked twice. */
  | { readonly kind: 'end' }
  /** `isFinal`: asking again cannot help. */
  | { readonly kind: 'trouble'; readonly trouble: Violation; readonly isFinal: boolean };

export interface ReaderStart {
  readonly anchor: Anchor;
  readonly size: number;
  readonly direction: Direction;
  readonly mayJoin: (groups: readonly RowGroup[]) => boolean;
  readonly signal: AbortSignal;
}

export async function* readDirection(
  context: WalkContext,
  start: ReaderStart,
): AsyncGenerator<ReaderEvent, void> {
  let { anchor, size } = start;
  let isBehindEnd = false;
  for (;;) {
    const answer = await askStitched(context, start, anchor, size);
    if (answer.kind === 'smaller') {
      size = answer.size;
      continue;
    }
    if (answer.kind === 'trouble') {
      yield answer;
      return;
    }
    const { page, cut, fresh } = answer;
    const last = fresh.at(-1);
    if (last === undefined) {
      if (page.hasNextPage || cut.partial !== undefined) {
        if (size >= PAGE_SIZE_MAX) {
          yield tieGroup(anchor, size);
          return;
        }
        size *= 2;
        continue;
      }
      if (isBehindEnd) {
        yield { kind: 'end' };
        return;
      }
    } else {
      if (isBehindEnd && !wasHeldBack(anchor, fresh)) context.tally.shortReads += 1;
      const next = nextAnchor(cut.whole, {
        baseUrl: context.deps.source.baseUrl,
        edge: anchor.held.at(-1),
        partial: cut.partial,
      });
      if (next === undefined) return;
      const mayJoin = start.mayJoin(fresh);
      yield { kind: 'stretch', stretch: { after: anchor.cursor, size, page, cut, fresh, next, mayJoin } };
      if (mayJoin) return;
      anchor = next;
    }
    isBehindEnd = !page.hasNextPage;
    // Behind an end it is asked once more, with another size: was that a short read?
    size = isBehindEnd ? otherSize(context.pageSize) : context.pageSize;
  }
}

/** The last group of a full page was there already; now it was seen whole. */
function wasHeldBack({ partial }: Anchor, fresh: readonly RowGroup[]): boolean {
  return partial !== undefined && fresh.length === 1 && fresh[0]?.group === partial.group;
}

function otherSize(size: number): number {
  return size > PAGE_SIZE_MIN ? size - 1 : size + 1;
}

type StitchedAnswer =
  | { readonly kind: 'page'; readonly page: Page; readonly cut: CutPage; readonly fresh: readonly RowGroup[] }
  | { readonly kind: 'smaller'; readonly size: number }
  | Extract<ReaderEvent, { kind: 'trouble' }>;

async function askStitched(
  context: WalkContext,
  start: ReaderStart,
  anchor: Anchor,
  size: number,
): Promise<StitchedAnswer> {
  const { list } = context.session;
  const { direction } = start;
  let page: Page;
  try {
    page = await askPage(
      context,
      { newestFirst: direction === 'down', size, after: anchor.cursor },
      start.signal,
    );
  } catch (error) {
    return troubleOf(error, context, size);
  }
  const cut = cutPage(list, page, size);
  if (page.rows.length === 0 && page.hasNextPage) {
    return trouble('EMPTY_PAGE_PROMISES_MORE', { direction, after: anchor.held.at(-1)?.group });
  }
  const envelope = checkEnvelope(page);
  if (envelope !== undefined) await noteOnce(context, envelope);
  const acceptance = accept(anchor, cut);
  if (!acceptance.accepted) {
    const { code, expected, got } = acceptance.mismatch;
    return trouble(code, { direction, expected, got });
  }
  const order = checkOrder(list, cut.whole, direction);
  if (order !== undefined) return { kind: 'trouble', trouble: order, isFinal: false };
  return { kind: 'page', page, cut, fresh: acceptance.fresh };
}

/** A violation of each kind is kept once: the first. */
export async function noteOnce(context: WalkContext, violation: Violation): Promise<void> {
  if (context.tally.violations.some(({ code }) => code === violation.code)) return;
  context.tally.violations.push(violation);
  await context.session.note(violation);
}

function trouble(code: string, meta: Violation['meta']): Extract<ReaderEvent, { kind: 'trouble' }> {
  return { kind: 'trouble', trouble: { code, meta }, isFinal: false };
}

function tieGroup(anchor: Anchor, size: number): ReaderEvent {
  const meta = { behind: anchor.held.at(-1)?.group, size };
  return { kind: 'trouble', trouble: { code: 'TIE_GROUP', meta }, isFinal: true };
}

/**
 * What an error of the source means to a direction. The source has retried already.
 * @throws what concerns the whole walk: nobody there, told to wait for long, told to stop
 */
export function troubleOf(
  error: unknown,
  context: Pick<WalkContext, 'pageSize' | 'tally'>,
  size: number,
): Exclude<StitchedAnswer, { kind: 'page' }> {
  const isWholeWalks =
    error instanceof UnreachableError ||
    (error instanceof RetryableError && error.retryAfterMs !== undefined) ||
    !(error instanceof RetryableError || error instanceof PermanentError);
  if (isWholeWalks) throw error;
  const code = errorCode(error);
  if (code === 'PAGE_TOO_LARGE' && size > PAGE_SIZE_MIN) {
    if (size > context.pageSize) {
      return { kind: 'trouble', trouble: { code: 'TIE_GROUP', meta: { size } }, isFinal: true };
    }
    context.pageSize = Math.max(PAGE_SIZE_MIN, Math.floor(size / 2));
    context.tally.warn(`the source refused pages of ${size}; asked for ${context.pageSize}`);
    return { kind: 'smaller', size: context.pageSize };
  }
  const isFinal = code !== 'PAGE_SHAPE' && code !== 'CURSOR_REFUSED';
  return { kind: 'trouble', trouble: { code, meta: plainMeta(error) }, isFinal };
}

/** As JSON can hold it: this goes into the evidence. */
function plainMeta({ meta, message }: RetryableError | PermanentError): Violation['meta'] {
  const text = JSON.stringify({ ...meta, message }, (_, value: unknown) =>
    typeof value === 'bigint' ? value.toString() : value,
  );
  return JSON.parse(text) as Violation['meta'];
}
