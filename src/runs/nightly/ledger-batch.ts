/**
 * The ledgers of one job: leased some at a time, exported one after another. What became of them, and what was found
 * to be empty, is written together; a process that is killed asks for those again that were not written.
 */
import type { VerdictWithEvidence } from '../../core/verdict.ts';
import type { ExportRequest, JobDeps, LeasedLedgers, StageCall } from '../job.ts';
import type { SettledLedger } from '../store/nightly/nightly-store.ts';

/** Written together: at most so many, and so long after they were known. */
const WRITTEN_TOGETHER_MAX = 100;
const WRITE_EVERY_MS = 2_000;
/** Leased together; somebody may wait for one of them, so those not begun by then are given back. */
const LEASED_TOGETHER = 50;
const LEASED_MS = 10_000;

export class LedgerBatch {
  readonly #runId: string;
  readonly #deps: Pick<JobDeps, 'stages' | 'nightly'>;
  readonly #partyIds: readonly string[];
  #settled: SettledLedger[] = [];
  #writtenAtMs = performance.now();
  #ledgers: LeasedLedgers | undefined;
  #leased: ReadonlySet<string> = new Set();
  #leasedAtMs = 0;
  readonly #lost = new Set<string>();

  constructor(runId: string, partyIds: readonly string[], deps: Pick<JobDeps, 'stages' | 'nightly'>) {
    this.#runId = runId;
    this.#partyIds = partyIds;
    this.#deps = deps;
  }

  /** Those whose export did not count: another had taken them over. */
  get lost(): readonly string[] {
    return [...this.#lost];
  }

  async export(request: ExportRequest, call: StageCall): Promise<VerdictWithEvidence> {
    if (!this.#leased.has(request.partyId)) await this.#lease(request.partyId);
    return (this.#ledgers ?? this.#deps.stages).export(request, call);
  }

  add(ledger: SettledLedger): void {
    this.#settled.push(ledger);
  }

  async writeIfDue(): Promise<void> {
    const isDue =
      this.#settled.length >= WRITTEN_TOGETHER_MAX || performance.now() - this.#writtenAtMs >= WRITE_EVERY_MS;
    if (isDue) await this.write();
  }

  /** What cannot be written is kept for the next call. */
  async write(): Promise<void> {
    const known = this.#settled;
    this.#settled = [];
    this.#writtenAtMs = performance.now();
    try {
      for (const partyId of (await this.#ledgers?.write()) ?? []) this.#lost.add(partyId);
      const settled = known.filter(({ partyId }) => !this.#lost.has(partyId));
      if (settled.length > 0) await this.#deps.nightly.settle(this.#runId, settled);
    } catch (error) {
      this.#settled = [...known, ...this.#settled];
      throw error;
    }
  }

  /** To be called now and then: a ledger that takes long keeps neither what is known of others, nor their leases. */
  async look(): Promise<void> {
    await this.write();
    if (this.#ledgers === undefined || performance.now() - this.#leasedAtMs < LEASED_MS) return;
    this.#leased = new Set();
    await this.#ledgers.giveBack();
  }

  /** Writes what is known, and gives back what is leased. */
  async close(): Promise<void> {
    try {
      await this.write();
    } finally {
      const ledgers = this.#ledgers;
      this.#ledgers = undefined;
      this.#leased = new Set();
      await ledgers?.[Symbol.asyncDispose]();
    }
  }

  async #lease(partyId: string): Promise<void> {
    await this.close();
    const start = this.#partyIds.indexOf(partyId);
    const next = this.#partyIds.slice(start, start + LEASED_TOGETHER);
    this.#leasedAtMs = performance.now();
    if (next.length > 1) this.#ledgers = await this.#deps.stages.leaseLedgers(next);
    this.#leased = new Set(next);
  }
}
