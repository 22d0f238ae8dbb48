/**
 * Writes the statement of a night: the records of the ledgers that changed, the pages
 * that index them, the statement, and the checkpoint that signs it together with all
 * earlier nights. If a process was killed, the work that it finished is found and not
 * repeated.
 */
import { createHash } from 'node:crypto';
import type { ObjectStore } from '../storage/object-store.ts';
import { encodeRecord, recordHash } from './ledger-record.ts';
import {
  addStatement,
  openLog,
  type ProofLog,
  publishCheckpoint,
  storedFiles,
} from './log.ts';
import { RootHasher, rootHash } from './merkle.ts';
import { NightFile, nightFileName } from './night-files.ts';
import { type BuiltPages, PageBuilder, placeOf, type Place } from './pages.ts';
import { readRecordEntries } from './proof-files.ts';
import { encodeVerifierKey, type SignerKey } from './signed-note.ts';
import {
  encodeStatement,
  type Statement,
  STATEMENT_FORMAT,
  statementPath,
} from './statement.ts';
import {
  type LedgerName,
  type LogRow,
  nameKey,
  type ProofStore,
  type RecordRow,
} from './store/proof-store.ts';

/** The facts from the nightly report that the statement repeats. */
export type NightFacts = Pick<
  Statement,
  | 'runId'
  | 'report'
  | 'source'
  | 'heldAt'
  | 'verdict'
  | 'covers'
  | 'doubts'
  | 'gaps'
>;

export interface ProofDeps {
  readonly store: ProofStore;
  readonly objects: ObjectStore;
  readonly key: SignerKey;
  readonly signal: AbortSignal;
}

/** A written statement, as the run's evidence describes it. */
export interface WrittenStatement {
  /** The statement's index in the log. */
  readonly night: number;
  readonly statement: string;
  /** The root hash of the whole log; 64 hex digits. */
  readonly root: string;
  /** How many ledgers have a changed record. */
  readonly changed: number;
}

/** A log that a night may continue. */
export interface NightLog extends ProofLog {
  /** What the database remembers about the log; undefined before its first night. */
  readonly remembered: LogRow | undefined;
}

/**
 * Reads the log and checks that it may be continued.
 * @throws PermanentError the errors of `openLog`
 */
export async function openNightLog(deps: ProofDeps): Promise<NightLog> {
  const { store, objects, key, signal } = deps;
  const remembered = await store.readLog();
  const log = await openLog(storedFiles(objects, signal), key, remembered);
  return { ...log, remembered };
}

/**
 * Writes the statement of a night whose report has been published.
 * @throws PermanentError the errors of `addStatement`
 */
export async function writeNight(
  facts: NightFacts,
  log: NightLog,
  deps: ProofDeps,
): Promise<WrittenStatement> {
  const { store, objects, signal } = deps;
  const isWritten = log.last?.statement.report.key === facts.report.key;
  if (isWritten) return signWritten(log, deps);

  const settledAt = await store.readSettledAt();
  const since = await synchronizeRecords(log, log.remembered, deps);
  const coveredTo = readCoveredTo(facts);
  const changed = await store.readChangedLedgers(since, coveredTo);
  await store.beginChange();

  const night = log.entries.length;
  const name = nightFileName(night);
  const written = await writeRecords(changed, coveredTo, name, deps);
  const tree = await writePages(name, deps);
  const [network, rows] = await Promise.all([
    store.readNetwork(),
    store.sumRows(),
  ]);
  const statement: Statement = {
    format: STATEMENT_FORMAT,
    mirror: log.key.name,
    night,
    ...facts,
    network,
    lists: await store.sumLists(network.epoch, signal),
    ledgers: {
      count: tree.count,
      rows,
      coveredTo,
      rowForm: 'values-v1',
      root: tree.root,
      top: tree.top,
      levels: tree.levels,
    },
  };
  const text = encodeStatement(statement);
  const grown = await addStatement(log, text, objects, signal);
  // A page that is not recorded here would merely be written again.
  await Promise.all([
    store.writePages(tree.pages),
    store.writeLog(logRow(grown, text, settledAt)),
  ]);
  return signLog(grown, written, deps);
}

/**
 * Signs a log whose last statement was written by an earlier delivery of the run, and
 * records it in the database.
 */
async function signWritten(
  log: ProofLog,
  deps: ProofDeps,
): Promise<WrittenStatement> {
  const { store } = deps;
  const signed = await signLog(log, 0, deps);
  const known = await store.readLog();
  const { size, root } = sizeAndRoot(log);
  if (known?.size !== size || known.root !== root) {
    await store.writeLog({
      keyName: log.key.name,
      size,
      root,
      statementSha256: null,
      settledAt: null,
      publicKey: encodeVerifierKey(log.key),
    });
  }
  return signed;
}

