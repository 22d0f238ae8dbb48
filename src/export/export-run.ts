/** The work on a claimed scope: ask, doubt, publish, piece by piece where it is large, until all is covered. */
import { BEGINNING, ceilSecond, floorSecond, formatInstant, SECOND_MICROS } from '../core/time.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Sides } from '../ledger/header.ts';
import { Fetcher, hintKey } from './fetch/fetcher.ts';
import { exportOutcome } from './export-outcome.ts';
import { closedRange, type Doubt, judge, shrinking } from './validate/judge.ts';
import { expectedBytesPerSecond, nextPlan } from './plan/next-window.ts';
import { WindowPlan } from './plan/window-plan.ts';
import type { Coverage, WindowRequest, Publication, SourceProfile, ExportLease } from './ports.ts';
import { probeQuestion } from './fetch/probe.ts';
import { decided, doubted, learned } from './plan/profile.ts';
import { type PublishDeps, recover, spoolPrefix, type Step } from './publish/publish.ts';
import { publishAnswer } from './publish/publish-answer.ts';
import type { Range } from './plan/ranges.ts';
import type { Outgrown, Received } from './fetch/receive.ts';
import type { AskPlan, Target } from './plan/remaining.ts';
import type { ExportDeps, ExportOutcome, ExportRequest } from './request.ts';

/** Of one stretch, doubts included: then it is clear that no answer can be believed. */
const QUESTIONS_MAX = 3;
/** A second way to ask where known rows did not come back: the start a little earlier. */
const SECOND_WAY_MICROS = 3600n * SECOND_MICROS;

/** What speaks against the answers about the stretch in hand. */
interface Doubts {
  readonly found: Doubt[];
  questions: number;
  /** Known coverage that is asked for again and replaced. */
  distrusted?: Range;
  /** Nothing left the party, and asking a second way could not show more. */
  isEmptyBelieved?: boolean;
}

interface Answered {
  readonly plan: AskPlan;
  readonly question: Pick<WindowRequest, 'from' | 'to'>;
  readonly received: Received;
  readonly coverage: readonly Coverage[];
  readonly profile: SourceProfile;
}

export class ExportRun {
  readonly #claim: ExportLease;
  readonly #request: ExportRequest;
  readonly #deps: ExportDeps;
  readonly #signal: AbortSignal;
  readonly #startedMs = performance.now();
  readonly #publishing: PublishDeps;
  readonly #checkLease: () => void;
  readonly #published: Publication[] = [];
  readonly #sum = { bytes: 0, rows: 0, cancelled: 0, leftOut: { party: 0n, asset: 0n, range: 0n } };
  /** Of all stretches. */
  readonly #findings: Doubt[] = [];
  #anchor: string | undefined;
  #isSuspicious = false;
  #doubts: Doubts = { found: [], questions: 0 };
  #last: { sides: Sides; profile: SourceProfile; coverage: readonly Coverage[] } | undefined;
  #isIntended = false;
  #spoolFiles = 0;
  #segments = 0;

  constructor(
    claim: ExportLease,
    request: ExportRequest,
    deps: ExportDeps,
    checkLease: () => void,
    signal: AbortSignal,
  ) {
    this.#claim = claim;
    this.#request = request;
    this.#deps = deps;
    this.#signal = signal;
    this.#checkLease = checkLease;
    const checkpoint = async (step: Step): Promise<void> => {
      await deps.checkpoint?.(step);
      checkLease();
    };
    this.#publishing = { repository: deps.repository, objects: deps.objects, checkpoint };
  }

