/** What runs cost the source, added up over every process that works for them. */
import { sql } from 'kysely';
import type { SourceCost } from '../../source/ports.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

export class CostStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async add(
    runId: string,
    processId: string,
    { requests, retries, failures, bytes, waitedMs }: SourceCost,
  ): Promise<void> {
    await mapDatabaseError('record what a run asked', () =>
      sql`insert into mirror.source_costs as cost
            (run_id, process_id, list_requests, export_requests, retries, failures, bytes, waited_ms)
          values (${runId}, ${processId}, ${requests.lists}, ${requests.exports}, ${retries}, ${failures}, ${bytes}, ${waitedMs})
          on conflict (run_id, process_id) do update set
            list_requests = cost.list_requests + excluded.list_requests,
            export_requests = cost.export_requests + excluded.export_requests,
            retries = cost.retries + excluded.retries,
            failures = cost.failures + excluded.failures,
            bytes = cost.bytes + excluded.bytes,
            waited_ms = cost.waited_ms + excluded.waited_ms`.execute(this.#db),
    );
  }

  /** Of the run and of those below it. */
  async ofRun(runId: string): Promise<SourceCost> {
    return mapDatabaseError('read what a run asked', async () => {
      const sums = await this.#db
        .selectFrom('source_costs')
        .innerJoin('runs', 'runs.run_id', 'source_costs.run_id')
        .select(({ fn }) => [
          fn.sum('list_requests').as('lists'),
          fn.sum('export_requests').as('exports'),
          fn.sum('retries').as('retries'),
          fn.sum('failures').as('failures'),
          fn.sum('bytes').as('bytes'),
          fn.sum('waited_ms').as('waitedMs'),
        ])
        .where((where) =>
          where.or([where('runs.run_id', '=', runId), where('runs.parent_run_id', '=', runId)]),
        )
        .executeTakeFirstOrThrow();
      return {
        requests: { lists: Number(sums.lists), exports: Number(sums.exports) },
        retries: Number(sums.retries),
        failures: Number(sums.failures),
        bytes: Number(sums.bytes),
        waitedMs: Number(sums.waitedMs),
      };
    });
  }
}
