/**
 * Keeps each file of entries and its summaries together. A summary of counted entries is also made anew where
 * the coverage of other parties changed which rows of the file count.
 */
import type { Build, TableWriters } from './build-context.ts';
import { entriesPath } from './build-entries.ts';
import { csvRows } from './build-whole.ts';
import { COVERAGE, selected } from '../tables/columns.ts';
import { countedEntries, isCounted, rangesByParty } from '../tables/counted.ts';
import type { AddFile } from '../delta/actions.ts';
import { logAmong } from '../delta/listing.ts';
import { readTable } from '../delta/log.ts';
import { interruptible } from '../local/duckdb.ts';
import type { EntriesFile } from './entries-plan.ts';
import { builderPath, storedFile } from '../local-files.ts';
import { literals } from '../local/sql.ts';
import {
  SUMMARIES,
  SUMMARY_FORM,
  SUMMARY_TABLES,
  type SummaryTable,
  summaryOf,
} from '../tables/summaries.ts';
import { rootOf, rowsOf } from '../tables/tables.ts';
import type { TableWriter } from './table-writer.ts';

const OF_TAG = 'of';
const FORM_TAG = 'form';
const BUILD_TAG = 'build';

/** @param coveragePath the coverage of now, as CSV */
export async function buildSummaries(
  build: Build,
  writers: TableWriters,
  entries: readonly EntriesFile[],
  coveragePath: string,
): Promise<void> {
  const coverage = `(select ${selected(COVERAGE)} from ${csvRows('coverage', coveragePath)})`;
  const flipped = await flippedFiles(build, entries, coverage);
  for (const table of SUMMARY_TABLES) {
    const stale = SUMMARIES[table].isOfCounted ? flipped : new Set<string>();
    await buildSummary(build, table, writers[table], entries, stale, coverage);
  }
}

async function buildSummary(
  build: Build,
  table: SummaryTable,
  writer: TableWriter,
  entries: readonly EntriesFile[],
  stale: ReadonlySet<string>,
  coverage: string,
): Promise<void> {
  const wanted = new Set(entries.map(({ add }) => add.path));
  const usable = new Map<string, AddFile>();
  const remove: AddFile[] = [];
  for (const file of writer.files) {
    const of = file.tags?.[OF_TAG] ?? '';
    const isSound = build.isTrusted(writer) && wanted.has(of) && !stale.has(of) && !usable.has(of);
    if (isSound && isOfThisForm(build, table, file)) usable.set(of, file);
    else remove.push(file);
  }
  const add: AddFile[] = [];
  for (const file of entries) {
    if (usable.has(file.add.path)) continue;
    const path = await entriesPath(build, file.add);
    const rows = rowsOf('ledger_entries', [path], false);
    const source = SUMMARIES[table].isOfCounted ? countedEntries(rows, coverage) : rows;
    const tags = {
      [OF_TAG]: file.add.path,
      [FORM_TAG]: String(SUMMARY_FORM),
      [BUILD_TAG]: String(await build.shop.buildNumber()),
    };
    const written = await writer.write(summaryOf(table, source), { month: file.month, tags });
    add.push(written.add);
  }
  if (add.length + remove.length > 0 || writer.state === undefined)
    await writer.commit('WRITE', { add, remove });
}

/** Of counted entries, what a build made that did not come to its end is not trusted. */
function isOfThisForm({ shop }: Build, table: SummaryTable, { tags }: AddFile): boolean {
  if (tags?.[FORM_TAG] !== String(SUMMARY_FORM)) return false;
  return !SUMMARIES[table].isOfCounted || Number(tags[BUILD_TAG]) <= (shop.before?.moment ?? -1);
}

/** Paths of files in which other rows count than at the last moment. */
async function flippedFiles(
  build: Build,
  entries: readonly EntriesFile[],
  now: string,
): Promise<ReadonlySet<string>> {
  const old = entries.filter(({ add }) => !build.written.has(add.path));
  const all = new Set(old.map(({ add }) => add.path));
  const formerPath = await formerCoverage(build);
  if (formerPath === undefined || old.length === 0) return all;
  const { connection, signal } = build.shop;
  const former = rowsOf('coverage', [formerPath], false);
  const run = (sql: string): Promise<readonly (readonly unknown[])[]> =>
    interruptible(connection, 'see which entries count now', signal, async () =>
      (await connection.runAndReadAll(sql)).getRows(),
    );
  await run(`create or replace temp table changed as ${changedRanges(former, now)}`);
  const [limits = []] = await run(
    `select cast(epoch_ms(min(from_time)) as double), cast(epoch_ms(max(to_time)) as double) from changed`,
  );
  if (typeof limits[0] !== 'number' || typeof limits[1] !== 'number') return new Set();
  const near = old.filter(({ add }) => mayHold(add, Number(limits[0]), Number(limits[1])));
  if (near.length === 0) return new Set();
  const byPath = new Map<string, string>();
  for (const { add } of near) byPath.set(await entriesPath(build, add), add.path);
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
  const times = [...(stats ?? '').matchAll(/"vega_time":"([^"]{20,30})"/g)].map(([, text]) =>
    Date.parse(text ?? ''),
  );
  const [minMs, maxMs] = times;
  if (minMs === undefined || maxMs === undefined || Number.isNaN(minMs) || Number.isNaN(maxMs)) return true;
  return maxMs >= fromMs && minMs <= toMs;
}

/** The coverage at the last moment; undefined where there is none, or it is no longer there. */
async function formerCoverage(build: Build): Promise<string | undefined> {
  const { former, shop } = build;
  const named = shop.before?.tables.coverage;
  if (named === undefined) return undefined;
  const last = former.get('coverage');
  const log = logAmong(rootOf('coverage'), shop.listed);
  const state =
    last?.version === named.version
      ? last
      : await readTable(shop.deps.objects, log, shop, shop.signal, named.version);
  const [file, ...others] = [...(state?.live.values() ?? [])];
  if (state?.metaData.id !== named.id || file === undefined || others.length > 0) return undefined;
  return builderPath(storedFile('coverage', file), shop.folder, shop.deps, shop.signal);
}
