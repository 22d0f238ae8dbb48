/** One request to the source: a place within the export limit, the answer, and what is remembered of it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode, PermanentError, RetryableError } from '../../core/errors.ts';
import { waitFor } from '../../core/waiting.ts';
import { closedRange } from '../validate/judge.ts';
import { wouldShrink } from '../plan/next-window.ts';
import type { WindowPlan } from '../plan/window-plan.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import type { ExportLease } from '../store/leases.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import type { WindowRequest } from '../ports.ts';
import { emptyRange, isHeaderAlone } from './last-line.ts';
import { type Probe, readProbe } from './probe.ts';
import type { Step } from '../publish/publish.ts';
import { type Outgrown, receive, type Received, type Receiving } from './receive.ts';
import type { AskPlan, Target } from '../plan/remaining.ts';
import { type ExportDeps, WAIT_MS, waitedTooLong } from '../request.ts';
import type { SpoolFile } from '../spool/range-spool.ts';
import { sumBytes } from '../plan/time-histogram.ts';

/** Failures of the source on the way to its first row: its query takes too long, or breaks. */
const SILENCES: ReadonlySet<string> = new Set([
  'SOURCE_STALLED',
  'SOURCE_TIMEOUT',
  'SOURCE_BROKE',
  'SOURCE_STATUS',
]);
/** The part of a window that its continuation asks for again. */
const TAIL_PART = 16;
const TAIL_BYTES_MAX = 2 ** 20;
/** Rows that nobody asked for may come up to twice the known ledger and four objects of the largest size. */
const KNOWN_TIMES = 2;
const OUTSIDE_OBJECTS = 4;
/** Asked this often, so that no free turn is lost. */
const TURN_STEP_MAX_MS = 250;
/** Small exports occupy the source for milliseconds. */
const TURN_STEP_MIN_MS = 10;
const PAUSE_MS = 1_000;
const PAUSE_MS_MAX = 60_000;

export interface FetcherOptions {
  readonly lease: ExportLease;
  readonly deps: ExportDeps;
  readonly checkLease: () => void;
  readonly failpoint: (step: Step) => Promise<void>;
  readonly spoolFile: () => Promise<SpoolFile>;
  readonly onProgress: (progress: { readonly bytes: number; readonly rows: number }) => void;
  readonly signal: AbortSignal;
}

/** What is asked, and what it follows from. */
export interface Asked {
  readonly plan: AskPlan;
  readonly request: Pick<WindowRequest, 'from' | 'to'>;
  readonly profile: SourceProfile;
  readonly coverage: readonly Coverage[];
  readonly target: Target;
}

export class Fetcher {
  readonly #options: FetcherOptions;
  requests = 0;
  /** By the header line of the answers in doubt. */
  readonly #leavesLineEndOut = new Map<string, boolean>();

  constructor(options: FetcherOptions) {
    this.#options = options;
  }

  /** Waits before a request, longer after each one in vain. The first two do not wait. */
  async pause(fruitless: number): Promise<void> {
    const { deps, signal } = this.#options;
    const pauseMs = deps.pauseMs?.(fruitless) ?? pauseAfter(fruitless);
    if (pauseMs > 0) await sleep(pauseMs, undefined, { signal });
  }

