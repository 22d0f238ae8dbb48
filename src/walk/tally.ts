/** What a walk saw and met, gathered for its evidence. Bounded: a sick source must not fill the memory. */
import type { Page, PageRole, Violation } from './ports.ts';

const KEPT_MAX = 50;

/** One step of the ladder: what went wrong with a page, and what was done about it. */
export interface LadderStep {
  readonly role: PageRole;
  readonly code: string;
  readonly step: 'ask again' | 'step back' | 'leave it to the other side';
  readonly meta: Readonly<Record<string, unknown>>;
}

export interface Seam {
  /** The newest group of the lower side where both sides met. */
  readonly key: string;
  readonly direction: PageRole;
  readonly overlapGroups: number;
  /** What one backward page over the seam said; a gap closed from one side needs none. */
  backward: 'confirmed' | 'contradicted' | 'inconclusive' | 'refused' | 'not needed';
}

export class Tally {
  requests = 0;
  shortReads = 0;
  readonly ladder: LadderStep[] = [];
  readonly warnings: string[] = [];
  readonly seams: Seam[] = [];
  readonly violations: Violation[] = [];
  /** Cursors of anchors behind which the source no longer shows what was held. */
  readonly lostAnchors = new Set<string>();
  network: 'stored' | 'absent' | undefined;
  oneWay: { readonly answered: 'newest first' | 'oldest first'; readonly reason: string } | undefined;
  identity: Readonly<Record<string, unknown>> | undefined;
  #heightMax: bigint | undefined;
  #dipMax = 0n;

  step(step: LadderStep): void {
    if (this.ladder.length < KEPT_MAX) this.ladder.push(step);
  }

  warn(text: string): void {
    if (this.warnings.length < KEPT_MAX && !this.warnings.includes(text)) this.warnings.push(text);
  }

  /** Nodes behind a balancer differ by some blocks: harmless to a stitched walk, worth a word. */
  sawHeight(page: Page): void {
    const height = page.blockHeight;
    if (height === undefined) return;
    const max = this.#heightMax ?? height;
    if (max - height > this.#dipMax) this.#dipMax = max - height;
    this.#heightMax = height > max ? height : max;
  }

  /** By how many blocks an answer lay behind an earlier one. */
  get heightDip(): bigint {
    return this.#dipMax;
  }
}
