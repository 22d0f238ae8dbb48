/**
 * Builds a lake of many entries from rows in the warehouse's format, and measures how
 * long each ready question takes on it.
 */
import { createReadStream } from 'node:fs';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { buildLake } from '../../src/lake/build/build.ts';
import { openDuckDb } from '../../src/lake/local/duckdb.ts';
import { openLake } from '../../src/lake/query/lake.ts';
import type { LakeRepository } from '../../src/lake/store/lake-store.ts';
import type {
  SegmentMonth,
  WarehouseReader,
} from '../../src/lake/store/lake-store.ts';
import { inquiry, READY_QUESTIONS } from '../../src/lake/query/questions.ts';
import { runQuery } from '../../src/lake/query/query.ts';
import { LINE_COLUMNS } from '../../src/ledger/canonical.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';

/** The format in which the warehouse sends rows. */
const TEXT = `delim = ',', quote = '"', escape = '"', nullstr = ''`;
const SEGMENT_ROWS = 1_000_000;
const MONTHS = ['2023-05', '2023-06', '2023-07', '2023-08', '2023-09'];
const PARTIES = 2_000;
const RETENTION_MS = 7 * 86_400_000;
const signal = new AbortController().signal;

/**
 * Returns SQL for the rows from `first` on. Half of a party's entries are received from
 * another party whose ledger is also in the lake.
 */
function lines(
  first: number,
  rows: number,
  { month, segmentId }: SegmentMonth,
): string {
  const values: Readonly<Record<string, string>> = {
    party_id: `sha256('party' || (i % ${PARTIES}))`,
    vega_time: `timestamp '${month}-01 00:00:00' + to_seconds((i - ${first}) * 2500000.0 / ${rows})`,
    quantity: '(i * 7919) % 100000007',
    effect: '-((i * 7919) % 100000007)',
    transfer_type: `['MTM_LOSS', 'MARGIN_LOW', 'MAKER_FEE_PAY', 'INFRASTRUCTURE_FEE_PAY', 'WITHDRAW'][1 + i % 5]`,
    asset_id: `sha256('asset' || (i % 3))`,
    account_from_market_id: `sha256('market' || (i % 5))`,
    account_from_party_id: `sha256('party' || ((i + i % 2) % ${PARTIES}))`,
    account_from_account_type: `'MARGIN'`,
    account_from_balance: 'i * 1000000007::hugeint',
    account_to_party_id: `sha256('party' || ((i + 1 - i % 2) % ${PARTIES}))`,
    account_to_account_type: `'GENERAL'`,
    account_to_balance: 'i + 100000000000000000000::hugeint',
    segment_id: `${segmentId}`,
  };
  const columns = LINE_COLUMNS.map(
    (name) => `${values[name] ?? 'cast(null as varchar)'} as ${name}`,
  );
  return `select ${columns.join(', ')} from range(${first}, ${first + rows}) r(i)`;
}

