/**
 * Writes the statement of a night: the records of the ledgers that changed, the pages
 * that index them, the statement, and the checkpoint that signs it together with all
 * earlier nights. If a process was killed, the work that it finished is found and not
 * repeated.
 */
import { createHash } from 'node:crypto';
import type { ObjectStore } from '../storage/object-store.ts';
import {
  addStatement,
  openLog,
  type ProofLog,
  publishCheckpoint,
  storedFiles,
} from './log.ts';
import { RootHasher, rootHash } from './merkle.ts';
import {
  type ChangeScope,
  findChanges,
  type LedgerChanges,
  mergeChanges,
} from './night-changes.ts';
import { NightFile, nightFileName } from './night-files.ts';
import { PageBuilder, placeOf, type Place } from './pages.ts';
import { readRecordEntries } from './proof-files.ts';
import { encodeVerifierKey, type SignerKey } from './signed-note.ts';
import {
  encodeStatement,
  type Statement,
  STATEMENT_FORMAT,
  statementPath,
} from './statement.ts';
import {
  type LogRow,
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
  /**
   * This night includes the changes of all transactions that began before this instant.
   */
  readonly settledAt: string;
}

/**
 * Reads the log and checks that it may be continued.
 * @throws PermanentError the errors of `openLog`
 */
export async function openNightLog(deps: ProofDeps): Promise<NightLog> {
  const { store, objects, key, signal } = deps;
  const { remembered, settledAt } = await store.readNightStart();
  const log = await openLog(storedFiles(objects, signal), key, remembered);
  return { ...log, remembered, settledAt };
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

  const since = await synchronizeRecords(log, log.remembered, deps);
  const coveredTo = readCoveredTo(facts);
  const night = log.entries.length;
  const name = nightFileName(night);
  const changes = await writeRecords(name, { since, coveredTo }, deps);
  const tree = await writeTree(name, log, changes, deps);
  const network = await store.readNetwork();
  const statement: Statement = {
    format: STATEMENT_FORMAT,
    mirror: log.key.name,
    night,
    ...facts,
    network,
    lists: await store.sumLists(network.epoch, signal),
    ledgers: { ...tree.ledgers, coveredTo, rowForm: 'values-v1' },
  };
  const text = encodeStatement(statement);
  const grown = await addStatement(log, text, objects, signal);
  const row = logRow(grown, text, log.settledAt);
  if (tree.pages === undefined) await store.writeLog(row);
  else await store.writeNight(row, { ...changes, pages: tree.pages });
  return signLog(grown, changes.written, deps);
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
 * @returns the instant after which records may have changed; null if every record must
 *   be checked again
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

/** Publishes the records that are new or different. */
async function writeRecords(
  name: string,
  scope: Pick<ChangeScope, 'since' | 'coveredTo'>,
  deps: ProofDeps,
): Promise<LedgerChanges> {
  const { objects, signal } = deps;
  await using file = new NightFile(name, true, objects);
  const whole = { ...scope, isStoredInLog: true, file };
  const changes = await findChanges(whole, deps);
  await file.publish(signal);
  return changes;
}

interface WrittenTree {
  readonly ledgers: Pick<
    Statement['ledgers'],
    'count' | 'rows' | 'root' | 'top' | 'levels'
  >;
  /**
   * The location of each page, by the page's hash; undefined if the tree is that of the
   * last statement.
   */
  readonly pages: ReadonlyMap<string, Place> | undefined;
}

/**
 * Publishes the pages that are new. If no ledger changed, the tree is that of the night
 * before, and nothing is read.
 */
async function writeTree(
  name: string,
  { last }: ProofLog,
  changes: LedgerChanges,
  { store, objects, signal }: ProofDeps,
): Promise<WrittenTree> {
  const isSame = changes.records.length === 0 && changes.removed.length === 0;
  if (isSame && last !== undefined)
    return { ledgers: last.statement.ledgers, pages: undefined };

  const known = await store.readPages();
  const pages = new Map<string, Place>();
  await using file = new NightFile(name, false, objects);
  const builder = new PageBuilder(async (hash, text) => {
    const place = known.get(hash) ?? (await file.add(text));
    pages.set(hash, place);
    return place;
  });
  const root = new RootHasher();
  let rows = 0n;
  const stored = store.storedRecords(signal);
  for await (const record of mergeChanges(stored, changes)) {
    rows += record.rows;
    root.add(Buffer.from(record.entry[2], 'hex'));
    await builder.add(record.entry);
  }
  const built = await builder.finish();
  await file.publish(signal);
  const ledgers = {
    ...built,
    count: root.size,
    rows: String(rows),
    root: root.root().toString('hex'),
  };
  return { ledgers, pages };
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
