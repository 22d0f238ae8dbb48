/**
 * Generations: the stored rows of a list, written page by page, each page in one
 * transaction.
 */
import { sql, type RawBuilder } from 'kysely';
import { formatInstant } from '../../time/time.ts';
import type { ListedRow, ListName, Page } from '../ports.ts';

export interface Generation {
  readonly generationId: bigint;
  readonly list: ListName;
  readonly epoch: number;
  readonly kind: 'current' | 'audit';
  readonly sequence: bigint;
  readonly resumePoint: unknown;
  readonly lastPos: bigint;
  /** Rows of the list; a repeated row counts each time. */
  readonly rows: bigint;
  readonly claimedPos: bigint;
  readonly headHeight: string | null;
  /**
   * The number of rows of the largest list that was claimed since an operator last
   * accepted that the list shrank.
   */
  readonly largestRows: bigint;
  readonly isAppendOnly: boolean;
  readonly isClaimed: boolean;
  /** Whether two consecutive readings agreed on the claimed rows. */
  readonly isConfirmed: boolean;
  /** When the whole list was last read and claimed, as RFC 3339. */
  readonly auditedAt: string | null;
}

/** The source's last block, if it reported one. */
export type SourceHead = Pick<Page, 'blockHeight' | 'blockTime'>;

export const COLUMNS = sql`generation_id as "generationId", list, epoch, kind, sequence, resume_point as "resumePoint",
  last_pos as "lastPos", rows, claimed_pos as "claimedPos", head_height as "headHeight",
  largest_rows as "largestRows", is_append_only as "isAppendOnly", claimed_at is not null as "isClaimed", confirmed_at is not null as "isConfirmed", audited_at as "auditedAt"`;

export function setHead({
  blockHeight,
  blockTime,
}: SourceHead): RawBuilder<unknown> {
  return sql`head_height = greatest(head_height, ${blockHeight ?? null}::numeric),
    head_time = greatest(head_time, ${blockTime === undefined ? null : formatInstant(blockTime)}::timestamptz)`;
}

/**
 * Builds the statement that appends a page to a generation, in the order shown. A party
 * is listed once. A checkpoint may be listed several times, next to each other.
 */
export function appendRows(
  { generationId, list, epoch, kind, lastPos }: Generation,
  rows: readonly ListedRow[],
  distinct: number,
): RawBuilder<unknown> {
  const extras = rows.map(({ extra }) =>
    extra === undefined ? null : JSON.stringify(extra),
  );
  const shown = sql`select key, count(*)::int as copies, (array_agg(extra order by n))[1] as extra,
      ${lastPos - BigInt(distinct)}::bigint + row_number() over (order by min(n)) as pos
    from unnest(${rows.map(({ key }) => key)}::text[], ${extras}::jsonb[]) with ordinality as row (key, extra, n)
    group by key`;
  if (kind === 'current') return placeRows(list, epoch, shown, true);
  return sql`insert into mirror.audit_rows as held (generation_id, pos, key, copies, extra)
    select ${generationId}::bigint, pos, key, copies, extra from (${shown}) shown
    on conflict (generation_id, key) do ${
      list === 'parties'
        ? sql`nothing`
        : sql`update set copies = held.copies + excluded.copies`
    }`;
}

/**
 * Builds the statement that puts rows into a list.
 * @param shown a query with the rows' key, copies, pos and extra
 * @param isAppended whether the rows follow the stored ones. If absent, they go to
 *   their positions in the list, and rows that keep their position are not touched
 */
export function placeRows(
  list: ListName,
  epoch: number,
  shown: RawBuilder<unknown>,
  isAppended = false,
): RawBuilder<unknown> {
  // A stored row has only the fields that the source shows now: a field that the source
  // no longer sends is removed.
  const kept = sql`gone_since = null, extra = excluded.extra`;
  const hasChanged = sql`held.pos is distinct from excluded.pos or held.gone_since is not null
    or held.extra is distinct from excluded.extra`;
  if (list === 'parties') {
    return sql`insert into mirror.parties as held (party_id, first_epoch, epoch, pos, extra)
      select key, ${epoch}::int, ${epoch}::int, pos, extra from (${shown}) shown
      on conflict (party_id) do update set epoch = excluded.epoch, pos = excluded.pos, last_seen_at = clock_timestamp(), ${kept}
      where held.epoch is distinct from excluded.epoch
        or ${isAppended ? sql`held.pos is null or held.gone_since is not null` : hasChanged}`;
  }
  const merged = isAppended
    ? sql`pos = case when held.gone_since is null then held.pos else excluded.pos end,
        copies = case when held.gone_since is null then held.copies else 0 end + excluded.copies, ${kept}`
    : sql`pos = excluded.pos, copies = excluded.copies, ${kept}
        where held.copies <> excluded.copies or ${hasChanged}`;
  return sql`insert into mirror.checkpoints as held (epoch, at_block, hash, block_hash, copies, pos, extra)
    select ${epoch}::int, ${fieldsOf('key')}, copies, pos, extra from (${shown}) shown
    on conflict (epoch, at_block, hash, block_hash) do update set ${merged}`;
}

/** Splits the key of a checkpoint into its fields. */
function fieldsOf(key: 'key' | 'asked.key'): RawBuilder<unknown> {
  const [hash, blockHash] = [2, 3].map(
    (part) =>
      `replace(replace(split_part(${key}, '/', ${part}), '%2F', '/'), '%25', '%')`,
  );
  return sql.raw(`split_part(${key}, '/', 1)::numeric, ${hash}, ${blockHash}`);
}

/**
 * SQL for the rows of a list. `isAsked` is the condition that a row `held` has the key
 * `asked.key`.
 */
type Rows = Readonly<
  Record<'table' | 'copies' | 'isAsked', RawBuilder<unknown>>
>;

/** The tables with the current rows, by list. */
export const LISTS: Readonly<
  Record<ListName, Rows & { readonly key: RawBuilder<unknown> }>
> = {
  parties: {
    table: sql`mirror.parties`,
    key: sql`party_id`,
    copies: sql`1`,
    isAsked: sql`held.party_id = asked.key`,
  },
  checkpoints: {
    table: sql`mirror.checkpoints`,
    key: sql.raw(
      `at_block || '/' || replace(replace(hash, '%', '%25'), '/', '%2F') || '/' || replace(replace(block_hash, '%', '%25'), '/', '%2F')`,
    ),
    copies: sql`copies`,
    isAsked: sql`(held.at_block, held.hash, held.block_hash) = (${fieldsOf('asked.key')})`,
  },
};

/**
 * Returns the table with the rows of a generation, and the condition that selects them.
 */
export function rowsOf(
  of: Generation,
): Rows & { readonly isHeld: RawBuilder<unknown> } {
  if (of.kind === 'current') {
    return {
      ...LISTS[of.list],
      isHeld: sql`epoch = ${of.epoch} and gone_since is null`,
    };
  }
  const table = sql`mirror.audit_rows`;
  const copies = sql`copies`;
  const isAsked = sql`held.key = asked.key`;
  return {
    table,
    copies,
    isAsked,
    isHeld: sql`generation_id = ${of.generationId}`,
  };
}