/** Signs a log whose last statement has been written. */
async function signLog(
  log: ProofLog,
  changed: number,
  { objects, signal }: ProofDeps,
): Promise<WrittenStatement> {
  const night = log.entries.length - 1;
  await publishCheckpoint(log, objects, signal);
  const { root } = sizeAndRoot(log);
  return { night, statement: `proof/${statementPath(night)}`, root, changed };
}

/**
 * Makes the database's records match the log's last statement. They may differ from it
 * if the database was restored or a run was killed.
 * @returns the instant since which records may have changed; null if any record may
 *   have changed
 */
async function synchronizeRecords(
  log: ProofLog,
  known: LogRow | undefined,
  { store, objects, signal }: ProofDeps,
): Promise<string | null> {
  const wanted =
    log.last === undefined ? null : sha256(log.last.text).toString('hex');
  if (known !== undefined && known.statementSha256 === wanted)
    return known.settledAt;

  await store.forgetRecords();
  if (log.last === undefined) return null;
  const files = storedFiles(objects, signal);
  let rows: RecordRow[] = [];
  for await (const entry of readRecordEntries(files, log.last.statement)) {
    const [partyId, assetId, leaf] = entry;
    // The log does not contain rows and ranges, so these records are read from the tables
    // again.
    rows.push({
      partyId,
      assetId,
      leaf,
      rows: '0',
      covered: [],
      place: placeOf(entry),
    });
    if (rows.length < 1000) continue;
    await store.writeRecords(rows);
    rows = [];
  }
  await store.writeRecords(rows);
  return null;
}

/**
 * Writes the records that are new or different.
 * @returns how many were written
 */
async function writeRecords(
  changed: readonly LedgerName[],
  coveredTo: string | null,
  name: string,
  { store, objects, signal }: ProofDeps,
): Promise<number> {
  await using file = await NightFile.open(name, true, objects);
  const held = new Set<string>();
  const rows: RecordRow[][] = [];
  let written = 0;
  for await (const records of store.readRecords(changed, coveredTo)) {
    signal.throwIfAborted();
    const names = records.map(({ party, asset }) => ({
      partyId: party,
      assetId: asset,
    }));
    const known = await store.readPlaces(names);
    const batch: RecordRow[] = [];
    for (const record of records) {
      const ledger = { partyId: record.party, assetId: record.asset };
      const key = nameKey(ledger);
      held.add(key);
      const text = encodeRecord(record);
      const leaf = recordHash(text).toString('hex');
      const before = known.get(key);
      const isSame = before?.leaf === leaf;
      if (!isSame) written += 1;
      const place = isSame ? before.place : await file.add(text);
      batch.push({
        ...ledger,
        leaf,
        rows: record.rows,
        covered: record.covered,
        place,
      });
    }
    rows.push(batch);
  }
  await file.publish(objects, signal);
  for (const batch of rows) await store.writeRecords(batch);
  const gone = changed.filter((ledger) => !held.has(nameKey(ledger)));
  if (gone.length > 0) await store.removeRecords(gone);
  return written;
}

interface WrittenTree extends BuiltPages {
  readonly count: number;
  /** The hash of all records; 64 hex digits. */
  readonly root: string;
  /** The location of each page, by the page's hash. */
  readonly pages: ReadonlyMap<string, Place>;
}

async function writePages(
  name: string,
  { store, objects, signal }: ProofDeps,
): Promise<WrittenTree> {
  const known = await store.readPages();
  const pages = new Map<string, Place>();
  await using file = await NightFile.open(name, false, objects);
  const builder = new PageBuilder(async (hash, text) => {
    const place = known.get(hash) ?? (await file.add(text));
    pages.set(hash, place);
    return place;
  });
  const root = new RootHasher();
  for await (const entry of store.recordEntries(signal)) {
    root.add(Buffer.from(entry[2], 'hex'));
    await builder.add(entry);
  }
  const built = await builder.finish();
  await file.publish(objects, signal);
  return {
    ...built,
    count: root.size,
    root: root.root().toString('hex'),
    pages,
  };
}

function logRow(log: ProofLog, text: string, settledAt: string): LogRow {
  return {
    keyName: log.key.name,
    ...sizeAndRoot(log),
    statementSha256: sha256(text).toString('hex'),
    settledAt,
    publicKey: encodeVerifierKey(log.key),
  };
}

function sizeAndRoot({ leaves }: ProofLog) {
  return { size: leaves.length, root: rootHash(leaves).toString('hex') };
}

function readCoveredTo({ covers }: NightFacts): string | null {
  const { coveredTo } = covers;
  return typeof coveredTo === 'string' ? coveredTo : null;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
