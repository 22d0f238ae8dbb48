/**
 * Drafts the part of tonight's statement about ledgers before it is written: the records
 * of the last statement, updated with those that have changed since. Nothing is
 * published, and the log's tables are left unchanged.
 */
import { encodeRecord, recordHash } from './ledger-record.ts';
import { type ProofLog, storedFiles } from './log.ts';
import { RootHasher } from './merkle.ts';
import { NightFile, nightFileName } from './night-files.ts';
import {
  type BuiltPages,
  compareLedgers,
  entryOf,
  ledgerKey,
  PageBuilder,
  type PageEntry,
  placePath,
} from './pages.ts';
import type { ProofFiles } from './proof-files.ts';
import { statementEntry } from './statement.ts';
import { nameKey } from './store/proof-store.ts';
import type { ProofDeps } from './write-night.ts';

export interface DraftNight extends AsyncDisposable {
  readonly ledgers: BuiltPages & {
    readonly count: number;
    /** The hash of all records; 64 hex digits. */
    readonly root: string;
  };
  readonly files: ProofFiles;
}

/**
 * Drafts the records and pages of a night in the spool.
 * @param coveredTo the statement's `coveredTo`: the instant up to which every ledger is
 *   covered
 * @throws PermanentError `PROOF_LOG_DAMAGED`
 */
export async function draftNight(
  log: ProofLog,
  coveredTo: string | null,
  deps: ProofDeps,
): Promise<DraftNight> {
  const { objects, signal } = deps;
  await using stack = new AsyncDisposableStack();
  const name = nightFileName(log.entries.length);
  const records = stack.use(await NightFile.open(name, true, objects));
  const pages = stack.use(await NightFile.open(name, false, objects));
  const changes = await writeChanges(log, coveredTo, records, deps);

  const root = new RootHasher();
  const builder = new PageBuilder((_, text) => pages.add(text));
  for await (const entry of mergeChanges(deps, changes)) {
    root.add(Buffer.from(entry[2], 'hex'));
    await builder.add(entry);
  }
  const built = await builder.finish();
  await records.flush();
  await pages.flush();

  const stored = storedFiles(objects, signal);
  const drafts = new Map([
    [placePath([name, 0, 0], true), records],
    [placePath([name, 0, 0], false), pages],
  ]);
  const owned = stack.move();
  return {
    ledgers: { ...built, count: root.size, root: root.root().toString('hex') },
    files: {
      where: stored.where,
      read: async (path, range) => {
        const draft = drafts.get(path);
        if (draft === undefined || range === undefined)
          return stored.read(path, range);
        return draft.read(range);
      },
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/**
 * New entries of the ledgers that may have changed, by ledger; an entry is undefined if
 * the mirror no longer has the ledger.
 */
type Changes = ReadonlyMap<string, PageEntry | undefined>;

async function writeChanges(
  log: ProofLog,
  coveredTo: string | null,
  records: NightFile,
  { store, signal }: ProofDeps,
): Promise<Changes> {
  const known = await store.readLog();
  const last = log.last && statementEntry(log.last.text).toString('hex');
  const isKnown =
    known !== undefined && known.statementSha256 === (last ?? null);
  const since = isKnown ? known.settledAt : null;
  const changed = await store.readChangedLedgers(since, coveredTo);
  const changes = new Map<string, PageEntry | undefined>(
    changed.map((ledger) => [nameKey(ledger), undefined]),
  );
  for await (const batch of store.readRecords(changed, coveredTo)) {
    signal.throwIfAborted();
    for (const record of batch) {
      const text = encodeRecord(record);
      const leaf = recordHash(text).toString('hex');
      const place = await records.add(text);
      const entry = entryOf(record.party, record.asset, leaf, place);
      changes.set(ledgerKey(entry), entry);
    }
  }
  return changes;
}

/** Yields all entries with the changes applied, sorted by party and asset. */
async function* mergeChanges(
  { store, signal }: ProofDeps,
  changes: Changes,
): AsyncGenerator<PageEntry> {
  const added = [...changes.values()]
    .filter((entry) => entry !== undefined)
    .toSorted(compareLedgers);
  let next = 0;
  for await (const known of store.recordEntries(signal)) {
    for (; next < added.length; next += 1) {
      const entry = added[next];
      if (entry === undefined || compareLedgers(entry, known) >= 0) break;
      yield entry;
    }
    if (!changes.has(ledgerKey(known))) yield known;
  }
  yield* added.slice(next);
}
