/** A lake of many entries, made by DuckDB alone, and how long each ready question takes on it. */
import { mkdir, rm } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { openDuckDb } from '../src/lake/duckdb.ts';
import { fileFacts } from '../src/lake/file-facts.ts';
import { openLake } from '../src/lake/lake.ts';
import {
  encodeLakeManifest,
  lakeManifestKey,
  type LakeFile,
  type PublishedPartition,
} from '../src/lake/manifest.ts';
import { type Workshop, writeSummaries } from '../src/lake/write-partition.ts';
import { inquiry, READY_QUESTIONS } from '../src/lake/questions.ts';
import { runQuery } from '../src/lake/query.ts';
import { TABLES } from '../src/lake/tables.ts';
import type { ObjectStore } from '../src/objects/object-store.ts';

const FILE_ROWS = 200_000;
const MONTHS = ['2023-05', '2023-06', '2023-07', '2023-08', '2023-09'];
const PARTIES = 2_000;
const signal = new AbortController().signal;

/** Row `i`: half of a party's entries are received from another party whose ledger is there as well. */
function entries(first: number, rows: number, month: string): string {
  const text = (name: string): string => `cast(null as varchar) as ${name}`;
  return `select sha256('party' || (i % ${PARTIES})) as party_id,
    timestamptz '${month}-01 00:00:00+00' + to_seconds((i - ${first}) * 2500000.0 / ${rows}) as vega_time,
    cast((i * 7919) % 100000007 as decimal(38,0)) as quantity, ${text('quantity_text')},
    cast(-((i * 7919) % 100000007) as decimal(38,0)) as effect, ${text('effect_text')},
    ['MTM_LOSS', 'MARGIN_LOW', 'MAKER_FEE_PAY', 'INFRASTRUCTURE_FEE_PAY', 'WITHDRAW'][1 + i % 5] as transfer_type,
    sha256('asset' || (i % 3)) as asset_id, sha256('market' || (i % 5)) as account_from_market_id,
    sha256('party' || (i % ${PARTIES})) as account_from_party_id, 'MARGIN' as account_from_account_type,
    cast(i * 1000000007::hugeint as decimal(38,0)) as account_from_balance, ${text('account_from_balance_text')},
    ${text('account_to_market_id')}, sha256('party' || ((i * 7) % ${PARTIES})) as account_to_party_id,
    'GENERAL' as account_to_account_type, cast(i + 100000000000000000000::hugeint as decimal(38,0)) as account_to_balance,
    ${text('account_to_balance_text')}, ${text('extra')}, cast(i // 50000 as bigint) as segment_id, i % 2 = 0 as is_counted
    from range(${first}, ${first + rows}) r(i)`;
}

export async function makeLake(objects: ObjectStore, scratchDir: string, rows: number): Promise<void> {
  await mkdir(scratchDir, { recursive: true });
  await using engine = await openDuckDb(scratchDir, '4GB');
  const perMonth = Math.ceil(rows / MONTHS.length / FILE_ROWS) * FILE_ROWS;
  const partitions = [];
  for (const [index, month] of MONTHS.entries()) {
    const first = index * perMonth;
    partitions.push(
      await makeMonth(month, first, perMonth, { objects, connection: engine.connection, signal }),
    );
  }
  const manifest = { version: 1, builtAt: new Date().toISOString(), partitions };
  await objects.publishBytes(lakeManifestKey(1), encodeLakeManifest(manifest), signal);
}

/** As a build leaves a month: files of a limited size, then the summaries of them. */
async function makeMonth(
  month: string,
  first: number,
  rows: number,
  workshop: Workshop,
): Promise<PublishedPartition> {
  const { objects, connection } = workshop;
  const names = TABLES.ledger_entries.columns.map(({ name }) => name).join(', ');
  const source = `select ${names} from (${entries(first, rows, month)})`;
  await connection.run(`create or replace temp table month as (${source})`);
  const files: LakeFile[] = [];
  const paths: string[] = [];
  for (let offset = 0; offset < rows; offset += FILE_ROWS) {
    const path = await objects.spoolPath(`bench-${month}-${offset}.parquet`);
    paths.push(path);
    await connection.run(
      `copy (select * from month limit ${FILE_ROWS} offset ${offset}) to '${path}' (format parquet, compression zstd)`,
    );
    const facts = await fileFacts(path, signal);
    const key = `lake/ledger_entries/month=${month}/${facts.sha256.slice(0, 16)}.parquet`;
    await objects.publishFile(key, path, facts, signal);
    files.push({ key, rows: BigInt(FILE_ROWS), ...facts });
  }
  const summaries = await writeSummaries(month, paths, workshop);
  for (const path of paths) await rm(path);
  const facts = { fingerprint: 'bench', rows: BigInt(rows), valuesDigest: undefined };
  return { table: 'ledger_entries', month, ...facts, files, summaries };
}

/** Seconds by question, one for each round; the lake is opened once. */
export async function askQuestions(
  objects: ObjectStore,
  scratchDir: string,
  rounds: number,
): Promise<ReadonlyMap<string, readonly number[]>> {
  await using lake = await openLake({ objects, scratchDir }, signal);
  const taken = new Map<string, number[]>();
  for (let round = 0; round < rounds; round += 1) {
    for (const question of READY_QUESTIONS) {
      const { name } = question;
      const { sql, parameters } = inquiry(question);
      const output = new Writable({ write: (_piece, _encoding, done) => done() });
      const startMs = performance.now();
      await runQuery(lake, sql, { format: 'csv', parameters }, output, signal);
      const seconds = (performance.now() - startMs) / 1000;
      taken.set(name, [...(taken.get(name) ?? []), seconds]);
    }
  }
  return taken;
}
