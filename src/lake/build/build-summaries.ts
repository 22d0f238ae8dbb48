/**
 * Keeps each file of entries and its summaries together. A summary of counted entries is also made anew where
 * the coverage of other parties changed which rows of the file count.
 */
import type { DuckDBValue } from '@duckdb/node-api';
import type { AddFile } from '../delta/actions.ts';
import { logAmong } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import { queryRows } from '../local/duckdb.ts';
import { literals } from '../local/sql.ts';
import { COVERAGE } from '../tables/columns.ts';
import { countedEntries, isCounted, rangesByParty } from '../tables/counted.ts';
import {
  SUMMARIES,
  SUMMARY_FORM,
  SUMMARY_TABLES,
  type SummaryTable,
  summaryOf,
} from '../tables/summaries.ts';
import { rootOf, rowsOf } from '../tables/tables.ts';
import type { EntriesFile } from './entries-file.ts';
import type { Build } from './table-writer.ts';
import { selectCsv } from './workshop.ts';

const OF_TAG = 'of';
const FORM_TAG = 'form';
const BUILD_TAG = 'build';

/** @param coveragePath the coverage of now, as CSV */
export async function buildSummaries(
  build: Build,
  entries: readonly EntriesFile[],
  coveragePath: string,
): Promise<void> {
  const coverage = `(${selectCsv(coveragePath, COVERAGE)})`;
  const flipped = await findFlippedFiles(build, entries, coverage);
  for (const table of SUMMARY_TABLES) {
    const writer = build.writers[table];
    const { isOfCounted } = SUMMARIES[table];
    const missing = new Map(entries.map((file) => [file.add.path, file]));
    const [add, remove]: [AddFile[], AddFile[]] = [[], []];
    for (const file of writer.files) {
      const of = file.tags?.[OF_TAG] ?? '';
      const isUsable = writer.isTrusted && isOfThisForm(build, table, file);
      const isFlipped = isOfCounted && flipped.has(of);
      if (isFlipped || !isUsable || !missing.delete(of)) remove.push(file);
    }
    for (const file of missing.values()) {
      const rows = rowsOf('ledger_entries', [await build.writers.ledger_entries.find(file.add)], false);
      const tags = {
        [OF_TAG]: file.add.path,
        [FORM_TAG]: String(SUMMARY_FORM),
        [BUILD_TAG]: String(await build.buildNumber()),
      };
      const select = summaryOf(table, isOfCounted ? countedEntries(rows, coverage) : rows);
      add.push(await writer.write(select, { month: file.month, tags }));
    }
    await writer.commit('WRITE', { add, remove });
  }
}

/** Of counted entries, what a build made that did not come to its end is not trusted. */
function isOfThisForm({ before }: Build, table: SummaryTable, { tags }: AddFile): boolean {
  if (tags?.[FORM_TAG] !== String(SUMMARY_FORM)) return false;
  return !SUMMARIES[table].isOfCounted || Number(tags[BUILD_TAG]) <= (before?.moment ?? -1);
}

/** Paths of files in which other rows count than at the last moment. */
async function findFlippedFiles(
  build: Build,
  entries: readonly EntriesFile[],
  now: string,
): Promise<ReadonlySet<string>> {
  const old = entries.map(({ add }) => add).filter(({ path }) => !build.written.has(path));
  const formerPath = await findFormerCoverage(build);
  if (formerPath === undefined || old.length === 0) return new Set(old.map(({ path }) => path));
  const former = rowsOf('coverage', [formerPath], false);
  const run = (sql: string): Promise<readonly (readonly DuckDBValue[])[]> =>
    queryRows(build, 'see which entries count now', sql);
  await run(`create or replace temp table changed as ${changedRanges(former, now)}`);
  const [[fromMs, toMs] = []] = await run(
    `select cast(epoch_ms(min(from_time)) as double), cast(epoch_ms(max(to_time)) as double) from changed`,
  );
  if (typeof fromMs !== 'number' || typeof toMs !== 'number') return new Set();
  const byPath = new Map<string, string>();
  for (const add of old)
    if (mayHold(add, fromMs, toMs)) byPath.set(await build.writers.ledger_entries.find(add), add.path);
  if (byPath.size === 0) return new Set();
  const found = await run(`with entry as (
      select * from read_parquet(${literals([...byPath.keys()])}, filename = true, hive_partitioning = false, union_by_name = true)
       where vega_time >= (select min(from_time) from changed) and vega_time < (select max(to_time) from changed)
         and side = 'to' and account_from_party_id in (select party_id from changed))
    select distinct filename from entry
      left join ${rangesByParty(former)} former on former.covered_party = entry.account_from_party_id
      left join ${rangesByParty(now)} present on present.covered_party = entry.account_from_party_id
     where ${isCounted('entry', 'former.ranges')} <> ${isCounted('entry', 'present.ranges')}`);
  return new Set(found.map(([path]) => byPath.get(String(path)) ?? ''));
}

/** Ranges in which a party's coverage may differ: where only an end moved, what lies between both ends. */
function changedRanges(former: string, now: string): string {
  const keys = 'party_id, asset_id, from_time';
  return `select party_id,
      case when count(*) = 2 then min(to_time) else min(from_time) end as from_time, max(to_time) as to_time
    from (
      (select ${keys}, to_time from ${former} except select ${keys}, to_time from ${now})
      union all (select ${keys}, to_time from ${now} except select ${keys}, to_time from ${former}))
    group by ${keys}`;
}

/** By the statistics of the file's times; without them it may. */
function mayHold({ stats }: AddFile, fromMs: number, toMs: number): boolean {
  const times = [...(stats ?? '').matchAll(/"vega_time":"([^"]{20,30})"/g)];
  const [minMs = NaN, maxMs = NaN] = times.map(([, text = '']) => Date.parse(text));
  return !(maxMs < fromMs || minMs > toMs);
}

/** The coverage at the last moment; undefined where there is none, or it is no longer there. */
async function findFormerCoverage(build: Build): Promise<string | undefined> {
  const named = build.before?.tables.coverage;
  if (named === undefined) return undefined;
  const { former } = build.writers.coverage;
  const log = logAmong(rootOf('coverage'), build.listed);
  const state = former?.version === named.version ? former : await readTable(build, log, named.version);
  const [file, ...others] = [...(state?.live.values() ?? [])];
  if (state?.metaData.id !== named.id || file === undefined || others.length > 0) return undefined;
  return build.writers.coverage.find(file);
}
