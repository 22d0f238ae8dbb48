/** The work on a leased export: request, judge, publish, window by window where it is large, until all is covered. */
import { BEGINNING, ceilSecond, floorSecond, formatInstant, type Micros } from '../core/time.ts';
import { worst, type Verdict, type VerdictWithEvidence } from '../core/verdict.ts';
import { exhausted, type ExportFacts, exportOutcome } from './export-outcome.ts';
import { Fetcher } from './fetch/fetcher.ts';
import { firstWay, nextWindow, secondWay } from './plan/next-window.ts';
import { type Probe, probeRequest } from './fetch/probe.ts';
import { servedAudits } from './plan/choose-audited.ts';
import { type Answered, Judging, type Planned } from './judging.ts';
import { ProfileLearner } from './profile-learner.ts';
import { decided } from './plan/profile.ts';
import type { AskPlan, Target } from './plan/remaining.ts';
import { WindowPlan } from './plan/window-plan.ts';
import type { ExportLease } from './store/leases.ts';
import type { SourceProfile } from './store/source-profile.ts';
import { type PublishDeps, recover, spoolPrefix, type Step } from './publish/publish.ts';
import { publishAnswer } from './publish/publish-answer.ts';
import type { Outgrown, Received } from './fetch/receive.ts';
import type { ExportDeps, ExportOutcome, ExportRequest } from './request.ts';
import type { SpoolFile } from './spool/range-spool.ts';
import { Tally } from './validate/tally.ts';
import { closedBytes, closedRange } from './validate/judge.ts';

/** Requests in a row that publish nothing. */
const FRUITLESS_MAX = 8;
/** Requests of one run and export: most of a terabyte at the default size. */
const REQUESTS_MAX = 1_000;
const NO_TIMES =
  'the rows tell none: all of them are one open segment, asked for whole each time and replaced';

export class ExportRun {
  readonly #lease: ExportLease;
  readonly #request: ExportRequest;
  readonly #deps: ExportDeps;
  readonly #signal: AbortSignal;
  readonly #startedMs = performance.now();
  readonly #publishing: PublishDeps;
  readonly #tally = new Tally();
  readonly #audited = new Set<bigint>();
  #last: ExportFacts['last'];
  /** By an earlier try of this run, or by this one. */
  #hasPublished = false;
  /** Objects that an earlier run intended and this one published. */
  readonly #adopted: string[] = [];
  #epoch: number | undefined;
  /** Of the profile that the last plan was made with. */
  #shownTo: Micros | undefined;
  #isIntended = false;
  #fruitless = 0;
  #spoolFiles = 0;
  #segments = 0;
  #windows = new WindowPlan(1);
  readonly #fetcher: Fetcher;
  readonly #learner: ProfileLearner;
  readonly #judging: Judging;

