/**
 * Generations: the stored rows of a list, written page by page, each page in one
 * transaction.
 */
import { sql, type RawBuilder } from 'kysely';
import {
  selectList,
  statement,
  typed,
  type Statement,
} from '../../postgres/statement.ts';
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

/** The columns of a generation; `SELECTED` selects them. */
export const COLUMNS = {
  generationId: 'bigint',
  list: typed<ListName>('text'),
  epoch: 'int',
  kind: typed<Generation['kind']>('text'),
  sequence: 'bigint',
  resumePoint: 'json?',
  lastPos: 'bigint',
  rows: 'bigint',
  claimedPos: 'bigint',
  headHeight: 'numeric?',
  largestRows: 'bigint',
  isAppendOnly: 'boolean',
  isClaimed: 'boolean',
  isConfirmed: 'boolean',
  auditedAt: 'instant?',
} as const;

/** A generation, as it is selected or returned from its table. */
export const SELECTED = selectList(COLUMNS, {
  isClaimed: 'claimed_at is not null',
  isConfirmed: 'confirmed_at is not null',
});

export function setHead({
  blockHeight,
  blockTime,
}: SourceHead): RawBuilder<unknown> {
  return sql`head_height = greatest(head_height, ${blockHeight ?? null}::numeric),
    head_time = greatest(head_time, ${blockTime === undefined ? null : formatInstant(blockTime)}::timestamptz)`;
}

/**
 * Rows to put into a list, in the order shown: those of a page, or all those of an audit.
 */
type Shown =
  | {
      readonly kind: 'page';
      readonly rows: readonly ListedRow[];
      /** The position after which the rows are placed. */
      readonly after: bigint;
    }
  | {
      readonly kind: 'audit';
      readonly generationId: bigint;
      /**
       * How far the audit's positions shift to make room for older rows ahead of them.
       */
      readonly shift: bigint;
    };

/** Selects each row's key, number of copies, extra fields and position. */
function select(shown: Shown): RawBuilder<unknown> {
  return shown.kind === 'page' ? selectPage(shown) : selectAudit(shown);
}

function selectPage({
  rows,
  after,
}: Extract<Shown, { kind: 'page' }>): RawBuilder<unknown> {
  const keys = rows.map(({ key }) => key);
  const extras = rows.every(({ extra }) => extra === undefined)
    ? null
    : rows.map(({ extra }) =>
        extra === undefined ? null : JSON.stringify(extra),
      );
  // Most pages list no row twice, and need not be grouped and sorted.
  if (new Set(keys).size === keys.length) {
    return sql`select key, 1 as copies, extra, ${after}::bigint + n as pos
      from unnest(${keys}::text[], ${extras}::jsonb[]) with ordinality as row (key, extra, n)`;
  }
  return sql`select key, count(*)::int as copies, (array_agg(extra order by n))[1] as extra,
      ${after}::bigint + row_number() over (order by min(n)) as pos
    from unnest(${keys}::text[], ${extras}::jsonb[]) with ordinality as row (key, extra, n)
    group by key`;
}

function selectAudit({
  generationId,
  shift,
}: Extract<Shown, { kind: 'audit' }>): RawBuilder<unknown> {
  return sql`select key, copies, extra, pos + ${shift}::bigint as pos
    from mirror.audit_rows where generation_id = ${generationId}`;
}

/**
 * Makes the statement that appends a page to a generation, in the order shown. A party
 * occurs only once in its list. A checkpoint may occur several times in succession.
 * @param areNew whether the statement fails with `DATABASE_23505` if one of the rows is
 *   stored. The statement then takes a third less time, because Postgres need not look
 *   for each row before inserting it.
 */
export function appendRows(
  { generationId, list, epoch, kind, lastPos }: Generation,
  rows: readonly ListedRow[],
  distinct: number,
  areNew: boolean,
): Statement<unknown> {
  const shown = {
    kind: 'page',
    rows,
    after: lastPos - BigInt(distinct),
  } as const;
  if (kind === 'current') return placeRows(list, epoch, shown, areNew);
  const meetAgain =
    list === 'parties'
      ? sql`on conflict (generation_id, key) do nothing`
      : sql`on conflict (generation_id, key) do update
          set copies = held.copies + excluded.copies`;
  return statement()`
    insert into mirror.audit_rows as held (generation_id, pos, key, copies, extra)
    select ${generationId}::bigint, pos, key, copies, extra from (${selectPage(shown)}) shown
    ${areNew ? NONE : meetAgain}`;
}

/**
 * Makes the statement that puts rows into a list. The rows of a page follow the stored
 * ones. Those of an audit go to their positions in the list, and rows that keep their
 * position are not touched.
 */
export function placeRows(
  list: ListName,
  epoch: number,
  shown: Shown,
  areNew = false,
): Statement<unknown> {
  return list === 'parties'
    ? placeParties(epoch, shown, areNew)
    : placeCheckpoints(epoch, shown, areNew);
}

/** No clause. */
const NONE = sql``;
/**
 * A stored row has only the fields that the source shows now: a field that the source no
 * longer sends is removed.
 */
const KEPT = sql`gone_since = null, extra = excluded.extra`;
const HAS_CHANGED = sql`held.pos is distinct from excluded.pos
  or held.gone_since is not null or held.extra is distinct from excluded.extra`;

