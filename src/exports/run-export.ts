/** The work on a leased export: request, judge, publish, window by window where it is large, until all is covered. */
import { BEGINNING, ceilSecond, floorSecond, formatInstant } from '../time/time.ts';
import { worst, type VerdictWithEvidence } from '../errors/verdict.ts';
import { Fetcher, type Probe, probeRequest } from './download/fetcher.ts';
import type { Outgrown, Received } from './download/receive-answer.ts';
import { servedAudits } from './planning/choose-audited.ts';
import { type PlannedRequest, nextWindow } from './planning/next-window.ts';
import { afterRefusal, learnFromAnswer } from './planning/profile.ts';
import { earlier, instantOf, later } from '../ledger/ranges.ts';
import { closedRange, type Target } from './planning/remaining.ts';
import { sumBytes } from './planning/time-histogram.ts';
import { WindowPlan } from './planning/window-plan.ts';
import { publishAnswer } from './publishing/publish-answer.ts';
import { clearSpool, publish, recover } from './publishing/publisher.ts';
import type { ExportContext, ExportOutcome, ExportRequest } from './request.ts';
import { movesNoRows, type Publication } from '../catalog/publications.ts';
import { encodeProfile, type SourceProfile } from './store/source-profile.ts';
import { type Answered, AnswerValidator } from './validation/answer-validator.ts';

/** Requests in a row that publish nothing. */
const FRUITLESS_MAX = 8;
/** Requests of one run and export: most of a terabyte at the default size. */
const REQUESTS_MAX = 1_000;
const NOTHING_PUBLISHED = { rows: 0n, replacedRows: 0n, bytes: 0n, objectKeys: [] };
const MIXED_NOTE =
  'earlier ranges hold only what left the party, later ones both sides: the source sends more than it did';
const NO_TIMES =
  'the rows tell none: all of them are one open segment, asked for whole each time and replaced';

export class ExportRun {
  readonly #context: ExportContext;
  readonly #windows: WindowPlan;
  readonly #fetcher: Fetcher;
  readonly #judge: AnswerValidator;
  /** The last answer that was published. */
  #last: Answered | undefined;
  /** Objects that an earlier run intended and this one published. */
  readonly #adopted: string[] = [];
  #epoch: number | undefined;
  /** What is known of the ledger, where nothing has changed it since. */
  #coverage: Target['coverage'] | undefined;
  /** Brought no rows, and is written as the export ends. */
  #unwritten: Publication | undefined;
  /**
   * The spool belongs to an intent, and must stay. True at first: an earlier attempt may have left one.
   */
  #isIntended = true;
  #fruitless = 0;
  #segments = 0;

