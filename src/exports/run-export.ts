/**
 * The loop of a leased export: carries out the decisions of `export-state.ts` one after
 * another, and holds the state that they change.
 */
import type { Coverage } from '../catalog/coverage-rows.ts';
import { movesNoRows, type Publication } from '../catalog/publications.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import { earlier, overlaps } from '../ledger/ranges.ts';
import { BEGINNING, ceilSecond, floorSecond } from '../time/time.ts';
import { Fetcher, type Probe, probeRequest } from './download/fetcher.ts';
import type { Outgrown, Received } from './download/receive-answer.ts';
import { type EndedRun, outcomeOf } from './export-outcome.ts';
import {
  type Decision,
  type ExportEvent,
  type ExportState,
  initialState,
  next,
} from './export-state.ts';
import {
  learnFromProbe,
  learnFromReceived,
  learnFromRefusal,
  learnLesson,
} from './learn-profile.ts';
import { servedAudits } from './planning/choose-audited.ts';
import {
  type NextWindow,
  nextWindow,
  type PlannedRequest,
  requestFor,
} from './planning/next-window.ts';
import type { SourceProfile } from './planning/profile.ts';
import { closedRange, type Target } from './planning/remaining.ts';
import { sumBytes } from './planning/time-histogram.ts';
import { WindowPlan } from './planning/window-plan.ts';
import { publishAnswer } from './publishing/publish-answer.ts';
import { clearSpool, publish, recover } from './publishing/publisher.ts';
import type { ExportContext, ExportOutcome } from './export-context.ts';
import {
  assessAnswer,
  assessPublished,
  isWithin,
  type Answered,
} from './validation/assess-answer.ts';
import { RowCounter } from './validation/row-counter.ts';

/** A plan for the next request, and what was known about the source when it was made. */
interface Plan extends NextWindow {
  readonly profile: SourceProfile;
  readonly probe: Probe | undefined;
}

/**
 * Exports the part of the request that is not covered yet.
 * @returns the outcome, with everything published and recorded
 */
export function runExport(context: ExportContext): Promise<ExportOutcome> {
  return new ExportRun(context).run();
}

class ExportRun {
  readonly #context: ExportContext;
  readonly #windows: WindowPlan;
  readonly #fetcher: Fetcher;
  readonly #counter = new RowCounter();
  #state: ExportState;
  #plan: Plan | undefined;
  #answered: Answered | undefined;
  /** The last response that was published. */
  #lastPublished: Answered | undefined;
  /** Keys of objects that an earlier run intended and this run published. */
  readonly #adoptedKeys: string[] = [];
  #epoch: number | undefined;
  /** The coverage of the ledger; undefined if a publication may have changed it. */
  #coverage: readonly Coverage[] | undefined;
  /** Ids of ranges that this run has compared with the source and found unchanged. */
  readonly #compared = new Set<bigint>();
  /** A publication without rows, which is committed when the export ends. */
  #unwritten: Publication | undefined;
  /**
   * Whether the spool belongs to a publication that is intended but not committed. It
   * must then be kept, so that the next owner of the lease can finish it. Initially
   * true, because an earlier attempt may have left such a publication.
   */
  #isIntended = true;
  #segments = 0;

