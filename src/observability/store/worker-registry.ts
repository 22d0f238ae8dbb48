/**
 * Records which long-running processes are taking jobs, and which schedules they follow.
 * A command runs its own job only if there is no such process.
 */
import { WORKER_SILENT_MS } from '../../concurrency/lease.ts';
import { builder } from '../../postgres/builder.ts';
import type { Database } from '../../postgres/database.ts';
import { execute, readRow } from '../../postgres/run-statement.ts';
import type { Schedules } from '../../time/scheduled-times.ts';
import { statement, typed } from '../../postgres/statement.ts';

const FORGOTTEN_AFTER_MS = 3_600_000;

interface WorkerEntry {
  readonly name: string;
  readonly queues: readonly string[];
  /** The source that the process fetches from; it refuses jobs for any other source. */
  readonly sourceUrl: string | undefined;
  /**
   * When the process starts nightly runs and audits, so that the status can show the next
   * times.
   */
  readonly schedules: Schedules;
}

/** The facts about the registered workers that the status needs. */
interface WorkerFacts {
  /** The number of long-running processes with a recent heartbeat. */
  readonly workers: number;
  /**
   * Whether the schedule has ever started a nightly run, which shows that the operator
   * relies on it.
   */
  readonly isScheduled: boolean;
  /**
   * The schedules of the most recently started worker, which all workers follow; null if
   * no worker is alive.
   */
  readonly inForce: Schedules | null;
  /** Schedules of other workers that differ from those in force, without duplicates. */
  readonly others: readonly Schedules[];
}

export class WorkerRegistry {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Records that this process is alive; called every few seconds. */
  async beat(
    workerId: string,
    { name, queues, sourceUrl, schedules }: WorkerEntry,
  ): Promise<void> {
    const renewal = statement()`with forgotten as (
          delete from mirror.workers where worker_id <> ${workerId}
            and heartbeat_at < clock_timestamp() - ${FORGOTTEN_AFTER_MS} * interval '1 millisecond')
        insert into mirror.workers (worker_id, name, queues, source_url, schedules)
        values (${workerId}, ${name}, ${[...queues]}, ${sourceUrl ?? null}, ${JSON.stringify(schedules)}::jsonb)
        on conflict (worker_id) do update set heartbeat_at = clock_timestamp()`;
    await execute(this.#db, 'renew this worker', renewal);
  }

  async leave(workerId: string): Promise<void> {
    const removal = builder
      .deleteFrom('mirror.workers')
      .where('worker_id', '=', workerId);
    await execute(this.#db, 'sign this worker off', removal);
  }

  /**
   * Whether any worker is alive.
   * @param sourceUrl if given, only workers for this source count
   */
  async anyAlive(sourceUrl: string | null = null): Promise<boolean> {
    return (await this.facts(sourceUrl)).workers > 0;
  }

  facts(sourceUrl: string | null = null): Promise<WorkerFacts> {
    const facts = statement({
      workers: 'int',
      isScheduled: 'boolean',
      inForce: typed<Schedules | null>('json?'),
      others: typed<readonly Schedules[]>('json'),
    })`
        with alive as (
          select * from mirror.workers
           where heartbeat_at > clock_timestamp() - ${WORKER_SILENT_MS} * interval '1 millisecond'
             and (${sourceUrl}::text is null or source_url = ${sourceUrl})),
        youngest as (
          select schedules from alive order by started_at desc, worker_id desc limit 1)
        select (select count(*) from alive)::int as workers,
               exists (select from mirror.runs where kind = 'nightly' and slot is not null) as "isScheduled",
               (select schedules from youngest) as "inForce",
               (select coalesce(jsonb_agg(distinct schedules), '[]') from alive
                 where schedules <> (select schedules from youngest)) as others`;
    return readRow(this.#db, 'look for workers', facts);
  }
}
