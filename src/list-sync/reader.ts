/**
 * Reads one generation on, oldest first: asks behind the group before the last that is held, and takes what
 * follows only where the page shows that last group again. The next page is asked for while one is committed.
 */
import { errorCode } from '../core/errors.ts';
import { NETWORK_PARTY } from '../core/ids.ts';
import { CEILING, endless, reportProgress, type SyncContext } from './context.ts';
import { classifyOverlap, classifyRest, groupRows, isSameRows, type Group } from './groups.ts';
import { checkOrder, doubt, EndNotShown } from './guards.ts';
import { PageRequests, SIZE_MAX, type Asked } from './page-requests.ts';
import type { ListedRow, Page } from './ports.ts';
import { advance, keepGroups, type ResumePoint } from './resume-point.ts';
import type { Generation } from './store/generations.ts';

const TIGHT_ATTEMPTS_MAX = 12;
/** A page without its overlap is asked for again, then from older groups on. */
const OVERLAP_ATTEMPTS = [1, 1, 2, 3, 4, 5];

/** The source does not show again what is held. */
export class OverlapMissing extends Error {}

export interface Step {
  readonly fresh: readonly ListedRow[];
  /** Whether the source promises more behind it. */
  readonly promisesMore: boolean;
}

/** A page that shows what is held: `expected` of its groups. */
interface Overlapping {
  readonly asked: Asked;
  readonly expected: number;
  readonly fresh: readonly ListedRow[];
  readonly groups: readonly Group[];
}

const NOTHING: Step = { fresh: [], promisesMore: false };

export class Reader {
  readonly generation: Generation;
  readonly #context: SyncContext;
  readonly #requests: PageRequests;
  #sequence: bigint;
  #groups: readonly Group[];
  #clamp: number | undefined;
  /** A page with room left that promised nothing behind it: looked at once more where something comes. */
  #unverified: Asked | undefined;
  /** Set after a page that was asked for again proved right: where more follows, the source sends no longer pages. */
  #shortLength: number | undefined;
  /** Rows of this generation, as this sync knows them. */
  rows: bigint;
  lastPos: bigint;
  /** `network` at the end of a list that fits one page: it has no place there. */
  network: ListedRow | undefined;
  pages = 0;

  constructor(context: SyncContext, generation: Generation, resumeFrom: ResumePoint | undefined) {
    this.generation = generation;
    this.#context = context;
    this.#sequence = resumeFrom === undefined ? generation.sequence : BigInt(resumeFrom.sequence);
    this.#groups = resumeFrom?.groups ?? [];
    this.#requests = new PageRequests(context, resumeFrom?.sizeMax);
    this.#clamp = resumeFrom?.clamp;
    this.rows = generation.rows;
    this.lastPos = generation.lastPos;
  }

  get sequence(): bigint {
    return this.#sequence;
  }

  get lastGroup(): Group | undefined {
    return this.#groups.at(-1);
  }

  /** How many rows a page is asked for, at most. */
  get size(): number {
    return this.#requests.size;
  }