  constructor(context: ExportContext) {
    this.#context = context;
    this.#windows = new WindowPlan(context.segmentBytesMax, context.lease.plan);
    this.#state = initialState([], context.lease.contradictions);
    this.#fetcher = new Fetcher(context, this.#windows, ({ bytes, rows }) =>
      this.#report(bytes, rows),
    );
  }

  async run(): Promise<ExportOutcome> {
    try {
      await this.#recover();
      const ended = await this.#follow();
      const { repository, lease } = this.#context;
      const { contradictions } = this.#state.run;
      await repository.finish({
        lease,
        publication: this.#unwritten,
        contradictions,
        isDone: ended.verdict === 'complete' && contradictions === 0,
      });
      return await outcomeOf(this.#summary(ended), this.#context);
    } catch (error) {
      // Keep the spool of an intended publication, from which the next owner can finish
      // it.
      if (!this.#isIntended)
        await clearSpool(this.#context).catch(() => undefined);
      throw error;
    }
  }

  /**
   * Takes over the state that an earlier attempt left behind, and chooses what to
   * audit.
   */
  async #recover(): Promise<void> {
    const { repository, retentionMicros, request, lease, failpoint } =
      this.#context;
    const { auditShare: share = 0, auditWithinMicros, clock } = request;
    const { scope } = lease;
    await failpoint('claimed');
    for (const { segments } of await recover(this.#context))
      this.#adoptedKeys.push(
        ...segments.map(({ manifest }) => manifest.objectKey),
      );
    this.#isIntended = false;

    const coverage =
      this.#adoptedKeys.length > 0
        ? await repository.coverage(scope)
        : lease.coverage;
    this.#coverage = coverage;
    this.#epoch = await repository.epoch();
    const choice = {
      share,
      withinMicros: auditWithinMicros,
      scope,
      epoch: this.#epoch,
      now: clock.seen,
      retentionMicros,
    };
    const audited = await servedAudits(coverage, choice, repository);
    const ids = [...audited, ...this.#shownCoverage(coverage)].map(
      ({ coverageId }) => coverageId,
    );
    this.#state = initialState(ids, lease.contradictions);
  }

  /**
   * Returns the coverage for which an earlier run saw more rows than are known, but
   * could not publish them.
   */
  #shownCoverage(coverage: readonly Coverage[]): readonly Coverage[] {
    const { shown } = this.#windows;
    if (shown === undefined) return [];
    const { assetId } = this.#context.lease.scope;
    return coverage.filter(
      (row) =>
        !row.open && row.assetId === assetId && overlaps(row, shown.range),
    );
  }

  /** Carries out one decision after another. */
  async #follow(): Promise<VerdictWithEvidence> {
    let decision = await this.#decide(await this.#makePlan());
    while (decision.do !== 'finish') {
      const event = await this.#carryOut(decision);
      decision = await this.#decide(event);
    }
    return decision.outcome;
  }

  /** Applies an event to the state, and records the findings about the release. */
  async #decide(event: ExportEvent): Promise<Decision> {
    const [state, decision] = next(this.#state, event);
    this.#state = state;
    if ('learns' in decision && decision.learns !== undefined)
      await learnLesson(
        decision.learns,
        this.#answered?.learned,
        this.#context,
      );
    return decision;
  }

  async #carryOut(
    decision: Exclude<Decision, { do: 'finish' }>,
  ): Promise<ExportEvent> {
    if (decision.do === 'probe') return await this.#probe();
    if (decision.do === 'request') return await this.#request(decision);
    if (decision.do === 'publish') return await this.#publish(decision);
    const { keeps, discards } = decision;
    if (keeps !== undefined) {
      this.#counter.recordKept(keeps.rows, keeps.reason);
      // The source has been found to serve fewer rows of this closed coverage than are
      // known, so the rows that it once showed no longer matter.
      if (keeps.rows.some(({ open }) => !open)) this.#windows.forgetShown();
    }
    if (discards) await clearSpool(this.#context);
    return await this.#makePlan();
  }

  /** Computes from the coverage which ranges are left to request. */
  async #makePlan(): Promise<ExportEvent> {
    const { repository, lease } = this.#context;
    const coverage = this.#coverage ?? (await repository.coverage(lease.scope));
    const profile = await repository.profile();
    const window = nextWindow(this.#target(coverage, profile), this.#windows);
    const isUnproven =
      window?.wantsEnd === true && profile.bounds === 'unproven';
    const probe = isUnproven ? probeRequest(profile) : undefined;
    this.#plan = window && { ...window, profile, probe };
    return {
      kind: 'planned',
      isLeft: window !== undefined,
      needsProbe: probe !== undefined,
      requests: this.#fetcher.requests,
    };
  }

  #target(coverage: readonly Coverage[], profile: SourceProfile): Target {
    const { source, retentionMicros, request } = this.#context;
    const { assetId, clock, again, runId } = request;
    const { audited, kept } = this.#state.run;
    const { shownTo = BEGINNING } = profile;
    const from = floorSecond(request.from ?? BEGINNING);
    const to = request.to && ceilSecond(request.to);
    // A source that reports no time certainly has all blocks before its newest entry.
    const closedTo =
      clock.from === 'guessed'
        ? earlier(shownTo, clock.closedTo)
        : clock.closedTo;
    return {
      from,
      to,
      coverage,
      profile,
      assetId,
      closedTo: source.hasTimes ? closedTo : BEGINNING,
      now: clock.seen,
      retentionMicros,
      epoch: this.#epoch,
      runId,
      again: again === true ? { from, to: to ?? clock.seen } : undefined,
      audited,
      kept,
    };
  }

  /**
   * Requests a known entry by its own second, to see whether the source correctly
   * applies a start and an end together.
   */
  async #probe(): Promise<ExportEvent> {
    const { profile, probe } = this.#planInHand();
    if (probe === undefined)
      throw new TypeError('no entry is known to probe with');
    const bounds = await this.#fetcher.probe(probe);
    await learnFromProbe(profile, { probe, bounds }, this.#context);
    return { kind: 'probed' };
  }

  async #request({
    way,
    fruitless,
  }: Decision & { do: 'request' }): Promise<ExportEvent> {
    const { profile, ...window } = this.#planInHand();
    const planned = {
      ...window,
      request: requestFor(window.plan, profile, way),
    };
    const received = await this.#fetch(planned, fruitless);
    if (received === undefined) return { kind: 'refused' };
    this.#counter.count(received);
    const learned = await learnFromReceived(planned, received, this.#context);
    if (received.state === 'outgrown') return this.#shrink(planned, received);

    this.#answered = { ...planned, received, learned };
    const facts = assessAnswer(this.#answered, {
      windows: this.#windows,
      hasTimes: this.#context.source.hasTimes,
      isUnlisted: this.#context.lease.scope.isUnlisted === true,
      now: this.#context.request.clock.seen,
    });
    if (facts.shownMore !== undefined) {
      this.#windows.recordShown(facts.shownMore);
      await this.#fetcher.keep();
    }
    return { kind: 'answered', facts };
  }

  /**
   * Sends a request, and records what a refusal shows about the source.
   * @returns undefined if the source refuses a request without a start and an end
   */
  async #fetch(
    planned: PlannedRequest,
    fruitless: number,
  ): Promise<Received | Outgrown | undefined> {
    try {
      return await this.#fetcher.ask(planned, fruitless);
    } catch (error) {
      const { profile } = planned.target;
      if (await learnFromRefusal(profile, error, this.#context))
        return undefined;
      throw error;
    }
  }

  /** Records a cancelled response, so that the next request covers less. */
  async #shrink(
    { plan }: PlannedRequest,
    outgrown: Outgrown,
  ): Promise<ExportEvent> {
    this.#answered = undefined;
    await clearSpool(this.#context);
    const hasDoubts = this.#state.plan.doubts.length > 0;
    this.#windows.recordOutgrown(
      outgrown.seen,
      hasDoubts ? undefined : closedRange(plan),
    );
    await this.#fetcher.keep();
    return {
      kind: 'cancelled',
      hasLeaving: (outgrown.traits?.leaving ?? 0) > 0,
    };
  }

  async #publish({
    as,
    isLast,
  }: Decision & { do: 'publish' }): Promise<ExportEvent> {
    const answered = this.#answered;
    if (answered === undefined)
      throw new TypeError('there is no answer to publish');
    const { received, target } = answered;
    const { kept } = this.#state.run;
    const done = await publishAnswer(answered, {
      ...this.#context,
      as,
      epoch: this.#epoch,
      closesKept: target.coverage.filter(
        (row) =>
          row.open && row.to <= target.closedTo && kept.has(row.coverageId),
      ),
      publish: (planned) => this.#commit(planned, isLast, target),
    });
    if ('shrunk' in done) return { kind: 'shrunk', rows: done.shrunk };

    this.#isIntended = false;
    this.#lastPublished = answered;
    this.#counter.balance(received, done.held);
    const hasAsset = this.#context.request.assetId !== undefined;
    const facts = assessPublished(answered, done.publication, hasAsset);
    for (const { row, isSame } of facts.audited) {
      this.#counter.recordAudited(row, isSame);
      if (isSame) this.#compared.add(row.coverageId);
    }
    if (as === 'closed') await this.#recordWindow(answered, isLast);
    return { kind: 'published', facts };
  }

  /**
   * Publishes a plan. If it is the last one and moves no rows, it is written together
   * with the export's own row when the export ends.
   */
  async #commit(
    planned: Publication,
    isLast: boolean,
    { coverage }: Target,
  ): Promise<Publication> {
    if (isLast && movesNoRows(planned, coverage)) {
      this.#unwritten = planned;
      return planned;
    }
    this.#coverage = undefined;
    this.#isIntended = true;
    this.#segments += planned.segments.length;
    this.#report(0, 0);
    return publish(planned, this.#context);
  }

  async #recordWindow(
    { plan, received }: Answered,
    isLast: boolean,
  ): Promise<void> {
    const range = closedRange(plan);
    if (range !== undefined) {
      const bytes = sumBytes(received.seen.stretches);
      this.#windows.recordDone(range, bytes, received.oldestSecond);
    }
    const { shown } = this.#windows;
    const isShownDone = shown !== undefined && isWithin(shown.range, plan);
    if (isShownDone) this.#windows.forgetShown();
    if (isShownDone || !isLast) await this.#fetcher.keep();
  }

  #summary(ended: VerdictWithEvidence): EndedRun {
    return {
      ended,
      findings: this.#state.run,
      requests: this.#fetcher.requests,
      counter: this.#counter,
      lastPublished: this.#lastPublished,
      segments: this.#segments,
      adoptedKeys: this.#adoptedKeys,
      coverage: this.#coverage,
      compared: this.#compared,
    };
  }

  #planInHand(): Plan {
    if (this.#plan === undefined) throw new TypeError('nothing is planned');
    return this.#plan;
  }

  /** Reports progress, except for a ledger without rows. */
  #report(bytes: number, rows: number): void {
    const allBytes = this.#counter.bytes + bytes;
    const allRows = this.#counter.rows + rows;
    const segments = this.#segments;
    if (allRows === 0 && segments === 0) return;
    this.#context.onProgress?.({
      ...this.#context.lease.scope,
      bytes: allBytes,
      rows: allRows,
      segments,
    });
  }
}
