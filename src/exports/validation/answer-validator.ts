/** What is made of each answer of an export: believed, asked for again, or kept out; and what that says of the verdict. */
import { BEGINNING, DAY_MICROS } from '../../time/time.ts';
import type { Verdict, VerdictWithEvidence } from '../../errors/verdict.ts';
import type { Outgrown, Received } from '../download/receive-answer.ts';
import {
  type PlannedRequest,
  primaryRequest,
  fallbackRequest,
} from '../planning/next-window.ts';
import { distrustBounds } from '../planning/profile.ts';
import { overlaps } from '../../ledger/ranges.ts';
import { type RequestPlan, closedRange, isEmpty } from '../planning/remaining.ts';
import type { WindowPlan } from '../planning/window-plan.ts';
import type { ExportContext } from '../request.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { Publication } from '../../catalog/publications.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import {
  compareOverlap,
  fewerInOpen,
  type OverlapFinding,
  shrinking,
  sumsOf,
} from './compare-rows.ts';
import { RowCounter } from './row-counter.ts';

/** Requests about one plan, before no answer to it is believed. */
const REQUESTS_PER_PLAN_MAX = 3;
/** A source that keeps little may have dropped what is older than this. */
const RESTED_MICROS = 7n * DAY_MICROS;
/** After so many runs in a row that contradict what is known, the source is believed. */
const CONTRADICTIONS_MAX = 3;

/** What speaks against an answer. */
type Doubt =
  | Extract<OverlapFinding, { expected: unknown }>
  /** A stream that did not come to its end had more of this range. */
  | { readonly state: 'less than seen' }
  /** The present of the last time has fewer rows than it had. */
  | {
      readonly state: 'fewer in the open segment';
      readonly knownRows: string;
      readonly receivedRows: string;
    }
  /** Nothing left the party between a start and an end: what a release answers that applies them wrongly. */
  | { readonly state: 'nothing left' }
  /** Nothing came from the start on, and no known row was to come: it may mean another time to the source. */
  | { readonly state: 'start unproven' }
  /** Neither the transport nor a line end says that the answer came to its end, and no second answer was the same. */
  | { readonly state: 'end unproven' };

/** Doubts that say nothing of what the release can be trusted with. */
const OF_ONE_REQUEST: ReadonlySet<Doubt['state']> = new Set([
  'nothing left',
  'start unproven',
  'end unproven',
]);

export interface Answered extends PlannedRequest {
  readonly received: Received;
  /** With what the answer taught. */
  readonly learned: SourceProfile;
}

/**
 * `closed`: it is believed. `open`: it contradicts what is known; what is new is shown, and asked for again. A verdict:
 * it was asked in every way, and brought nothing new. undefined: it is asked for again, in another way.
 */
type Judged = 'closed' | 'open' | VerdictWithEvidence | undefined;

/** What was doubted of a plan says nothing of the next one. */
function planInHand() {
  return {
    /** What speaks against its answers. */
    doubts: [] as Doubt[],
    requests: 0,
    /** Of the last answer. */
    lastSums: undefined as string | undefined,
    /** Nothing left the party, and asking a second way could not show more. */
    isEmptyBelieved: false,
  };
}

export class AnswerValidator {
  readonly #context: Pick<ExportContext, 'request' | 'lease' | 'repository' | 'source'>;
  readonly tally = new RowCounter();
  /** Coverage that stays, though the source contradicts it. */
  readonly kept = new Set<bigint>();
  /** Coverage that is asked for once more: what comes back the same stands. */
  readonly audited = new Set<bigint>();
  readonly verdicts: Verdict[] = [];
  readonly #findings: Doubt[] = [];
  /** Of the last overlap check. */
  #overlap: string | undefined;
  /** In how many runs in a row the source contradicted what is known, with this one. */
  contradictions = 0;
  #hand = planInHand();

  constructor(
    context: Pick<ExportContext, 'request' | 'lease' | 'repository' | 'source'>,
  ) {
    this.#context = context;
  }

  get hasDoubts(): boolean {
    return this.#hand.doubts.length > 0;
  }

  /** The next request about a plan. After the first doubt it is another one, that must bring the same rows. */
  request(plan: RequestPlan, profile: SourceProfile): RequestPlan['question'] {
    this.#hand.requests += 1;
    const [doubt, second] = this.#hand.doubts;
    const isFirst =
      doubt === undefined || second !== undefined || doubt.state === 'end unproven';
    return isFirst || this.#hand.isEmptyBelieved
      ? primaryRequest(plan)
      : fallbackRequest(plan, profile, doubt.state === 'start unproven');
  }

