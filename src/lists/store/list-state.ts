/** Reads the state of a list, and looks up parties that have ever been listed. */
import { sql } from 'kysely';
import { listedAs } from '../../catalog/listed-id.ts';
import {
  CANDIDATES_MAX,
  isCutId,
  NETWORK_PARTY,
  splitCutId,
} from '../../ledger/ids.ts';
import type { Database } from '../../postgres/database.ts';
import { readRow, readRows } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import type { ListName } from '../ports.ts';
import { COLUMNS, SELECTED, type Generation } from './generations.ts';

export interface OpenDoubt {
  readonly code: string;
  /** The facts that led to the doubt; `message` describes them in words. */
  readonly seen: Readonly<Record<string, unknown>>;
  /** When the doubt was opened, as RFC 3339. */
  readonly since: string;
}

/**
 * Missing rows between two stored rows. The source no longer served them when a sync
 * tried to read them.
 */
export interface KnownGap {
  readonly belowKey: string;
  readonly aboveKey: string;
  /** When the gap was found, as RFC 3339. */
  readonly foundAt: string;
  /** Whether an audit has confirmed that the source no longer serves these rows. */
  readonly isConfirmed: boolean;
}

export interface ListSituation extends Readonly<
  Record<Generation['kind'], Generation | undefined>
> {
  readonly epoch: number;
  /** The highest block for which either list of this network was claimed complete. */
  readonly claimedHeight: string | null;
  /** Whether either list was found to belong to a different network. */
  readonly isOtherNetwork: boolean;
  /** Doubts that no audit has closed. */
  readonly doubts: readonly OpenDoubt[];
  readonly gaps: readonly KnownGap[];
}

/** Reads the open doubts and gaps of a list in an epoch. */
export async function readOpen(
  db: Database,
  list: ListName,
  epoch: number,
): Promise<Pick<ListSituation, 'doubts' | 'gaps'>> {
  const action = 'read what is doubted of a list';
  const open = statement({
    code: 'text',
    seen: typed<OpenDoubt['seen']>('json'),
    since: 'instant',
  })`
    select code, seen, opened_at as since from mirror.doubts
    where subject = ${list} and epoch = ${epoch} and closed_at is null
    order by doubt_id`;
  const doubts = await readRows(db, action, open);
  const known = statement({
    belowKey: 'text',
    aboveKey: 'text',
    foundAt: 'instant',
    isConfirmed: 'boolean',
  })`
    select below_key as "belowKey", above_key as "aboveKey", found_at as "foundAt",
      confirmed_by_run is not null as "isConfirmed"
    from mirror.list_gaps
    where list = ${list} and epoch = ${epoch} and closed_at is null
    order by gap_id`;
  const gaps = await readRows(db, action, known);
  return { doubts, gaps };
}

export async function readEpoch(db: Database): Promise<number> {
  const newest = statement({
    epoch: 'int!',
  })`select max(epoch) as epoch from mirror.networks`;
  const { epoch } = await readRow(db, 'read which network is mirrored', newest);
  return epoch;
}

/**
 * Reads the state of a list in one epoch.
 * @param of the epoch; if absent, the current network's
 */
export async function readSituation(
  db: Database,
  list: ListName,
  of?: number,
): Promise<ListSituation> {
  const epoch = of ?? (await readEpoch(db));
  const generations = statement(COLUMNS)`
    select ${SELECTED} from mirror.generations
    where list = ${list} and epoch = ${epoch}`;
  const rows = await readRows(db, 'read how a list stands', generations);
  const [current, audit] = ['current', 'audit'].map((kind) =>
    rows.find((row) => row.kind === kind),
  );
  const network = await readNetwork(db, epoch);
  return {
    epoch,
    current,
    audit,
    ...network,
    ...(await readOpen(db, list, epoch)),
  };
}

/**
 * Maximum number of witnesses. One party may have been removed since then; that all three
 * were is unlikely.
 */
const WITNESSES_MAX = 3;

