/**
 * Exports one scope of a ledger: leases it, carries out the decisions of
 * `export-state.ts` while the lease is held, and counts failures.
 */
import type { Coverage } from '../catalog/coverage-rows.ts';
import type { ExportLease } from '../catalog/leases.ts';
import { movesNoRows, type Publication } from '../catalog/publications.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import {
  errorCode,
  errorLine,
  FencedError,
  PermanentError,
  RetryableError,
} from '../errors/errors.ts';
import { attributeFault } from '../errors/faults.ts';
import { worst, type VerdictWithEvidence } from '../errors/verdict.ts';
import type { ExportScope } from '../ledger/export-scope.ts';
import { isExportableParty } from '../ledger/ids.ts';
import { earlier, instantOf, later } from '../ledger/ranges.ts';
import {
  BEGINNING,
  ceilSecond,
  floorSecond,
  formatInstant,
  type Micros,
} from '../time/time.ts';
import { Fetcher, type Probe, probeRequest } from './download/fetcher.ts';
import type { Outgrown, Received } from './download/receive-answer.ts';
import {
  type Decision,
  type ExportEvent,
  type ExportState,
  initialState,
  type Lesson,
  next,
} from './export-state.ts';
import { servedAudits } from './planning/choose-audited.ts';
import {
  type NextWindow,
  nextWindow,
  type PlannedRequest,
  requestFor,
} from './planning/next-window.ts';
import {
  afterRefusal,
  BOUNDS_ARE_BROKEN,
  distrustBounds,
  learnFromAnswer,
  encodeProfile,
  type SourceProfile,
} from './planning/profile.ts';
import { closedRange, type Target } from './planning/remaining.ts';
import { sumBytes } from './planning/time-histogram.ts';
import { WindowPlan } from './planning/window-plan.ts';
import { publishAnswer } from './publishing/publish-answer.ts';
import {
  clearSpool,
  publish,
  publishContext,
  recover,
} from './publishing/publisher.ts';
import {
  type ExportContext,
  type ExportDeps,
  type ExportOutcome,
  type ExportRequest,
  WAIT_MS,
  waitedTooLong,
} from './request.ts';
import type { ExportRepository, Published } from './store/export-repository.ts';
import {
  assessAnswer,
  assessPublished,
  type Answered,
} from './validation/assess-answer.ts';
import { RowCounter } from './validation/row-counter.ts';

/**
 * Number of consecutive failures after which an export is quarantined. Each nightly run
 * then tries it once.
 */
const ATTEMPTS_MAX = 5;
/**
 * Codes of failures that would only recur. The first such failure quarantines the
 * export.
 */
const HOPELESS: ReadonlySet<string> = new Set([
  'SOURCE_CANNOT_ANSWER',
  'SOURCE_OUTSIDE_RANGE',
]);
const NOTHING_PUBLISHED: Published = {
  rows: 0n,
  replacedRows: 0n,
  bytes: 0n,
  objectKeys: [],
};
const MIXED_NOTE =
  'earlier ranges hold only what left the party, later ones both sides: the ' +
  'source sends more than it did';
const NO_TIMES =
  'the rows have no times: all of them are one open segment, requested whole each ' +
  'time and replaced';

/**
 * Exports the part of the request that is not covered yet. Two workers never work on
 * the same export: the second waits, and then finds the range covered.
 * @throws PermanentError | RetryableError from the source, the checks of its response,
 *   the object store or the warehouse. Nothing of the failed response is then visible
 */
export async function exportLedger(
  request: ExportRequest,
  deps: ExportDeps,
  signal: AbortSignal,
): Promise<ExportOutcome> {
  checkRequest(request, deps);
  const scope = await scopeOf(request, deps.repository);
  const what = `the export of party ${scope.partyId}`;
  const waitMs = deps.waitMs ?? WAIT_MS;
  const lease = await waitFor(
    () => deps.repository.acquire(scope),
    { waitMs, signal },
    () => waitedTooLong(what, waitMs),
  );
  await using kept = deps.repository.holdLease(lease, what);
  const context = publishContext(lease, kept, deps, signal);
  try {
    const scoped = { ...request, assetId: scope.assetId };
    return await new ExportRun({ ...deps, ...context, request: scoped }).run();
  } catch (error) {
    const cause: unknown = kept.signal.aborted ? kept.signal.reason : error;
    if (!signal.aborted && attributeFault(cause) === 'export')
      throw await recordFailure(cause, lease, deps.repository);
    throw cause;
  }
}

