/**
 * Rules that a source must keep. Each breach opens a doubt: while one is open, the list
 * is not complete.
 */
import { heightOf, isOddKey, withoutOddKeys } from '../ledger/ids.ts';
import { PermanentError } from '../errors/errors.ts';
import type { ListedRow, ListName, Page, SyncRequest } from './ports.ts';

/**
 * Something was seen that forbids `complete` until an audit finds nothing of the kind.
 */
export class DoubtError extends PermanentError {}

/** The source cannot be read to its end, although nothing that it shows is wrong. */
export class EndNotShown extends PermanentError {}

/**
 * The node that answers has not come as far as an earlier claim of this network: what it
 * lacks says nothing. The next run asks again.
 */
export class SourceBehind extends EndNotShown {
  constructor(list: ListName, claimed: bigint, now: bigint) {
    super(
      `Cannot call ${list} complete: the source is behind (block ${now}, and an ` +
        `earlier answer was of ${claimed}); the next run asks again`,
      {
        code: 'SOURCE_BEHIND',
        meta: { list, claimed: `${claimed}`, now: `${now}` },
      },
    );
  }
}

/**
 * Each reading found rows between those of the one before it. The list is mirrored as it
 * was shown last, and nothing says yet that this is all of it.
 */
export function readingsDiffer(
  list: ListName,
  { readings }: { readonly readings: number },
): EndNotShown {
  return new EndNotShown(
    `Cannot call ${list} complete: ${readings} readings in a row each found rows ` +
      'between those of the one before; the next sync reads the list again',
    { code: 'READINGS_DIFFER', meta: { list, readings } },
  );
}

/**
 * Everything that is held is older than everything that an audit found: a gap, if the
 * source is of the same network, which is not proven yet.
 */
export class NetworkUnproven extends DoubtError {
  constructor(list: ListName) {
    const state = 'the source shows no row of those that are held';
    super(
      `Cannot call ${list} complete: ${state}, and no party that is held; if that is ` +
        'right, sync with --accept-new-network',
      { code: 'OTHER_NETWORK', meta: { list } },
    );
  }
}

/** The source does not show again what is held. */
export class OverlapMissing extends DoubtError {
  readonly state: string;

  constructor(list: ListName, state: string) {
    super(describeDoubt(list, state), {
      code: 'OVERLAP_MISSING',
      meta: { list },
    });
    this.state = state;
  }
}

export function doubt(
  list: ListName,
  code: string,
  state: string,
  seen: object = {},
): DoubtError {
  return new DoubtError(describeDoubt(list, state), {
    code,
    meta: { list, ...seen },
  });
}

function describeDoubt(list: ListName, state: string): string {
  return (
    `Cannot call ${list} complete: ${state}; the next sync reads the whole list ` +
    'again'
  );
}

/** The source shows no row of those that are held. */
export function otherNetwork(list: ListName, seen: object = {}): DoubtError {
  return new DoubtError(
    `Cannot call ${list} complete: the source shows no row of those that are held; ` +
      'where that is right, sync with --accept-new-network',
    { code: 'OTHER_NETWORK', meta: { list, ...seen } },
  );
}

export function seenRowTwice(
  list: ListName,
  keys: readonly string[],
): DoubtError {
  return doubt(list, 'ROW_TWICE', 'the source lists a row twice', {
    amongKeys: keys.slice(0, 5),
  });
}

/** The code of the doubt that says so; it keeps no other row from being claimed. */
export const ROW_NOT_UNDERSTOOD = 'ROW_NOT_UNDERSTOOD';

/** Rows that are listed, and not understood: the others are mirrored. */
export function rowsNotUnderstood(list: ListName, seen: object): DoubtError {
  return doubt(
    list,
    ROW_NOT_UNDERSTOOD,
    'it has rows that are not understood, beside those that are mirrored',
    seen,
  );
}

/**
 * @throws DoubtError if a page contradicts itself. `endCursor` is never used: with the
 *   public service it leads to a wrong page.
 */
export function checkPage(list: ListName, page: Page): void {
  const { rows, hasNextPage, startCursor, endCursor } = page;
  const firstEdge = rows[0]?.cursor;
  const lastEdge = rows.at(-1)?.cursor;
  if (firstEdge === undefined) {
    if (!hasNextPage) return;
    throw doubt(
      list,
      'EMPTY_PAGE_PROMISES_MORE',
      'an empty page promises a next one',
    );
  }
  if (
    (startCursor ?? firstEdge) === firstEdge &&
    (endCursor ?? lastEdge) === lastEdge
  )
    return;
  const seen = { startCursor, endCursor, firstEdge, lastEdge };
  throw doubt(
    list,
    'ENVELOPE_CONTRADICTS',
    'pageInfo names other cursors than the edges',
    seen,
  );
}

