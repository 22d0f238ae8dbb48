/** One question to the source: its turn within the export limit, the answer, and what is remembered of it. */
import { errorCode, PermanentError } from '../../core/errors.ts';
import { closedRange } from '../validate/judge.ts';
import { waitFor } from '../lease.ts';
import type { WindowPlan } from '../plan/window-plan.ts';
import type { WindowRequest, SourceProfile, ExportLease } from '../ports.ts';
import { type Probe, readProbe } from './probe.ts';
import type { Step } from '../publish/publish.ts';
import { type Outgrown, receive, type Received, type Receiving } from './receive.ts';
import type { AskPlan } from '../plan/remaining.ts';
import { type ExportDeps, WAIT_MS } from '../request.ts';
import { bytesOf } from '../plan/sample.ts';

/** After a week a half-done export's history says little. */
const HINT_TTL_MS = 7 * 24 * 3_600_000;
/** Noted after so much, or that part of the longest stream; then after a quarter more, eight times a stream. */
const NOTE_BYTES_MIN = 256 * 2 ** 10;
const NOTE_PART_MIN = 1 / 32;
const NOTE_PART = 4;
const NOTES_PER_STREAM = 8;
/** Failures of the source on the way to its first row: its query takes too long, or breaks. */
const SILENCES: ReadonlySet<string> = new Set([
  'SOURCE_STALLED',
  'SOURCE_TIMEOUT',
  'SOURCE_BROKE',
  'SOURCE_STATUS',
]);
/** What a piece's continuation asks for again, as a part of the piece. */
const TAIL_PART = 16;
const TAIL_BYTES_MAX = 2 ** 20;

export interface FetcherOptions {
  readonly claim: ExportLease;
  readonly deps: ExportDeps;
  readonly windows: WindowPlan;
  readonly checkLease: () => void;
  readonly checkpoint: (step: Step) => Promise<void>;
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
  readonly onProgress: (progress: { readonly bytes: number; readonly rows: number }) => void;
  readonly signal: AbortSignal;
}

export class Fetcher {
  readonly #options: FetcherOptions;
  requests = 0;

  constructor(options: FetcherOptions) {
    this.#options = options;
  }

