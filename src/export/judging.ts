/** What is made of each answer of an export: believed, asked for again, or kept out; and what that says of the verdict. */
import { BEGINNING, DAY_MICROS } from '../core/time.ts';
import type { Verdict, VerdictWithEvidence } from '../core/verdict.ts';
import type { Received } from './fetch/receive.ts';
import type { ProfileLearner } from './profile-learner.ts';
import { doubted } from './plan/profile.ts';
import { overlaps, type Range, subtract } from './plan/ranges.ts';
import { type AskPlan, isEmpty } from './plan/remaining.ts';
import type { WindowPlan } from './plan/window-plan.ts';
import type { WindowRequest } from './ports.ts';
import type { Coverage } from './store/coverage-rows.ts';
import type { Publication } from './store/publications.ts';
import type { SourceProfile } from './store/source-profile.ts';
import type { ExportDeps, ExportRequest } from './request.ts';
import type { Tally } from './validate/tally.ts';
import {
  closedRange,
  type Doubt,
  fewerInOpen,
  isEndProven,
  judge,
  NO_DOUBTS,
  shrinking,
  sumsOf,
} from './validate/judge.ts';

/** Requests about one plan, before no answer to it is believed. */
const REQUESTS_PER_PLAN_MAX = 3;
/** A source that keeps little may have dropped what is older than this. */
const RESTED_MICROS = 7n * DAY_MICROS;
/** After so many runs in a row that contradict what is known, the source is believed. */
const CONTRADICTIONS_MAX = 3;

export interface Planned {
  readonly plan: AskPlan;
  readonly coverage: readonly Coverage[];
  readonly profile: SourceProfile;
}

export interface Answered extends Planned {
  /** What was asked: the plan's request, or after a doubt another that must hold the same. */
  readonly request: Pick<WindowRequest, 'from' | 'to'>;
  readonly received: Received;
  /** Before the answer was read. */
  readonly before: SourceProfile;
}

/**
 * `closed`: it is believed. `open`: it contradicts what is known; what is new is shown, and asked for again. A verdict:
 * it was asked in every way, and brought nothing new. undefined: it is asked for again, in another way.
 */
export type Judged = 'closed' | 'open' | VerdictWithEvidence | undefined;

export class Judging {
  readonly #request: ExportRequest;
  readonly #deps: ExportDeps;
  readonly #learner: ProfileLearner;
  readonly #tally: Tally;
  readonly kept = new Set<bigint>();
  readonly findings: Doubt[] = [];
  readonly verdicts: Verdict[] = [];
  doubts = NO_DOUBTS();
  distrusted: Range | undefined;
  /** Of the last overlap check. */
  overlap: string | undefined;
  readonly contradictions: number;
  isContradicted = false;

  /** @param contradictions runs in a row, before this one, in which the source said the same against what is known */
  constructor(
    request: ExportRequest,
    deps: ExportDeps,
    learner: ProfileLearner,
    tally: Tally,
    contradictions: number,
  ) {
    this.#request = request;
    this.#deps = deps;
    this.#learner = learner;
    this.#tally = tally;
    this.contradictions = contradictions;
  }

  /** After the first doubt, another request must bring the same rows. */
  get wantsSecondWay(): boolean {
    const { found, isEmptyBelieved } = this.doubts;
    return found.length === 1 && isEmptyBelieved !== true && found[0]?.state !== 'end unproven';
  }

  /** A start that the source may not understand is left out of the next request. */
  get isStartDoubted(): boolean {
    return this.doubts.found[0]?.state === 'start unproven';
  }

  suspect(): void {
    this.verdicts.push('suspicious');
  }

  published(plan: AskPlan, as: 'closed' | 'open'): void {
    const isSurprise = this.doubts.found.some(({ state }) => state === 'other' || state === 'less than seen');
    if (as === 'closed' && isSurprise) this.suspect();
    // Window by window, what was distrusted has been asked for again.
    const range = as === 'closed' ? closedRange(plan) : undefined;
    if (range !== undefined && this.distrusted !== undefined)
      [this.distrusted] = subtract(this.distrusted, [{ from: BEGINNING, to: range.to }]);
    this.doubts = NO_DOUBTS();
  }

  /** @returns the closed ranges that were compared */
  audit({ standing }: AskPlan, { segments, closes }: Publication): readonly bigint[] {
    const stood = new Set(closes.map(({ coverageId }) => coverageId));
    const audited = standing.filter(({ open }) => !open);
    for (const row of audited) {
      const isSame = isEmpty(row)
        ? !segments.some(({ manifest }) => overlaps(manifest, row))
        : stood.has(row.coverageId);
      // Otherwise the source tells another story of a range that it had closed.
      if (!isSame) this.suspect();
      this.#tally.audited(row, isSame);
    }
    return audited.map(({ coverageId }) => coverageId);
  }

