/** What one node of a fleet shows of the chain. */
import type { Micros } from '../../src/time/time.ts';
import {
  type Chain,
  type Checkpoint,
  type Entry,
  type Party,
} from './chain.ts';

export type NodeKind = 'tip' | 'lagging' | 'snapshot' | 'pruned';

export interface FleetNode {
  readonly kind: NodeKind;
  /** How many blocks the node is behind the chain. Ignored by a snapshot. */
  readonly lag: bigint;
  /** The block at which a snapshot was made: the node never moves on. */
  readonly frozenAt?: bigint;
  /** How many of the newest blocks the node serves checkpoints and entries of. */
  readonly keeps?: bigint;
}

/** A party or a checkpoint as the node serves it. */
export interface ShownRow {
  /** Places the row in the order of its list, and is its cursor. */
  readonly cursor: string;
  readonly key: string;
  readonly node: Readonly<Record<string, string>>;
}

/** The last block that the node has processed. */
export function headOf(node: FleetNode, chain: Chain): bigint {
  return node.frozenAt ?? chain.height - node.lag;
}

/** The oldest block of which the node serves checkpoints and entries. */
export function oldestOf(node: FleetNode, chain: Chain): bigint {
  return node.keeps === undefined ? 0n : headOf(node, chain) - node.keeps;
}

export function shownParties(
  node: FleetNode,
  chain: Chain,
): readonly ShownRow[] {
  const head = headOf(node, chain);
  return chain.parties
    .filter((party) => isShown(party, head))
    .map(partyRow)
    .toSorted(byCursor);
}

export function shownCheckpoints(
  node: FleetNode,
  chain: Chain,
): readonly ShownRow[] {
  const head = headOf(node, chain);
  const oldest = oldestOf(node, chain);
  return chain.checkpoints
    .filter((row) => isShown(row, head) && row.height >= oldest)
    .map(checkpointRow)
    .toSorted(byCursor);
}

/** The entries of a party between two instants; the end is exclusive. */
export function shownEntries(
  node: FleetNode,
  chain: Chain,
  partyId: string,
  range: { readonly from: Micros; readonly to: Micros | undefined },
): readonly Entry[] {
  const head = headOf(node, chain);
  const oldest = oldestOf(node, chain);
  return chain.entries.filter(
    ({ party, time, height }) =>
      party === partyId &&
      height <= head &&
      height >= oldest &&
      time >= range.from &&
      (range.to === undefined || time < range.to),
  );
}

export function isShown(
  { shownFrom, removedAt }: Party | Checkpoint,
  head: bigint,
): boolean {
  return shownFrom <= head && (removedAt === undefined || head < removedAt);
}

function partyRow({ id, spelling, height }: Party): ShownRow {
  return { cursor: cursorOf(height, id), key: id, node: { id: spelling } };
}

function checkpointRow({ height, hash, blockHash }: Checkpoint): ShownRow {
  return {
    cursor: cursorOf(height, hash),
    key: `${height}/${hash}`,
    node: { atBlock: String(height), hash, blockHash },
  };
}

function cursorOf(height: bigint, id: string): string {
  return `${String(height).padStart(12, '0')}-${id}`;
}

function byCursor(one: ShownRow, other: ShownRow): number {
  return one.cursor < other.cursor ? -1 : 1;
}