  /**
   * @param profile decides whether the answer may be cancelled where it is too large
   * @returns what came; where it broke off on the way, that is remembered and the error thrown
   */
  async ask(
    plan: AskPlan,
    question: Pick<WindowRequest, 'from' | 'to'>,
    profile: SourceProfile,
  ): Promise<Received | Outgrown> {
    const { claim, deps, windows, signal } = this.#options;
    let receiving: Receiving | undefined;
    try {
      return await this.#atSource(async () => {
        await using answer = await deps.source.ask({ ...claim.scope, ...question }, signal);
        await this.#options.checkpoint('asked');
        const mayGoOn = this.#watch(plan, profile, (last) => (receiving = last));
        const received = await receive(answer, claim.scope, plan, question, {
          compression: deps.compression,
          rowPool: deps.rowPool,
          spoolFile: this.#options.spoolFile,
          tailBytesMax: Math.min(TAIL_BYTES_MAX, windows.windowBytes / TAIL_PART),
          onProgress: (progress) => {
            this.#options.checkLease();
            this.#options.onProgress(progress);
          },
          mayGoOn,
        });
        if (received.state === 'whole') await this.#options.checkpoint('spooled');
        return received;
      });
    } catch (error) {
      if (receiving === undefined) return await this.#silent(plan, error);
      windows.lost(receiving.seen());
      await this.keep();
      throw error;
    }
  }

  /** Whether the source applies a start and an end together. */
  probe(question: Probe): Promise<'right' | 'broken'> {
    return this.#atSource(async () => {
      await using answer = await this.#options.deps.source.ask(question, this.#options.signal);
      return await readProbe(answer, question);
    });
  }

  /** Keeps what is known of the unit's windows for whoever goes on with it. */
  async keep(): Promise<void> {
    const { deps, windows, claim } = this.#options;
    // A plan that cannot be kept costs bytes at most.
    await deps.repository.keepPlan(claim, windows.toHint()).catch(() => undefined);
    await this.#note();
  }

  /** The same where it is cheap and may be lost: how far the stream in hand has come. */
  async #note(): Promise<void> {
    const { deps, windows, claim } = this.#options;
    await deps.hints?.set(hintKey(claim), windows.toHint(), HINT_TTL_MS).catch(() => undefined);
  }

  /** The scope is done. */
  async forget(): Promise<void> {
    const { deps, claim } = this.#options;
    await deps.hints?.delete(hintKey(claim)).catch(() => undefined);
  }

  /** Not a row came of the plan's range. */
  async #silent(plan: AskPlan, error: unknown): Promise<never> {
    const { windows, claim } = this.#options;
    const range = closedRange(plan);
    if (range === undefined || !SILENCES.has(errorCode(error))) throw error;
    const mayHelp = windows.silent(range);
    await this.keep();
    if (mayHelp) throw error;
    throw new PermanentError(
      `Cannot export party ${claim.scope.partyId}: the source cannot answer; no row came of the whole range, nor of a half and a quarter of it`,
      {
        code: 'SOURCE_CANNOT_ANSWER',
        meta: { ...claim.scope, from: String(range.from), to: String(range.to) },
        cause: error,
      },
    );
  }

  #watch(
    plan: AskPlan,
    profile: SourceProfile,
    onReceiving: (receiving: Receiving) => void,
  ): (receiving: Receiving) => Promise<boolean> {
    const { windows } = this.#options;
    const leastBytes = Math.min(NOTE_BYTES_MIN, windows.streamBytesMax * NOTE_PART_MIN);
    const isTooLarge = this.#sizeCheck();
    let [noteAtBytes, keepAtBytes] = [leastBytes, leastBytes];
    return async (receiving) => {
      onReceiving(receiving);
      const { bytes } = receiving;
      if (isTooLarge(receiving) && isDivisible(plan, profile, receiving)) return false;
      if (bytes < noteAtBytes) return true;
      const stepBytes = Math.min(bytes / NOTE_PART, windows.streamBytesMax / NOTES_PER_STREAM);
      noteAtBytes = bytes + Math.max(leastBytes, stepBytes);
      if (bytes < keepAtBytes) {
        windows.receiving(receiving.seen(), noteAtBytes);
        await this.#note();
        return true;
      }
      keepAtBytes = 2 * bytes;
      windows.receiving(receiving.seen(), keepAtBytes);
      await this.keep();
      return true;
    };
  }

  /**
   * Whether more has come of what was asked for than may be risked. What comes beside it, such as what is
   * known already, comes with every smaller question as well: cancelling for it would never end.
   */
  #sizeCheck(): (receiving: Receiving) => boolean {
    const { windows } = this.#options;
    let checkAtBytes = 0;
    return (receiving) => {
      const { streamBytesMax } = windows;
      if (receiving.bytes <= Math.max(checkAtBytes, streamBytesMax)) return false;
      const roomBytes = streamBytesMax - bytesOf(receiving.seen().sample);
      checkAtBytes = receiving.bytes + roomBytes;
      return roomBytes < 0;
    };
  }

  /** Within the limit of exports at once; the export's own lease says that it still is. */
  async #atSource<Result>(work: () => Promise<Result>): Promise<Result> {
    const { deps, claim, signal } = this.#options;
    await waitFor(
      'a place within the export limit',
      async () => ((await deps.repository.enterSource(claim, deps.exportLimit)) ? true : undefined),
      { waitMs: deps.waitMs ?? WAIT_MS, signal },
    );
    try {
      this.requests += 1;
      return await work();
    } finally {
      await deps.repository.leaveSource(claim).catch(() => undefined);
    }
  }
}

export function hintKey(claim: ExportLease): string {
  return `export.${claim.exportId}`;
}

/** Only where smaller answers can be had: from a release that applies both bounds, or may turn out to. */
function isDivisible(plan: AskPlan, profile: SourceProfile, { layout, leavingSecond }: Receiving): boolean {
  const [first, last] = [plan.closed[0], plan.closed.at(-1)];
  if (first === undefined || last === undefined || last.to - first.from < 2_000_000n) return false;
  if (layout === undefined || profile.bounds === 'broken') return false;
  if (layout.sides === 'from' || profile.bounds === 'right') return true;
  return profile.known !== undefined || leavingSecond !== undefined;
}
