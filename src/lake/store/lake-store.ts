/** The warehouse as the lake reads it: one moment, partition by partition, as lines of text. */
import { createHash } from 'node:crypto';
import type { Pool, PoolClient } from 'pg';
import { PermanentError } from '../../core/errors.ts';
import { RowDigest } from '../../ledger/digest.ts';
import { KNOWN_COLUMNS } from '../../ledger/header.ts';
import type { LakeBooks, LakePartition, LakeSlice, LakeSnapshot, SliceLimits } from '../ports.ts';
import { takeLock } from '../../postgres/advisory-lock.ts';
import { copyOutOn } from '../../postgres/copy-out.ts';
import { onOwnConnection } from '../../postgres/own-connection.ts';
import { guarded } from '../../postgres/transaction.ts';

const ACTION = 'read the warehouse for the lake';
/** Between two tables the lake's files are written and sent; the transaction holds nothing but its moment. */
const IDLE_BETWEEN_PARTITIONS_MS = 3_600_000;

/** One line for each month of each loaded segment. */
const MONTHS = `copy (select to_char(month, 'YYYY-MM'), segment_id, rows, values_digest
  from mirror.segment_months order by month, segment_id) to stdout`;

const LISTS = `select
  (select count(*) from mirror.parties) as parties,
  (select concat_ws('/', max(first_seen_at), max(last_seen_at), count(source_time)) from mirror.parties) as parties_seen,
  (select count(*) from mirror.checkpoints) as checkpoints,
  (select concat_ws('/', max(first_seen_at), sum(copies)) from mirror.checkpoints) as checkpoints_seen`;

const UTC = (column: string): string => `${column} at time zone 'UTC'`;

const PARTIES = `select party_id, first_epoch, ${UTC('first_seen_at')}, ${UTC('last_seen_at')},
  ${UTC('source_time')}, extra from mirror.parties`;
const CHECKPOINTS = `select epoch, at_block, hash, block_hash, copies, ${UTC('first_seen_at')}, extra
  from mirror.checkpoints`;

const SLICES = `select to_char(m.month, 'YYYY-MM') as month, segment_id, s.party_id, s.object_key, s.object_bytes,
    s.object_sha256, s.columns, m.rows
  from mirror.segment_months m join mirror.segments s using (segment_id)
  where to_char(m.month, 'YYYY-MM') = any ($1) and s.removed_at is null and m.rows >= $2 and s.rows <= m.rows * $3 and s.bytes <= $4
    and s.columns <@ $5::text[]
  order by m.month, m.rows desc, segment_id`;

export class LakeStore implements LakeBooks {
  readonly #pool: Pool;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  async exclusively<Result>(
    work: (snapshot: LakeSnapshot) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result> {
    return onOwnConnection(this.#pool, ACTION, async (client) => {
      await takeLock(client, 'mirror.lake', 'session', signal);
      return this.#atOneMoment(client, signal, work);
    });
  }

  async partitions(signal: AbortSignal): Promise<readonly LakePartition[]> {
    return onOwnConnection(this.#pool, ACTION, (client) =>
      this.#atOneMoment(client, signal, (snapshot) => snapshot.partitions()),
    );
  }

  async #atOneMoment<Result>(
    client: PoolClient,
    signal: AbortSignal,
    work: (snapshot: LakeSnapshot) => Promise<Result>,
  ): Promise<Result> {
    await guarded(ACTION, () => client.query('begin isolation level repeatable read, read only'));
    await guarded(ACTION, () =>
      client.query(`set local idle_in_transaction_session_timeout = ${IDLE_BETWEEN_PARTITIONS_MS}`),
    );
    const result = await work({
      partitions: () => readPartitions(client, signal),
      slices: (months, limits) => readSlices(client, months, limits),
      covered: (first, last, rowsSignal) =>
        copyOutOn(client, coveredStatement(first, last), ACTION, rowsSignal),
      rows: (partition, without, rowsSignal) =>
        copyOutOn(client, copyStatement(partition, without), ACTION, rowsSignal),
    });
    await guarded(ACTION, () => client.query('commit'));
    return result;
  }
}

