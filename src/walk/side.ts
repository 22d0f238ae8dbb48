/**
 * One side of a gap: its chain, the reader that goes on from the chain's edge, and how far up the ladder
 * it is after a page that did not fit.
 */
import { Ahead } from './ahead.ts';
import { PAGE_SIZE_MAX, type WalkContext } from './context.ts';
import type { RowGroup } from './groups.ts';
import type { Anchor, Chain, Direction, Violation } from './ports.ts';
import { readDirection, type ReaderEvent } from './reader.ts';
import { isVerifiable } from './stitch.ts';

export class Side implements AsyncDisposable {
  readonly direction: Direction;
  chain: Chain;
  commits = 0;
  isOver = false;
  reason: Violation = { code: 'NOT_ASKED', meta: {} };
  readonly #context: WalkContext;
  #ahead: Ahead<ReaderEvent> | undefined;
  #steps = 0;
  #spreads = 0;
  #size: number | undefined;

  constructor(context: WalkContext, direction: Direction, chain: Chain) {
    this.#context = context;
    this.direction = direction;
    this.chain = chain;
  }

  /** Those that this node gave and that must show something held. */
  get anchors(): readonly Anchor[] {
    const all = this.direction === 'up' ? this.chain.top : this.chain.bottom;
    const { baseUrl } = this.#context.deps.source;
    const { lostAnchors } = this.#context.tally;
    return all.filter(
      (anchor) => anchor.baseUrl === baseUrl && isVerifiable(anchor) && !lostAnchors.has(anchor.cursor),
    );
  }

  /** Whether the page in hand was asked from further back than the edge. */
  get isSteppedBack(): boolean {
    return this.#steps > 1;
  }

  get edgeKey(): string | undefined {
    const held = this.anchors.at(-1)?.held.at(-1);
    return held?.keys[0];
  }

  start(mayJoin: (groups: readonly RowGroup[]) => boolean): void {
    if (this.#ahead !== undefined) return;
    const back = Math.max(this.#steps - 1, 0);
    const anchor = this.anchors.at(-1 - back);
    if (anchor === undefined) {
      this.finish({ code: 'NO_ANCHOR', meta: { direction: this.direction } });
      return;
    }
    const stop = new AbortController();
    const { pageSize } = this.#context;
    const events = readDirection(this.#context, {
      anchor,
      // Stepped back, a page must reach over what is held already.
      size: this.#size ?? Math.min(pageSize * (back + 1), PAGE_SIZE_MAX),
      direction: this.direction,
      mayJoin,
      signal: AbortSignal.any([this.#context.signal, stop.signal]),
    });
    this.#size = undefined;
    this.#ahead = new Ahead(events, stop);
  }

  /** Whether a page of the other side may reach this chain: it would show its edge first. */
  isNear(groups: readonly RowGroup[]): boolean {
    const edge = new Set(this.anchors.flatMap(({ held }) => held.map(({ group }) => group)));
    return groups.some(({ group }) => edge.has(group));
  }

  async ready(): Promise<this> {
    await this.#ahead?.arrived();
    return this;
  }

  /** What came of the next page; the one behind it is asked for meanwhile. */
  async take(): Promise<ReaderEvent | undefined> {
    return this.#ahead?.take();
  }

  advanced(chain: Chain): void {
    this.chain = chain;
    this.commits += 1;
    this.#steps = 0;
    this.#spreads = 0;
  }

  nextStep(): 'ask again' | 'step back' | 'leave it to the other side' {
    this.#steps += 1;
    if (this.#steps === 1) return 'ask again';
    return this.#steps <= this.anchors.length ? 'step back' : 'leave it to the other side';
  }

  /** How often room was made since the last commit, this time included. */
  nextSpread(): number {
    this.#spreads += 1;
    return this.#spreads;
  }

  /** Reads the chain's place again, after rows were moved. */
  async reload(): Promise<void> {
    const chains = await this.#context.session.chains();
    this.chain = chains.find(({ chainId }) => chainId === this.chain.chainId) ?? this.chain;
  }

  /** Throws away what was read ahead; the next start reads from the chain's edge as it is now. */
  async restart(size?: number): Promise<undefined> {
    this.#size = size;
    const ahead = this.#ahead;
    this.#ahead = undefined;
    await ahead?.[Symbol.asyncDispose]();
    return undefined;
  }

  finish(reason: Violation): void {
    this.isOver = true;
    this.reason = reason;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.restart();
  }
}