function checkRequest(request: ExportRequest, { source }: ExportDeps): void {
  const { partyId } = request;
  if (!isExportableParty(partyId)) {
    throw new PermanentError(
      `Cannot export party ${partyId}: it owns the network's accounts, which have ` +
        'no ledger; leave it out',
      { code: 'PARTY_NOT_EXPORTABLE', meta: { partyId } },
    );
  }
  if (!source.hasTimes && (request.from ?? request.to) !== undefined) {
    throw new PermanentError(
      `Cannot export a range of party ${partyId}: the rows of this source have no ` +
        'times; export all of it',
      { code: 'EXPORT_QUESTION', meta: { partyId } },
    );
  }
}

/**
 * Returns the scope to lease. If coverage of all assets is open, faulty or requested
 * again, an export of one asset cannot replace it, so all assets are exported.
 */
async function scopeOf(
  request: ExportRequest,
  repository: ExportRepository,
): Promise<ExportScope> {
  const { partyId, assetId, again, from = 0n, to } = request;
  if (assetId === undefined) return { partyId };
  const coverage = await repository.coverage({ partyId, assetId });
  const isReplaced = (row: Coverage): boolean =>
    row.open ||
    row.isFaulty === true ||
    (again === true && row.to > from && (to === undefined || row.from < to));
  return coverage.some((row) => row.assetId === undefined && isReplaced(row))
    ? { partyId }
    : { partyId, assetId };
}

/**
 * Counts a failure of the export.
 * @returns the error to throw: permanent if the export is now quarantined, so that it
 *   is not retried before the next nightly run
 */
async function recordFailure(
  cause: unknown,
  lease: ExportLease,
  repository: ExportRepository,
): Promise<unknown> {
  const reason = { code: errorCode(cause), message: errorLine(cause) };
  const failuresMax = HOPELESS.has(reason.code) ? 1 : ATTEMPTS_MAX;
  let failures: number | undefined;
  try {
    failures = await repository.fail(lease, reason, failuresMax);
  } catch (error) {
    // Another worker has the export now. An error here, for example because that worker
    // cleared the spool, is not a failure of the export.
    if (error instanceof FencedError) return error;
    // Otherwise, the original error matters more than the one that kept it from being
    // recorded.
  }
  if (failures === undefined || !(cause instanceof RetryableError))
    return cause;
  return new PermanentError(
    `${reason.message}; quarantined after ${failures} failures in a row, and ` +
      'tried once by each nightly run',
    { code: reason.code, meta: cause.meta, cause },
  );
}

/** A plan for the next request, and what was known about the source when it was made. */
interface Plan extends NextWindow {
  readonly profile: SourceProfile;
  readonly probe: Probe | undefined;
}

