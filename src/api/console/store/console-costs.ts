/** What a run cost, stage by stage: its own part, and each run below it. */
import type { Rows } from '../../../postgres/rows.ts';

/** What a stage of a run asked the source, and how long it took. Counts are decimal text. */
export interface StageCost {
  readonly stage: string;
  readonly requests: string;
  readonly retries: string;
  readonly bytes: string;
  readonly seconds: number;
}

interface CostRow extends Omit<StageCost, 'stage' | 'seconds'> {
  readonly kind: string;
  readonly subject: string;
  readonly isOwn: boolean;
  readonly startedMs: number | null;
  readonly endedMs: number;
  readonly listRequests: string;
}

const COSTS = `
  select r.kind, r.subject, r.run_id = $1 as "isOwn",
    (extract(epoch from r.started_at) * 1000)::float8 as "startedMs",
    (extract(epoch from coalesce(r.finished_at, clock_timestamp())) * 1000)::float8 as "endedMs",
    coalesce(sum(c.list_requests + c.export_requests), 0)::text as requests,
    coalesce(sum(c.list_requests), 0)::text as "listRequests",
    coalesce(sum(c.retries), 0)::text as retries, coalesce(sum(c.bytes), 0)::text as bytes
  from mirror.runs r left join mirror.source_costs c using (run_id)
  where r.run_id = $1 or r.parent_run_id = $1
  group by r.run_id order by r.queued_at`;

export async function readCosts(rows: Rows, runId: string): Promise<readonly StageCost[]> {
  const found = await rows<CostRow>('read what a run cost', COSTS, [runId]);
  const own = found.find(({ isOwn }) => isOwn);
  if (own === undefined) return [];
  if (own.kind !== 'nightly') return [costOf(own, own.kind)];
  const syncs = ['parties', 'checkpoints'].flatMap((list) =>
    found.filter(({ kind, subject }) => kind === 'sync' && subject === list),
  );
  const load = found.find(({ kind }) => kind === 'load');
  const listsEndedMs = Math.max(...syncs.map(({ endedMs }) => endedMs), own.startedMs ?? own.endedMs);
  const extra = own.listRequests === '0' ? '' : `, and ${own.listRequests} for the source’s time`;
  const none = { requests: '0', retries: '0', bytes: '0' };
  return [
    ...syncs.map((row) => costOf(row, row.subject)),
    // What a nightly run asks itself are its exports; they lie between its lists and its load.
    costOf({ ...own, startedMs: listsEndedMs, endedMs: load?.startedMs ?? own.endedMs }, `exports${extra}`),
    ...(load === undefined
      ? []
      : [costOf(load, 'load'), costOf({ ...own, ...none, startedMs: load.endedMs }, 'verify')]),
  ];
}

function costOf({ startedMs, endedMs, requests, retries, bytes }: CostRow, stage: string): StageCost {
  const seconds = startedMs === null ? 0 : Math.max(0, Math.round(endedMs - startedMs) / 1_000);
  return { stage, requests, retries, bytes, seconds };
}