  /** Whether a page of so many rows could have held more. */
  hasRoom(asked: number, rows: number): boolean {
    return rows < Math.min(asked, this.#clamp ?? asked);
  }

  /**
   * One page on.
   * @param isPressed the source has shown that more rows exist
   * @throws OverlapMissing, DoubtSeen, EndNotShown
   */
  async step(isPressed: boolean): Promise<Step | 'stale'> {
    await this.#verify();
    // Nothing can be shown again where a page holds one row.
    if (this.#clamp === 1 && this.lastGroup !== undefined) return this.#askTight(this.lastGroup);
    const { asked, fresh, groups, expected } = await this.#askOverlapping();
    if (fresh.length > 0) return this.#take(asked, fresh, groups, expected);
    if (isPressed) {
      await this.#verify(asked);
      return this.#squeeze(asked);
    }
    const isFull = !this.hasRoom(asked.size, asked.page.rows.length);
    return isFull && asked.page.hasNextPage ? this.#squeeze(asked) : NOTHING;
  }

  async #take(
    asked: Asked,
    fresh: readonly ListedRow[],
    shown: readonly Group[],
    expected: number,
  ): Promise<Step | 'stale'> {
    const { page } = asked;
    this.#guard(fresh);
    if (this.#context.list === 'checkpoints') await this.#verifyTwins(asked, fresh);
    // A page that could not show all there was is as long as pages of this source get.
    if (fresh.length > 0)
      this.#clamp =
        this.#shortLength === undefined ? this.#clamp : Math.max(this.#shortLength, this.#clamp ?? 0);
    this.#shortLength = undefined;
    const { length } = page.rows;
    if (this.#clamp !== undefined && length > this.#clamp) this.#clamp = length;
    if (page.hasNextPage) await this.#verify(asked);
    else this.#unverified = asked;
    this.#groups = expected < 0 ? keepGroups(shown) : advance(this.#groups, expected, shown);
    if (page.hasNextPage && this.#clamp !== 1) this.#askAhead();
    return (await this.#commit(page, fresh)) ? { fresh, promisesMore: page.hasNextPage } : 'stale';
  }

  #guard(fresh: readonly ListedRow[]): void {
    const { list, deps } = this.#context;
    const found = checkOrder(list, this.lastGroup?.keys.at(-1), fresh);
    if (found !== undefined) throw found;
    const ceiling = deps.ceiling ?? CEILING;
    if (this.rows + BigInt(fresh.length) > BigInt(ceiling.rows)) throw endless(list, `${ceiling.rows} rows`);
  }

  async #commit(page: Page, fresh: readonly ListedRow[]): Promise<boolean> {
    const { deps, session, tally, writer } = this.#context;
    const sequence = this.#sequence + 1n;
    const resumePoint = this.#resumePoint(sequence);
    await deps.failpoint?.('committing');
    const { blockHeight: height, blockTime: time } = page;
    if (!(await session.append(this.generation, { rows: fresh, resumePoint, height, time }))) return false;
    await deps.failpoint?.('committed');
    this.#sequence = sequence;
    this.rows += BigInt(fresh.length);
    this.lastPos += BigInt(new Set(fresh.map(({ key }) => key)).size);
    this.pages += 1;
    tally.pages += 1;
    tally.newRows += fresh.length;
    writer.write(resumePoint);
    reportProgress(this.#context);
    await deps.failpoint?.('remembered');
    return true;
  }

  #resumePoint(sequence: bigint): ResumePoint {
    return {
      generationId: `${this.generation.generationId}`,
      sequence: `${sequence}`,
      groups: this.#groups,
      ...(this.#requests.sizeMax === undefined ? {} : { sizeMax: this.#requests.sizeMax }),
      ...(this.#clamp === undefined ? {} : { clamp: this.#clamp }),
    };
  }

  /** The page behind what is held, with the groups that it must show again. */
  async #askOverlapping(): Promise<Overlapping> {
    if (this.#groups.length === 0) {
      const asked = await this.#requests.ask(undefined, this.size);
      const rows = this.#withoutNetwork(asked.page);
      return { asked, fresh: rows, groups: groupRows(rows), expected: 0 };
    }
    for (const back of OVERLAP_ATTEMPTS) {
      if (back > this.#groups.length || (back === this.#groups.length && !this.#holdsAll())) break;
      const found = await this.#askBehind(back);
      if (found !== undefined) return found;
    }
    throw new OverlapMissing('the source does not show the last rows again');
  }

  /** Whether the kept groups are all there are: then the first page shows them again. */
  #holdsAll(): boolean {
    const kept = this.#groups.reduce((sum, { keys }) => sum + keys.length, 0);
    return BigInt(kept) === this.rows;
  }

  async #askBehind(back: number): Promise<Overlapping | undefined> {
    const sent = this.#groups.at(-1 - back);
    const expected = this.#groups.slice(-back);
    const repeated = expected.reduce((sum, { keys }) => sum + keys.length, (sent?.keys.length ?? 1) - 1);
    for (let size = this.size + repeated; ; size = Math.min(size * 2, SIZE_MAX)) {
      let asked: Asked;
      try {
        asked = await this.#requests.ask(sent?.cursor, size);
      } catch (error) {
        if (errorCode(error) === 'CURSOR_REFUSED') return undefined;
        throw error;
      }
      const rows = this.#withoutNetwork(asked.page);
      const overlap = classifyOverlap(rows, sent, expected);
      if (overlap.kind === 'shown') return { asked, ...overlap, expected: back };
      if (overlap.kind === 'missing') return undefined;
      // The largest page still cuts the group: the page behind it may show what is missing.
      const isLargest = rows.length < asked.size || size === SIZE_MAX || asked.size < size;
      if (!isLargest) continue;
      await this.#verify(asked);
      if (this.hasRoom(asked.size, asked.page.rows.length) && !asked.page.hasNextPage) return undefined;
      return { asked, fresh: [], groups: expected, expected: back };
    }
  }

  /**
   * A full page that shows nothing behind what is held: larger ones first, then the page behind the very last
   * group, which must show the rest of it, or, where each row has a cursor of its own, be the same twice.
   */
  async #squeeze(asked: Asked): Promise<Step | 'stale'> {
    const sent = this.#groups.at(-2);
    const last = this.lastGroup;
    if (last === undefined) return NOTHING;
    for (let { size, page } = asked; page.rows.length === size && size < SIZE_MAX;) {
      const larger = await this.#requests.ask(sent?.cursor, size * 2);
      if (larger.size <= size) break;
      ({ size, page } = larger);
      const rows = this.#withoutNetwork(page);
      const overlap = classifyOverlap(rows, sent, [last]);
      if (overlap.kind !== 'shown') break;
      if (overlap.fresh.length > 0) return this.#take(larger, overlap.fresh, overlap.groups, 1);
    }
    return this.#askTight(last);
  }

  async #askTight(behind: Group): Promise<Step | 'stale'> {
    const unread = (): EndNotShown =>
      new EndNotShown(
        `Cannot read ${this.#context.list} on: rows share a cursor, more than the source sends in a page; raise its page limit`,
        { code: 'GROUP_EXCEEDS_PAGE', meta: { rowsSeen: last.keys.length } },
      );
    let last = behind;
    const before = this.#groups.slice(0, -1);
    const found: ListedRow[] = [];
    for (let attempt = 1; attempt <= TIGHT_ATTEMPTS_MAX; attempt += 1) {
      const asked = await this.#requests.ask(last.cursor, this.size);
      const rest = classifyRest(asked.page.rows, last);
      if (rest.kind === 'more') {
        found.push(...rest.fresh);
        last = rest.group;
        continue;
      }
      if (rest.kind === 'unseen') {
        if (rest.fresh.length === 0) return NOTHING;
        if (last.keys.length > 1) throw unread();
        await this.#requests.askTwice(asked);
      }
      return this.#take(asked, [...found, ...rest.fresh], [...before, last, ...rest.groups], -1);
    }
    throw unread();
  }

  /** A page that is shorter than asked, with more behind it, is asked for again with the size that it had. */
  async #verify(short = this.#unverified): Promise<void> {
    this.#unverified = undefined;
    const length = short?.page.rows.length ?? 0;
    if (short === undefined || length === 0 || length === short.size || length === this.#clamp) return;
    const again = await this.#requests.ask(short.after, length);
    if (!isSameRows(short.page.rows, again.page.rows)) {
      throw doubt(this.#context.list, 'SHORT_PAGE', 'a page that was shorter than asked lacked rows', {
        rows: length,
        again: again.page.rows.length,
      });
    }
    this.#shortLength = length;
  }

  /** Two equal checkpoints are two rows, or one row sent twice. */
  async #verifyTwins(asked: Asked, fresh: readonly ListedRow[]): Promise<void> {
    const keys = [...(this.lastGroup?.keys ?? []), ...fresh.map(({ key }) => key)];
    if (new Set(keys).size === keys.length) return;
    await this.#requests.askTwice(asked);
  }

  /** `network` behind all others has no place: what is new comes before it. The public service lists it on one page only. */
  #withoutNetwork({ rows, hasNextPage }: Page): readonly ListedRow[] {
    const last = rows.at(-1);
    if (this.#context.list !== 'parties' || last?.key !== NETWORK_PARTY || hasNextPage) return rows;
    this.network = last;
    return rows.slice(0, -1);
  }

  #askAhead(): void {
    const sent = this.#groups.at(-2);
    const last = this.lastGroup;
    if (last === undefined) return;
    this.#requests.askAhead(sent?.cursor, this.size + last.keys.length + (sent?.keys.length ?? 1) - 1);
  }

  askNewest(fromEnd: boolean): Promise<Asked> {
    return this.#requests.askNewest(fromEnd);
  }
}
