/** Charges what is asked of the source to the run it is asked for, whichever process asks. */
import { randomUUID } from 'node:crypto';
import type { Log } from '../core/log.ts';
import { type CostMeter, CostTally } from '../source/observers.ts';
import type { SourceCost } from '../source/ports.ts';
import type { Database } from '../postgres/database.ts';
import { addCost, readCost } from './store/cost-store.ts';

/** A process that is killed takes no more than this much of its counts with it. */
const RECORD_EVERY_MS = 3_000;

interface RunCostsDeps {
  readonly meter: CostMeter;
  readonly db: Database;
  readonly log: Log;
}

export class RunCosts implements AsyncDisposable {
  readonly #deps: RunCostsDeps;
  /** Its own row of each run, so that no process waits for another. */
  readonly #processId = randomUUID();
  /** What was counted here and is not recorded yet. */
  readonly #tallies = new Map<string, { readonly tally: CostTally; users: number }>();
  readonly #timer: NodeJS.Timeout;
  #ticking: Promise<void> = Promise.resolve();

  constructor(deps: RunCostsDeps) {
    this.#deps = deps;
    this.#timer = setInterval(() => {
      this.#ticking = this.flush();
    }, RECORD_EVERY_MS).unref();
  }

  /** Whatever `work` asks of the source is charged to the run, and recorded within some seconds. */
  async charge<Result>(runId: string, work: () => Promise<Result>): Promise<Result> {
    const open = this.#tallies.get(runId) ?? { tally: new CostTally(), users: 0 };
    this.#tallies.set(runId, open);
    open.users += 1;
    try {
      return await this.#deps.meter.during(open.tally, work);
    } finally {
      open.users -= 1;
    }
  }

  /** Of the run and of those below it, over all processes; of one that was killed, its last seconds are missing. */
  async ofRun(runId: string): Promise<SourceCost> {
    await this.flush();
    return readCost(this.#deps.db, runId);
  }

  /** Records what is counted and not recorded yet. Never fails: counts are evidence about the work. */
  async flush(): Promise<void> {
    const { db, log } = this.#deps;
    const recording = [...this.#tallies].map(async ([runId, { tally, users }]) => {
      if (users === 0) this.#tallies.delete(runId);
      const cost = tally.take();
      if (cost === undefined) return;
      try {
        await addCost(db, runId, this.#processId, cost);
      } catch (error) {
        log.warn({ err: error, runId, ...cost }, 'What a run asked of the source could not be recorded');
      }
    });
    await Promise.all(recording);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    // What the timer has begun needs the database that is closed behind this.
    await this.#ticking;
    await this.flush();
  }
}