  constructor(context: ExportContext) {
    this.#context = context;
    this.#windows = new WindowPlan(context.segmentBytesMax, context.lease.plan);
    this.#judge = new AnswerValidator(context);
    this.#fetcher = new Fetcher(context, this.#windows, ({ bytes, rows }) =>
      this.#progress(bytes, rows),
    );
  }

  async run(): Promise<ExportOutcome> {
    try {
      await this.#recover();
      let ended: VerdictWithEvidence | undefined;
      while (ended === undefined) ended = await this.#round();
      const { repository, lease } = this.#context;
      const { contradictions } = this.#judge;
      const isDone = ended.verdict === 'complete' && contradictions === 0;
      await repository.finish({
        lease,
        publication: this.#unwritten,
        contradictions,
        isDone,
      });
      return await this.#outcome(ended);
    } catch (error) {
      // What is intended already can be finished from the spool by the next owner.
      if (!this.#isIntended) await clearSpool(this.#context).catch(() => undefined);
      throw error;
    }
  }

  /** Takes over what an earlier, perhaps killed, attempt left. */
  async #recover(): Promise<void> {
    const { repository, retentionMicros, request, lease, failpoint } = this.#context;
    const { auditShare: share = 0, clock } = request;
    const { scope } = lease;
    await failpoint('claimed');
    for (const { segments } of await recover(this.#context))
      this.#adopted.push(...segments.map(({ manifest }) => manifest.objectKey));
    this.#isIntended = false;
    const coverage =
      this.#adopted.length > 0 ? await repository.coverage(scope) : lease.coverage;
    this.#coverage = coverage;
    this.#epoch = await repository.epoch();
    const choice = { share, scope, epoch: this.#epoch, now: clock.seen, retentionMicros };
    for (const { coverageId } of await servedAudits(coverage, choice, repository))
      this.#judge.audited.add(coverageId);
  }

  /** Plan, ask, learn, judge, publish. @returns undefined where there is more to ask, or another way to ask it */
  async #round(): Promise<VerdictWithEvidence | undefined> {
    const { repository, lease } = this.#context;
    const coverage = this.#coverage ?? (await repository.coverage(lease.scope));
    const profile = await repository.profile();
    const target = this.#target(coverage, profile);
    const next = nextWindow(target, this.#windows);
    const { requests } = this.#fetcher;
    if (next === undefined)
      return { verdict: 'complete', evidence: requests === 0 ? { covered: true } : {} };
    if (this.#fruitless >= FRUITLESS_MAX || requests >= REQUESTS_MAX) {
      const reason = `the source was asked ${requests} times, the last ${this.#fruitless} in vain; the next run goes on`;
      return { verdict: 'incomplete', evidence: { reason } };
    }
    const probe =
      next.wantsEnd && profile.bounds === 'unproven' ? probeRequest(profile) : undefined;
    if (probe !== undefined) return this.#probe(probe, profile);
    const asked = { ...next, request: this.#judge.request(next.plan, profile) };
    const received = await this.#ask(asked);
    if (received === undefined) return undefined;
    const known = await this.#learn(asked, received);
    if (received.state === 'outgrown') return this.#shrink(asked, received, known);
    const answered = { ...asked, received, learned: known };
    const judged = await this.#judge.judge(answered, this.#windows);
    if (judged === 'closed' || judged === 'open') return this.#publish(answered, judged);
    if (judged === undefined) await clearSpool(this.#context);
    return judged;
  }

  #target(coverage: Target['coverage'], profile: SourceProfile): Target {
    const { source, retentionMicros, request } = this.#context;
    const { assetId, clock, again, runId } = request;
    const { shownTo = BEGINNING } = profile;
    const from = floorSecond(request.from ?? BEGINNING);
    const to = request.to && ceilSecond(request.to);
    // Where the source tells no time, its newest entry is the end of what may be closed.
    const closedTo =
      clock.from === 'guessed' ? earlier(shownTo, clock.closedTo) : clock.closedTo;
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
      audited: this.#judge.audited,
      kept: this.#judge.kept,
    };
  }

  async #probe(probe: Probe, profile: SourceProfile): Promise<undefined> {
    this.#fruitless += 1;
    const bounds = await this.#fetcher.probe(probe);
    const evidence = `an entry of ${formatInstant(probe.from)} was asked for by its second: it ${bounds === 'right' ? 'came' : 'did not come'}`;
    const { repository, request } = this.#context;
    await repository.learn({
      ...profile,
      bounds,
      evidence,
      decidedAt: request.clock.seen,
    });
  }

  /** @returns undefined where the source refuses to be asked without a start and an end */
  async #ask(asked: PlannedRequest): Promise<Received | Outgrown | undefined> {
    try {
      return await this.#fetcher.ask(asked, this.#fruitless++);
    } catch (error) {
      const known = afterRefusal(asked.target.profile, error);
      if (known !== undefined) await this.#context.repository.learn(known);
      if (known?.boundsDemanded === true) return undefined;
      throw error;
    }
  }

  /** What an answer shows of the release is kept for all exports. */
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
    const second = from === 'guessed' && isWhole ? received.newestSecond : undefined;
    const shownTo =
      second === undefined
        ? profile.shownTo
        : later(profile.shownTo ?? BEGINNING, instantOf(second));
    const seen = { ...profile, isTimeless: source.hasTimes ? undefined : true, shownTo };
    const known = learnFromAnswer(seen, {
      traits,
      question: { ...lease.scope, ...request },
      now,
    });
    if (encodeProfile(known) !== encodeProfile(profile)) await repository.learn(known);
    return known;
  }

  /** After an answer that was cancelled, the next request is about less. */
  async #shrink({ plan }: PlannedRequest, outgrown: Outgrown, profile: SourceProfile) {
    await clearSpool(this.#context);
    this.#windows.recordOutgrown(
      outgrown.seen,
      this.#judge.hasDoubts ? undefined : closedRange(plan),
    );
    await this.#fetcher.keep();
    return this.#judge.outgrew(outgrown, profile);
  }

  /** @returns undefined where more is left to ask, or it would take more than it brings */
  async #publish(
    answered: Answered,
    as: 'closed' | 'open',
  ): Promise<VerdictWithEvidence | undefined> {
    const { plan, received, target } = answered;
    const isFirstShown =
      this.#context.source.hasTimes &&
      target.profile.shownTo === undefined &&
      answered.learned.shownTo !== undefined;
    const isLast = as === 'open' || (!plan.isWindow && !isFirstShown);
    const done = await publishAnswer(answered, {
      ...this.#context,
      as,
      epoch: this.#epoch,
      closesKept: target.coverage.filter(
        (row) => row.open && this.#judge.kept.has(row.coverageId),
      ),
      publish: async (planned) => {
        if (isLast && movesNoRows(planned, target.coverage))
          return (this.#unwritten = planned);
        this.#coverage = undefined;
        this.#isIntended = true;
        this.#segments += planned.segments.length;
        this.#progress(0, 0);
        return publish(planned, this.#context);
      },
    });
    if ('shrunk' in done) {
      this.#judge.keep(done.shrunk);
      await clearSpool(this.#context);
      return undefined;
    }
    this.#isIntended = false;
    this.#fruitless = 0;
    this.#last = answered;
    this.#judge.tally.balance(received, done.held);
    this.#judge.published(answered, done.publication, as);
    if (as === 'open') return { verdict: 'complete', evidence: {} };
    const range = closedRange(plan);
    if (range !== undefined)
      this.#windows.recordDone(
        range,
        sumBytes(received.seen.stretches),
        received.oldestSecond,
      );
    if (isLast) return { verdict: 'complete', evidence: {} };
    await this.#fetcher.keep();
    return undefined;
  }

  async #outcome({ verdict, evidence }: VerdictWithEvidence): Promise<ExportOutcome> {
    const { repository, source, lease, request } = this.#context;
    const { requests } = this.#fetcher;
    // By this try of the run, or an earlier one.
    const hasPublished =
      this.#segments + this.#adopted.length > 0 ||
      lease.coverage.some(
        (row) => row.runId === request.runId && row.objectKey !== undefined,
      );
    const published = hasPublished
      ? await repository.published(lease.scope, request.runId, this.#adopted)
      : NOTHING_PUBLISHED;
    const ahead = aheadNote(request);
    return {
      ...published,
      verdict: worst([
        verdict,
        ...this.#judge.verdicts,
        ahead === undefined ? 'complete' : 'incomplete',
      ]),
      requests,
      evidence: {
        party: lease.scope.partyId,
        asset: lease.scope.assetId ?? 'all',
        closedTo: formatInstant(request.clock.closedTo),
        requests,
        publishedRows: String(published.rows),
        replacedRows: String(published.replacedRows),
        segments: published.objectKeys.length,
        ...describeAnswer(this.#last),
        ...(ahead === undefined ? {} : { reason: ahead }),
        ...this.#judge.evidence(),
        ...(source.hasTimes ? {} : { times: NO_TIMES }),
        ...evidence,
      },
    };
  }

  /** Of the answer in hand. A ledger without rows reports no progress. */
  #progress(bytes: number, rows: number): void {
    const { tally } = this.#judge;
    const allBytes = tally.bytes + bytes;
    const allRows = tally.rows + rows;
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

/** What the last answer that was published says of the source. */
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
  const release = `filters wrongly (${evidence}): never divided, and everything that came in is sent each time`;
  return {
    sides,
    release: bounds === 'broken' ? release : undefined,
    mixedSides: isMixed ? MIXED_NOTE : undefined,
  };
}

/** What has not happened yet nobody can show. */
function aheadNote({ to, clock: { seen, closedTo } }: ExportRequest): string | undefined {
  if (to === undefined || ceilSecond(to) <= seen) return undefined;
  return `the range ends behind the source's time, ${formatInstant(seen)}; it is complete up to ${formatInstant(closedTo)}`;
}
