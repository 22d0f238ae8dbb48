/**
 * Charges each run for the requests that are made to the source on its behalf, summed
 * over all processes that work on the run.
 */
import { randomUUID } from 'node:crypto';
import type { Log } from '../../logging/log.ts';
import type { Database } from '../../postgres/database.ts';
import { execute, readRow } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import type { RunMeter, SourceCost } from '../../source/ports.ts';

/**
 * How often counts are recorded. A process that is killed loses at most the counts of one
 * interval.
 */
const RECORD_EVERY_MS = 3_000;

type RunCostsDeps = Readonly<{ meter: RunMeter; db: Database; log: Log }>;

export class RunCosts implements AsyncDisposable {
  readonly #deps: RunCostsDeps;
  /**
   * Each process has its own row for each run, so that processes do not wait for each
   * other.
   */
  readonly #processId = randomUUID();
  readonly #timer: NodeJS.Timeout;
  #ticking: Promise<void> = Promise.resolve();

  constructor(deps: RunCostsDeps) {
    this.#deps = deps;
    this.#timer = setInterval(() => {
      this.#ticking = this.flush();
    }, RECORD_EVERY_MS).unref();
  }

  /**
   * Charges the run for all requests that `work` makes, and records them within a few
   * seconds.
   */
  charge<Result>(runId: string, work: () => Promise<Result>): Promise<Result> {
    return this.#deps.meter.during(runId, work);
  }

  /**
   * Returns the cost of the run and its child runs, in all processes. If a process was
   * killed, its last few seconds are missing.
   */
  async ofRun(runId: string): Promise<SourceCost> {
    await this.flush();
    const sums = statement({ cost: typed<SourceCost>('json') })`
        select json_build_object(
            'requests', json_build_object('lists', coalesce(sum(list_requests), 0), 'exports', coalesce(sum(export_requests), 0)),
            'retries', coalesce(sum(retries), 0), 'failures', coalesce(sum(failures), 0),
            'bytes', coalesce(sum(bytes), 0), 'waitedMs', coalesce(sum(waited_ms), 0)) as cost
          from mirror.source_costs join mirror.runs using (run_id)
         where run_id = ${runId} or parent_run_id = ${runId}`;
    const { cost } = await readRow(
      this.#deps.db,
      'read what a run asked',
      sums,
    );
    return cost;
  }

  /**
   * Records the counts that are not recorded yet. Never fails, because the work must not
   * fail over its own statistics.
   */
  async flush(): Promise<void> {
    const { db, log, meter } = this.#deps;
    const recording = meter.take().map(([runId, cost]) =>
      addCost(db, runId, this.#processId, cost).catch((error: unknown) => {
        log.warn(
          { err: error, runId, ...cost },
          'The requests of a run could not be recorded',
        );
      }),
    );
    await Promise.all(recording);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    // A flush started by the timer needs the database, which is closed after this.
    await this.#ticking;
    await this.flush();
  }
}

export async function addCost(
  db: Database,
  runId: string,
  processId: string,
  { requests, retries, failures, bytes, waitedMs }: SourceCost,
): Promise<void> {
  const addition = statement()`insert into mirror.source_costs as cost
            (run_id, process_id, list_requests, export_requests, retries, failures, bytes, waited_ms)
          values (${runId}, ${processId}, ${requests.lists}, ${requests.exports}, ${retries}, ${failures}, ${bytes}, ${waitedMs})
          on conflict (run_id, process_id) do update set
            list_requests = cost.list_requests + excluded.list_requests,
            export_requests = cost.export_requests + excluded.export_requests,
            retries = cost.retries + excluded.retries,
            failures = cost.failures + excluded.failures,
            bytes = cost.bytes + excluded.bytes,
            waited_ms = cost.waited_ms + excluded.waited_ms`;
  await execute(db, 'record what a run asked', addition);
}
