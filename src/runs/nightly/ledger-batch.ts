/**
 * The ledgers of one job: leased some at a time, exported one after another. What became of them, and what was found
 * to be empty, is written together; a process that is killed asks for those again that were not written.
 */
import type { VerdictWithEvidence } from '../../core/verdict.ts';
import type { ExportRequest, JobDeps, LeasedLedgers, StageCall } from '../job.ts';
import type { SettledLedger } from '../store/nightly/nightly-store.ts';

/** Leased together; somebody may wait for one of them, so those not begun by then are given back. */
const LEASED_TOGETHER = 50;
const LEASED_MS = 10_000;

interface BatchOptions {
  readonly runId: string;
  readonly partyIds: readonly string[];
  readonly deps: Pick<JobDeps, 'stages' | 'nightly'>;
}

export class LedgerBatch implements AsyncDisposable {
  /** Those whose export did not count: another had taken them over. */
  readonly lost = new Set<string>();
  readonly #options: BatchOptions;
  readonly #leased = new Set<string>();
  #settled: SettledLedger[] = [];
  #ledgers: LeasedLedgers | undefined;
  #leasedAtMs = 0;
  #hasFailed = false;

  constructor(options: BatchOptions) {
    this.#options = options;
  }

  async export(request: ExportRequest, call: StageCall): Promise<VerdictWithEvidence> {
    if (!this.#leased.has(request.partyId)) await this.#lease(request.partyId);
    return (this.#ledgers ?? this.#options.deps.stages).export(request, call);
  }

  add(ledger: SettledLedger): void {
    this.#settled.push(ledger);
  }

  /**
   * Writes what is known where the last write failed, or where this ledger needs a new lease: what cannot be written is
   * not the fault of the ledger that comes next.
   */
  async writeBefore(partyId: string): Promise<void> {
    if (this.#hasFailed || !this.#leased.has(partyId)) await this.#write();
  }

  /** To be called now and then: a ledger that takes long keeps neither what is known of others, nor their leases. */
  async look(): Promise<void> {
    await this.#write();
    if (this.#ledgers === undefined || performance.now() - this.#leasedAtMs < LEASED_MS) return;
    this.#leased.clear();
    await this.#ledgers.giveBack();
  }

  /** Writes what is known, and gives back what is leased. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.#write();
    } finally {
      const ledgers = this.#ledgers;
      this.#ledgers = undefined;
      this.#leased.clear();
      await ledgers?.[Symbol.asyncDispose]();
    }
  }

  async #lease(partyId: string): Promise<void> {
    await this[Symbol.asyncDispose]();
    const { partyIds, deps } = this.#options;
    const start = partyIds.indexOf(partyId);
    const next = partyIds.slice(start, start + LEASED_TOGETHER);
    this.#leasedAtMs = performance.now();
    if (next.length > 1) this.#ledgers = await deps.stages.leaseLedgers(next);
    for (const one of next) this.#leased.add(one);
  }

  /** What cannot be written is kept for the next call. */
  async #write(): Promise<void> {
    const { runId, deps } = this.#options;
    const known = this.#settled;
    this.#settled = [];
    try {
      for (const partyId of (await this.#ledgers?.write()) ?? []) this.lost.add(partyId);
      const settled = known.filter(({ partyId }) => !this.lost.has(partyId));
      if (settled.length > 0) await deps.nightly.settle(runId, settled);
      this.#hasFailed = false;
    } catch (error) {
      this.#hasFailed = true;
      this.#settled = [...known, ...this.#settled];
      throw error;
    }
  }
}
