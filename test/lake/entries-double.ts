/** Ledger entries as the warehouse would give them to a build, without one. */
import {
  canonicalText,
  ENTRY_COLUMNS,
  type EntryColumn,
  LINE_COLUMNS,
} from '../../src/ledger/canonical.ts';
import { hashText, RowDigest } from '../../src/ledger/digest.ts';
import type {
  DecidedCommit,
  LakeRepository,
  RecordedTable,
} from '../../src/lake/store/lake-store.ts';
import type {
  SegmentMonth,
  WarehouseReader,
} from '../../src/lake/store/lake-store.ts';

export type EntryRow = Readonly<Record<EntryColumn, string>> & {
  readonly party_id: string;
  readonly effect?: string;
};

/** A range of a loaded ledger, from and to. */
export type CoveredRange = readonly [
  party: string,
  asset: string,
  from: string,
  to: string,
  bothSides: boolean,
];

export interface SegmentRows {
  readonly segmentId: bigint;
  readonly isOpen?: boolean;
  /** Values as they are summed: '' is none. Times are RFC 3339 with six digits. */
  readonly rows: readonly EntryRow[];
}

/** What it holds can be replaced between two builds. */
export class WarehouseDouble implements LakeRepository {
  segments: readonly SegmentRows[] = [];
  covered: readonly CoveredRange[] = [];
  parties: readonly string[] = [];
  areListsProven = true;
  mirrorId = '00000000-0000-4000-8000-000000000001';
  #build = 0;
  #recorded = new Map<string, RecordedTable>();
  /** The oldest proofs first. */
  #proven: readonly string[] = [];
  readonly #decided = new Map<string, DecidedCommit>();

  withLakeLock<Result>(
    work: (reader: WarehouseReader) => Promise<Result>,
  ): Promise<Result> {
    const months = this.segments.flatMap(monthsOf);
    const { mirrorId, segments } = this;
    return work({
      mirrorId,
      lastBuild: this.#build,
      segmentMonths: () => Promise.resolve(months),
      listState: (table) =>
        Promise.resolve({
          rows: table === 'parties' ? BigInt(this.parties.length) : 0n,
          isProven: this.areListsProven,
        }),
      rows: async function* (month, ids) {
        await Promise.resolve();
        for (const segment of segments.filter(({ segmentId }) =>
          ids.includes(segmentId),
        )) {
          const rows = segment.rows.filter((row) =>
            row.vega_time.startsWith(month),
          );
          yield Buffer.from(
            rows.map((row) => csvLine(row, segment.segmentId)).join(''),
          );
        }
      },
      whole: (table) => this.#whole(table),
    });
  }

  segmentMonths(): Promise<readonly SegmentMonth[]> {
    return Promise.resolve(this.segments.flatMap(monthsOf));
  }

  beginBuild(atLeast: number): Promise<number> {
    this.#build = Math.max(this.#build + 1, atLeast);
    return Promise.resolve(this.#build);
  }

  record(tables: readonly RecordedTable[]): Promise<void> {
    for (const table of tables) this.#recorded.set(table.table, table);
    return Promise.resolve();
  }

  filesToProve(
    keys: readonly string[],
    parts: number,
  ): Promise<ReadonlySet<string>> {
    const known = this.#proven.filter((key) => keys.includes(key));
    const turn = known.slice(0, Math.ceil(known.length / parts));
    return Promise.resolve(
      new Set([...keys.filter((key) => !known.includes(key)), ...turn]),
    );
  }

  recordProofs(
    keys: readonly string[],
    live: readonly string[],
  ): Promise<void> {
    const before = this.#proven.filter(
      (key) => live.includes(key) && !keys.includes(key),
    );
    this.#proven = [...before, ...keys];
    return Promise.resolve();
  }

  recorded(): Promise<readonly RecordedTable[]> {
    return Promise.resolve([...this.#recorded.values()]);
  }

  decidedCommits(store: string): Promise<readonly DecidedCommit[]> {
    const ofStore = [...this.#decided].filter(([key]) =>
      key.startsWith(`${store} `),
    );
    return Promise.resolve(ofStore.map(([, commit]) => commit));
  }

  decideCommit(
    store: string,
    commit: DecidedCommit,
    after: number | undefined,
  ): Promise<boolean> {
    const key = `${store} ${commit.table}`;
    const isNext = this.#decided.get(key)?.version === after;
    if (isNext) this.#decided.set(key, commit);
    return Promise.resolve(isNext);
  }

  forgetContent(
    store: string,
    { table, version }: DecidedCommit,
  ): Promise<void> {
    const key = `${store} ${table}`;
    if (this.#decided.get(key)?.version === version)
      this.#decided.set(key, { table, version, content: null });
    return Promise.resolve();
  }

  /** As a database that was lost and made anew. */
  forget(): void {
    this.#build = 0;
    this.#recorded.clear();
  }

  async *#whole(table: string): AsyncGenerator<Buffer> {
    await Promise.resolve();
    if (table === 'parties')
      yield Buffer.from(
        this.parties.map((id) => `${id},2023-01-01 00:00:00,\n`).join(''),
      );
    if (table === 'coverage')
      yield Buffer.from(
        this.covered
          .map(
            ([party, asset, from, to, both]) =>
              `${party},${asset},${from},${to},${both ? 't' : 'f'}\n`,
          )
          .join(''),
      );
  }
}

export function entry(values: Partial<EntryRow>): EntryRow {
  const none = Object.fromEntries(
    ENTRY_COLUMNS.map((name) => [name, '']),
  ) as Record<EntryColumn, string>;
  const rest = {
    vega_time: '2023-05-01T00:00:00.000000Z',
    quantity: '1',
    transfer_type: 'DEPOSIT',
  };
  return {
    party_id: '',
    ...none,
    ...rest,
    asset_id: 'c0'.repeat(32),
    ...values,
  };
}

function monthsOf({
  segmentId,
  isOpen = false,
  rows,
}: SegmentRows): readonly SegmentMonth[] {
  const months = Map.groupBy(rows, (row) => row.vega_time.slice(0, 7));
  return [...months].map(([month, ofMonth]) => {
    const sum = new RowDigest();
    for (const row of ofMonth) {
      const values = ENTRY_COLUMNS.map((name) => row[name]);
      sum.add(hashText(canonicalText(values, [])));
    }
    return {
      segmentId,
      month,
      rows: BigInt(ofMonth.length),
      valuesDigest: sum.hex(),
      isOpen,
    };
  });
}

function csvLine(row: EntryRow, segmentId: bigint): string {
  const values: Readonly<Record<string, string | undefined>> = {
    ...row,
    segment_id: String(segmentId),
  };
  return `${LINE_COLUMNS.map((name) => values[name] ?? '').join(',')}\n`;
}
