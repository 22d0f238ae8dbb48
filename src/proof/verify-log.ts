/**
 * Checks that the proof log is the one that this mirror wrote, and that the last
 * statement agrees with the database. Any later change, deliberate or not, contradicts a
 * hash that the key has signed.
 */
import { createHash } from 'node:crypto';
import { errorLine, PermanentError } from '../errors/errors.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { decodeCheckpoint } from './checkpoint.ts';
import { findChange, type LedgerChange } from './ledger-change.ts';
import {
  encodeRecord,
  type LedgerRecord,
  recordHash,
} from './ledger-record.ts';
import {
  checkContinues,
  type LoggedStatement,
  openLog,
  type ProofLog,
  storedFiles,
} from './log.ts';
import { type PageEntry, ledgerKey } from './pages.ts';
import {
  type ProofFiles,
  readRecord,
  readRecordEntries,
  readStatement,
} from './proof-files.ts';
import type { SignerKey } from './signed-note.ts';
import { nameKey, type ProofStore } from './store/proof-store.ts';

const PROBLEMS_MAX = 100;
const LEDGERS_AT_ONCE = 500;

/** A file or ledger that does not agree with the log. */
export interface LogProblem {
  readonly code: string;
  /** The file or the ledger concerned. */
  readonly subject: string;
  readonly message: string;
}

export interface LogFindings {
  /** How many nights are in the log. */
  readonly nights: number;
  /** How many statements were read, each with its report. */
  readonly statements: number;
  /** How many ledgers were compared with the last statement. */
  readonly ledgers: number;
  readonly problemCount: number;
  readonly problems: readonly LogProblem[];
}

export interface LogChecks {
  readonly store: ProofStore;
  readonly objects: ObjectStore;
  readonly key: SignerKey;
  readonly signal: AbortSignal;
  /**
   * Whether to also check every statement with its report, and each ledger of the last
   * statement.
   */
  readonly isDeep: boolean;
  /** A checkpoint that was kept elsewhere, with or without its signatures. */
  readonly kept?: string | undefined;
}

/**
 * Verifies the log.
 * @throws RetryableError if the store or the database does not answer
 */
export async function verifyLog(checks: LogChecks): Promise<LogFindings> {
  const { store, objects, key, signal, isDeep, kept } = checks;
  const problems = new Problems();
  const files = storedFiles(objects, signal);
  // Read the database's record of the log once, and before the log itself. If a night
  // is written in between, this record is older than the log's last statement, and more
  // ledgers are then expected to differ.
  const remembered = await store.readLog();
  const log = await problems.of('proof/checkpoint', () =>
    openLog(files, key, remembered),
  );
  if (log === undefined)
    return problems.findings({ nights: 0, statements: 0, ledgers: 0 });

  const nights = log.entries.length;
  if (log.signedSize < nights) {
    problems.add({
      code: 'PROOF_CHECKPOINT_BEHIND',
      subject: 'proof/checkpoint',
      message:
        `it signs ${log.signedSize} nights, and the log has ${nights}: an older checkpoint ` +
        'was put back, or the last night was killed before it signed',
    });
  }
  if (kept !== undefined) {
    await problems.of('the kept checkpoint', async () =>
      checkContinues(decodeCheckpoint(kept), log.leaves, files.where),
    );
  }
  const first = isDeep ? 0 : Math.max(0, nights - 1);
  for (let night = first; night < nights; night += 1)
    await checkNight(night, log, { files, objects, signal, problems });
  const ledgers =
    isDeep && log.last !== undefined
      ? await checkLedgers(log.last, remembered?.settledAt ?? null, {
          files,
          store,
          signal,
          problems,
        })
      : 0;
  return problems.findings({ nights, statements: nights - first, ledgers });
}

/** Collects the problems. Transient errors are rethrown. */
class Problems {
  readonly #found: LogProblem[] = [];
  #count = 0;

