/**
 * The tables behind the nightly statements: the key, the log as it was last written, each
 * ledger's record, and the locations of records and pages. Everything except the key can
 * be rebuilt from the log's files.
 */
import { sql } from 'kysely';
import { type HashedRow, readRowHashes } from '../../catalog/row-hashes.ts';
import { addDigests, hashText, RowDigest } from '../../ledger/digest.ts';
import { builder } from '../../postgres/builder.ts';
import { copyLines } from '../../postgres/copy.ts';
import type { Warehouse } from '../../postgres/database.ts';
import { execute, readRow, readRows } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import type { LedgerRecord } from '../ledger-record.ts';
import type { RememberedLog } from '../log.ts';
import { entryOf, type PageEntry, type Place } from '../pages.ts';
import type { ListSum, Statement } from '../statement.ts';

const ACTION = 'write the statement of the night';
const LEDGERS_AT_ONCE = 500;

/** The database's record of the log. */
export interface LogRow extends RememberedLog {
  /**
   * SHA-256 of the statement to which the stored records and pages belong; null if they
   * belong to no statement.
   */
  readonly statementSha256: string | null;
  /**
   * The records include the changes of all transactions that began before this instant,
   * and may lack later ones; null if every record must be checked again.
   */
  readonly settledAt: string | null;
  /**
   * The public key, in verifier format; null in rows written before this column existed.
   */
  readonly publicKey: string | null;
}

/** What a night reads before it reads the ledgers. */
export interface NightStart {
  /** Undefined if no log has been written from this database. */
  readonly remembered: LogRow | undefined;
  /** An instant such that every transaction that began before it has ended. */
  readonly settledAt: string;
}

/** A ledger whose record may have changed. */
export interface LedgerName {
  readonly partyId: string;
  readonly assetId: string | null;
}

/** The database's copy of a ledger's record. */
export interface RecordRow extends LedgerName {
  /** The leaf hash of the record, as 64 hex digits. */
  readonly leaf: string;
  readonly rows: string;
  readonly covered: LedgerRecord['covered'];
  readonly place: Place;
}

/** A ledger's record as the tables yield it now. */
export interface CurrentRecord {
  readonly record: LedgerRecord;
  /** What is stored about the ledger's last record; undefined if it has none. */
  readonly stored: Pick<RecordRow, 'leaf' | 'place'> | undefined;
}

/** A record's entry in its page, and the number of its rows. */
export interface CountedEntry {
  readonly entry: PageEntry;
  readonly rows: bigint;
}

/** What a night changes in the stored records and pages. */
export interface StoredChanges {
  /** The records that are new or different. */
  readonly records: readonly RecordRow[];
  /** The ledgers that the mirror no longer has. */
  readonly removed: readonly LedgerName[];
  /** The location of every page of the statement, by the page's hash. */
  readonly pages: ReadonlyMap<string, Place>;
}