/**
 * Whether one of the lists was found to belong to a different network from the current
 * one.
 */
export async function isOtherNetwork(db: Database): Promise<boolean> {
  const network = await readNetwork(db, await readEpoch(db));
  return network.isOtherNetwork;
}

/**
 * Returns the ids, as the source spells them, of parties that identify the current
 * network: those that the source has listed the longest.
 * @returns an empty array if the last claim was made from this source, or if nothing
 *   was ever claimed
 */
export async function findWitnesses(
  db: Database,
  sourceUrl: string,
): Promise<readonly string[]> {
  const found = statement({ spelling: 'text' })`
    select coalesce(${listedAs(sql`party_id`)}, party_id) as spelling from mirror.parties
     where epoch = ${await readEpoch(db)} and pos is not null and gone_since is null
       and exists (select from mirror.identity where source_url <> ${sourceUrl})
     order by pos limit ${WITNESSES_MAX}`;
  const rows = await readRows(db, 'choose parties to ask for', found);
  return rows.map(({ spelling }) => spelling);
}

/**
 * Reads the highest block for which either list of the current network was claimed
 * complete.
 * @returns undefined if no claim has a block
 */
export async function readClaimedHeight(
  db: Database,
): Promise<bigint | undefined> {
  const { claimedHeight } = await readNetwork(db, await readEpoch(db));
  return claimedHeight === null ? undefined : BigInt(claimedHeight);
}

/**
 * Reads what the two lists together show about a network. If nothing was claimed in
 * this database, the newest restored checkpoint stands in for the claims of the lost
 * database.
 */
function readNetwork(
  db: Database,
  epoch: number,
): Promise<Pick<ListSituation, 'claimedHeight' | 'isOtherNetwork'>> {
  const network = statement({
    claimedHeight: 'numeric?',
    isOtherNetwork: 'boolean',
  })`
    with claimed as (
      select max(head_height) as height, count(*) as times from mirror.generations
      where epoch = ${epoch} and claimed_at is not null),
    restored as (
      select max(at_block) as height from mirror.checkpoints
      where epoch = ${epoch} and pos is null and gone_since is not null
        and (select times from claimed) = 0)
    select greatest(claimed.height, restored.height) as "claimedHeight",
      exists (select from mirror.doubts
        where epoch = ${epoch} and code = 'OTHER_NETWORK' and closed_at is null) as "isOtherNetwork"
    from claimed, restored`;
  return readRow(db, 'read which network is mirrored', network);
}

/** Returns those of the given parties that the stored list does not contain. */
export async function findUnlistedParties(
  db: Database,
  partyIds: readonly string[],
): Promise<readonly string[]> {
  const unlisted = statement({ partyId: 'text' })`
    select wanted.party_id as "partyId"
      from unnest(${[...partyIds]}::text[]) wanted(party_id)
     where wanted.party_id <> ${NETWORK_PARTY} and not exists (
       select from mirror.parties held
        where held.party_id = wanted.party_id and held.gone_since is null
          and held.epoch = (select max(epoch) from mirror.networks))
     order by 1`;
  const rows = await readRows(db, 'look for unlisted parties', unlisted);
  return rows.map(({ partyId }) => partyId);
}

/**
 * Returns the party with exactly this id first and then, if the id is shortened, the
 * parties whose ids have the same beginning and end; at most `CANDIDATES_MAX` in total.
 */
export async function findListedParties(
  db: Database,
  given: string,
): Promise<readonly string[]> {
  const { prefix, suffix } = splitCutId(given);
  const found = statement({ partyId: 'text' })`
    select party_id as "partyId" from mirror.parties
     where party_id = ${given} or (${isCutId(given)} and party_id <> ${NETWORK_PARTY}
       and starts_with(party_id, ${prefix}) and right(party_id, length(${suffix})) = ${suffix})
     order by party_id <> ${given}, party_id limit ${CANDIDATES_MAX}`;
  const rows = await readRows(db, 'look a party up', found);
  return rows.map(({ partyId }) => partyId);
}