  async run(): Promise<ExportOutcome> {
    await this.#publishing.checkpoint('claimed');
    this.#published.push(...(await recover(this.#claim, this.#publishing, this.#signal)));
    const windows = await this.#recall();
    const fetcher = new Fetcher({
      claim: this.#claim,
      deps: this.#deps,
      windows,
      checkLease: this.#checkLease,
      checkpoint: this.#publishing.checkpoint,
      spoolFile: () => this.#spoolFile(),
      onProgress: ({ bytes, rows }) => this.#progress(this.#sum.bytes + bytes, this.#sum.rows + rows),
      signal: this.#signal,
    });
    try {
      const outcome = await this.#work(fetcher, windows);
      await fetcher.forget();
      await this.#deps.repository.succeed(this.#claim);
      return outcome;
    } catch (error) {
      // What is intended already can be finished from the spool by the next claim.
      if (!this.#isIntended) await this.#clearSpool().catch(() => undefined);
      throw error;
    }
  }

  /** What an earlier try of this scope, perhaps a killed one, knew of it. */
  async #recall(): Promise<WindowPlan> {
    const { repository, hints, segmentBytesMax } = this.#deps;
    const [coverage, kept, noted] = await Promise.all([
      repository.coverage(this.#claim.scope),
      repository.plan(this.#claim),
      hints?.get(hintKey(this.#claim)).catch(() => undefined),
    ]);
    const rate = expectedBytesPerSecond(coverage, this.#target());
    return new WindowPlan(segmentBytesMax, rate, [kept, noted]);
  }

  /**
   * Each turn covers a stretch, makes the next one shorter, or adds a doubt, of which there are few: so it
   * ends.
   */
  async #work(fetcher: Fetcher, windows: WindowPlan): Promise<ExportOutcome> {
    for (;;) {
      const [coverage, profile] = await Promise.all([
        this.#deps.repository.coverage(this.#claim.scope),
        this.#deps.repository.profile(),
      ]);
      const next = nextPlan(this.#target(), coverage, profile, windows, this.#doubts.distrusted);
      if (next === undefined) return this.#outcome(fetcher, fetcher.requests === 0 ? { covered: true } : {});
      if (next.wantsEnd && (await this.#probe(fetcher, profile))) continue;
      const { plan } = next;
      const question = this.#worded(plan, profile);
      const received = await fetcher.ask(plan, question, profile);
      const known = await this.#learn(profile, question, received);
      this.#count(received);
      if (received.state === 'outgrown') {
        if (await this.#isHopeless(received, plan, fetcher, windows))
          return this.#outcome(fetcher, {}, 'suspicious');
        continue;
      }
      const answered: Answered = { plan, question, received, coverage, profile: known };
      const state = await this.#settle(answered, profile, windows);
      if (state === 'again') continue;
      if (state !== 'published') return this.#outcome(fetcher, state, 'suspicious');
      this.#finishStretch(answered, windows);
      if (!plan.isWindow) return this.#outcome(fetcher, {});
      await fetcher.keep();
    }
  }

  #target(): Target {
    const { assetId, from, to, closedTo } = this.#request;
    return {
      assetId,
      from: floorSecond(from ?? BEGINNING),
      to: to === undefined ? undefined : ceilSecond(to),
      closedTo: floorSecond(closedTo),
    };
  }

  /** @returns true where something was learned, so that the question is another */
  async #probe(fetcher: Fetcher, profile: SourceProfile): Promise<boolean> {
    const question = profile.bounds === 'unproven' ? probeQuestion(profile) : undefined;
    if (question === undefined) return false;
    const bounds = await fetcher.probe(question);
    const evidence = `an entry of ${formatInstant(question.from)} was asked for by its second: it ${bounds === 'right' ? 'came' : 'did not come'}`;
    await this.#deps.repository.learn({ ...profile, ...decided(bounds, evidence, this.#request.seenTime) });
    return true;
  }

  /** The plan's question, or after a doubt another that must hold the same. */
  #worded({ question }: AskPlan, profile: SourceProfile): Pick<WindowRequest, 'from' | 'to'> {
    const { found, isEmptyBelieved } = this.#doubts;
    if (found.length !== 1 || isEmptyBelieved === true) return question;
    const { from, to } = question;
    if (to !== undefined && profile.sides === 'both') return { from };
    return from !== undefined && from > SECOND_WAY_MICROS
      ? { ...question, from: from - SECOND_WAY_MICROS }
      : question;
  }

  async #learn(
    profile: SourceProfile,
    question: Pick<WindowRequest, 'from' | 'to'>,
    received: Received | Outgrown,
  ): Promise<SourceProfile> {
    const { layout, header } = received;
    if (layout === undefined || header === undefined) return profile;
    const traits = { farOutside: 0, leaving: 0, leavingSecond: undefined, ...received, layout, header };
    const asked = { ...this.#claim.scope, ...question };
    const known = learned(profile, traits, asked, this.#request.seenTime);
    if (known !== profile) await this.#deps.repository.learn(known);
    return known;
  }

  #count(received: Received | Outgrown): void {
    this.#doubts.questions += 1;
    this.#sum.bytes += received.bytes;
    if (received.state === 'outgrown') {
      this.#sum.cancelled += 1;
      return;
    }
    this.#sum.rows += received.rows;
    for (const name of ['party', 'asset', 'range'] as const)
      this.#sum.leftOut[name] += received.leftOut[name];
  }

  /** What to do after an answer that was cancelled: the next question is about less. */
  async #isHopeless(
    outgrown: Outgrown,
    plan: AskPlan,
    fetcher: Fetcher,
    windows: WindowPlan,
  ): Promise<boolean> {
    await this.#clearSpool();
    const doubt = this.#doubts.found.at(-1);
    windows.lost(outgrown.seen, doubt === undefined ? closedRange(plan) : undefined);
    await fetcher.keep();
    if (doubt === undefined) return false;
    if (doubt.state !== 'nothing left') return true;
    if ((outgrown.leaving ?? 0) > 0) await this.#distrustBounds();
    else this.#doubts.isEmptyBelieved = true;
    return false;
  }

  /** @returns what is known against the answer where nothing can be published, and nothing is left to try */
  async #settle(
    answered: Answered,
    before: SourceProfile,
    windows: WindowPlan,
  ): Promise<'published' | 'again' | Record<string, unknown>> {
    const { plan, question, received, profile } = answered;
    const { found } = this.#doubts;
    // Asked by what was true of another release.
    const isOutdated = question.to !== undefined && before.header !== profile.header;
    if (isOutdated && this.#doubts.questions < QUESTIONS_MAX) return this.#again();
    const { anchor, doubt } = judge(plan, question, received, windows);
    this.#anchor = anchor ?? this.#anchor;
    if (doubt !== undefined && !this.#isOvercome(doubt)) {
      found.push(doubt);
      this.#findings.push(doubt);
      const { seenTime } = this.#request;
      if (doubt.state !== 'nothing left') await this.#deps.repository.learn(doubted(profile, seenTime));
      const isFewer = doubt.state !== 'other';
      if (this.#doubts.questions >= QUESTIONS_MAX || (found.length > 1 && isFewer)) {
        await this.#clearSpool();
        return { anchor: doubt };
      }
      // Twice the same surprise: what was known before is asked for again and replaced.
      if (found.length > 1 && plan.anchor !== undefined) {
        this.#doubts.distrusted = { from: plan.anchor.tail.from, to: plan.anchor.to };
      }
      return this.#again();
    }
    const shrunk = shrinking(plan, received);
    if (shrunk === undefined) {
      if (found[0]?.state === 'nothing left' && received.leaving > 0) await this.#distrustBounds();
      await this.#publish(answered);
      return 'published';
    }
    // The source serves less than it did: retention, or a node that lags. What is known stays.
    await this.#clearSpool();
    return { shrunk };
  }

  /** Something left the party after all, where nothing did between a start and an end. */
  async #distrustBounds(): Promise<void> {
    const { repository } = this.#deps;
    const evidence = 'entries that left a party came with a start alone, and not with a start and an end';
    await repository.learn({
      ...(await repository.profile()),
      ...decided('broken', evidence, this.#request.seenTime),
    });
  }

  async #again(): Promise<'again'> {
    await this.#clearSpool();
    return 'again';
  }

  /** Asked without an end, still nothing left the party: so it is. */
  #isOvercome(doubt: Doubt): boolean {
    return doubt.state === 'nothing left' && this.#doubts.isEmptyBelieved === true;
  }

  async #publish({ plan, received, coverage }: Answered): Promise<void> {
    const publication = await publishAnswer(plan, received, coverage, {
      claim: this.#claim,
      request: this.#request,
      deps: this.#deps,
      publishing: this.#publishing,
      spoolFile: () => this.#spoolFile(),
      onIntend: (segments) => {
        this.#isIntended = true;
        this.#segments += segments;
        this.#progress(this.#sum.bytes, this.#sum.rows);
      },
      signal: this.#signal,
    });
    this.#isIntended = false;
    this.#published.push(publication);
  }

  #finishStretch({ plan, received, coverage, profile }: Answered, windows: WindowPlan): void {
    this.#last = { sides: received.layout.sides, profile, coverage };
    this.#isSuspicious ||= this.#doubts.found.length > 1;
    this.#doubts = { found: [], questions: 0 };
    const range = closedRange(plan);
    if (range !== undefined) windows.done(range, closedBytes(received), received.oldestSecond);
  }

