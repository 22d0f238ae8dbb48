/** What is read of the lists: open doubts, known gaps, the last audit, and the parties that were ever listed. */
import { sql } from 'kysely';
import { CANDIDATES_MAX, isCutId, NETWORK_PARTY, splitCutId } from '../../core/ids.ts';
import type { Database } from '../../postgres/database.ts';
import { readRows } from '../../postgres/transaction.ts';
import type { ListName } from '../ports.ts';

export interface OpenDoubt {
  readonly code: string;
  /** What was seen; `message` says it in words. */
  readonly seen: Readonly<Record<string, unknown>>;
  /** RFC 3339. */
  readonly since: string;
}

/** Rows that the source no longer served when they were to be read, between two held ones. */
export interface KnownGap {
  readonly gapId: bigint;
  readonly belowKey: string;
  readonly aboveKey: string;
  /** RFC 3339. */
  readonly foundAt: string;
  /** Whether an audit has found that the source does not serve them. */
  readonly isConfirmed: boolean;
}

export interface ListState {
  readonly list: ListName;
  readonly doubts: readonly OpenDoubt[];
  readonly gaps: readonly KnownGap[];
  /** When the source was last read from its oldest row on; null before the first complete reading. */
  readonly lastAuditAt: string | null;
}

/** What speaks against a list in an epoch: doubts that no audit has closed, and gaps. */
export async function readOpen(
  db: Database,
  list: ListName,
  epoch: number,
): Promise<Pick<ListState, 'doubts' | 'gaps'>> {
  const { rows: doubts } = await sql<OpenDoubt>`select code, seen, opened_at as since from mirror.doubts
    where subject = ${list} and epoch = ${epoch} and closed_at is null order by doubt_id`.execute(db);
  const { rows: gaps } = await sql<KnownGap>`
    select gap_id as "gapId", below_key as "belowKey", above_key as "aboveKey",
      found_at as "foundAt", confirmed_by_run is not null as "isConfirmed"
    from mirror.list_gaps where list = ${list} and epoch = ${epoch} and closed_at is null order by gap_id`.execute(
    db,
  );
  return { doubts, gaps };
}

/** Both lists, as the current network's. */
export async function readListState(db: Database): Promise<readonly ListState[]> {
  const { rows } = await sql<Pick<ListState, 'list' | 'lastAuditAt'> & { readonly epoch: number }>`
    select lists.list, n.epoch, audited_at as "lastAuditAt"
    from (select max(epoch) as epoch from mirror.networks) n cross join (values ('parties'), ('checkpoints')) as lists (list)
    left join mirror.generations g on g.list = lists.list and g.kind = 'current' and g.epoch = n.epoch`.execute(
    db,
  );
  return Promise.all(
    rows.map(async ({ list, epoch, lastAuditAt }) => ({
      list,
      lastAuditAt,
      ...(await readOpen(db, list, epoch)),
    })),
  );
}

/** The party with this id first, then, where the id is cut, those whose id begins and ends so: as many as one is chosen of. */
export async function findListedParties(db: Database, given: string): Promise<readonly string[]> {
  const { prefix, suffix } = splitCutId(given);
  const statement = sql<{ party_id: string }>`
    select party_id from mirror.parties
     where party_id = ${given} or (${isCutId(given)} and party_id <> ${NETWORK_PARTY}
       and starts_with(party_id, ${prefix}) and right(party_id, length(${suffix})) = ${suffix})
     order by party_id <> ${given}, party_id limit ${CANDIDATES_MAX}`;
  return (await readRows(db, 'look a party up', statement)).map((row) => row.party_id);
}
