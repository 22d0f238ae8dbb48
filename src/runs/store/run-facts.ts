/** How runs ended, for metrics: one statement, answered from the index of the newest runs of each kind. */
import type { Database } from '../../postgres/database.ts';
import { readRow } from '../../postgres/transaction.ts';
import { sql } from 'kysely';

/** Times in seconds since 1970. */
export interface KindFacts {
  readonly kind: string;
  /** Of the last that ended. */
  readonly durationSeconds: number | null;
  readonly completeAtSeconds: number | null;
}

export interface RunFacts {
  readonly kinds: readonly KindFacts[];
  readonly gaps: number;
}

export async function readRunFacts(db: Database): Promise<RunFacts> {
  const { facts } = await readRow(
    db,
    'read how runs ended',
    sql<{ facts: RunFacts }>`
      select json_build_object(
        'kinds', (select coalesce(json_agg(json_build_object('kind', kind,
            'durationSeconds', extract(epoch from last.finished_at - last.started_at),
            'completeAtSeconds', extract(epoch from good.finished_at))), '[]')
          from unnest(array['sync', 'export', 'load', 'nightly', 'verify']) kind
          left join lateral (select started_at, finished_at from mirror.runs r
            where r.kind = kind.kind and state = 'done' order by queued_at desc limit 1) last on true
          left join lateral (select finished_at from mirror.runs r
            where r.kind = kind.kind and verdict = 'complete' order by queued_at desc limit 1) good on true),
        'gaps', (select count(*) from mirror.list_gaps
          where closed_at is null and epoch = (select max(epoch) from mirror.networks))) as facts`,
  );
  return facts;
}
