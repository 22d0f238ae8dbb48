/**
 * Finds the ledgers whose record differs from the last statement's, in one pass over what
 * may have changed, and merges them with the records that stay as they are.
 */
import { encodeRecord, recordHash } from './ledger-record.ts';
import type { NightFile } from './night-files.ts';
import { compareLedgers, entryOf, ledgerKey } from './pages.ts';
import {
  type CountedEntry,
  type LedgerName,
  nameKey,
  type ProofStore,
  type RecordRow,
} from './store/proof-store.ts';

/** What a night changes in the records of the last statement. */
export interface LedgerChanges {
  /** The records that are new or different, sorted by party and asset. */
  readonly records: readonly RecordRow[];
  /** The ledgers that the mirror no longer has. */
  readonly removed: readonly LedgerName[];
  /** How many records were added to the night's file. */
  readonly written: number;
}

export interface ChangeScope {
  /**
   * The instant since which records may have changed; null if any of the stored records
   * may differ, in which case all of them are replaced.
   */
  readonly since: string | null;
  /** The statement's `coveredTo`. */
  readonly coveredTo: string | null;
  /**
   * Whether the stored records point into the log's files. If not, every record is added
   * to the file.
   */
  readonly isStoredInLog: boolean;
  /** Receives the text of each new or different record. */
  readonly file: NightFile;
}

/**
 * Reads the ledgers that may have changed, and writes the record of each one that did
 * change to the file.
 */
export async function findChanges(
  { since, coveredTo, isStoredInLog, file }: ChangeScope,
  {
    store,
    signal,
  }: { readonly store: ProofStore; readonly signal: AbortSignal },
): Promise<LedgerChanges> {
  const asked = await store.readChangedLedgers(since, coveredTo);
  const held = new Set<string>();
  const records: RecordRow[] = [];
  let written = 0;
  for await (const batch of store.readRecords(asked, coveredTo)) {
    signal.throwIfAborted();
    for (const { record, stored } of batch) {
      const ledger = { partyId: record.party, assetId: record.asset };
      held.add(nameKey(ledger));
      const text = encodeRecord(record);
      const leaf = recordHash(text).toString('hex');
      const isSame = isStoredInLog && stored?.leaf === leaf;
      // A record that was read from the log's files lacks its rows and its ranges.
      if (isSame && since !== null) continue;
      if (!isSame) written += 1;
      const place = isSame ? stored.place : await file.add(text);
      const { rows, covered } = record;
      records.push({ ...ledger, leaf, rows, covered, place });
    }
  }
  return {
    records: records.toSorted((a, b) => compareLedgers(entry(a), entry(b))),
    removed: asked.filter((ledger) => !held.has(nameKey(ledger))),
    written,
  };
}

/** Yields all records with the changes applied, sorted by party and asset. */
export async function* mergeChanges(
  stored: AsyncIterable<CountedEntry>,
  { records, removed }: Pick<LedgerChanges, 'records' | 'removed'>,
): AsyncGenerator<CountedEntry> {
  const gone = new Set(removed.map(nameKey));
  const changed = records.map((row) => ({
    entry: entry(row),
    rows: BigInt(row.rows),
  }));
  let next = 0;
  for await (const known of stored) {
    let isReplaced = false;
    for (; next < changed.length; next += 1) {
      const change = changed[next];
      const order =
        change === undefined ? 1 : compareLedgers(change.entry, known.entry);
      if (change === undefined || order > 0) break;
      isReplaced ||= order === 0;
      yield change;
    }
    const isGone = gone.size > 0 && gone.has(ledgerKey(known.entry));
    if (!isReplaced && !isGone) yield known;
  }
  yield* changed.slice(next);
}

function entry({ partyId, assetId, leaf, place }: RecordRow) {
  return entryOf(partyId, assetId, leaf, place);
}