  #outcome(fetcher: Fetcher, evidence: Record<string, unknown>, verdict?: Verdict): ExportOutcome {
    const { cancelled, leftOut, ...received } = this.#sum;
    return exportOutcome(verdict ?? (this.#isSuspicious ? 'suspicious' : 'complete'), {
      scope: this.#claim.scope,
      request: this.#request,
      requests: fetcher.requests,
      cancelled,
      received,
      leftOut,
      published: this.#published,
      last: this.#last,
      evidence: {
        ...(this.#last === undefined ? {} : { anchor: this.#anchor ?? 'none' }),
        ...(this.#findings.length === 0 ? {} : { findings: this.#findings }),
        ...evidence,
      },
    });
  }

  #clearSpool(): Promise<unknown> {
    return this.#deps.objects.clearSpool(spoolPrefix(this.#claim), new Set());
  }

  async #spoolFile(): Promise<{ name: string; path: string }> {
    this.#spoolFiles += 1;
    const name = `${spoolPrefix(this.#claim)}${this.#claim.token}.${this.#spoolFiles}.csv`;
    return { name, path: await this.#deps.objects.spoolPath(name) };
  }

  #progress(bytes: number, rows: number): void {
    const elapsedMs = performance.now() - this.#startedMs;
    this.#deps.onProgress?.({ ...this.#claim.scope, bytes, rows, segments: this.#segments, elapsedMs });
  }
}

/** Of the rows that are closed by an answer: not what it repeats, nor the present. */
function closedBytes({ parts }: Received): number {
  return parts.reduce((sum, { open, spooled }) => (open ? sum : sum + Number(spooled?.bytes ?? 0n)), 0);
}
