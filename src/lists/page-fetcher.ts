/**
 * Reads one generation on, oldest first: asks behind the group before the last that is
 * held, and takes what follows only where the page shows that last group again. While a
 * page is stored, the next one is requested.
 */
import { errorCode } from '../errors/errors.ts';
import { NETWORK_PARTY, withoutOddKeys } from '../ledger/ids.ts';
import {
  askPage,
  checkCeiling,
  reportProgress,
  type SyncContext,
} from './sync-context.ts';
import {
  classifyOverlap,
  classifyRest,
  groupRows,
  isSameGroups,
  isSameRows,
  type Group,
} from './overlap.ts';
import {
  checkOrder,
  doubt,
  EndNotShown,
  OverlapMissing,
} from './page-checks.ts';
import type { ListedRow, OddRow, Page, PageRequest } from './ports.ts';
import {
  keepGroups,
  StaleResumePoint,
  type ResumePoint,
} from './resume-point.ts';
import type { Generation } from './store/generations.ts';

/** A group larger than this many rows cannot be read. */
const SIZE_MAX = 1 << 17;
const TIGHT_ATTEMPTS_MAX = 12;
/** A page without its overlap is asked for again, then from older groups on. */
const OVERLAP_ATTEMPTS = [1, 1, 2, 3, 4, 5];

/** So many rows that are not understood are kept as they came. */
const ODD_ROWS_MAX = 20;

/** A question and the page that answered it. */
export interface Asked {
  readonly after: string | undefined;
  readonly size: number;
  readonly page: Page;
}

interface Step {
  readonly fresh: readonly ListedRow[];
  /** Whether the source promises more behind it. */
  readonly promisesMore: boolean;
}

/**
 * A page that shows what is held, the rows that follow, and all groups that are held with
 * them.
 */
interface Overlapping {
  readonly asked: Asked;
  readonly fresh: readonly ListedRow[];
  readonly groups: readonly Group[];
}

/** A page that was requested before the one in front of it was stored. */
interface PageAhead {
  readonly after: string | undefined;
  readonly size: number;
  readonly page: Promise<Page>;
  /** Ends the request if nobody wants the page any more. */
  readonly cancel: AbortController;
}

const NOTHING: Step = { fresh: [], promisesMore: false };

const OLDEST_FIRST: Pick<PageRequest, 'newestFirst' | 'fromEnd'> = {
  newestFirst: false,
};

export class ListReader {
  readonly context: SyncContext;
  /** With all pages that this sync has committed. */
  generation: Generation;
  /**
   * The resume point of the commit that the next one builds on; its `clamp` and `sizeMax` are as the
   * source has shown since.
   */
  point: ResumePoint;
  /**
   * A page with room left that promised nothing behind it: looked at once more where
   * something comes.
   */
  #unverified: Asked | undefined;
  /**
   * Set after a page that was asked for again proved right: where more follows, the
   * source sends no longer pages.
   */
  #shortLength: number | undefined;
  #ahead: PageAhead | undefined;
  /** `network` at the end of a list that fits one page: it has no place there. */
  network: ListedRow | undefined;
  pages = 0;
  /** Rows that are not understood, by their keys: the first that this reader has met. */
  readonly odd = new Map<string, OddRow>();

  constructor(
    context: SyncContext,
    generation: Generation,
    resumeFrom: ResumePoint | undefined,
  ) {
    const { generationId, sequence } = generation;
    this.context = context;
    this.generation = generation;
    this.point = resumeFrom ?? {
      generationId: `${generationId}`,
      sequence: `${sequence}`,
      groups: [],
    };
  }

  get lastGroup(): Group | undefined {
    return this.point.groups.at(-1);
  }

  /** Whether a page could have held more rows. */
  hasRoom({ size, page }: Asked): boolean {
    return page.rows.length < Math.min(size, this.point.clamp ?? size);
  }

