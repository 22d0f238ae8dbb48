/** The work on a leased export: request, judge, publish, window by window where it is large, until all is covered. */
import { BEGINNING, ceilSecond, floorSecond, formatInstant, type Micros } from '../core/time.ts';
import { runStates } from './state-machine.ts';
import { worst, type Verdict } from '../core/verdict.ts';
import { exhausted, type ExportFacts, exportOutcome } from './export-outcome.ts';
import { type EventOf, type Planned, type Publishing, type States, TRANSITIONS } from './export-states.ts';
import { Fetcher } from './fetch/fetcher.ts';
import { expectedBytesPerSecond, nextWindow, secondWay } from './plan/next-window.ts';
import { probeRequest } from './fetch/probe.ts';
import { servedAudits } from './plan/choose-audited.ts';
import { Judging } from './judging.ts';
import { ProfileLearner } from './profile-learner.ts';
import { decided } from './plan/profile.ts';
import type { Target } from './plan/remaining.ts';
import { WindowPlan } from './plan/window-plan.ts';
import type { ExportLease } from './store/leases.ts';
import { type PublishDeps, recover, spoolPrefix, type Step } from './publish/publish.ts';
import { publishAnswer } from './publish/publish-answer.ts';
import type { Outgrown, Received } from './fetch/receive.ts';
import type { ExportDeps, ExportOutcome, ExportRequest } from './request.ts';
import type { SpoolFile } from './spool/spool-writer.ts';
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
      const ended = await runStates(
        TRANSITIONS,
        {
          recovering: () => this.#recover(),
          planning: () => this.#plan(),
          probing: (data) => this.#probe(data),
          requesting: (data) => this.#ask(data),
          shrinking: (data) => this.#shrink(data),
          judging: async (data) => this.#cleared(await this.#judging.judge(data, this.#windows)),
          publishing: async (data) => this.#cleared(await this.#publish(data)),
        },
        { name: 'recovering', data: {} },
      );
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

  /** Takes over what an earlier, perhaps killed, attempt left. */
  async #recover(): Promise<EventOf<'recovering'>> {
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
    const rate = expectedBytesPerSecond(coverage, this.#target());
    this.#windows = new WindowPlan(segmentBytesMax, rate, this.#lease.plan);
    return { kind: 'recovered', data: {} };
  }

  get #hasTimes(): boolean {
    return this.#deps.source.hasTimes;
  }

  async #plan(): Promise<EventOf<'planning'>> {
    const { repository } = this.#deps;
    const [coverage, profile] = await Promise.all([
      repository.coverage(this.#lease.scope),
      repository.profile(),
    ]);
    this.#shownTo = profile.shownTo;
    const next = nextWindow(this.#target(), coverage, profile, this.#windows);
    if (next === undefined) {
      const evidence = this.#fetcher.requests === 0 ? { covered: true } : {};
      return { kind: 'covered', data: { verdict: 'complete', evidence } };
    }
    const { requests } = this.#fetcher;
    if (this.#fruitless >= FRUITLESS_MAX || requests >= REQUESTS_MAX)
      return { kind: 'exhausted', data: exhausted(requests, this.#fruitless) };
    const probe = next.wantsEnd && profile.bounds === 'unproven' ? probeRequest(profile) : undefined;
    if (probe !== undefined) return { kind: 'unproven', data: { probe, profile } };
    return { kind: 'planned', data: { plan: next.plan, coverage, profile } };
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

  async #probe({ probe, profile }: States['probing']): Promise<EventOf<'probing'>> {
    this.#fruitless += 1;
    const bounds = await this.#fetcher.probe(probe);
    const evidence = `an entry of ${formatInstant(probe.from)} was asked for by its second: it ${bounds === 'right' ? 'came' : 'did not come'}`;
    await this.#deps.repository.learn({ ...profile, ...decided(bounds, evidence, this.#request.seenTime) });
    return { kind: 'probed', data: {} };
  }

  async #ask(planned: Planned): Promise<EventOf<'requesting'>> {
    const { plan, coverage, profile } = planned;
    const request = this.#judging.wantsSecondWay ? secondWay(plan, profile) : plan.question;
    await this.#fetcher.pause(this.#fruitless);
    this.#fruitless += 1;
    this.#judging.doubts.requests += 1;
    let received: Received | Outgrown;
    try {
      const asked = { plan, request, profile, coverage, target: this.#target() };
      received = await this.#fetcher.ask(asked, this.#windows);
    } catch (error) {
      if (await this.#learner.mayWantBounds(error, profile)) return { kind: 'refused', data: {} };
      throw error;
    }
    const known = await this.#learner.learn(profile, request, received);
    this.#tally.count(received);
    if (received.state === 'outgrown') return { kind: 'outgrown', data: { plan, outgrown: received } };
    return {
      kind: 'received',
      data: { plan, coverage, profile: known, before: profile, request, received },
    };
  }

  /** After an answer that was cancelled, the next request is about less. */
  async #shrink({ outgrown, plan }: States['shrinking']): Promise<EventOf<'shrinking'>> {
    await this.#clearSpool();
    const doubt = this.#judging.doubts.found.at(-1);
    this.#windows.outgrown(outgrown.seen, doubt === undefined ? closedRange(plan) : undefined);
    await this.#fetcher.keep(this.#windows);
    if (doubt === undefined) return { kind: 'divided', data: {} };
    if (doubt.state !== 'nothing left')
      return { kind: 'contradicted', data: { verdict: 'suspicious', evidence: {} } };
    if ((outgrown.leaving ?? 0) > 0) await this.#learner.distrustBounds();
    else this.#judging.doubts.isEmptyBelieved = true;
    return { kind: 'divided', data: {} };
  }

  async #publish(answer: Publishing): Promise<EventOf<'publishing'>> {
    const { plan, received, coverage, profile, as } = answer;
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
    if ('shrunk' in done) return this.#judging.keep(done.shrunk);
    const { publication, held } = done;
    this.#isIntended = false;
    this.#fruitless = 0;
    this.#tally.balance(received, held);
    this.#hasPublished ||= publication.segments.length > 0;
    if (this.#tally.hasStrangers(received, this.#lease.scope)) this.#judging.suspect();
    const stood = new Set(publication.closes.map(({ coverageId }) => coverageId));
    for (const row of plan.standing) {
      if (!this.#audited.delete(row.coverageId)) continue;
      const isSame = stood.has(row.coverageId);
      // Otherwise the source tells another story of a range that it had closed.
      if (!isSame) this.#judging.suspect();
      this.#tally.audited(row, isSame);
    }
    this.#last = { sides: received.layout.sides, profile, coverage };
    this.#judging.published(as);
    const range = closedRange(plan);
    if (range !== undefined && as === 'closed')
      this.#windows.done(range, closedBytes(received), received.oldestSecond);
    const isFirstShown = this.#hasTimes && this.#shownTo === undefined && profile.shownTo !== undefined;
    if ((!plan.isWindow && !isFirstShown) || as === 'open')
      return { kind: 'published the last', data: { verdict: 'complete', evidence: {} } };
    await this.#fetcher.keep(this.#windows);
    return { kind: 'published', data: {} };
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

  /** Removes the spool files of a doubted answer: its range is asked for again. */
  async #cleared<Event extends { readonly kind: string }>(event: Event): Promise<Event> {
    if (event.kind === 'doubted') await this.#clearSpool();
    return event;
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