function placeParties(
  epoch: number,
  shown: Shown,
  areNew: boolean,
): Statement<unknown> {
  const isAppended = shown.kind === 'page';
  const isNews = isAppended
    ? sql`held.pos is null or held.gone_since is not null`
    : HAS_CHANGED;
  const replace = sql`on conflict (party_id) do update
    set epoch = excluded.epoch, pos = excluded.pos, last_seen_at = clock_timestamp(),
      restored_at = null, ${KEPT}
    where held.epoch is distinct from excluded.epoch or ${isNews}`;
  return statement()`
    insert into mirror.parties as held (party_id, first_epoch, epoch, pos, extra)
    select key, ${epoch}::int, ${epoch}::int, pos, extra from (${select(shown)}) shown
    ${areNew ? NONE : replace}`;
}

function placeCheckpoints(
  epoch: number,
  shown: Shown,
  areNew: boolean,
): Statement<unknown> {
  const isAppended = shown.kind === 'page';
  const merge = isAppended
    ? sql`pos = case when held.gone_since is null then held.pos else excluded.pos end,
        copies = excluded.copies
          + case when held.gone_since is null then held.copies else 0 end,
        ${KEPT}`
    : sql`pos = excluded.pos, copies = excluded.copies, ${KEPT}
        where held.copies <> excluded.copies or ${HAS_CHANGED}`;
  return statement()`
    insert into mirror.checkpoints as held
      (epoch, at_block, hash, block_hash, copies, pos, extra)
    select ${epoch}::int, ${fieldsOf('key')}, copies, pos, extra from (${select(shown)}) shown
    ${areNew ? NONE : sql`on conflict (epoch, at_block, hash, block_hash) do update set ${merge}`}`;
}

/** SQL for the fields of a checkpoint's key. */
function fieldsOf(key: 'key' | 'asked.key'): RawBuilder<unknown> {
  return sql`split_part(${sql.raw(key)}, '/', 1)::numeric,
    replace(replace(split_part(${sql.raw(key)}, '/', 2), '%2F', '/'), '%25', '%'),
    replace(replace(split_part(${sql.raw(key)}, '/', 3), '%2F', '/'), '%25', '%')`;
}

type ByList = Readonly<Record<ListName, RawBuilder<unknown>>>;

/** The table with the current rows. */
export const TABLES: ByList = {
  parties: sql`mirror.parties`,
  checkpoints: sql`mirror.checkpoints`,
};

/** The key of a row. */
export const KEYS: ByList = {
  parties: sql`party_id`,
  checkpoints: sql`at_block
    || '/' || replace(replace(hash, '%', '%25'), '/', '%2F')
    || '/' || replace(replace(block_hash, '%', '%25'), '/', '%2F')`,
};

/** How many times the list contains the row. */
const COPIES: ByList = {
  parties: sql`1`,
  checkpoints: sql`copies`,
};

/** Whether the row `held` has the key `asked.key`; finds it by the primary key. */
export const IS_ASKED: ByList = {
  parties: sql`held.party_id = asked.key`,
  checkpoints: sql`(held.at_block, held.hash, held.block_hash) = (${fieldsOf('asked.key')})`,
};

/** The stored rows of a page; see `ListSession.locate`. */
export interface Located {
  readonly held: readonly string[];
  readonly highestPos: bigint | null;
  readonly rowsUpTo: bigint;
}

const LOCATED = {
  held: typed<readonly string[]>('text[]'),
  highestPos: 'bigint?',
  rowsUpTo: 'bigint',
} as const;

export function locateStored(
  { list, epoch }: Generation,
  keys: readonly string[],
  countingTo: bigint | undefined,
): Statement<Located> {
  return statement(LOCATED)`
    with found as (
      select asked.key, one.pos from unnest(${[...keys]}::text[]) as asked (key), lateral (
        select pos from ${TABLES[list]} held
        where epoch = ${epoch} and gone_since is null and ${IS_ASKED[list]} limit 1) one),
    counted as (
      select ${COPIES[list]} as copies, pos from ${TABLES[list]}
      where epoch = ${epoch} and gone_since is null)
    ${describeFound(countingTo)}`;
}

export function locateAudited(
  { generationId }: Generation,
  keys: readonly string[],
  countingTo: bigint | undefined,
): Statement<Located> {
  return statement(LOCATED)`
    with found as (
      select asked.key, held.pos from unnest(${[...keys]}::text[]) as asked (key)
      join mirror.audit_rows held on generation_id = ${generationId} and held.key = asked.key),
    counted as (
      select copies, pos from mirror.audit_rows where generation_id = ${generationId})
    ${describeFound(countingTo)}`;
}

/**
 * The end of a statement: returns the keys in `found`, and counts the rows of `counted`.
 */
function describeFound(countingTo: bigint | undefined): RawBuilder<unknown> {
  return sql`, top as (select max(pos) as pos from found)
    select array(select key from found) as held, top.pos as "highestPos",
      (select coalesce(sum(copies), 0)::bigint from counted
        where ${countingTo !== undefined}
          and pos <= greatest(top.pos, ${countingTo ?? 0n}::bigint)) as "rowsUpTo"
    from top`;
}
