/**
 * What a single page must not do. Each breach is kept as evidence; those in VERDICT_OF forbid to say
 * `complete`, whatever else was proven.
 */
import type { Verdict } from '../core/verdict.ts';
import { compareParties, type PartyCursor } from '../ledger/party-cursor.ts';
import type { RowGroup } from './groups.ts';
import type { Direction, ListName, Page, Violation } from './ports.ts';

/** How the list ends where a guard spoke. Rows are kept either way. */
export const VERDICT_OF: Readonly<Record<string, Exclude<Verdict, 'complete' | 'failed'>>> = {
  ENVELOPE_CONTRADICTS: 'suspicious',
  EMPTY_PAGE_PROMISES_MORE: 'suspicious',
  ORDER_BROKEN: 'suspicious',
  ROWS_PASSED_OVER: 'suspicious',
  ROWS_INSERTED: 'suspicious',
  CURSOR_CYCLE: 'suspicious',
  SEAM_CONTRADICTED: 'suspicious',
  LIST_SHRANK: 'suspicious',
  LIST_EMPTY: 'suspicious',
  PAGE_SHAPE: 'suspicious',
  HEIGHT_WENT_DOWN: 'suspicious',
  OTHER_NETWORK: 'suspicious',
};

/** Whether the envelope agrees with its edges. The walk goes by the edges; a client of `endCursor` would not. */
export function checkEnvelope(page: Page): Violation | undefined {
  const first = page.rows[0]?.cursor ?? '';
  const last = page.rows.at(-1)?.cursor ?? '';
  if (page.startCursor === first && page.endCursor === last) return undefined;
  return {
    code: 'ENVELOPE_CONTRADICTS',
    meta: { startCursor: page.startCursor, endCursor: page.endCursor, firstEdge: first, lastEdge: last },
  };
}

/**
 * Whether the groups come in the order that was asked for, none twice: heights strictly monotone, parties
 * by (first seen, id) where their cursors can be read.
 */
export function checkOrder(
  list: ListName,
  groups: readonly RowGroup[],
  direction: Direction,
): Violation | undefined {
  return list === 'checkpoints' ? checkHeights(groups, direction) : checkParties(groups, direction);
}

function checkHeights(groups: readonly RowGroup[], direction: Direction): Violation | undefined {
  let before: bigint | undefined;
  for (const { group } of groups) {
    const height = BigInt(group);
    const isOnward = before === undefined || (direction === 'up' ? height > before : height < before);
    if (!isOnward) return broken(direction, `${before}`, group);
    before = height;
  }
  return undefined;
}

function checkParties(groups: readonly RowGroup[], direction: Direction): Violation | undefined {
  const seen = new Set<string>();
  let before: PartyCursor | undefined;
  for (const { group, firstSeen } of groups) {
    if (seen.has(group)) return broken(direction, group, group);
    seen.add(group);
    if (before !== undefined && firstSeen !== undefined) {
      const order = compareParties(before, firstSeen);
      if (direction === 'up' ? order >= 0 : order <= 0) return broken(direction, before.id, firstSeen.id);
    }
    before = firstSeen;
  }
  return undefined;
}

function broken(direction: Direction, before: string, after: string): Violation {
  return { code: 'ORDER_BROKEN', meta: { direction, before, after } };
}
