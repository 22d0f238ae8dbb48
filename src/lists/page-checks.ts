/**
 * Rules that a source must follow. A violation opens a doubt, and while a doubt is
 * open, the list does not count as complete.
 */
import { heightOf, isOddKey, withoutOddKeys } from '../ledger/ids.ts';
import { PermanentError } from '../errors/errors.ts';
import type { ListedRow, ListName, Page, SyncRequest } from './ports.ts';

/** Reports a finding that rules out `complete` until an audit no longer finds it. */
export class DoubtError extends PermanentError {}

/** The list cannot be read to its end, although the source has shown nothing wrong. */
export class EndNotShown extends PermanentError {}

/**
 * The responding node has not reached the block of an earlier claim about this network.
 * If rows are missing from its response, that proves nothing. The next run repeats the
 * request.
 */
export class SourceBehind extends EndNotShown {
  constructor(list: ListName, claimed: bigint, now: bigint) {
    super(
      `Cannot call ${list} complete: the source is behind (block ${now}, and an ` +
        `earlier answer was of ${claimed}); the next run requests it again`,
      {
        code: 'SOURCE_BEHIND',
        meta: { list, claimed: `${claimed}`, now: `${now}` },
      },
    );
  }
}

/**
 * Returns the error for a list in which each reading found new rows between the rows of
 * the previous one. The mirror has the rows of the last reading, but nothing proves yet
 * that they are the whole list.
 */
export function readingsDiffer(
  list: ListName,
  { readings }: { readonly readings: number },
): EndNotShown {
  return new EndNotShown(
    `Cannot call ${list} complete: of ${readings} readings in a row, each differs from ` +
      'the one before; the next sync reads the list again',
    { code: 'READINGS_DIFFER', meta: { list, readings } },
  );
}

/**
 * Every stored row is older than every row that an audit found. That is a gap if the
 * source still serves the same network, but this is not proven yet.
 */
export class NetworkUnproven extends DoubtError {
  constructor(list: ListName) {
    const state = 'the source shows none of the rows that are held';
    super(
      `Cannot call ${list} complete: ${state}, and no party that is held; if that is ` +
        'right, sync with --accept-new-network',
      { code: 'OTHER_NETWORK', meta: { list } },
    );
  }
}

/** The source no longer shows rows that are stored. */
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

/**
 * The oldest confirmed rows are missing from an audit. They have expired if no node of
 * the source shows an older row than the audit, but this is not proven yet.
 */
export class ExpiryUnproven extends DoubtError {
  /** The oldest row of the audit. */
  readonly oldestKey: string;

