/**
 * Reads one generation forward, oldest first. Each page is requested after the
 * second-to-last stored group, and its new rows are accepted only if the page shows the
 * last stored group again. The next page is requested while the current one is being
 * stored.
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

/** Maximum page size, in rows. A group with more rows cannot be read. */
const SIZE_MAX = 1 << 17;
const TIGHT_ATTEMPTS_MAX = 12;
/**
 * How many groups back each attempt starts when a page lacks its overlap: first the
 * same page again, then pages after older and older groups.
 */
const OVERLAP_ATTEMPTS = [1, 1, 2, 3, 4, 5];

/**
 * Maximum number of rows that a reader keeps with their original text because they
 * could not be parsed.
 */
const ODD_ROWS_MAX = 20;

/** A request for a page, and the page that was received. */
export interface Asked {
  readonly after: string | undefined;
  readonly size: number;
  readonly page: Page;
}

interface Step {
  readonly fresh: readonly ListedRow[];
  /** Whether the source promises more rows after this page. */
  readonly promisesMore: boolean;
}

/**
 * A page that shows the stored rows again. `fresh` has the new rows after them, and
 * `groups` the groups of the resume point followed by those of the page.
 */
interface Overlapping {
  readonly asked: Asked;
  readonly fresh: readonly ListedRow[];
  readonly groups: readonly Group[];
}

/** A page that was requested before the previous page was stored. */
interface PageAhead {
  readonly after: string | undefined;
  readonly size: number;
  readonly page: Promise<Page>;
  /** Cancels the request if the page is no longer needed. */
  readonly cancel: AbortController;
}

const NOTHING: Step = { fresh: [], promisesMore: false };

const OLDEST_FIRST: Pick<PageRequest, 'newestFirst' | 'fromEnd'> = {
  newestFirst: false,
};

export class ListReader {
  readonly context: SyncContext;
  /** The generation, including all pages that this sync has committed. */
  generation: Generation;
  /**
   * The resume point of the last commit, on which the next commit builds. Its `clamp`
   * and `sizeMax` reflect what the source has shown since.
   */
  point: ResumePoint;
  /**
   * A page that had room left and promised no more rows. If more rows follow after all,
   * the page is requested again.
   */
  #unverified: Asked | undefined;
  /**
   * Number of rows in a short page that a second request confirmed. If more rows follow
   * that page, the source never sends longer pages.
   */
  #shortLength: number | undefined;
  #ahead: PageAhead | undefined;
  /**
   * The row `network`, if it comes last in a list that fits on one page. It has no
   * position there.
   */
  network: ListedRow | undefined;
  pages = 0;
  /**
   * Rows that cannot be parsed, by key. Only the first ones that this reader
   * encountered are kept.
   */
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

  /** Whether the page had room for more rows. */
  hasRoom({ size, page }: Asked): boolean {
    return page.rows.length < Math.min(size, this.point.clamp ?? size);
  }