  /** @returns what came; where it broke off on the way, that is remembered and the error thrown */
  async ask(asked: Asked, windows: WindowPlan): Promise<Received | Outgrown> {
    const { lease, deps, signal } = this.#options;
    const { plan, request } = asked;
    let receiving: Receiving | undefined;
    try {
      return await this.#atSource(async () => {
        await using answer = await deps.source.ask({ ...lease.scope, ...request }, signal);
        await this.#options.failpoint('asked');
        const received = await receive(answer, lease.scope, plan, request, {
          compression: deps.compression,
          rowPool: deps.rowPool,
          spoolFile: this.#options.spoolFile,
          tailBytesMax: Math.min(TAIL_BYTES_MAX, windows.windowBytes / TAIL_PART),
          onProgress: (progress) => {
            this.#options.checkLease();
            this.#options.onProgress(progress);
          },
          mayGoOn: this.#watch(asked, windows, (last) => (receiving = last)),
          leavesLineEndOut: (header) => this.#askForHeader(asked, header),
        });
        if (received.state === 'complete') await this.#options.failpoint('spooled');
        return received;
      });
    } catch (error) {
      if (errorCode(error) === 'MESSAGE_TOO_LARGE') return this.#tooLarge(asked, windows, receiving, error);
      if (receiving === undefined) return await this.#silent(plan, windows, error);
      windows.broke(receiving.seen());
      await this.keep(windows);
      throw error;
    }
  }

  /** Whether the source applies a start and an end together. */
  probe(probe: Probe): Promise<'right' | 'broken'> {
    return this.#atSource(async () => {
      await using answer = await this.#options.deps.source.ask(probe, this.#options.signal);
      return await readProbe(answer, { ...probe, hasOwnIds: this.#options.lease.scope.hasOwnIds });
    });
  }

  /** Whether the source ends its answers without a line end: asked once, within the turn of the answer in doubt. */
  async #askForHeader({ target, profile }: Asked, header: string): Promise<boolean> {
    const known = this.#leavesLineEndOut.get(header);
    if (known !== undefined) return known;
    const { deps, lease, signal } = this.#options;
    this.requests += 1;
    const request = { ...lease.scope, ...emptyRange(target.now, profile) };
    let isAlone = false;
    try {
      await using answer = await deps.source.ask(request, signal);
      isAlone = await isHeaderAlone(answer, header);
    } catch (error) {
      // A source that refuses such a range shows nothing.
      if (!(error instanceof PermanentError)) throw error;
    }
    this.#leavesLineEndOut.set(header, isAlone);
    return isAlone;
  }

  /** Keeps what is known of the export's windows for whoever goes on with it. */
  async keep(windows: WindowPlan): Promise<void> {
    const { deps, lease } = this.#options;
    // A plan that cannot be kept costs bytes at most.
    await deps.repository.keepPlan(lease, windows.toJson()).catch(() => undefined);
  }

  /** A smaller range may come in smaller messages. */
  #tooLarge(asked: Asked, windows: WindowPlan, receiving: Receiving | undefined, error: unknown): Outgrown {
    const range = closedRange(asked.plan);
    const seen = receiving?.seen() ?? { bytes: 0, stretches: [], sortedTo: undefined };
    const { plan, target, coverage, profile } = asked;
    if (range === undefined) throw error;
    // A known entry will show whether an end can be sent.
    const hoped = profile.known === undefined ? profile : { ...profile, bounds: 'right' as const };
    if (!wouldShrink(plan, target, coverage, hoped, windows.ifOutgrown(seen, range))) throw error;
    return { state: 'outgrown', bytes: seen.bytes, seen };
  }

  /** The source sent no row of the plan's range. */
  async #silent(plan: AskPlan, windows: WindowPlan, error: unknown): Promise<never> {
    const { lease } = this.#options;
    const range = closedRange(plan);
    if (range === undefined || !SILENCES.has(errorCode(error))) throw error;
    const mayHelp = windows.silent(range);
    await this.keep(windows);
    if (mayHelp) throw error;
    throw new PermanentError(
      `Cannot export party ${lease.scope.partyId}: the source cannot answer; no row came of the whole range, nor of a half and a quarter of it`,
      {
        code: 'SOURCE_CANNOT_ANSWER',
        meta: { ...lease.scope, from: String(range.from), to: String(range.to) },
        cause: error,
      },
    );
  }

  /**
   * Cancels an answer of which more has come of what was asked for than one object may hold, if the next request
   * would be about less. What comes beside it, such as what is known already, comes with every smaller request too.
   */
  #watch(
    asked: Asked,
    windows: WindowPlan,
    onReceiving: (receiving: Receiving) => void,
  ): (receiving: Receiving) => Promise<boolean> {
    const { streamBytesMax } = windows;
    const refuseEndless = this.#outsideGuard(asked, streamBytesMax);
    let checkAtBytes = streamBytesMax;
    let mustRun = false;
    return async (receiving) => {
      onReceiving(receiving);
      refuseEndless(receiving);
      if (mustRun || receiving.bytes <= checkAtBytes) return true;
      const seen = receiving.seen();
      const roomBytes = streamBytesMax - sumBytes(seen.stretches);
      checkAtBytes = receiving.bytes + roomBytes;
      if (roomBytes >= 0) return true;
      const mayShrink = isDivisible(asked, receiving) && shrinks(asked, windows, seen);
      mustRun = !mayShrink;
      return mustRun;
    };
  }

  /**
   * Rows that were not asked for are left out, but not for ever: what is known of the ledger may come again with
   * every answer, and as much as a few objects hold that is not known.
   * @returns what throws `SOURCE_OUTSIDE_RANGE` beyond that
   */
  #outsideGuard({ coverage }: Asked, streamBytesMax: number): (receiving: Receiving) => void {
    const knownBytes = coverage.reduce((sum, { content }) => sum + Number(content?.bytes ?? 0n), 0);
    const outsideBytesMax = KNOWN_TIMES * knownBytes + OUTSIDE_OBJECTS * streamBytesMax;
    let checkAtBytes = outsideBytesMax;
    return (receiving) => {
      const { bytes } = receiving;
      if (bytes <= checkAtBytes) return;
      checkAtBytes = sumBytes(receiving.seen().stretches) + outsideBytesMax;
      if (bytes <= checkAtBytes) return;
      const { scope } = this.#options.lease;
      throw new RetryableError(
        `Cannot export party ${scope.partyId}: ${bytes} bytes came, nearly all outside of the range that was asked for, with no end; ` +
          'look at what answers there, or export the party without --from and --to',
        { code: 'SOURCE_OUTSIDE_RANGE', meta: { ...scope, bytes, outsideBytesMax } },
      );
    };
  }

  /** Within the limit of exports at once; the export's own lease says that it still is. */
  async #atSource<Result>(work: () => Promise<Result>): Promise<Result> {
    const { deps, lease, signal } = this.#options;
    const waitMs = deps.waitMs ?? WAIT_MS;
    await waitFor(
      async () => ((await deps.repository.enterSource(lease, deps.exportLimit)) ? true : undefined),
      { waitMs, stepMinMs: TURN_STEP_MIN_MS, stepMaxMs: TURN_STEP_MAX_MS, signal },
      () => waitedTooLong('a turn within the export limit', waitMs),
    );
    try {
      this.requests += 1;
      return await work();
    } finally {
      await deps.repository.leaveSource(lease).catch(() => undefined);
    }
  }
}

function pauseAfter(fruitless: number): number {
  return fruitless < 2 ? 0 : Math.min(PAUSE_MS * 2 ** (fruitless - 2), PAUSE_MS_MAX);
}

/** Only where smaller answers can be had: from a release that applies both bounds, or may turn out to. */
function isDivisible({ plan, profile }: Asked, { layout, leavingSecond }: Receiving): boolean {
  const range = closedRange(plan);
  if (range === undefined || range.to - range.from < 2_000_000n) return false;
  if (layout === undefined || profile.bounds === 'broken') return false;
  if (layout.sides === 'from' || profile.bounds === 'right') return true;
  return profile.known !== undefined || leavingSecond !== undefined;
}

function shrinks(
  { plan, target, coverage, profile }: Asked,
  windows: WindowPlan,
  seen: ReturnType<Receiving['seen']>,
): boolean {
  const range = closedRange(plan);
  if (range === undefined) return false;
  // What this answer teaches of the release is not recorded yet: it may turn out to apply both bounds.
  const hoped = { ...profile, bounds: 'right' as const };
  const lost = windows.ifOutgrown(seen, range);
  return lost.isAffordable && wouldShrink(plan, target, coverage, hoped, lost);
}