  async judge(answered: Answered, windows: WindowPlan): Promise<Judged> {
    const { plan, request, received, learned } = answered;
    const { profile } = answered.target;
    this.tally.count(received);
    // Asked by what was true of another release.
    const isOutdated = profile.header !== undefined && profile.header !== learned.header;
    const isWrong = learned.bounds !== 'right' && profile.bounds !== learned.bounds;
    const mayAskAgain = this.#hand.requests < REQUESTS_PER_PLAN_MAX;
    if (request.to !== undefined && (isOutdated || isWrong) && mayAskAgain)
      return undefined;
    const sums = sumsOf(received);
    const isProven =
      (received.isFramed && received.openLine === undefined) ||
      this.#hand.lastSums === sums;
    this.#hand.lastSums = sums;
    const doubt = this.#doubtOf(answered, windows, isProven);
    if (doubt !== undefined) return this.#follow(doubt, answered, isProven);
    const shrunk = shrinking(plan, received);
    if (shrunk.length > 0) return this.keep(shrunk);
    const first = this.#hand.doubts[0]?.state;
    if (first === 'nothing left' && received.leaving > 0)
      await this.#distrustBounds(learned);
    // What a request with the start did not bring.
    if (
      first === 'start unproven' &&
      received.segments.some(({ open, spooled }) => !open && spooled)
    )
      this.#suspect();
    return 'closed';
  }

  /** An answer was cancelled. @returns the verdict where another request would not settle the doubt that it is about */
  async outgrew(
    answer: Outgrown,
    profile: SourceProfile,
  ): Promise<VerdictWithEvidence | undefined> {
    this.tally.count(answer);
    const doubt = this.#hand.doubts.at(-1);
    if (doubt === undefined) return undefined;
    if (doubt.state !== 'nothing left') return { verdict: 'suspicious', evidence: {} };
    if ((answer.traits?.leaving ?? 0) > 0) await this.#distrustBounds(profile);
    else this.#hand.isEmptyBelieved = true;
    return undefined;
  }

  /** Keeps what is known, and does not ask for it again. */
  keep(
    rows: readonly Coverage[],
    reason = 'the source serves less of them than it did',
  ): undefined {
    this.#suspect();
    this.tally.kept(rows, reason);
    for (const { coverageId } of rows) this.kept.add(coverageId);
    this.#hand = planInHand();
  }

