/** Charges what is asked of the source to the run it is asked for, whichever process asks. */
import type { Log } from '../core/log.ts';
import { type CostMeter, CostTally } from '../source/cost-meter.ts';
import type { SourceCost } from '../source/ports.ts';
import type { CostStore } from './store/cost-store.ts';

/** A process that is killed takes no more than this much of its counts with it. */
const RECORD_EVERY_MS = 3_000;

export interface RunCostsDeps {
  readonly meter: CostMeter;
  readonly store: CostStore;
  readonly log: Log;
}

export class RunCosts {
  readonly #deps: RunCostsDeps;
  /** Of the work in hand here. */
  readonly #open = new Map<CostTally, string>();

  constructor(deps: RunCostsDeps) {
    this.#deps = deps;
  }

  /** Whatever `work` asks of the source is charged to the run, and recorded before this returns. */
  async charge<Result>(runId: string, work: () => Promise<Result>): Promise<Result> {
    const tally = new CostTally();
    this.#open.set(tally, runId);
    const timer = setInterval(() => void this.#record(runId, tally), RECORD_EVERY_MS);
    try {
      return await this.#deps.meter.during(tally, work);
    } finally {
      clearInterval(timer);
      this.#open.delete(tally);
      await this.#record(runId, tally);
    }
  }

  /** What the run and those below it have cost so far, over all processes. */
  async ofRun(runId: string): Promise<SourceCost> {
    const own = [...this.#open].filter(([, charged]) => charged === runId);
    await Promise.all(own.map(([tally]) => this.#record(runId, tally)));
    return this.#deps.store.ofRun(runId);
  }

  async #record(runId: string, tally: CostTally): Promise<void> {
    const cost = tally.take();
    if (cost === undefined) return;
    try {
      await this.#deps.store.add(runId, cost);
    } catch (error) {
      // Counts are evidence about the work, never a reason for it to fail.
      this.#deps.log.warn(
        { err: error, runId, ...cost },
        'What a run asked of the source could not be recorded',
      );
    }
  }
}