  async judge(answered: Answered, windows: WindowPlan): Promise<Judged> {
    const { plan, request, received, before, profile } = answered;
    // Asked by what was true of another release.
    const isOutdated =
      request.to !== undefined && before.header !== undefined && before.header !== profile.header;
    const isWrong =
      request.to !== undefined && profile.bounds !== 'right' && before.bounds !== profile.bounds;
    if ((isOutdated || isWrong) && this.doubts.requests < REQUESTS_PER_PLAN_MAX) return undefined;
    const { overlap, doubt } = judge(
      plan,
      request,
      received,
      windows,
      this.doubts.lastSums,
      profile.boundsDemanded === true,
    );
    this.overlap = overlap ?? this.overlap;
    const isProven = isEndProven(received, this.doubts.lastSums);
    this.doubts.lastSums = sumsOf(received);
    const isOvercome = doubt?.state === 'nothing left' && this.doubts.isEmptyBelieved === true;
    if (doubt !== undefined && !isOvercome) return this.#doubt(doubt, answered, isProven);
    if (!isProven) return this.#doubt({ state: 'end unproven' }, answered, isProven);
    const shrunk = shrinking(plan, received);
    if (shrunk.length > 0) {
      this.keep(shrunk);
      return undefined;
    }
    if (this.doubts.found[0]?.state === 'nothing left' && received.leaving > 0)
      await this.#learner.distrustBounds();
    // What a request with the start did not bring.
    if (this.isStartDoubted && received.segments.some(({ open, spooled }) => !open && spooled !== undefined))
      this.suspect();
    return 'closed';
  }

  async #doubt(doubt: Doubt, answered: Answered, isProven: boolean): Promise<Judged> {
    const { found, requests } = this.doubts;
    const { plan, profile } = answered;
    found.push(doubt);
    this.findings.push(doubt);
    const isEnd = doubt.state === 'end unproven';
    // The first of two answers that may end anywhere says nothing yet.
    if (isEnd && requests < REQUESTS_PER_PLAN_MAX) return undefined;
    if (!isEnd && doubt.state !== 'nothing left' && doubt.state !== 'start unproven')
      await this.#deps.repository.learn(doubted(profile, this.#request.seenTime));
    const isFewer = doubt.state !== 'other';
    const isOver = requests >= REQUESTS_PER_PLAN_MAX || (found.length > 1 && isFewer);
    if (!isOver) {
      // Twice the same surprise: what was known before is asked for again and replaced.
      if (found.length > 1 && plan.overlap !== undefined) {
        this.distrusted = { from: plan.overlap.tail.from, to: plan.overlap.to };
      }
      return undefined;
    }
    return this.#contradict(doubt, answered, isProven);
  }

  /** What is known stays. What is new contradicts nothing, and is published. */
  #contradict(doubt: Doubt, answered: Answered, isProven: boolean): Judged {
    const { plan, received } = answered;
    if (doubt.state === 'fewer in the open segment' && !this.#deps.source.hasTimes && isProven) {
      this.suspect();
      return 'closed';
    }
    // Whatever else is doubted: rows that were shown once are not replaced by fewer.
    if (fewerInOpen(plan, received) !== undefined) {
      this.keep(
        plan.supersedes.filter(({ open }) => open),
        'rows of the last open segment are gone',
      );
      return undefined;
    }
    const isEnd = doubt.state === 'end unproven';
    this.verdicts.push(isEnd ? 'incomplete' : 'suspicious');
    const hasNew = received.segments.some(({ spooled }) => spooled !== undefined);
    const tailFrom = plan.overlap?.tail.from ?? this.#request.seenTime;
    const isOld = this.#request.seenTime - tailFrom > RESTED_MICROS;
    const isGone = doubt.state === 'fewer' && received.before.rows === 0 && hasNew && isOld;
    const isAccepted = !isEnd && doubt.state !== 'other' && this.contradictions + 1 >= CONTRADICTIONS_MAX;
    if ((isGone || isAccepted) && isProven) return 'closed';
    this.isContradicted = !isEnd;
    const replacesClosed = plan.trims.length > 0 || plan.supersedes.some(({ open }) => !open);
    // A last line that may have been cut is no row yet.
    const isWhole = isProven || received.openLine === undefined;
    const mayShow = hasNew && isWhole && !replacesClosed && doubt.state !== 'repeated';
    if (mayShow) return 'open';
    return { verdict: 'complete', evidence: { doubt } };
  }

  /** Keeps what is known, and does not ask for it again. */
  keep(rows: readonly Coverage[], reason = 'the source serves less of them than it did'): void {
    this.suspect();
    this.#tally.kept(rows, reason);
    for (const { coverageId } of rows) this.kept.add(coverageId);
    this.doubts = NO_DOUBTS();
  }
}