  add(problem: LogProblem): void {
    this.#count += 1;
    if (this.#found.length < PROBLEMS_MAX) this.#found.push(problem);
  }

  /**
   * Runs a check and collects the problem that it finds.
   * @returns undefined if the check found a problem
   */
  async of<Result>(
    subject: string,
    check: () => Promise<Result>,
  ): Promise<Result | undefined> {
    try {
      return await check();
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const { code } = error;
      this.add({ code, subject, message: errorLine(error) });
      return undefined;
    }
  }

  findings(
    counts: Pick<LogFindings, 'nights' | 'statements' | 'ledgers'>,
  ): LogFindings {
    return { ...counts, problemCount: this.#count, problems: this.#found };
  }
}

interface Checking {
  readonly files: ProofFiles;
  readonly signal: AbortSignal;
  readonly problems: Problems;
}

/**
 * Checks that a statement is the one in the log, and that its report is the report that
 * the statement names.
 */
async function checkNight(
  night: number,
  log: ProofLog,
  {
    files,
    objects,
    signal,
    problems,
  }: Checking & { readonly objects: ObjectStore },
): Promise<void> {
  signal.throwIfAborted();
  const read = await problems.of(`night ${night}`, () =>
    readStatement(files, night, log.entries[night]),
  );
  if (read === undefined) return;
  const { key, sha256 } = read.statement.report;
  await problems.of(key, async () => {
    const hash = createHash('sha256');
    for await (const chunk of await objects.read(key, signal))
      hash.update(chunk as Buffer);
    if (hash.digest('hex') === sha256) return;
    problems.add({
      code: 'PROOF_REPORT_DIFFERS',
      subject: key,
      message: `it is not the report that the statement of night ${night} names`,
    });
  });
}

/**
 * Compares every ledger of the last statement with the tables. If nothing has changed a
 * ledger since, its record must be the same. Otherwise the ledger must begin with the
 * entries of the record, and new entries may only follow them. This matters because after
 * a rebuild every ledger counts as changed, and its objects may have been forged before
 * the rebuild.
 * @returns how many ledgers were compared
 */
async function checkLedgers(
  last: LoggedStatement,
  settledAt: string | null,
  deps: LedgerChecking,
): Promise<number> {
  const { files, store, signal, problems } = deps;
  const { coveredTo } = last.statement.ledgers;
  const changed = await store.readChangedLedgers(settledAt, coveredTo);
  const mayDiffer = new Set(changed.map(nameKey));
  const comparison = { coveredTo, mayDiffer };
  let compared = 0;
  let batch: PageEntry[] = [];
  const entries = readRecordEntries(files, last.statement);
  await problems.of('the pages of the last statement', async () => {
    for await (const entry of entries) {
      signal.throwIfAborted();
      batch.push(entry);
      if (batch.length < LEDGERS_AT_ONCE) continue;
      compared += await compareBatch(batch, comparison, deps);
      batch = [];
    }
    compared += await compareBatch(batch, comparison, deps);
  });
  return compared;
}

interface LedgerChecking extends Checking {
  readonly store: ProofStore;
}

interface Comparison {
  /** The statement's `coveredTo`. */
  readonly coveredTo: string | null;
  /** The keys of the ledgers that may have changed since the statement. */
  readonly mayDiffer: ReadonlySet<string>;
}

/** @returns how many of the ledgers were compared */
async function compareBatch(
  entries: readonly PageEntry[],
  comparison: Comparison,
  deps: LedgerChecking,
): Promise<number> {
  const { store, problems } = deps;
  const names = entries.map(([partyId, assetId]) => ({ partyId, assetId }));
  const held = new Map<string, LedgerRecord>();
  for await (const records of store.readRecords(names, comparison.coveredTo)) {
    for (const { record } of records) {
      const key = nameKey({ partyId: record.party, assetId: record.asset });
      held.set(key, record);
    }
  }
  let compared = 0;
  for (const entry of entries) {
    const subject = nameOf(entry);
    // A ledger that cannot be read must not keep the others from being compared.
    const change = await problems.of(subject, () =>
      compareLedger(entry, held.get(ledgerKey(entry)), comparison, deps),
    );
    if (change === undefined || change.kind === 'not compared') continue;
    compared += 1;
    if (change.kind !== 'changed') continue;
    const { reason: message } = change;
    problems.add({ code: 'PROOF_LEDGER_DIFFERS', subject, message });
  }
  return compared;
}

async function compareLedger(
  entry: PageEntry,
  now: LedgerRecord | undefined,
  { coveredTo, mayDiffer }: Comparison,
  { files, store, signal }: LedgerChecking,
): Promise<LedgerChange> {
  const { record: stated } = await readRecord(files, entry);
  return mayDiffer.has(ledgerKey(entry))
    ? findChange({ stated, now, coveredTo }, { store, signal })
    : compareRecord(entry, now);
}

function nameOf([party, asset]: PageEntry): string {
  return asset === null ? party : `${party} in asset ${asset}`;
}

/** Compares the record of a ledger that nothing has changed since the statement. */
function compareRecord(
  [, , leaf]: PageEntry,
  now: LedgerRecord | undefined,
): LedgerChange {
  const held = now && recordHash(encodeRecord(now)).toString('hex');
  if (held === leaf) return { kind: 'grown' };
  return {
    kind: 'changed',
    reason:
      'the database holds other sums of this ledger than the last statement, ' +
      'and nothing has changed it since',
  };
}