export class ProofStore {
  readonly #warehouse: Warehouse;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
  }

  get #db() {
    return this.#warehouse.db;
  }

  /** Reads the mirror's id, and its private key if it has generated one. */
  async readKey(): Promise<{
    readonly mirrorId: string;
    readonly signingKey: string | null;
  }> {
    const key = statement({ mirrorId: 'uuid', signingKey: 'text?' })`
      select i.mirror_id as "mirrorId", l.signing_key as "signingKey"
      from mirror.identity i left join mirror.proof_log l on true`;
    return readRow(this.#db, 'read the key of proofs', key);
  }

  /**
   * Stores a key unless one is already stored.
   * @returns the key that is now stored
   */
  async keepKey(signingKey: string): Promise<string> {
    const keep = statement({ signingKey: 'text!' })`
      insert into mirror.proof_log (signing_key) values (${signingKey})
      on conflict (only_row) do update
        set signing_key = coalesce(proof_log.signing_key, excluded.signing_key)
      returning signing_key as "signingKey"`;
    const { signingKey: kept } = await readRow(
      this.#db,
      'keep the key of proofs',
      keep,
    );
    return kept;
  }

  /**
   * Reads the remembered log.
   * @returns undefined if no log has been written from this database
   */
  async readLog(): Promise<LogRow | undefined> {
    return (await this.readNightStart()).remembered;
  }

  /** Reads the remembered log, and the instant from which the next night continues. */
  async readNightStart(): Promise<NightStart> {
    const start = statement({
      keyName: 'text?',
      size: 'int?',
      root: 'text?',
      statementSha256: 'text?',
      settledAt: 'instant?',
      publicKey: 'text?',
      nowSettledAt: 'instant',
    })`
      select l.key_name as "keyName", l.size, l.root,
        l.statement_sha256 as "statementSha256", l.settled_at as "settledAt",
        l.public_key as "publicKey",
        (select least(min(xact_start), clock_timestamp()) from pg_stat_activity
          where datname = current_database() and backend_type = 'client backend')
          as "nowSettledAt"
      from (select) one left join mirror.proof_log l on true`;
    const { nowSettledAt, keyName, size, root, ...row } = await readRow(
      this.#db,
      ACTION,
      start,
    );
    const isWritten = keyName !== null && size !== null && root !== null;
    return {
      settledAt: nowSettledAt,
      remembered: isWritten ? { ...row, keyName, size, root } : undefined,
    };
  }

  /** Records the log's new end; the stored records and pages stay as they are. */
  async writeLog(row: LogRow): Promise<void> {
    await execute(this.#db, ACTION, statement()`${insertOfLog(row)}`);
  }

  /**
   * Marks the stored records and pages as belonging to no night's statement, before
   * several SQL statements change them.
   */
  async #beginChange(): Promise<void> {
    const begin = builder
      .updateTable('mirror.proof_log')
      .set({ statement_sha256: null });
    await execute(this.#db, ACTION, begin);
  }

  /**
   * Deletes all records and pages; they will be read from the log's files again. Until
   * that is complete, what is stored belongs to no statement.
   */
  async forgetRecords(): Promise<void> {
    const forget = statement()`
      with ledgers as (delete from mirror.proof_ledgers),
        pages as (delete from mirror.proof_pages)
      update mirror.proof_log set statement_sha256 = null`;
    await execute(this.#db, ACTION, forget);
  }

  /**
   * Reads the ledgers whose rows or covered ranges may no longer match their record.
   * @param since the `settledAt` of the last statement; null for all ledgers
   * @param coveredTo the statement's `coveredTo`; a range that reaches it is treated as
   *   having no end
   */
  async readChangedLedgers(
    since: string | null,
    coveredTo: string | null,
  ): Promise<readonly LedgerName[]> {
    const changed = statement({ partyId: 'text!', assetId: 'text?' })`
      with ${RANGES}, ${coveredLedgers(coveredTo)}
      select c.party_id as "partyId", c.asset_id as "assetId"
      from covered_ledgers c left join mirror.proof_ledgers p
        on p.party_id = c.party_id and p.asset_id is not distinct from c.asset_id
      where p.party_id is null or p.covered is distinct from c.covered
      union
      select party_id, asset_id from mirror.segments
      where ${since}::timestamptz is null or loaded_at > ${since}::timestamptz
        or superseded_at > ${since}::timestamptz
        or (status = 'current' and loaded_at is null)
      union
      select p.party_id, p.asset_id from mirror.proof_ledgers p
      where not exists (select from mirror.coverage c
        where c.party_id = p.party_id and c.asset_id is not distinct from p.asset_id)`;
    return readRows(this.#db, ACTION, changed);
  }

  /**
   * Reads the current records of ledgers, in batches, with what is stored about each.
   * Ledgers about which the mirror no longer has any data are left out.
   */
  async *readRecords(
    ledgers: readonly LedgerName[],
    coveredTo: string | null,
  ): AsyncGenerator<readonly CurrentRecord[]> {
    for (let from = 0; from < ledgers.length; from += LEDGERS_AT_ONCE) {
      const some = ledgers.slice(from, from + LEDGERS_AT_ONCE);
      yield await this.#readRecords(some, coveredTo);
    }
  }

  async #readRecords(
    ledgers: readonly LedgerName[],
    coveredTo: string | null,
  ): Promise<readonly CurrentRecord[]> {
    const records = statement({
      party: 'text',
      asset: 'text?',
      covered: typed<LedgerRecord['covered']>('json'),
      rows: 'text',
      notLoaded: 'text',
      months: typed<readonly MonthParts[]>('json'),
      leaf: 'text?',
      file: 'text?',
      at: 'bigint?',
      bytes: 'bigint?',
    })`
      with asked as (
        select "partyId" as party_id, "assetId" as asset_id
        from jsonb_to_recordset(${JSON.stringify(ledgers)}::jsonb)
          as given("partyId" text, "assetId" text)),
      ranges as (
        select c.party_id, c.asset_id,
          range_agg(tstzrange(c.from_time, c.to_time)) filter (where not c.open) as covered
        from mirror.coverage c
        join asked a
          on a.party_id = c.party_id and a.asset_id is not distinct from c.asset_id
        group by c.party_id, c.asset_id),
      ${coveredLedgers(coveredTo)},
      held as (
        select s.* from asked a
        join mirror.segments s
          on s.party_id = a.party_id and s.asset_id is not distinct from a.asset_id
        where s.status = 'current'),
      parts as (
        select h.party_id, h.asset_id, m.month, sum(m.rows) as rows,
          jsonb_agg(m.values_digest) as digests
        from held h join mirror.segment_months m using (segment_id)
        where h.loaded_at is not null group by h.party_id, h.asset_id, m.month),
      summed as (
        select party_id, asset_id, sum(rows) as rows,
          jsonb_agg(
            jsonb_build_array(to_char(month, 'YYYY-MM'), rows::text, digests)
            order by month) as months
        from parts group by party_id, asset_id),
      unloaded as (
        select party_id, asset_id, sum(rows) as rows from held
        where loaded_at is null group by party_id, asset_id)
      select c.party_id as party, c.asset_id as asset, c.covered,
        coalesce(s.rows, 0)::text as rows, coalesce(u.rows, 0)::text as "notLoaded",
        coalesce(s.months, '[]') as months, p.leaf, p.file, p.at, p.bytes
      from covered_ledgers c
      left join summed s
        on s.party_id = c.party_id and s.asset_id is not distinct from c.asset_id
      left join unloaded u
        on u.party_id = c.party_id and u.asset_id is not distinct from c.asset_id
      left join mirror.proof_ledgers p
        on p.party_id = c.party_id and p.asset_id is not distinct from c.asset_id`;
    const rows = await readRows(this.#db, ACTION, records);
    return rows.map(({ months, leaf, file, at, bytes, ...record }) => ({
      record: {
        ...record,
        months: months.map(([month, count, digests]) => [
          month,
          count,
          addDigests(digests),
        ]),
      },
      stored:
        leaf === null || file === null
          ? undefined
          : { leaf, place: [file, Number(at), Number(bytes)] },
    }));
  }

  /** Yields the loaded entries of one month of a ledger, sorted by time, in batches. */
  async *readMonth(
    { partyId, assetId }: LedgerName,
    month: string,
    signal: AbortSignal,
  ): AsyncGenerator<readonly HashedRow[]> {
    const loaded = statement({ segmentId: 'bigint' })`
      select segment_id as "segmentId" from mirror.segments
      where party_id = ${partyId} and asset_id is not distinct from ${assetId}
        and status = 'current' and loaded_at is not null`;
    const segments = await readRows(this.#db, 'read the entries', loaded);
    yield* readRowHashes(this.#warehouse, {
      segmentIds: segments.map(({ segmentId }) => segmentId),
      month,
      isSorted: true,
      action: 'read the entries of a ledger',
      signal,
    });
  }

  /**
   * Writes records. The stored records belong to no statement until `writeNight` has
   * recorded one.
   */
  async writeRecords(rows: readonly RecordRow[]): Promise<void> {
    for (let from = 0; from < rows.length; from += LEDGERS_AT_ONCE) {
      const some = rows.slice(from, from + LEDGERS_AT_ONCE);
      await execute(this.#db, ACTION, statement()`${insertOfRecords(some)}`);
    }
  }

  /** Yields the stored records, sorted by the bytes of party and asset. */
  async *storedRecords(signal: AbortSignal): AsyncGenerator<CountedEntry> {
    const copy = {
      statement: `copy (select jsonb_build_array(party_id, asset_id, leaf, file, at, bytes, rows::text)
        from mirror.proof_ledgers
        order by party_id collate "C", asset_id collate "C" nulls first) to stdout`,
      action: ACTION,
      signal,
    };
    for await (const lines of copyLines(this.#warehouse.pool, copy)) {
      for (const line of lines) {
        const [party, asset, leaf, file, at, bytes, rows] = JSON.parse(
          unescapeCopy(line),
        ) as [...PageEntry, string];
        const entry = entryOf(party, asset, leaf, [file, at, bytes]);
        yield { entry, rows: BigInt(rows) };
      }
    }
  }

  /** Reads the locations of the last statement's pages, by the hashes of the pages. */
  async readPages(): Promise<Map<string, Place>> {
    const pages = statement({
      hash: 'text',
      file: 'text',
      at: 'bigint',
      bytes: 'bigint',
    })`select hash, file, at, bytes from mirror.proof_pages`;
    const rows = await readRows(this.#db, ACTION, pages);
    return new Map(
      rows.map(({ hash, file, at, bytes }): [string, Place] => [
        hash,
        [file, Number(at), Number(bytes)],
      ]),
    );
  }

  /**
   * Records a night that is in the log: its changes and the log's new end, in one SQL
   * statement. If there are more records than one SQL statement takes, the first ones
   * are written beforehand, while the tables belong to no night's statement.
   */
  async writeNight(log: LogRow, changes: StoredChanges): Promise<void> {
    const { records, removed, pages } = changes;
    const batches = Math.ceil(records.length / LEDGERS_AT_ONCE);
    const last = Math.max(0, batches - 1) * LEDGERS_AT_ONCE;
    if (last > 0) {
      await this.#beginChange();
      await this.writeRecords(records.slice(0, last));
    }
    const pageRows = [...pages].map(([hash, [file, at, bytes]]) => ({
      hash,
      file,
      at,
      bytes,
    }));
    const write = statement()`
      with
      pages as materialized (
        select hash, file, at, bytes
        from jsonb_to_recordset(${JSON.stringify(pageRows)}::jsonb)
          as given(hash text, file text, at bigint, bytes bigint)),
      pages_removed as (
        delete from mirror.proof_pages p
        where not exists (select from pages where pages.hash = p.hash)),
      pages_added as (
        insert into mirror.proof_pages (hash, file, at, bytes)
        select hash, file, at, bytes from pages on conflict (hash) do nothing),
      records_removed as (
        delete from mirror.proof_ledgers p
        using jsonb_to_recordset(${JSON.stringify(removed)}::jsonb)
          as given("partyId" text, "assetId" text)
        where p.party_id = given."partyId"
          and p.asset_id is not distinct from given."assetId"),
      records_written as (${insertOfRecords(records.slice(last))})
      ${insertOfLog(log)}`;
    await execute(this.#db, ACTION, write);
  }

  /**
   * Sums both lists as the source serves them, without rows that it has removed.
   * @param epoch the network's epoch, from `readNetwork`
   */
  async sumLists(
    epoch: number | null,
    signal: AbortSignal,
  ): Promise<Statement['lists']> {
    const sumOf = async (rows: string): Promise<ListSum> => {
      const digest = new RowDigest();
      const copy = {
        statement: `copy (${rows} and gone_since is null) to stdout`,
        action: ACTION,
        signal,
      };
      for await (const lines of copyLines(this.#warehouse.pool, copy))
        for (const line of lines) digest.add(hashText(line));
      return { epoch, rows: String(digest.rows), digest: digest.hex() };
    };
    const network = 'epoch = (select max(epoch) from mirror.networks)';
    return {
      parties: await sumOf(
        `select party_id from mirror.parties where ${network}`,
      ),
      checkpoints: await sumOf(
        `select at_block, hash, block_hash from mirror.checkpoints where ${network}`,
      ),
    };
  }

  /** Reads the network's epoch, and its height at the last claim. */
  async readNetwork(): Promise<{
    readonly epoch: number | null;
    readonly height: string | null;
  }> {
    const network = statement({ epoch: 'int?', height: 'text?' })`
      select max(n.epoch) as epoch,
        (select max(g.head_height)::text from mirror.generations g
          where g.claimed_at is not null
            and g.epoch = (select max(epoch) from mirror.networks)) as height
      from mirror.networks n`;
    return readRow(this.#db, ACTION, network);
  }
}

/** A month, its number of rows, and the digests of its segments. */
type MonthParts = readonly [
  month: string,
  rows: string,
  digests: readonly string[],
];

/** Builds the statement that inserts or replaces records. */
function insertOfRecords(rows: readonly RecordRow[]) {
  const json = JSON.stringify(
    rows.map(({ place: [file, at, bytes], ...row }) => ({
      ...row,
      file,
      at,
      bytes,
    })),
  );
  return sql`
    insert into mirror.proof_ledgers
      (party_id, asset_id, leaf, rows, covered, file, at, bytes)
    select "partyId", "assetId", leaf, rows, covered, file, at, bytes
    from jsonb_to_recordset(${json}::jsonb) as given("partyId" text, "assetId" text,
      leaf text, rows bigint, covered jsonb, file text, at bigint, bytes bigint)
    on conflict (party_id, asset_id) do update
    set leaf = excluded.leaf, rows = excluded.rows, covered = excluded.covered,
      file = excluded.file, at = excluded.at, bytes = excluded.bytes`;
}

/** Builds the statement that inserts or replaces the log's end. */
function insertOfLog(row: LogRow) {
  const { keyName, size, root, statementSha256, settledAt, publicKey } = row;
  return sql`
    insert into mirror.proof_log
      (key_name, size, root, statement_sha256, settled_at, public_key)
    values (${keyName}, ${size}, ${root}, ${statementSha256}, ${settledAt}::timestamptz,
      ${publicKey})
    on conflict (only_row) do update
    set key_name = excluded.key_name, size = excluded.size,
      root = excluded.root, statement_sha256 = excluded.statement_sha256,
      settled_at = excluded.settled_at, public_key = excluded.public_key`;
}

/** Returns the key of a ledger in maps; equal to `ledgerKey` of its entry. */
export function nameKey({ partyId, assetId }: LedgerName): string {
  return JSON.stringify([partyId, assetId]);
}

/** The covered ranges of each ledger; adjacent ranges are merged into one. */
const RANGES = sql`
  ranges as (
    select party_id, asset_id,
      range_agg(tstzrange(from_time, to_time)) filter (where not open) as covered
    from mirror.coverage group by party_id, asset_id)`;

/**
 * Builds a query for the ranges of each ledger in the format of its record: null instead
 * of the beginning of time, and null instead of an end that reaches the statement's
 * `coveredTo`.
 */
function coveredLedgers(coveredTo: string | null) {
  return sql`
    covered_ledgers as (
      select party_id, asset_id, coalesce((
          select jsonb_agg(jsonb_build_array(
              case when lower(r) > 'epoch'
                then to_char(lower(r) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end,
              case when ${coveredTo}::timestamptz is null or upper(r) < ${coveredTo}::timestamptz
                then to_char(upper(r) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end)
            order by r)
          from unnest(ranges.covered) r), '[]'::jsonb) as covered
      from ranges)`;
}

/** COPY's text format doubles each backslash in JSON. */
function unescapeCopy(line: string): string {
  return line.includes('\\') ? line.replaceAll('\\\\', '\\') : line;
}