  constructor(
    lease: ExportLease,
    request: ExportRequest,
    deps: ExportDeps,
    checkLease: () => void,
    signal: AbortSignal,
  ) {
    this.#lease = lease;
    this.#request = request;
    this.#deps = deps;
    this.#learner = new ProfileLearner(lease.scope, request, deps);
    this.#judging = new Judging(request, deps, this.#learner, this.#tally, lease.contradictions);
    this.#signal = signal;
    const failpoint = async (step: Step): Promise<void> => {
      await deps.failpoint?.(step);
      checkLease();
    };
    this.#publishing = { repository: deps.repository, objects: deps.objects, failpoint };
    this.#fetcher = new Fetcher({
      lease,
      deps,
      checkLease,
      failpoint,
      spoolFile: () => this.#spoolFile(),
      onProgress: ({ bytes, rows }) => this.#progress(this.#tally.bytes + bytes, this.#tally.received + rows),
      signal,
    });
  }

  async run(): Promise<ExportOutcome> {
    try {
      const ended = await this.#work();
      const { isContradicted, contradictions } = this.#judging;
      const isDone = ended.verdict === 'complete' && !isContradicted;
      await this.#deps.repository.succeed(this.#lease, isContradicted ? contradictions + 1 : 0, isDone);
      return await this.#outcome(ended.verdict, ended.evidence);
    } catch (error) {
      // What is intended already can be finished from the spool by the next owner.
      if (!this.#isIntended) await this.#clearSpool().catch(() => undefined);
      throw error;
    }
  }

  /** Round after round, until nothing is left to ask or asking does not help. */
  async #work(): Promise<VerdictWithEvidence> {
    await this.#recover();
    for (;;) {
      const planned = await this.#plan();
      if (planned !== undefined && 'verdict' in planned) return planned;
      const ended = planned && (await this.#round(planned));
      if (ended !== undefined) return ended;
    }
  }

  /** One request, and what is made of its answer. @returns undefined where it is planned again */
  async #round(planned: Planned): Promise<VerdictWithEvidence | undefined> {
    const answered = await this.#ask(planned);
    if (answered === undefined || 'verdict' in answered) return answered;
    const judged = await this.#judging.judge(answered, this.#windows);
    if (typeof judged === 'object') return judged;
    if (judged !== undefined) return await this.#publish(answered, judged);
    await this.#clearSpool();
    return undefined;
  }

  /** Takes over what an earlier, perhaps killed, attempt left. */
  async #recover(): Promise<void> {
    const { repository, segmentBytesMax } = this.#deps;
    await this.#publishing.failpoint('claimed');
    for (const { segments } of await recover(this.#lease, this.#publishing, this.#signal))
      this.#adopted.push(...segments.map(({ manifest }) => manifest.objectKey));
    const [coverage, epoch] = await Promise.all([repository.coverage(this.#lease.scope), repository.epoch()]);
    this.#epoch = epoch;
    const { auditShare: share = 0, seenTime: now, runId } = this.#request;
    this.#hasPublished =
      this.#adopted.length > 0 || coverage.some((row) => row.runId === runId && row.objectKey !== undefined);
    const { scope } = this.#lease;
    const choice = { share, scope, epoch, now, retentionMicros: this.#deps.retentionMicros };
    for (const { coverageId } of await servedAudits(coverage, choice, repository))
      this.#audited.add(coverageId);
    this.#windows = new WindowPlan(segmentBytesMax, this.#lease.plan);
  }

  get #hasTimes(): boolean {
    return this.#deps.source.hasTimes;
  }

  /** @returns undefined where it is planned again, with what was learned of the release */
  async #plan(): Promise<Planned | VerdictWithEvidence | undefined> {
    const { repository } = this.#deps;
    const [coverage, profile] = await Promise.all([
      repository.coverage(this.#lease.scope),
      repository.profile(),
    ]);
    this.#shownTo = profile.shownTo;
    const next = nextWindow(this.#target(), coverage, profile, this.#windows);
    if (next === undefined) {
      const evidence = this.#fetcher.requests === 0 ? { covered: true } : {};
      return { verdict: 'complete', evidence };
    }
    const { requests } = this.#fetcher;
    if (this.#fruitless >= FRUITLESS_MAX || requests >= REQUESTS_MAX)
      return exhausted(requests, this.#fruitless);
    const probe = next.wantsEnd && profile.bounds === 'unproven' ? probeRequest(profile) : undefined;
    if (probe === undefined) return { plan: next.plan, coverage, profile };
    await this.#probe(probe, profile);
    return undefined;
  }

  #target(): Target {
    const { assetId, from, to, closedTo, seenTime, again, runId } = this.#request;
    const range = { from: floorSecond(from ?? BEGINNING), to: to && ceilSecond(to) };
    return {
      ...range,
      assetId,
      closedTo: this.#closable(floorSecond(closedTo)),
      now: seenTime,
      retentionMicros: this.#deps.retentionMicros,
      epoch: this.#epoch,
      runId,
      trust: {
        distrusted: this.#judging.distrusted,
        again: again === true ? { from: range.from, to: range.to ?? seenTime, runId } : undefined,
        audited: this.#audited,
        kept: this.#judging.kept,
      },
    };
  }

  /** The end of what may be closed: where the source tells no time, its newest entry. */
  #closable(closedTo: Micros): Micros {
    if (!this.#hasTimes) return BEGINNING;
    if (this.#request.isClockGuessed !== true) return closedTo;
    const shownTo = this.#shownTo ?? BEGINNING;
    return shownTo < closedTo ? shownTo : closedTo;
  }

  async #probe(probe: Probe, profile: SourceProfile): Promise<void> {
    this.#fruitless += 1;
    const bounds = await this.#fetcher.probe(probe);
    const evidence = `an entry of ${formatInstant(probe.from)} was asked for by its second: it ${bounds === 'right' ? 'came' : 'did not come'}`;
    await this.#deps.repository.learn({ ...profile, ...decided(bounds, evidence, this.#request.seenTime) });
  }

  /** @returns undefined where the range is asked for in another way, or in windows */
  async #ask({ plan, coverage, profile }: Planned): Promise<Answered | VerdictWithEvidence | undefined> {
    const { wantsSecondWay, isStartDoubted } = this.#judging;
    const request = wantsSecondWay ? secondWay(plan, profile, isStartDoubted) : firstWay(plan);
    await this.#fetcher.pause(this.#fruitless);
    this.#fruitless += 1;
    this.#judging.doubts.requests += 1;
    let received: Received | Outgrown;
    try {
      const asked = { plan, request, profile, coverage, target: this.#target() };
      received = await this.#fetcher.ask(asked, this.#windows);
    } catch (error) {
      if (await this.#learner.mayWantBounds(error, profile)) return undefined;
      throw error;
    }
    const known = await this.#learner.learn(profile, request, received);
    this.#tally.count(received);
    if (received.state === 'outgrown') return await this.#shrink(plan, received);
    return { plan, coverage, profile: known, before: profile, request, received };
  }

  /** After an answer that was cancelled, the next request is about less. */
  async #shrink(plan: AskPlan, outgrown: Outgrown): Promise<VerdictWithEvidence | undefined> {
    await this.#clearSpool();
    const doubt = this.#judging.doubts.found.at(-1);
    this.#windows.outgrown(outgrown.seen, doubt === undefined ? closedRange(plan) : undefined);
    await this.#fetcher.keep(this.#windows);
    if (doubt === undefined) return undefined;
    if (doubt.state !== 'nothing left') return { verdict: 'suspicious', evidence: {} };
    if ((outgrown.leaving ?? 0) > 0) await this.#learner.distrustBounds();
    else this.#judging.doubts.isEmptyBelieved = true;
    return undefined;
  }

  /** @returns undefined where more is left to ask, or it would take more than it brings */
  async #publish(
    { plan, received, coverage, profile }: Answered,
    as: 'closed' | 'open',
  ): Promise<VerdictWithEvidence | undefined> {
    const done = await publishAnswer(plan, received, coverage, {
      lease: this.#lease,
      request: this.#request,
      deps: this.#deps,
      compression: this.#deps.compression,
      publishing: this.#publishing,
      as,
      epoch: this.#epoch,
      closesKept: coverage.filter((row) => row.open && this.#judging.kept.has(row.coverageId)),
      spoolFile: () => this.#spoolFile(),
      onIntend: (segments) => {
        this.#isIntended = true;
        this.#segments += segments;
        this.#progress(this.#tally.bytes, this.#tally.received);
      },
      signal: this.#signal,
    });
    if ('shrunk' in done) {
      this.#judging.keep(done.shrunk);
      await this.#clearSpool();
      return undefined;
    }
    const { publication, held } = done;
    this.#isIntended = false;
    this.#fruitless = 0;
    this.#tally.balance(received, held);
    this.#hasPublished ||= publication.segments.length > 0;
    if (this.#tally.hasStrangers(received, this.#lease.scope)) this.#judging.suspect();
    for (const coverageId of this.#judging.audit(plan, publication)) this.#audited.delete(coverageId);
    this.#last = { sides: received.layout.sides, profile, coverage };
    this.#judging.published(plan, as);
    const range = closedRange(plan);
    if (range !== undefined && as === 'closed')
      this.#windows.done(range, closedBytes(received), received.oldestSecond);
    const isFirstShown = this.#hasTimes && this.#shownTo === undefined && profile.shownTo !== undefined;
    if ((!plan.isWindow && !isFirstShown) || as === 'open') return { verdict: 'complete', evidence: {} };
    await this.#fetcher.keep(this.#windows);
    return undefined;
  }

  async #outcome(verdict: Verdict, evidence: Readonly<Record<string, unknown>>): Promise<ExportOutcome> {
    const { repository } = this.#deps;
    const { overlap, findings } = this.#judging;
    return exportOutcome(worst([verdict, ...this.#judging.verdicts]), {
      scope: this.#lease.scope,
      request: this.#request,
      requests: this.#fetcher.requests,
      tally: this.#tally,
      published: this.#hasPublished
        ? await repository.published(this.#lease.scope, this.#request.runId, this.#adopted)
        : [],
      last: this.#last,
      evidence: {
        ...(this.#last === undefined && overlap === undefined ? {} : { overlap: overlap ?? 'none' }),
        ...(findings.length === 0 ? {} : { findings }),
        ...(this.#hasTimes ? {} : { times: NO_TIMES }),
        ...evidence,
      },
    });
  }

  #clearSpool(): Promise<unknown> {
    return this.#deps.objects.clearSpool(spoolPrefix(this.#lease));
  }

  async #spoolFile(): Promise<SpoolFile> {
    this.#spoolFiles += 1;
    const name = `${spoolPrefix(this.#lease)}${this.#lease.token}.${this.#spoolFiles}.csv`;
    return { name, path: await this.#deps.objects.spoolPath(name) };
  }

  /** A ledger without rows reports no progress. */
  #progress(bytes: number, rows: number): void {
    if (rows === 0 && this.#segments === 0) return;
    const elapsedMs = performance.now() - this.#startedMs;
    this.#deps.onProgress?.({ ...this.#lease.scope, bytes, rows, segments: this.#segments, elapsedMs });
  }
}
