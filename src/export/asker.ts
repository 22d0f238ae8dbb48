/** One question to the source: a place among the exports at once, the answer, and what is remembered of it. */
import { keepLease, LEASE_MS, waitFor } from './lease.ts';
import type { PiecePlan } from './piece-plan.ts';
import type { ExportQuestion, SourceProfile, UnitClaim } from './ports.ts';
import { type Probe, readProbe } from './probe.ts';
import type { Step } from './publish.ts';
import { type Outgrown, receive, type Received, type Receiving } from './receive.ts';
import type { AskPlan } from './remaining.ts';
import { type ExportDeps, WAIT_MS } from './request.ts';

/** After a week a half-done export's history says little. */
const HINT_TTL_MS = 7 * 24 * 3_600_000;
/** What a kill may cost without being known of: a quarter of the stream, and at least this much, or that part of the longest. */
const REMEMBER_BYTES_MIN = 256 * 2 ** 10;
const REMEMBER_PART_MIN = 1 / 32;
const REMEMBER_PART = 4;
const REMEMBERED_PER_STREAM = 8;
/** What a piece's continuation asks for again, as a part of a segment. */
const TAIL_PART = 16;
const TAIL_BYTES_MAX = 2 ** 20;

export interface AskerOptions {
  readonly claim: UnitClaim;
  readonly deps: ExportDeps;
  readonly pieces: PiecePlan;
  readonly checkLease: () => void;
  readonly checkpoint: (step: Step) => Promise<void>;
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
  readonly onProgress: (progress: { readonly bytes: number; readonly rows: number }) => void;
  readonly signal: AbortSignal;
}

export class Asker {
  readonly #options: AskerOptions;
  questions = 0;

  constructor(options: AskerOptions) {
    this.#options = options;
  }

  /**
   * @param profile decides whether the answer may be cancelled where it is too large
   * @returns what came; where it broke off on the way, that is remembered and the error thrown
   */
  async ask(
    plan: AskPlan,
    question: Pick<ExportQuestion, 'from' | 'to'>,
    profile: SourceProfile,
  ): Promise<Received | Outgrown> {
    const { claim, deps, pieces } = this.#options;
    let receiving: Receiving | undefined;
    try {
      return await this.#inSlot(async (signal, check) => {
        await using answer = await deps.source.ask({ ...claim.unit, ...question }, signal);
        await this.#options.checkpoint('asked');
        const mayGoOn = this.#watch(plan, profile, (last) => (receiving = last));
        const received = await receive(answer, claim.unit, plan, question, {
          compression: deps.compression,
          rowPool: deps.rowPool,
          spoolFile: this.#options.spoolFile,
          tailBytesMax: Math.min(TAIL_BYTES_MAX, deps.segmentBytesMax / TAIL_PART),
          onProgress: (progress) => {
            check();
            this.#options.onProgress(progress);
          },
          mayGoOn,
        });
        if (received.state === 'whole') await this.#options.checkpoint('spooled');
        return received;
      });
    } catch (error) {
      if (receiving !== undefined) {
        pieces.lost(receiving.seen());
        await this.remember();
      }
      throw error;
    }
  }

  /** Whether the source applies a start and an end together. */
  probe(question: Probe): Promise<'right' | 'broken'> {
    return this.#inSlot(async (signal) => {
      await using answer = await this.#options.deps.source.ask(question, signal);
      return await readProbe(answer, question);
    });
  }

  /** Keeps what is known of the unit's pieces for whoever goes on with it. */
  async remember(): Promise<void> {
    const { deps, pieces, claim } = this.#options;
    // A hint that cannot be kept costs bytes at most.
    await deps.hints?.set(hintKey(claim), pieces.toHint(), HINT_TTL_MS).catch(() => undefined);
  }

  /** The unit is done. */
  async forget(): Promise<void> {
    const { deps, claim } = this.#options;
    await deps.hints?.delete(hintKey(claim)).catch(() => undefined);
  }

  #watch(
    plan: AskPlan,
    profile: SourceProfile,
    onReceiving: (receiving: Receiving) => void,
  ): (receiving: Receiving) => Promise<boolean> {
    const { pieces, deps } = this.#options;
    const leastBytes = Math.min(REMEMBER_BYTES_MIN, pieces.streamBytesMax * REMEMBER_PART_MIN);
    let rememberAtBytes = leastBytes;
    return async (receiving) => {
      onReceiving(receiving);
      const { bytes } = receiving;
      if (bytes > pieces.streamBytesMax && isDivisible(plan, profile, receiving)) return false;
      if (bytes >= rememberAtBytes) {
        const stepBytes = Math.min(bytes / REMEMBER_PART, pieces.streamBytesMax / REMEMBERED_PER_STREAM);
        rememberAtBytes = bytes + Math.max(leastBytes, stepBytes);
        if (deps.hints !== undefined) {
          pieces.receiving(receiving.seen());
          await this.remember();
        }
      }
      return true;
    };
  }

  async #inSlot<Result>(work: (signal: AbortSignal, check: () => void) => Promise<Result>): Promise<Result> {
    const { deps, signal, checkLease } = this.#options;
    let takenAtMs = performance.now();
    const slot = await waitFor(
      'a place among the exports at once',
      () => {
        takenAtMs = performance.now();
        return deps.books.takeSlot(deps.slotsMax, LEASE_MS);
      },
      { waitMs: deps.waitMs ?? WAIT_MS, signal },
    );
    await using lease = keepLease({
      what: 'a place among the exports at once',
      takenAtMs,
      renew: () => deps.books.renewSlot(slot, LEASE_MS),
      release: () => deps.books.freeSlot(slot),
    });
    this.questions += 1;
    return await work(AbortSignal.any([signal, lease.signal]), () => {
      checkLease();
      lease.check();
    });
  }
}

export function hintKey(claim: UnitClaim): string {
  return `export.${claim.unitId}`;
}

/** Only where smaller answers can be had: from a release that applies both bounds, or may turn out to. */
function isDivisible(plan: AskPlan, profile: SourceProfile, { layout, leavingSecond }: Receiving): boolean {
  const [first, last] = [plan.closed[0], plan.closed.at(-1)];
  if (first === undefined || last === undefined || last.to - first.from < 2_000_000n) return false;
  if (layout === undefined || profile.bounds === 'broken') return false;
  if (layout.sides === 'from' || profile.bounds === 'right') return true;
  return profile.known !== undefined || leavingSecond !== undefined;
}