/**
 * One run of a leased export. It carries out decisions, and holds the state that they
 * change.
 */
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
      return await this.#outcome(ended);
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
    const ids = audited.map(({ coverageId }) => coverageId);
    this.#state = initialState(ids, lease.contradictions);
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
      await this.#learnLesson(decision.learns);
    return decision;
  }

  async #carryOut(
    decision: Exclude<Decision, { do: 'finish' }>,
  ): Promise<ExportEvent> {
    if (decision.do === 'probe') return await this.#probe();
    if (decision.do === 'request') return await this.#request(decision);
    if (decision.do === 'publish') return await this.#publish(decision);
    const { keeps, discards } = decision;
    if (keeps !== undefined) this.#counter.recordKept(keeps.rows, keeps.reason);
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
    // A source that shows no time certainly has all blocks before its newest entry.
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
    const { repository, request } = this.#context;
    const bounds = await this.#fetcher.probe(probe);
    const came = bounds === 'right' ? 'came' : 'did not come';
    const evidence =
      `an entry of ${formatInstant(probe.from)} was asked for by its second: it ` +
      came;
    const decidedAt = request.clock.seen;
    await repository.learn({ ...profile, bounds, evidence, decidedAt });
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
    const learned = await this.#learn(planned, received);
    if (received.state === 'outgrown') return this.#shrink(planned, received);

    this.#answered = { ...planned, received, learned };
    const facts = assessAnswer(this.#answered, {
      windows: this.#windows,
      hasTimes: this.#context.source.hasTimes,
      isUnlisted: this.#context.lease.scope.isUnlisted === true,
      now: this.#context.request.clock.seen,
    });
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
      const profile = afterRefusal(planned.target.profile, error);
      if (profile !== undefined) await this.#context.repository.learn(profile);
      if (profile?.boundsDemanded === true) return undefined;
      throw error;
    }
  }

  /** Records the findings about the release from a response, for all exports. */
  async #learn(
    { target, request }: PlannedRequest,
    received: Received | Outgrown,
  ): Promise<SourceProfile> {
    const { profile } = target;
    const isWhole = received.state === 'complete';
    const traits = isWhole ? received : received.traits;
    if (traits === undefined) return profile;

    const { repository, source, lease, request: wanted } = this.#context;
    const { seen: now, from } = wanted.clock;
    const second =
      from === 'guessed' && isWhole ? received.newestSecond : undefined;
    const shownTo =
      second === undefined
        ? profile.shownTo
        : later(profile.shownTo ?? BEGINNING, instantOf(second));
    const isTimeless = source.hasTimes ? undefined : true;
    const question = { ...lease.scope, ...request };
    const learned = learnFromAnswer(
      { ...profile, isTimeless, shownTo },
      { traits, question, now },
    );
    if (encodeProfile(learned) !== encodeProfile(profile))
      await repository.learn(learned);
    return learned;
  }

  async #learnLesson(lesson: Lesson): Promise<void> {
    const { repository, request } = this.#context;
    const profile = this.#answered?.learned ?? (await repository.profile());
    const now = request.clock.seen;
    await repository.learn(
      lesson === 'distrust bounds'
        ? distrustBounds(profile, now)
        : { ...profile, ...BOUNDS_ARE_BROKEN, decidedAt: now },
    );
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
    if (!isLast) await this.#fetcher.keep();
  }

  async #outcome({
    verdict,
    evidence,
  }: VerdictWithEvidence): Promise<ExportOutcome> {
    const { source, lease, request } = this.#context;
    const { requests } = this.#fetcher;
    const { verdicts, overlap, doubts } = this.#state.run;
    const published = await this.#published();
    const reason = futureNote(request);
    const comparedSince = await this.#comparedSince();
    return {
      ...published,
      verdict: worst([
        verdict,
        ...verdicts,
        reason === undefined ? 'complete' : 'incomplete',
      ]),
      requests,
      evidence: {
        party: lease.scope.partyId,
        asset: lease.scope.assetId ?? 'all',
        closedTo: formatInstant(request.clock.closedTo),
        comparedSince:
          comparedSince === undefined
            ? undefined
            : formatInstant(comparedSince),
        requests,
        publishedRows: String(published.rows),
        replacedRows: String(published.replacedRows),
        segments: published.objectKeys.length,
        ...describeAnswer(this.#lastPublished),
        ...(reason === undefined ? {} : { reason }),
        ...this.#counter.evidence(),
        overlap,
        findings: doubts.length === 0 ? undefined : doubts,
        ...(source.hasTimes ? {} : { times: NO_TIMES }),
        ...evidence,
      },
    };
  }

  /**
   * Returns when the closed range that has gone longest without a comparison was last
   * compared with the source. Entries added to it since then are not known.
   * @returns undefined if every range was compared in this run
   */
  async #comparedSince(): Promise<Micros | undefined> {
    const { repository, lease, request } = this.#context;
    const coverage = this.#coverage ?? (await repository.coverage(lease.scope));
    let since: Micros | undefined;
    for (const { open, runId, coverageId, checkedAt } of coverage) {
      const isOfThisRun =
        runId === request.runId || this.#compared.has(coverageId);
      if (open || isOfThisRun || checkedAt === undefined) continue;
      since = earlier(checkedAt, since ?? checkedAt);
    }
    return since;
  }

  /**
   * Sums the segments that this run has published, in this attempt or an earlier one.
   */
  async #published(): Promise<Published> {
    const { repository, lease, request } = this.#context;
    const hasPublished =
      this.#segments + this.#adoptedKeys.length > 0 ||
      lease.coverage.some(
        (row) => row.runId === request.runId && row.objectKey !== undefined,
      );
    return hasPublished
      ? await repository.published(
          lease.scope,
          request.runId,
          this.#adoptedKeys,
        )
      : NOTHING_PUBLISHED;
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

/**
 * Returns what the last published response showed about the source, as evidence.
 */
function describeAnswer(last: Answered | undefined): Record<string, unknown> {
  if (last === undefined) return {};
  const { bounds, evidence = 'seen before' } = last.learned;
  const { sides } = last.received.layout;
  const isMixed = last.target.coverage.some(
    (row) =>
      row.objectKey !== undefined &&
      row.sides !== 'unknown' &&
      row.sides !== sides &&
      !row.open,
  );
  const release =
    `filters wrongly (${evidence}): never divided, and everything that came in is ` +
    'sent each time';
  return {
    sides,
    release: bounds === 'broken' ? release : undefined,
    mixedSides: isMixed ? MIXED_NOTE : undefined,
  };
}

/**
 * Returns a note if the range ends after the source's time, because that part cannot be
 * proven.
 */
function futureNote({ to, clock }: ExportRequest): string | undefined {
  const { seen, closedTo } = clock;
  if (to === undefined || ceilSecond(to) <= seen) return undefined;
  return (
    `the range ends behind the source's time, ${formatInstant(seen)}; it is ` +
    `complete up to ${formatInstant(closedTo)}`
  );
}