async function readPartitions(client: PoolClient, signal: AbortSignal): Promise<readonly LakePartition[]> {
  const months = await readMonths(client, signal);
  const { rows } = await guarded(ACTION, () =>
    client.query<{ parties: bigint; parties_seen: string; checkpoints: bigint; checkpoints_seen: string }>(
      LISTS,
    ),
  );
  const [lists] = rows;
  if (lists === undefined) return months;
  const whole = { month: undefined, valuesDigest: undefined };
  return [
    ...months,
    {
      ...whole,
      table: 'parties',
      rows: lists.parties,
      fingerprint: `${lists.parties}/${lists.parties_seen}`,
    },
    {
      ...whole,
      table: 'checkpoints',
      rows: lists.checkpoints,
      fingerprint: `${lists.checkpoints}/${lists.checkpoints_seen}`,
    },
  ];
}

/** A month is known by the segments in it and what each brought: sums add up, so nothing is read twice. */
async function readMonths(client: PoolClient, signal: AbortSignal): Promise<readonly LakePartition[]> {
  const months = new Map<string, { hash: ReturnType<typeof createHash>; sum: RowDigest }>();
  let partial = '';
  for await (const chunk of copyOutOn(client, MONTHS, ACTION, signal)) {
    const lines = (partial + chunk.toString('latin1')).split('\n');
    partial = lines.pop() ?? '';
    for (const line of lines) {
      const [month = '', , rows = '', digest = ''] = line.split('\t');
      let known = months.get(month);
      if (known === undefined)
        months.set(month, (known = { hash: createHash('sha256'), sum: new RowDigest() }));
      known.hash.update(`${line}\n`);
      known.sum.merge(RowDigest.fromHex(digest, Number(rows)));
    }
  }
  return [...months].map(([month, { hash, sum }]) => ({
    table: 'ledger_entries',
    month,
    fingerprint: hash.digest('hex'),
    rows: BigInt(sum.rows),
    valuesDigest: sum.hex(),
  }));
}

async function readSlices(
  client: PoolClient,
  months: readonly string[],
  { rowsMin, readsMax, bytesMax }: SliceLimits,
): Promise<readonly LakeSlice[]> {
  const { rows } = await guarded(ACTION, () =>
    client.query<{
      month: string;
      segment_id: bigint;
      party_id: string;
      object_key: string;
      object_bytes: bigint;
      object_sha256: string;
      columns: string[];
      rows: bigint;
    }>(SLICES, [months, rowsMin, readsMax, bytesMax, KNOWN_COLUMNS]),
  );
  return rows.map((row) => ({
    month: row.month,
    segmentId: row.segment_id,
    partyId: row.party_id,
    objectKey: row.object_key,
    objectBytes: row.object_bytes,
    objectSha256: row.object_sha256,
    columns: row.columns,
    rows: row.rows,
  }));
}

/** What the view `mirror.exported_entries` asks of each row, for all rows of some months. */
function coveredStatement(first: string, last: string): string {
  const { start } = limitsOf(first);
  const { end } = limitsOf(last);
  return `copy (
    select party_id, asset_id, ${UTC('lower(range)')}, ${UTC('upper(range)')} from (
      select party_id, asset_id, unnest(range_agg(tstzrange(from_time, to_time))) as range
        from mirror.segments
       where loaded_at is not null and from_time < ${end} and to_time > ${start}
       group by party_id, asset_id) covered) to stdout (format csv)`;
}

function copyStatement({ table, month }: LakePartition, without: readonly bigint[]): string {
  if (table === 'parties') return `copy (${PARTIES}) to stdout (format csv)`;
  if (table === 'checkpoints') return `copy (${CHECKPOINTS}) to stdout (format csv)`;
  const { start, end } = limitsOf(month);
  const known = KNOWN_COLUMNS.map((name) => (name === 'vega_time' ? UTC(name) : name)).join(', ');
  return `copy (select party_id, ${known}, extra, segment_id, is_counted
    from mirror.exported_entries
    where vega_time >= ${start} and vega_time < ${end}
      and segment_id <> all ('{${without.join(',')}}'::bigint[])) to stdout`;
}

/** As SQL: when a month begins, and when the next one does. */
function limitsOf(month: string | undefined): { readonly start: string; readonly end: string } {
  if (month === undefined || !/^\d{4}-\d{2}$/.test(month)) {
    throw new PermanentError(`Cannot read the ledger entries of month ${String(month)}: it is no month`, {
      code: 'BAD_MONTH',
    });
  }
  const start = `timestamptz '${month}-01 00:00:00+00'`;
  return { start, end: `(${start} at time zone 'UTC' + interval '1 month') at time zone 'UTC'` };
}
