/**
 * Holds what a mirror calls complete against what the fleet has served, and against what
 * its most advanced node would have served.
 */
import type { Micros } from '../../src/time/time.ts';
import { type Chain, type Checkpoint, type Party } from './chain.ts';
import type { ListName, Served } from './fleet.ts';
import type { HeldByMirror } from './held.ts';
import { isShown } from './node.ts';

/** What the oracle knows of the run that it judges. */
export interface Night {
  readonly chain: Chain;
  /** The chain's last block when the run began. */
  readonly startHeight: bigint;
  /** Every node that is not pruned below this block has the rows from here on. */
  readonly keptFrom: bigint;
  /** What was served since the network began, and since the run began. */
  readonly ever: Served;
  readonly lately: Served;
}

/** @returns what is wrong with calling this complete, in words */
export function findLies(held: HeldByMirror, night: Night): string[] {
  return [
    ...findListLies('parties', held, night),
    ...findListLies('checkpoints', held, night),
    ...findLedgerLies(held, night),
  ];
}

function findListLies(
  list: ListName,
  held: HeldByMirror,
  night: Night,
): string[] {
  const { chain, startHeight, keptFrom, ever, lately } = night;
  const rows: ReadonlyMap<string, Party | Checkpoint> =
    list === 'parties' ? partiesByKey(chain) : checkpointsByKey(chain);
  const { keys, asOfBlock } = held[list];
  const lies: string[] = [];

  // Blocks that came while the run was going on may be seen or not.
  const growth = chain.height - startHeight;
  const reached = (lately.heads.get(list) ?? 0n) - growth;
  if (asOfBlock < reached)
    lies.push(`${list}: as of ${asOfBlock}, a node had answered at ${reached}`);

  const isOwed = (key: string, row: Party | Checkpoint): boolean => {
    // What came or went while the run was going on may be seen or not.
    if (!isShown(row, startHeight) || row.removedAt !== undefined) return false;
    if (ever[list].has(key)) return true;
    const isKept = list === 'parties' || row.height >= keptFrom;
    return isKept && row.shownFrom <= asOfBlock;
  };
  const missing = [...rows].filter(
    ([key, row]) => isOwed(key, row) && !keys.has(key),
  );
  if (missing.length > 0)
    lies.push(`${list}: ${missing.length} rows missing, ${missing[0]?.[0]}`);

  const foreign = [...keys].filter((key) => !rows.has(key));
  if (foreign.length > 0)
    lies.push(`${list}: ${foreign.length} rows of nobody, ${foreign[0]}`);
  return lies;
}

function findLedgerLies(held: HeldByMirror, night: Night): string[] {
  const { chain, startHeight, keptFrom, ever } = night;
  const keptSince = chain.timeOf(keptFrom);
  const lies: string[] = [];
  for (const party of chain.parties) {
    if (!isShown(party, startHeight) || party.removedAt !== undefined) continue;
    if (!held.parties.keys.has(party.id)) continue;
    const closedTo = held.closedTo.get(party.id);
    if (closedTo === undefined) {
      lies.push(`ledger of ${party.id}: not covered`);
      continue;
    }

    const served = ever.entries.get(party.id);
    const isOwed = (number: string, time: Micros): boolean =>
      time < closedTo && (time >= keptSince || served?.has(number) === true);
    const entries = chain.entries.filter(
      ({ party: of, number, time }) => of === party.id && isOwed(number, time),
    );
    const rows = held.entries.get(party.id);
    const missing = entries.filter(({ number }) => rows?.has(number) !== true);
    if (missing.length > 0)
      lies.push(
        `ledger of ${party.id}: ${missing.length} of ${entries.length} entries missing`,
      );
  }
  return lies;
}

function partiesByKey({ parties }: Chain): ReadonlyMap<string, Party> {
  return new Map(parties.map((party) => [party.id, party]));
}

function checkpointsByKey({
  checkpoints,
}: Chain): ReadonlyMap<string, Checkpoint> {
  return new Map(checkpoints.map((row) => [`${row.height}/${row.hash}`, row]));
}
