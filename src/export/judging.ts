/** What is made of each answer of an export: believed, asked for again, or kept out; and what that says of the verdict. */
import { DAY_MICROS } from '../core/time.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Answered, EventOf, Publishing } from './export-states.ts';
import type { ProfileLearner } from './profile-learner.ts';
import { doubted } from './plan/profile.ts';
import type { Range } from './plan/ranges.ts';
import type { WindowPlan } from './plan/window-plan.ts';
import type { Coverage } from './store/coverage-rows.ts';
import type { ExportDeps, ExportRequest } from './request.ts';
import type { Tally } from './validate/tally.ts';
import { type Doubt, fewerInOpen, judge, NO_DOUBTS, shrinking, sumsOf } from './validate/judge.ts';

/** Requests about one plan, before no answer to it is believed. */
const REQUESTS_PER_PLAN_MAX = 3;
/** A source that keeps little may have dropped what is older than this. */
const RESTED_MICROS = 7n * DAY_MICROS;
/** After so many runs in a row that contradict what is known, the source is believed. */
const CONTRADICTIONS_MAX = 3;

/** Back to planning. */
const AGAIN = { kind: 'doubted', data: {} } as const;

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

  suspect(): void {
    this.verdicts.push('suspicious');
  }

  published(as: Publishing['as']): void {
    const isSurprise = this.doubts.found.some(({ state }) => state === 'other' || state === 'less than seen');
    if (as === 'closed' && isSurprise) this.suspect();
    this.doubts = NO_DOUBTS();
  }

  async judge(answered: Answered, windows: WindowPlan): Promise<EventOf<'judging'>> {
    const { plan, request, received, before, profile } = answered;
    // Asked by what was true of another release.
    const isOutdated =
      request.to !== undefined && before.header !== undefined && before.header !== profile.header;
    const isWrong =
      request.to !== undefined && profile.bounds !== 'right' && before.bounds !== profile.bounds;
    if ((isOutdated || isWrong) && this.doubts.requests < REQUESTS_PER_PLAN_MAX) return AGAIN;
    const { overlap, doubt } = judge(
      plan,
      request,
      received,
      windows,
      this.doubts.lastSums,
      profile.boundsDemanded === true,
    );
    this.overlap = overlap ?? plan.noOverlap ?? this.overlap;
    this.doubts.lastSums = sumsOf(received);
    const isOvercome = doubt?.state === 'nothing left' && this.doubts.isEmptyBelieved === true;
    if (doubt !== undefined && !isOvercome) return this.#doubt(doubt, answered);
    const shrunk = shrinking(plan, received);
    if (shrunk.length > 0) return this.keep(shrunk);
    if (this.doubts.found[0]?.state === 'nothing left' && received.leaving > 0)
      await this.#learner.distrustBounds();
    return { kind: 'believed', data: answered };
  }

  async #doubt(doubt: Doubt, answered: Answered): Promise<EventOf<'judging'>> {
    const { found, requests } = this.doubts;
    const { plan, profile } = answered;
    found.push(doubt);
    this.findings.push(doubt);
    const isEnd = doubt.state === 'end unproven';
    // The first of two answers that may end anywhere says nothing yet.
    if (isEnd && requests < REQUESTS_PER_PLAN_MAX) return AGAIN;
    if (!isEnd && doubt.state !== 'nothing left')
      await this.#deps.repository.learn(doubted(profile, this.#request.seenTime));
    const isFewer = doubt.state !== 'other';
    const isOver = requests >= REQUESTS_PER_PLAN_MAX || (found.length > 1 && isFewer);
    if (!isOver) {
      // Twice the same surprise: what was known before is asked for again and replaced.
      if (found.length > 1 && plan.overlap !== undefined) {
        this.distrusted = { from: plan.overlap.tail.from, to: plan.overlap.to };
      }
      return AGAIN;
    }
    return this.#contradict(doubt, answered);
  }

  /** What is known stays. What is new contradicts nothing, and is published. */
  #contradict(doubt: Doubt, answered: Answered): EventOf<'judging'> {
    const { plan, received } = answered;
    if (doubt.state === 'fewer in the open segment' && !this.#deps.source.hasTimes) {
      this.suspect();
      return { kind: 'believed', data: answered };
    }
    // Whatever else is doubted: rows that were shown once are not replaced by fewer.
    if (fewerInOpen(plan, received) !== undefined)
      return this.keep(
        plan.supersedes.filter(({ open }) => open),
        'rows of the last open segment are gone',
      );
    const isEnd = doubt.state === 'end unproven';
    this.verdicts.push(isEnd ? 'incomplete' : 'suspicious');
    const hasNew = received.segments.some(({ spooled }) => spooled !== undefined);
    const tailFrom = plan.overlap?.tail.from ?? this.#request.seenTime;
    const isOld = this.#request.seenTime - tailFrom > RESTED_MICROS;
    const isGone = doubt.state === 'fewer' && received.before.rows === 0 && hasNew && isOld;
    const isAccepted = !isEnd && doubt.state !== 'other' && this.contradictions + 1 >= CONTRADICTIONS_MAX;
    if (isGone || isAccepted) return { kind: 'believed', data: answered };
    this.isContradicted = !isEnd;
    const replacesClosed = plan.trims.length > 0 || plan.supersedes.some(({ open }) => !open);
    const mayShow = hasNew && !replacesClosed && doubt.state !== 'repeated';
    if (mayShow) return { kind: 'contradicted', data: answered };
    return { kind: 'refused', data: { verdict: 'complete', evidence: { doubt } } };
  }

  /** Keeps what is known, and does not ask for it again. */
  keep(rows: readonly Coverage[], reason = 'the source serves less of them than it did'): typeof AGAIN {
    this.suspect();
    this.#tally.kept(rows, reason);
    for (const { coverageId } of rows) this.kept.add(coverageId);
    this.doubts = NO_DOUBTS();
    return AGAIN;
  }
}