/** New rows oldest first: heights never go down, a party comes once. @throws DoubtError */
export function checkOrder(
  list: ListName,
  lastKey: string | undefined,
  fresh: readonly ListedRow[],
): void {
  const keys = fresh.map(({ key }) => key);
  if (list === 'parties') {
    if (new Set(keys).size < keys.length) throw seenRowTwice(list, keys);
    return;
  }
  // A row that is not understood has no height.
  let before = lastKey !== undefined && isOddKey(lastKey) ? undefined : lastKey;
  for (const after of withoutOddKeys(keys)) {
    if (before !== undefined && heightOf(after) < heightOf(before)) {
      throw doubt(
        list,
        'HEIGHTS_OUT_OF_ORDER',
        'heights go down, oldest first',
        {
          before,
          after,
        },
      );
    }
    before = after;
  }
}

/** What an audit found, compared with what was held and confirmed. */
export interface AuditTotals {
  readonly served: bigint;
  /** Rows that were claimed in an earlier reading. */
  readonly confirmed: bigint;
  /** How many of the confirmed rows the audit shows. */
  readonly common: bigint;
  /** Rows between or below common ones that were not held. */
  readonly missed: bigint;
  /**
   * Confirmed rows that the source serves no longer, those at its old end not counted.
   */
  readonly gone: bigint;
  /** How many of those gone are older than everything that the audit shows. */
  readonly pruned: bigint;
  /** Of those gone, the ones that are newer than every row that is common. */
  readonly goneNewest: bigint;
  /** Rows that no claimed reading ever held, and that the audit does not show either. */
  readonly unconfirmed: bigint;
  readonly isAllNewer: boolean;
}

/** Rows that may disappear without a doubt, however short the list. */
const SHRUNK_ROWS_MAX = 2n;
const SHRUNK_SHARE = 10n;

export type Accepted = Pick<SyncRequest, 'acceptNewNetwork' | 'acceptShrunk'>;

/** What else is known when an audit is judged. */
export interface AuditContext {
  /** Rows of the largest list that was ever claimed, and not accepted as shrunk since. */
  readonly largestClaimed: bigint;
  /**
   * An earlier audit lacked the newest rows too, and the source has shown a later block
   * since: they are gone, and the source does not lag.
   */
  readonly isMissingConfirmed: boolean;
  /** The block that the audit is as of, if the source shows it. */
  readonly height: string | null;
}

/** The code of the doubt that a second audit at a later block confirms. */
export const NEWEST_ROWS_MISSING = 'NEWEST_ROWS_MISSING';

/**
 * - `gap`: everything held is older than everything served
 * - `new network`: nothing is in common, and a person has said that this is right
 */
export type AuditFinding = 'same' | 'gap' | 'new network' | DoubtError;

/** What an audit that has read to the end means for what is mirrored. */
export function decideAudit(
  list: ListName,
  found: AuditTotals,
  accepted: Accepted,
  { largestClaimed, isMissingConfirmed, height }: AuditContext,
): AuditFinding {
  const { served, confirmed, common } = found;
  const refuse = (code: string, state: string, flag: string): DoubtError =>
    new DoubtError(
      `Cannot call ${list} complete: ${state}; where that is right, sync with ${flag}`,
      {
        code,
        meta: {
          list,
          served: `${served}`,
          held: `${confirmed}`,
          gone: `${found.gone}`,
        },
      },
    );
  const refuseShrunk = (state: string): AuditFinding =>
    accepted.acceptShrunk
      ? 'same'
      : refuse('LIST_SHRANK', state, '--accept-shrunk');
  if (confirmed === 0n) return 'same';
  if (served === 0n) {
    return refuseShrunk(
      `the source shows an empty list, where ${confirmed} rows are held`,
    );
  }
  if (common === 0n) {
    if (list === 'checkpoints' && found.isAllNewer) return 'gap';
    if (accepted.acceptNewNetwork) return 'new network';
    if (list === 'parties' && accepted.acceptShrunk) return 'same';
    return refuse(
      'OTHER_NETWORK',
      'the source shows no row of those that are held',
      '--accept-new-network',
    );
  }
  // Nodes that lag lack exactly the newest rows, however few.
  const isUnconfirmed = found.goneNewest > 0n && !isMissingConfirmed;
  if (isUnconfirmed && accepted.acceptShrunk !== true) {
    return doubt(
      list,
      NEWEST_ROWS_MISSING,
      `the newest ${found.goneNewest} rows that are held are not shown`,
      { rows: `${found.goneNewest}`, height },
    );
  }
  // Old checkpoints fall out of the source's retention; parties do not.
  const goneNow = list === 'parties' ? found.gone + found.pruned : found.gone;
  // A tenth at each audit would be everything in the end: the largest list counts.
  const eroded = list === 'parties' ? largestClaimed - served : 0n;
  const gone = goneNow > eroded ? goneNow : eroded;
  const base = largestClaimed > confirmed ? largestClaimed : confirmed;
  if (gone <= SHRUNK_ROWS_MAX || gone * SHRUNK_SHARE <= base) return 'same';
  return refuseShrunk(`the source serves ${gone} of ${base} rows no longer`);
}
