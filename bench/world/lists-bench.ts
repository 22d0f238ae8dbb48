/**
 * Shared by the benchmarks of lists: a source process, an empty warehouse, and the loops
 * to compare with.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Verdict } from '../../src/errors/verdict.ts';
import { openSource, type Source } from '../../src/source/source-client.ts';
import { syncList } from '../../src/lists/sync-list.ts';
import type { Warehouse } from '../../src/postgres/database.ts';
import { ListStore } from '../../src/lists/store/list-store.ts';
import { localState } from '../../test/support/source-config.ts';

const LIFTED_RATE = 1_000_000;
export const PAGE_ROWS = 1_000;

export interface SourceProcess extends AsyncDisposable {
  readonly url: URL;
  advance(durationMs: number): Promise<void>;
}

export async function startSource(
  parties: number,
  latencyMs: number,
): Promise<SourceProcess> {
  const script = fileURLToPath(new URL('serve-sandbox.ts', import.meta.url));
  const child = spawn(
    process.execPath,
    [script, `${parties}`, `${latencyMs}`],
    {
      stdio: ['pipe', 'pipe', 'inherit'],
    },
  );
  const lines = createInterface({ input: child.stdout })[
    Symbol.asyncIterator
  ]();
  const { value: url } = await lines.next();
  return {
    url: new URL(String(url)),
    advance: async (durationMs) => {
      child.stdin.write(`${durationMs}\n`);
      await lines.next();
    },
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, 'exit');
      child.stdin.end();
      await ended;
    },
  };
}

export function openLists(url: URL, ratePerSecond = LIFTED_RATE): Source {
  const names = {
    sourceExportParamParty: '',
    sourceExportParamAsset: '',
    sourceExportParamFrom: '',
    sourceExportParamTo: '',
  };
  return openSource(
    {
      sourceUrl: url,
      sourceRate: ratePerSecond,
      sourceExportPath: '/',
      ...names,
      sourceExportTime: 'ns',
      ambient: {},
    },
    { ...localState(), acceptGzip: false },
  );
}

/** Reads the list one way, oldest first, and stores nothing: the baseline for a sync. */
export async function fetchOnly(source: Source): Promise<number> {
  let rows = 0;
  let after: string | undefined;
  for (;;) {
    const question = {
      list: 'parties',
      newestFirst: false,
      size: PAGE_ROWS,
      after,
    } as const;
    const page = await source.lists.page(
      question,
      new AbortController().signal,
    );
    rows += page.rows.length;
    if (!page.hasNextPage || page.rows.length === 0) return rows;
    after = page.endCursor;
  }
}

/**
 * Runs the same loop, but inserts each party and its place separately; stops after
 * `rowsMax`.
 */
export async function fetchAndInsert(
  source: Source,
  warehouse: Warehouse,
  rowsMax: number,
): Promise<number> {
  let rows = 0;
  let after: string | undefined;
  for (;;) {
    const question = {
      list: 'parties',
      newestFirst: false,
      size: PAGE_ROWS,
      after,
    } as const;
    const page = await source.lists.page(
      question,
      new AbortController().signal,
    );
    for (const row of page.rows) {
      rows += 1;
      await warehouse.pool.query(
        'insert into mirror.parties (party_id, first_epoch, epoch, pos) values ($1, 1, 1, $2)',
        [row.key, rows],
      );
      if (rows >= rowsMax) return rows;
    }
    if (!page.hasNextPage) return rows;
    after = page.endCursor;
  }
}

export interface SyncRun {
  readonly verdict: Verdict;
  readonly rows: number;
  readonly newRows: number;
  /** How often the sync read the whole list. */
  readonly readings: number;
  readonly requests: number;
  readonly pageTimesMs: readonly number[];
}

export async function syncParties(
  source: Source,
  warehouse: Warehouse,
): Promise<SyncRun> {
  const runId = randomUUID();
  await warehouse.pool.query(
    `insert into mirror.runs (run_id, kind, subject, state) values ($1, 'sync', 'parties', 'running')`,
    [runId],
  );
  const pageTimesMs: number[] = [];
  const { verdict, evidence } = await syncList(
    { list: 'parties', runId, isAudit: false, pageSize: PAGE_ROWS },
    {
      source: source.lists,
      store: new ListStore(warehouse.db),
      resumePoints: { get: async () => undefined, set: async () => undefined },
      onProgress: () => void pageTimesMs.push(performance.now()),
    },
    new AbortController().signal,
  );
  const {
    rows,
    newRows,
    requests,
    readings = 1,
  } = evidence as {
    rows: string;
    newRows: string;
    requests: number;
    readings?: number;
  };
  return {
    verdict,
    rows: Number(rows),
    newRows: Number(newRows),
    readings,
    requests,
    pageTimesMs,
  };
}

export async function emptyMirror(warehouse: Warehouse): Promise<void> {
  await warehouse.pool.query(
    'truncate mirror.generations, mirror.parties, mirror.runs cascade',
  );
  await warehouse.pool
    .query(`insert into mirror.list_leases (list) values ('parties'), ('checkpoints')
    on conflict do nothing`);
  await warehouse.pool.query('checkpoint');
}