  /** An answer was published: what it says of what was known before. */
  published(
    { plan, received }: Answered,
    { segments, closes }: Publication,
    as: 'closed' | 'open',
  ): void {
    const { leftOut, layout } = received;
    this.#overlap ??= 'none';
    const isForeignAsset =
      this.#context.request.assetId !== undefined &&
      layout.sides === 'from' &&
      leftOut.asset > 0n;
    // Rows of others where a source can send none.
    if (leftOut.party > 0n || isForeignAsset) this.#suspect();
    for (const row of plan.revalidated.filter(({ open }) => !open)) {
      const isSame = isEmpty(row)
        ? !segments.some(({ manifest }) => overlaps(manifest, row))
        : closes.some(({ coverageId }) => coverageId === row.coverageId);
      // Otherwise the source tells another story of a range that it had closed.
      if (!isSame) this.#suspect();
      this.tally.audited(row, isSame);
      this.audited.delete(row.coverageId);
    }
    const isSurprise = this.#hand.doubts.some(
      ({ state }) => state === 'other' || state === 'less than seen',
    );
    if (as === 'closed' && isSurprise) this.#suspect();
    this.#hand = planInHand();
  }

  evidence(): Record<string, unknown> {
    const findings = this.#findings.length === 0 ? undefined : this.#findings;
    return { ...this.tally.evidence(), overlap: this.#overlap, findings };
  }

  #suspect(): void {
    this.verdicts.push('suspicious');
  }

  /** Something left the party after all, where nothing did between a start and an end. */
  async #distrustBounds(profile: SourceProfile): Promise<void> {
    const evidence =
      'entries that left a party came with a start alone, and not with a start and an end';
    const { repository, request } = this.#context;
    await repository.learn({
      ...profile,
      bounds: 'broken',
      evidence,
      decidedAt: request.clock.seen,
    });
  }

  #doubtOf(
    answered: Answered,
    windows: WindowPlan,
    isProven: boolean,
  ): Doubt | undefined {
    const { plan, request, received, learned } = answered;
    const finding = plan.overlap && compareOverlap(plan.overlap, received);
    const gone = finding?.state === 'fewer' ? plan.overlap?.mayBeGone : undefined;
    this.#overlap = gone ?? finding?.state ?? this.#overlap;
    if (finding !== undefined && 'expected' in finding && gone === undefined)
      return finding;
    const range = closedRange(plan);
    if (range !== undefined && windows.isLess(received.seen.stretches, range))
      return { state: 'less than seen' };
    const fewer = fewerInOpen(plan, received);
    if (fewer !== undefined) return { state: 'fewer in the open segment', ...fewer };
    const isLoose =
      !plan.isWindow &&
      !windows.isSilent &&
      (plan.overlap === undefined || gone !== undefined);
    if (isLoose && received.rows === 0 && (request.from ?? BEGINNING) > BEGINNING)
      return { state: 'start unproven' };
    const mayBeEmptied =
      request.to !== undefined &&
      learned.boundsDemanded !== true &&
      received.layout.sides === 'both';
    const isKnownBack = finding?.state === 'verified' && received.before.rows > 0;
    if (
      mayBeEmptied &&
      received.leaving === 0 &&
      !isKnownBack &&
      !this.#hand.isEmptyBelieved
    )
      return { state: 'nothing left' };
    return isProven ? undefined : { state: 'end unproven' };
  }

  async #follow(doubt: Doubt, answered: Answered, isProven: boolean): Promise<Judged> {
    const { plan, target, learned } = answered;
    this.#hand.doubts.push(doubt);
    this.#findings.push(doubt);
    const isLast = this.#hand.requests >= REQUESTS_PER_PLAN_MAX;
    // The first of two answers that may end anywhere says nothing yet.
    if (doubt.state === 'end unproven' && !isLast) return undefined;
    if (!OF_ONE_REQUEST.has(doubt.state))
      await this.#context.repository.learn(
        distrustBounds(learned, this.#context.request.clock.seen),
      );
    const isTwice = this.#hand.doubts.length > 1;
    if (isLast || (isTwice && doubt.state !== 'other'))
      return this.#contradict(doubt, answered, isProven);
    // Twice the same surprise: what was known before is asked for again, and replaced where it differs.
    if (isTwice && plan.overlap !== undefined) {
      const surprising = { from: plan.overlap.tail.from, to: plan.overlap.to };
      for (const row of target.coverage)
        if (row.assetId === target.assetId && overlaps(row, surprising))
          this.audited.add(row.coverageId);
    }
    return undefined;
  }

  /** What is known stays. What is new contradicts nothing, and is published. */
  #contradict(doubt: Doubt, { plan, received }: Answered, isProven: boolean): Judged {
    if (
      doubt.state === 'fewer in the open segment' &&
      !this.#context.source.hasTimes &&
      isProven
    ) {
      this.#suspect();
      return 'closed';
    }
    // Whatever else is doubted: rows that were shown once are not replaced by fewer.
    const open = plan.supersedes.filter((row) => row.open);
    if (fewerInOpen(plan, received))
      return this.keep(open, 'rows of the last open segment are gone');
    const isEnd = doubt.state === 'end unproven';
    this.verdicts.push(isEnd ? 'incomplete' : 'suspicious');
    const hasNew = received.segments.some(({ spooled }) => spooled !== undefined);
    const { seen } = this.#context.request.clock;
    const isOld = seen - (plan.overlap?.tail.from ?? seen) > RESTED_MICROS;
    const isGone =
      doubt.state === 'fewer' && received.before.rows === 0 && hasNew && isOld;
    const contradictions = this.#context.lease.contradictions + 1;
    const isAccepted =
      !isEnd && doubt.state !== 'other' && contradictions >= CONTRADICTIONS_MAX;
    if ((isGone || isAccepted) && isProven) return 'closed';
    this.contradictions = isEnd ? 0 : contradictions;
    const replacesClosed =
      plan.trims.length > 0 || plan.supersedes.some((row) => !row.open);
    // A last line that may have been cut is no row yet.
    const isWhole = isProven || received.openLine === undefined;
    const mayShow = hasNew && isWhole && !replacesClosed && doubt.state !== 'repeated';
    return mayShow ? 'open' : { verdict: 'complete', evidence: { doubt } };
  }
}