  /** How many rows a page is asked for, at most. */
  get #size() {
    return Math.min(this.context.pageSize, this.point.sizeMax ?? SIZE_MAX);
  }

  /**
   * The newest-first page, or the last one oldest first, no larger than the source sends.
   */
  async askNewest(fromEnd: boolean): Promise<Asked> {
    // What is read behind the newest page must have been requested after it.
    await this.#settleAhead();
    return this.#ask(
      undefined,
      this.#size,
      fromEnd ? { newestFirst: false, fromEnd } : { newestFirst: true },
    );
  }

  /**
   * The page behind the cursor, oldest first where nothing else is said; smaller where
   * the source refuses one of that size.
   */
  async #ask(
    after: string | undefined,
    wanted: number,
    order = OLDEST_FIRST,
  ): Promise<Asked> {
    for (;;) {
      const size = Math.min(wanted, this.point.sizeMax ?? SIZE_MAX);
      try {
        const page = await (order === OLDEST_FIRST
          ? this.#askOrTakeAhead(after, size)
          : askPage(this.context, { ...order, size, after }));
        await this.#keepOdd(page);
        return { after, size, page };
      } catch (error) {
        if (errorCode(error) !== 'PAGE_TOO_LARGE' || size === 1) throw error;
        this.point = {
          ...this.point,
          sizeMax: Math.max(1, Math.floor(size / 2)),
        };
      }
    }
  }

  async #askOrTakeAhead(
    after: string | undefined,
    size: number,
  ): Promise<Page> {
    const ahead = this.#ahead;
    if (ahead?.after === after && ahead?.size === size) {
      this.#ahead = undefined;
      return ahead.page;
    }
    await this.#settleAhead();
    return askPage(this.context, { ...OLDEST_FIRST, size, after });
  }

  /**
   * Requests the page that `#askBehind` will want once these groups are stored. Not before
   * this reader has stored a page: a resume point that turns out to be outdated would cost
   * two requests instead of one.
   */
  #askAhead(groups: readonly Group[]): void {
    const last = groups.at(-1);
    const sent = groups.at(-2);
    if (this.pages === 0 || this.point.clamp === 1) return;
    if (last === undefined || sent === undefined) return;
    const { context } = this;
    const after = sent.cursor;
    const size = Math.min(
      this.#sizeBehind(sent, [last]),
      this.point.sizeMax ?? SIZE_MAX,
    );
    const cancel = new AbortController();
    const signal = AbortSignal.any([context.signal, cancel.signal]);
    const question = { ...OLDEST_FIRST, size, after };
    const page = askPage({ ...context, signal }, question);
    // The error belongs to the step that takes the page.
    page.catch(() => undefined);
    this.#ahead = { after, size, page, cancel };
  }

  /**
   * Waits for the answer of a page that nobody takes: the block that it shows counts, as
   * that of any other answer. The node that gave it may be the only one that has come so
   * far.
   */
  async #settleAhead(): Promise<void> {
    const ahead = this.#ahead;
    if (ahead === undefined) return;
    this.#ahead = undefined;
    await ahead.page.catch(() => undefined);
  }

  /**
   * Ends the request of a page that nobody takes, after an error, and waits until it has
   * ended, so that it changes no count afterwards.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#ahead?.cancel.abort();
    await this.#settleAhead();
  }

  /** Before anything is made of the page, so that no kill forgets them. */
  async #keepOdd({ rows }: Page) {
    const { odd } = this;
    const before = odd.size;
    for (const row of rows)
      if (row.odd !== undefined && odd.size < ODD_ROWS_MAX)
        odd.set(row.key, row.odd);
    if (odd.size === before) return;
    const seen = { rows: [...odd.values()] };
    await this.context.session.keepOddRows(this.generation, seen);
  }

  /** @throws DoubtError `PAGE_DIFFERS` where the same page now shows other rows */
  async #askTwice({ after, size, page }: Asked) {
    const again = await this.#ask(after, size);
    if (isSameRows(page.rows, again.page.rows)) return;
    const { list } = this.context;
    const seen = { before: page.rows[0]?.key, after: again.page.rows[0]?.key };
    throw doubt(
      list,
      'PAGE_DIFFERS',
      'the source shows other rows behind the same cursor',
      seen,
    );
  }

  /** Which of these rows are held. */
  locate(
    keys: readonly string[],
    countingTo?: bigint,
  ): ReturnType<SyncContext['session']['locate']> {
    return this.context.session.locate(this.generation, keys, countingTo);
  }

  /**
   * One page on.
   * @param isPressed the source has shown that more rows exist
   * @throws OverlapMissing, DoubtError, EndNotShown, StaleResumePoint
   */
  async step(isPressed: boolean): Promise<Step> {
    await this.#verify();
    const last = this.lastGroup;
    // Nothing can be shown again where a page holds one row.
    if (this.point.clamp === 1 && last !== undefined)
      return this.#askTight(last, isPressed);
    const found = await this.#askOverlapping();
    const { asked } = found;
    if (found.fresh.length > 0) return this.#take(found, isPressed);
    if (isPressed) await this.#verify(asked);
    else if (this.hasRoom(asked) || !asked.page.hasNextPage) return NOTHING;
    return last === undefined ? NOTHING : this.#askTight(last, isPressed);
  }

  async #take(
    { asked, fresh, groups }: Overlapping,
    isPressed: boolean,
  ): Promise<Step> {
    const { page } = asked;
    const { context } = this;
    checkOrder(context.list, this.lastGroup?.keys.at(-1), fresh);
    checkCeiling(context, 'rows', Number(this.generation.rows) + fresh.length);
    if (context.list === 'checkpoints') await this.#verifyTwins(asked, fresh);
    let { clamp } = this.point;
    // A page that could not show all there was is as long as pages of this source get.
    if (fresh.length > 0 && this.#shortLength !== undefined)
      clamp = Math.max(this.#shortLength, clamp ?? 0);
    this.#shortLength = undefined;
    if (clamp !== undefined) clamp = Math.max(clamp, page.rows.length);
    this.point = { ...this.point, clamp };
    if (page.hasNextPage) await this.#verify(asked);
    else this.#unverified = asked;
    const kept = keepGroups(groups);
    // Near the proven end each page decides whether another one is needed.
    if (page.hasNextPage && !isPressed) this.#askAhead(kept);
    await this.#commit(page, fresh, kept);
    return { fresh, promisesMore: page.hasNextPage };
  }

  async #commit(
    page: Page,
    rows: readonly ListedRow[],
    groups: readonly Group[],
  ) {
    const { failpoint, session, tally, resumePoints } = this.context;
    const resumePoint = {
      ...this.point,
      sequence: `${BigInt(this.point.sequence) + 1n}`,
      groups,
    };
    await failpoint?.('committing');
    const committed = await session.append(this.generation, {
      ...page,
      rows,
      resumePoint,
    });
    if (committed === undefined) throw new StaleResumePoint();
    await failpoint?.('committed');
    this.generation = committed;
    this.point = resumePoint;
    this.pages += 1;
    tally.pages += 1;
    tally.newRows += rows.filter(({ odd }) => odd === undefined).length;
    resumePoints.write(resumePoint);
    reportProgress(this.context);
    await failpoint?.('remembered');
  }

  /** The page behind what is held, with the groups that it must show again. */
  async #askOverlapping(): Promise<Overlapping> {
    const held = this.point.groups;
    if (held.length === 0) {
      const asked = await this.#ask(undefined, this.#size);
      const fresh = this.#withoutNetwork(asked.page);
      return { asked, fresh, groups: groupRows(fresh) };
    }
    // Where the kept groups are all there are, the first page shows them again.
    const understood = withoutOddKeys(held.flatMap(({ keys }) => keys));
    const isAll = BigInt(understood.length) === this.generation.rows;
    for (const back of OVERLAP_ATTEMPTS) {
      if (back > held.length || (back === held.length && !isAll)) break;
      const found = await this.#askBehind(back);
      if (found !== undefined) return found;
    }
    throw new OverlapMissing(
      this.context.list,
      'the source does not show the last rows again',
    );
  }

  async #askBehind(back: number): Promise<Overlapping | undefined> {
    const { groups } = this.point;
    const sent = groups.at(-1 - back);
    const expected = groups.slice(-back);
    for (
      let size = this.#sizeBehind(sent, expected);
      ;
      size = Math.min(size * 2, SIZE_MAX)
    ) {
      const asked = await this.#ask(sent?.cursor, size).catch(
        (error: unknown) => {
          if (errorCode(error) !== 'CURSOR_REFUSED') throw error;
        },
      );
      if (asked === undefined) return undefined;
      const rows = this.#withoutNetwork(asked.page);
      const overlap = classifyOverlap(rows, sent, expected);
      if (overlap.kind === 'missing') return undefined;
      if (overlap.kind === 'shown') {
        return {
          ...overlap,
          asked,
          groups: [...groups.slice(0, -back), ...overlap.groups],
        };
      }
      // The largest page still cuts the group: the page behind it may show what is
      // missing.
      const isLargest =
        rows.length < asked.size || size === SIZE_MAX || asked.size < size;
      if (!isLargest) continue;
      await this.#verify(asked);
      if (this.hasRoom(asked) && !asked.page.hasNextPage) return undefined;
      return { asked, fresh: [], groups };
    }
  }

  /** A page of new rows, and what it has to show again before them. */
  #sizeBehind(sent: Group | undefined, expected: readonly Group[]): number {
    const repeated = expected.reduce((sum, { keys }) => sum + keys.length, 0);
    return this.#size + repeated + (sent?.keys.length ?? 1) - 1;
  }

  /**
   * The page behind the very last group, where none behind an older one shows more: it
   * must show the rest of the group, or, where each row has a cursor of its own, be the
   * same twice.
   */
  async #askTight(behind: Group, isPressed: boolean): Promise<Step> {
    let last = behind;
    const before = this.point.groups.slice(0, -1);
    const found: ListedRow[] = [];
    for (let attempt = 1; attempt <= TIGHT_ATTEMPTS_MAX; attempt += 1) {
      const asked = await this.#ask(last.cursor, this.#size);
      const { kind, fresh, groups } = classifyRest(asked.page.rows, last);
      if (kind === 'more') {
        found.push(...fresh);
        [last = behind] = groups;
        continue;
      }
      if (kind === 'unseen') {
        if (fresh.length === 0) return NOTHING;
        if (last.keys.length > 1) break;
        await this.#askTwice(asked);
      }
      const taken = {
        asked,
        fresh: [...found, ...fresh],
        groups: [...before, last, ...groups],
      };
      return this.#take(taken, isPressed);
    }
    throw new EndNotShown(
      `Cannot read ${this.context.list} on: rows share a cursor, more than the ` +
        'source sends in a page; raise its page limit',
      { code: 'GROUP_EXCEEDS_PAGE', meta: { rowsSeen: last.keys.length } },
    );
  }

  /**
   * A page that is shorter than asked, with more behind it, is asked for again with the
   * size that it had.
   */
  async #verify(short = this.#unverified): Promise<void> {
    this.#unverified = undefined;
    const length = short?.page.rows.length ?? 0;
    if (
      short === undefined ||
      length === 0 ||
      length === short.size ||
      length === this.point.clamp
    )
      return;
    const again = await this.#ask(short.after, length);
    if (!isSameGroups(short.page.rows, again.page.rows)) {
      const seen = { rows: length, again: again.page.rows.length };
      throw doubt(
        this.context.list,
        'SHORT_PAGE',
        'a page that was shorter than asked lacked rows',
        seen,
      );
    }
    this.#shortLength = length;
  }

  /** Two equal checkpoints are two rows, or one row sent twice. */
  async #verifyTwins(asked: Asked, fresh: readonly ListedRow[]): Promise<void> {
    const keys = [
      ...(this.lastGroup?.keys ?? []),
      ...fresh.map(({ key }) => key),
    ];
    if (new Set(keys).size < keys.length) await this.#askTwice(asked);
  }

  /**
   * `network` behind all others has no place: what is new comes before it. The public
   * service lists it on one page only.
   */
  #withoutNetwork({ rows, hasNextPage }: Page): readonly ListedRow[] {
    const last = rows.at(-1);
    if (
      this.context.list !== 'parties' ||
      last?.key !== NETWORK_PARTY ||
      hasNextPage
    )
      return rows;
    this.network = last;
    return rows.slice(0, -1);
  }
}