/** Stands in for a warehouse; its segments are text files in a folder. */
export class BenchWarehouse implements LakeRepository {
  readonly #folder: string;
  readonly #segments: SegmentMonth[] = [];
  #rows = 0;
  #build = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Adds one more segment. */
  async load(month: string, rows: number): Promise<void> {
    const segmentId = BigInt(this.#segments.length + 1);
    const facts = { valuesDigest: '0'.repeat(64), isOpen: false };
    const segment: SegmentMonth = {
      segmentId,
      month,
      rows: BigInt(rows),
      ...facts,
    };
    await mkdir(this.#folder, { recursive: true });
    await using engine = await openDuckDb(this.#folder, '2GB');
    await engine.connection.run(
      `copy (${lines(this.#rows, rows, segment)}) to '${this.#path(segment)}' (format csv, header false)`,
    );
    this.#rows += rows;
    this.#segments.push(segment);
  }

  segmentMonths(): Promise<readonly SegmentMonth[]> {
    return Promise.resolve([...this.#segments]);
  }

  withLakeLock<Result>(
    work: (reader: WarehouseReader) => Promise<Result>,
  ): Promise<Result> {
    return work({
      mirrorId: 'bench',
      lastBuild: this.#build,
      segmentMonths: () => this.segmentMonths(),
      listState: () => Promise.resolve({ rows: 0n, isProven: false }),
      rows: (month, segmentIds) => this.#read(month, segmentIds),
      whole: async function* (table) {
        await Promise.resolve();
        if (table !== 'coverage') return;
        const { createHash } = await import('node:crypto');
        for (let party = 0; party < PARTIES; party += 2) {
          const id = createHash('sha256').update(`party${party}`).digest('hex');
          yield Buffer.from(
            `${id},,2023-01-01 00:00:00,2024-01-01 00:00:00,t\n`,
          );
        }
      },
    });
  }

  beginBuild(atLeast: number): Promise<number> {
    this.#build = Math.max(this.#build + 1, atLeast);
    return Promise.resolve(this.#build);
  }

  record(): Promise<void> {
    return Promise.resolve();
  }

  recorded(): Promise<readonly []> {
    return Promise.resolve([]);
  }

  filesToProve(keys: readonly string[]): Promise<ReadonlySet<string>> {
    return Promise.resolve(new Set(keys));
  }

  recordProofs(): Promise<void> {
    return Promise.resolve();
  }

  decidedCommits(): never {
    throw new Error('a folder decides commits by itself');
  }

  decideCommit(): never {
    return this.decidedCommits();
  }

  forgetContent(): never {
    return this.decidedCommits();
  }

  /**
   * Returns the seconds that DuckDB alone, without limits, takes to write these files as
   * Parquet of the same types.
   */
  async writeAlone(folder: string): Promise<number> {
    const names = LINE_COLUMNS.map((name) => `${name}: 'VARCHAR'`).join(', ');
    const files = (await readdir(this.#folder))
      .map((name) => `'${join(this.#folder, name)}'`)
      .join(', ');
    const typed = LINE_COLUMNS.map((name) => {
      if (name === 'vega_time')
        return 'cast(vega_time as timestamptz) as vega_time';
      const isAmount = /quantity|effect|balance/.test(name);
      return isAmount
        ? `cast(cast(${name} as hugeint) as decimal(38,0)) as ${name}`
        : name;
    });
    await mkdir(folder, { recursive: true });
    const startMs = performance.now();
    await using engine = await openDuckDb(folder, '16GB');
    await engine.connection.run(
      `copy (select ${typed.join(', ')}, vega_time[:7] as month from read_csv([${files}], header = false, auto_detect = false,
         ${TEXT}, columns = {${names}}))
       to '${join(folder, 'alone')}' (format parquet, compression zstd, partition_by (month), overwrite_or_ignore)`,
    );
    return (performance.now() - startMs) / 1000;
  }

  /**
   * Yields the rows of the segments and removes their files, because rows that are in the
   * lake are not requested again.
   */
  async *#read(
    month: string,
    segmentIds: readonly bigint[],
  ): AsyncGenerator<Buffer> {
    for (const segmentId of segmentIds) {
      const path = this.#path({ segmentId, month });
      yield* createReadStream(path, {
        highWaterMark: 2 ** 18,
      }) as AsyncIterable<Buffer>;
      await rm(path);
    }
  }

  #path({
    segmentId,
    month,
  }: Pick<SegmentMonth, 'segmentId' | 'month'>): string {
    return join(this.#folder, `${segmentId}-${month}`);
  }
}

export interface TimedBuild {
  readonly seconds: number;
  readonly aloneSeconds: number;
}

/** Loads whole months, one after another. */
export async function makeLake(
  warehouse: BenchWarehouse,
  objects: ObjectStore,
  scratchDir: string,
  rows: number,
): Promise<readonly TimedBuild[]> {
  const builds: TimedBuild[] = [];
  for (const month of MONTHS) {
    await leave(warehouse, month, rows / MONTHS.length);
    const aloneSeconds = await warehouse.writeAlone(scratchDir);
    builds.push({
      aloneSeconds,
      seconds: await build(warehouse, objects, scratchDir),
    });
  }
  return builds;
}

/** Fills the month that the nights add to, up to a given number of entries. */
export async function fillMonth(
  warehouse: BenchWarehouse,
  objects: ObjectStore,
  scratchDir: string,
  rows: number,
): Promise<void> {
  await leave(warehouse, MONTHS[0] ?? '', rows);
  await build(warehouse, objects, scratchDir);
}

async function leave(
  warehouse: BenchWarehouse,
  month: string,
  rows: number,
): Promise<void> {
  for (let done = 0; done < rows; done += SEGMENT_ROWS)
    await warehouse.load(month, Math.min(SEGMENT_ROWS, rows - done));
}

/** Returns the seconds of a night that adds entries to an existing month. */
export async function addToMonth(
  warehouse: BenchWarehouse,
  objects: ObjectStore,
  scratchDir: string,
  rows: number,
): Promise<number> {
  await warehouse.load(MONTHS[0] ?? '', rows);
  return build(warehouse, objects, scratchDir);
}

async function build(
  warehouse: BenchWarehouse,
  objects: ObjectStore,
  scratchDir: string,
): Promise<number> {
  const startMs = performance.now();
  const deps = {
    repository: warehouse,
    objects,
    scratchDir,
    retentionMs: RETENTION_MS,
  };
  await buildLake(deps, signal);
  return (performance.now() - startMs) / 1000;
}

/**
 * Returns the seconds of each query, one value per round. The lake is opened only once.
 */
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
      const output = new Writable({
        write: (_piece, _encoding, done) => done(),
      });
      const startMs = performance.now();
      await runQuery(lake, sql, { format: 'csv', parameters }, output, signal);
      const seconds = (performance.now() - startMs) / 1000;
      taken.set(name, [...(taken.get(name) ?? []), seconds]);
    }
  }
  return taken;
}