  constructor(list: ListName, oldestKey: string) {
    super(describeDoubt(list, 'the oldest rows that are held are not shown'), {
      code: 'OLDEST_ROWS_MISSING',
      meta: { list, oldestKey },
    });
    this.oldestKey = oldestKey;
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

/** Returns the doubt for a source that shows none of the stored rows. */
export function otherNetwork(list: ListName, seen: object = {}): DoubtError {
  return new DoubtError(
    `Cannot call ${list} complete: the source shows none of the rows that ` +
      'are held; if that is right, sync with --accept-new-network',
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

/**
 * Code of the doubt about rows that could not be parsed. It does not prevent a claim
 * about the other rows.
 */
export const ROW_NOT_UNDERSTOOD = 'ROW_NOT_UNDERSTOOD';

/**
 * Returns a doubt about rows that the mirror cannot parse. The other rows are still
 * mirrored.
 */
export function rowsNotUnderstood(list: ListName, seen: object): DoubtError {
  return doubt(
    list,
    ROW_NOT_UNDERSTOOD,
    'it has rows that cannot be parsed besides those that are mirrored',
    seen,
  );
}

/**
 * Checks that a page does not contradict itself. `endCursor` is never used for paging:
 * with the public service it leads to a wrong page.
 * @throws DoubtError if the page contradicts itself
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
    'pageInfo and the edges have different cursors',
    seen,
  );
}

/**
 * Checks new rows, oldest first: heights must never decrease, and a party must be
 * listed only once.
 * @throws DoubtError
 */
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
  // A row that cannot be parsed has no height.
  let before = lastKey !== undefined && isOddKey(lastKey) ? undefined : lastKey;
  for (const after of withoutOddKeys(keys)) {
    if (before !== undefined && heightOf(after) < heightOf(before)) {
      throw doubt(
        list,
        'HEIGHTS_OUT_OF_ORDER',
        'heights decrease, oldest first',
        {
          before,
          after,
        },
      );
    }
    before = after;
  }
}

/** The rows that an audit found, compared with the stored and the confirmed rows. */
export interface AuditTotals {
  readonly served: bigint;
  /** Rows that an earlier reading claimed. */
  readonly confirmed: bigint;
  /** How many of the confirmed rows the audit found. */
  readonly common: bigint;
  /** Rows that were not stored, although they lie between or below common ones. */
  readonly missed: bigint;
  /**
   * Confirmed rows that the source no longer serves, not counting those at the oldest
   * end of the list.
   */
  readonly gone: bigint;
  /**
   * Confirmed rows that the source no longer serves, older than every row of the audit.
   */
  readonly pruned: bigint;
  /** Confirmed rows that the source no longer serves, newer than every common row. */
  readonly goneNewest: bigint;
  /**
   * Rows that no claimed reading ever contained and that the audit did not find either.
   */
  readonly unconfirmed: bigint;
  readonly isAllNewer: boolean;
}

/**
 * Returns how many confirmed rows the source has removed. Old checkpoints expire from the
 * source; parties do not.
 */
export function countRemoved(
  list: ListName,
  { gone, pruned }: Pick<AuditTotals, 'gone' | 'pruned'>,
): bigint {
  return list === 'parties' ? gone + pruned : gone;
}

/**
 * Maximum number of rows that may disappear, even from a short list, before a doubt is
 * opened.
 */
const SHRUNK_ROWS_MAX = 2n;
const SHRUNK_SHARE = 10n;

export type Accepted = Pick<SyncRequest, 'acceptNewNetwork' | 'acceptShrunk'>;

/** Further facts that an audit is judged by. */
export interface AuditContext {
  /**
   * The largest number of rows that was claimed since an operator last accepted that
   * the list shrank.
   */
  readonly largestClaimed: bigint;
  /**
   * Whether an earlier audit also lacked the newest rows, and the source has since
   * served a later block. The rows are then really gone: a lagging node would have
   * caught up.
   */
  readonly isMissingConfirmed: boolean;
  /**
   * The block that the source had reached at the time of the audit, if it reported one.
   */
  readonly height: string | null;
}

/** Code of the doubt that a second audit, at a later block, confirms. */
export const NEWEST_ROWS_MISSING = 'NEWEST_ROWS_MISSING';

/**
 * The outcome of an audit.
 * - `gap`: everything stored is older than everything served
 * - `new network`: no stored row is still served, and an operator has confirmed that
 *   this is right
 */
export type AuditFinding = 'same' | 'gap' | 'new network' | DoubtError;

/** Decides what a finished audit means for the mirrored rows. */
export function decideAudit(
  list: ListName,
  found: AuditTotals,
  accepted: Accepted,
  { largestClaimed, isMissingConfirmed, height }: AuditContext,
): AuditFinding {
  const { served, confirmed, common } = found;
  const refuse = (code: string, state: string, flag: string): DoubtError =>
    new DoubtError(
      `Cannot call ${list} complete: ${state}; if that is right, sync with ${flag}`,
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
      `the source shows an empty list, although ${confirmed} rows are held`,
    );
  }
  if (common === 0n) {
    if (list === 'checkpoints' && found.isAllNewer) return 'gap';
    if (accepted.acceptNewNetwork) return 'new network';
    if (list === 'parties' && accepted.acceptShrunk) return 'same';
    return refuse(
      'OTHER_NETWORK',
      'the source shows none of the rows that are held',
      '--accept-new-network',
    );
  }
  // The newest rows, few or many, are exactly what a lagging node lacks.
  const isUnconfirmed = found.goneNewest > 0n && !isMissingConfirmed;
  if (isUnconfirmed && accepted.acceptShrunk !== true) {
    return doubt(
      list,
      NEWEST_ROWS_MISSING,
      `the newest ${found.goneNewest} rows that are held are not shown`,
      { rows: `${found.goneNewest}`, height },
    );
  }
  const goneNow = countRemoved(list, found);
  // A list that lost a tenth of its rows at each audit would eventually be empty, so
  // losses are measured against the largest list that was claimed.
  const eroded = list === 'parties' ? largestClaimed - served : 0n;
  const gone = goneNow > eroded ? goneNow : eroded;
  const base = largestClaimed > confirmed ? largestClaimed : confirmed;
  if (gone <= SHRUNK_ROWS_MAX || gone * SHRUNK_SHARE <= base) return 'same';
  return refuseShrunk(`the source serves ${gone} of ${base} rows no longer`);
}