  /** Maximum number of rows to request in a page. */
  get #size() {
    return Math.min(this.context.pageSize, this.point.sizeMax ?? SIZE_MAX);
  }

  /**
   * Requests the newest-first page, or the last page in oldest-first order. The page is
   * no larger than the source accepts.
   */
  async askNewest(fromEnd: boolean): Promise<Asked> {
    // Pages that are processed after the newest page must also be requested after it.
    await this.#settleAhead();
    return this.#ask(
      undefined,
      this.#size,
      fromEnd ? { newestFirst: false, fromEnd } : { newestFirst: true },
    );
  }

  /**
   * Requests the page after the cursor, oldest first unless the caller sets another
   * order. If the source refuses the size, requests a smaller page.
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
   * Requests the page that `#askBehind` will need once these groups are stored, but
   * only if this reader has already stored a page: otherwise an outdated resume point
   * would cost two requests instead of one.
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
    // The step that takes the page handles its error.
    page.catch(() => undefined);
    this.#ahead = { after, size, page, cancel };
  }

  /**
   * Waits for a requested page that is no longer needed. The block that its response
   * reports still counts, because the node that sent it may be the only one that has
   * reached that block.
   */
  async #settleAhead(): Promise<void> {
    const ahead = this.#ahead;
    if (ahead === undefined) return;
    this.#ahead = undefined;
    await ahead.page.catch(() => undefined);
  }

  /**
   * After an error, cancels the request for the next page and waits until it has ended,
   * so that it cannot change any count afterwards.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#ahead?.cancel.abort();
    await this.#settleAhead();
  }

  /**
   * Stores the rows that cannot be parsed before the page is used in any other way, so
   * that a kill cannot lose them.
   */
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

  /**
   * Requests a page again and compares it.
   * @throws DoubtError `PAGE_DIFFERS` if the same page now shows other rows
   */
  async #askTwice({ after, size, page }: Asked) {
    const again = await this.#ask(after, size);
    if (isSameRows(page.rows, again.page.rows)) return;
    const { list } = this.context;
    const seen = { before: page.rows[0]?.key, after: again.page.rows[0]?.key };
    throw doubt(
      list,
      'PAGE_DIFFERS',
      'the source shows different rows after the same cursor',
      seen,
    );
  }

  /** Finds out which of these rows are stored. */
  locate(
    keys: readonly string[],
    countingTo?: bigint,
  ): ReturnType<SyncContext['session']['locate']> {
    return this.context.session.locate(this.generation, keys, countingTo);
  }

  /**
   * Reads one page forward.
   * @param isPressed whether the source has shown that more rows exist
   * @throws OverlapMissing, DoubtError, EndNotShown, StaleResumePoint
   */
  async step(isPressed: boolean): Promise<Step> {
    await this.#verify();
    const last = this.lastGroup;
    // A page of one row that repeats a stored row has no room for a new one.
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
    // The page did not show all rows, so its length is the maximum that the source
    // sends.
    if (fresh.length > 0 && this.#shortLength !== undefined)
      clamp = Math.max(this.#shortLength, clamp ?? 0);
    this.#shortLength = undefined;
    if (clamp !== undefined) clamp = Math.max(clamp, page.rows.length);
    this.point = { ...this.point, clamp };
    if (page.hasNextPage) await this.#verify(asked);
    else this.#unverified = asked;
    const kept = keepGroups(groups);
    // Near the proven end, each page decides whether another one is needed, so none is
    // requested ahead.
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

  /**
   * Requests the next page, which must repeat the last stored groups before any new
   * rows.
   */
  async #askOverlapping(): Promise<Overlapping> {
    const held = this.point.groups;
    if (held.length === 0) {
      const asked = await this.#ask(undefined, this.#size);
      const fresh = this.#withoutNetwork(asked.page);
      return { asked, fresh, groups: groupRows(fresh) };
    }
    // If the resume point has all groups of the list, the first page must show them
    // again.
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
      // Even the largest page cuts the group off. The page after it may show the
      // missing rows.
      const isLargest =
        rows.length < asked.size || size === SIZE_MAX || asked.size < size;
      if (!isLargest) continue;
      await this.#verify(asked);
      if (this.hasRoom(asked) && !asked.page.hasNextPage) return undefined;
      return { asked, fresh: [], groups };
    }
  }

  /**
   * Computes a page size with room for the rows that must be shown again and the new
   * rows after them.
   */
  #sizeBehind(sent: Group | undefined, expected: readonly Group[]): number {
    const repeated = expected.reduce((sum, { keys }) => sum + keys.length, 0);
    return this.#size + repeated + (sent?.keys.length ?? 1) - 1;
  }

  /**
   * Requests the page after the very last group. Called if pages after older groups
   * show no new row although there may be more. The page must show the rest of the last
   * group or, if each row has its own cursor, be identical when requested twice.
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
   * Requests a short page again with the same size. A page that is shorter than
   * requested although more rows follow may lack rows.
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
        'a page shorter than requested left out rows',
        seen,
      );
    }
    this.#shortLength = length;
  }

  /** Checks whether equal checkpoints are two rows, or one row that was sent twice. */
  async #verifyTwins(asked: Asked, fresh: readonly ListedRow[]): Promise<void> {
    const keys = [
      ...(this.lastGroup?.keys ?? []),
      ...fresh.map(({ key }) => key),
    ];
    if (new Set(keys).size < keys.length) await this.#askTwice(asked);
  }

  /**
   * Removes `network` if it follows all other rows. It has no position in the order,
   * and new rows are listed before it. In this order the public service lists it only
   * if everything fits on one page.
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
