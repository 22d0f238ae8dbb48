/**
 * Pages as groups. Rows that share a cursor cannot be told apart by the source, so the group, never the
 * row, is what borders, anchors and seams are made of.
 */
import { NETWORK_PARTY } from '../core/ids.ts';
import { readPartyCursor, type PartyCursor } from '../ledger/party-cursor.ts';
import type { Group, ListedRow, ListName, Page } from './ports.ts';

export interface RowGroup {
  readonly group: string;
  readonly rows: readonly ListedRow[];
  /** Of a party, where its cursor can be read: a second look at the order. */
  readonly firstSeen?: PartyCursor | undefined;
}

/** A page's groups in the order read. `partial` may go on behind the border. */
export interface CutPage {
  readonly whole: readonly RowGroup[];
  readonly partial: RowGroup | undefined;
  /** Served first newest first, last or never oldest first: it has no place in the order. */
  readonly network: ListedRow | undefined;
}

/**
 * @param size that was asked for: a full page may be cut in the middle of a group, whatever its envelope
 *   says of the next page. Absent where nothing is concluded from the last group.
 */
export function cutPage(list: ListName, page: Page, size = Number.POSITIVE_INFINITY): CutPage {
  const network = list === 'parties' ? page.rows.find((row) => row.group === NETWORK_PARTY) : undefined;
  const groups = groupRows(
    list,
    network === undefined ? page.rows : page.rows.filter((row) => row !== network),
  );
  // A party is alone with its cursor, so no border can cut its group.
  const mayGoOn = page.hasNextPage || page.rows.length >= size;
  const partial = list === 'checkpoints' && mayGoOn ? groups.pop() : undefined;
  return { whole: groups, partial, network };
}

function groupRows(list: ListName, rows: readonly ListedRow[]): RowGroup[] {
  const groups: (RowGroup & { rows: ListedRow[] })[] = [];
  for (const row of rows) {
    const last = groups.at(-1);
    if (last?.group === row.group) {
      last.rows.push(row);
      continue;
    }
    const firstSeen = list === 'parties' ? readPartyCursor(row.cursor) : undefined;
    groups.push({ group: row.group, rows: [row], firstSeen });
  }
  return groups;
}

export function keysOf(group: RowGroup): Group {
  return { group: group.group, keys: group.rows.map((row) => row.key) };
}

/** Whether `part` is in `all`, repeated keys counted. */
export function isWithin(part: readonly string[], all: readonly string[]): boolean {
  if (part.length === 1 && all.length === 1) return part[0] === all[0];
  const left = new Map<string, number>();
  for (const key of all) left.set(key, (left.get(key) ?? 0) + 1);
  for (const key of part) {
    const count = left.get(key) ?? 0;
    if (count === 0) return false;
    left.set(key, count - 1);
  }
  return true;
}

export function sameKeys(left: readonly string[], right: readonly string[]): boolean {
  return left.length === right.length && isWithin(left, right);
}
