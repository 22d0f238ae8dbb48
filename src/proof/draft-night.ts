/**
 * Drafts the part of tonight's statement about ledgers before it is written: the records
 * of the last statement, updated with those that have changed since. Nothing is
 * published, and the log's tables are left unchanged.
 */
import {
  type LedgerChanges,
  findChanges,
  mergeChanges,
} from './night-changes.ts';
import { type ProofLog, storedFiles } from './log.ts';
import { RootHasher } from './merkle.ts';
import { NightFile, nightFileName } from './night-files.ts';
import { type BuiltPages, PageBuilder, placePath } from './pages.ts';
import type { ProofFiles } from './proof-files.ts';
import { statementEntry } from './statement.ts';
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
  const { objects, signal, store } = deps;
  await using stack = new AsyncDisposableStack();
  const name = nightFileName(log.entries.length);
  const records = stack.use(new NightFile(name, true, objects));
  const pages = stack.use(new NightFile(name, false, objects));
  const changes = await writeChanges(log, coveredTo, records, deps);

  const root = new RootHasher();
  const builder = new PageBuilder((_, text) => pages.add(text));
  const stored = store.storedRecords(signal);
  for await (const { entry } of mergeChanges(stored, changes)) {
    root.add(Buffer.from(entry[2], 'hex'));
    await builder.add(entry);
  }
  const built = await builder.finish();
  await records.flush();
  await pages.flush();

  const published = storedFiles(objects, signal);
  const drafts = new Map([
    [placePath([name, 0, 0], true), records],
    [placePath([name, 0, 0], false), pages],
  ]);
  const owned = stack.move();
  return {
    ledgers: { ...built, count: root.size, root: root.root().toString('hex') },
    files: {
      where: published.where,
      read: async (path, range) => {
        const draft = drafts.get(path);
        if (draft === undefined || range === undefined)
          return published.read(path, range);
        return draft.read(range);
      },
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function writeChanges(
  log: ProofLog,
  coveredTo: string | null,
  file: NightFile,
  deps: ProofDeps,
): Promise<LedgerChanges> {
  const { remembered } = await deps.store.readNightStart();
  const last = log.last && statementEntry(log.last.text).toString('hex');
  const isKnown =
    remembered !== undefined && remembered.statementSha256 === (last ?? null);
  const since = isKnown ? remembered.settledAt : null;
  return findChanges({ since, coveredTo, isStoredInLog: isKnown, file }, deps);
}
