/**
 * A mirror of a mirror ends its nightly run by comparing itself with its source's signed
 * statement. That takes one request if both match. Ledgers that differ are requested
 * again, and their completeness is in doubt until both mirrors agree.
 */
import type { Config } from '../config/environment.ts';
import { errorCode, errorLine, PermanentError } from '../errors/errors.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import { formatCount, formatPlural } from '../format/format.js';
import { earlier } from '../ledger/ranges.ts';
import type { Warehouse } from '../postgres/database.ts';
import { type DraftNight, draftNight } from '../proof/draft-night.ts';
import {
  checkLatest,
  decodeLatest,
  type LatestAnswer,
  type SeenLog,
} from '../proof/latest.ts';
import type { ProofLog } from '../proof/log.ts';
import type { ProofFiles } from '../proof/proof-files.ts';
import { decodeVerifierKey } from '../proof/signed-note.ts';
import {
  compareWithStatement,
  type DifferingLedger,
  type LedgerComparison,
  rangeOfMonths,
} from '../proof/source-comparison.ts';
import type { Statement } from '../proof/statement.ts';
import { ProofStore } from '../proof/store/proof-store.ts';
import {
  type RememberedSource,
  type SourceDoubt,
  SourceLogStore,
} from '../proof/store/source-log.ts';
import { openNightLog, type ProofDeps } from '../proof/write-night.ts';
import type { AskAgain } from '../runs/job.ts';
import type { ProofSource } from '../source/proof-source.ts';
import { readCompleteness } from '../status/store/completeness.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { type Micros, nowMicros, parseInstant } from '../time/time.ts';
import { openProofKey } from './night-proof.ts';

/**
 * Maximum number of ledgers that one nightly run requests again. The others stay in doubt
 * until later nightly runs request them.
 */
const ASKED_AGAIN_MAX = 50;
const NAMED_MAX = 100;
const NAMED_IN_MESSAGE = 5;

export interface SourceStatementDeps {
  readonly config: Pick<
    Config,
    'proofKey' | 'proofName' | 'dataDir' | 'sourceProofKey'
  >;
  readonly warehouse: Warehouse;
  readonly objects: ObjectStore;
  readonly proof: ProofSource;
  /** The address of the source, without credentials. */
  readonly sourceUrl: string;
  readonly signal: AbortSignal;
  /** Requests a range of a ledger from the source again. */
  readonly askAgain: AskAgain;
  /** Loads newly published segments into the tables. */
  readonly load: () => Promise<void>;
}

/** The nightly run to compare. */
export interface ComparedNight {
  readonly runId: string;
  /** The parties that the mirror should have; undefined means all. */
  readonly wanted: readonly string[] | undefined;
}

/**
 * Compares this mirror with its source's statement.
 * @returns the outcome with its evidence; undefined if the source does not serve
 *   statements, which is not a problem, or if this mirror's own log cannot be continued
 */
export async function compareWithSource(
  night: ComparedNight,
  deps: SourceStatementDeps,
): Promise<VerdictWithEvidence | undefined> {
  const store = new SourceLogStore(deps.warehouse.db);
  const remembered = await readRemembered(night, store, deps.sourceUrl);
  const answer = await askLatest(remembered?.size ?? 0, deps);
  if (typeof answer === 'string')
    return describeSilence(answer, remembered, deps.config.sourceProofKey);

  const own = await openOwnLog(deps);
  if (own === undefined) return undefined;
  try {
    const stated = await believe(answer, remembered, store, deps);
    return await compareNight(night, stated, own, { store, ...deps });
  } catch (error) {
    deps.signal.throwIfAborted();
    const code = errorCode(error);
    const problem = errorLine(error);
    // A source that is unreachable now does not contradict its earlier statements.
    if (code.startsWith('SOURCE_'))
      return { verdict: 'incomplete', evidence: { code, problem } };
    if (!(error instanceof PermanentError)) throw error;
    await store.replaceDoubts(
      [{ subject: 'ledgers', code, message: problem }],
      night.runId,
    );
    return { verdict: 'suspicious', evidence: { code, problem } };
  }
}

/** This mirror's own log, as the comparison needs it. */
interface OwnLog {
  readonly log: ProofLog;
  readonly proofDeps: ProofDeps;
}

/**
 * Opens this mirror's own log.
 * @returns undefined if the log cannot be continued; the end of the nightly run reports
 *   why
 */
async function openOwnLog({
  config,
  warehouse,
  objects,
  signal,
}: SourceStatementDeps): Promise<OwnLog | undefined> {
  try {
    const key = await openProofKey(config, warehouse);
    const store = new ProofStore(warehouse);
    const proofDeps = { store, objects, key, signal };
    return { log: await openNightLog(proofDeps), proofDeps };
  } catch (error) {
    if (error instanceof PermanentError) return undefined;
    throw error;
  }
}

/**
 * Returns the records about this source. Records about a source at another address prove
 * nothing about this one, so they are deleted, together with the doubts that they caused.
 */
async function readRemembered(
  { runId }: ComparedNight,
  store: SourceLogStore,
  sourceUrl: string,
): Promise<RememberedSource | undefined> {
  const remembered = await store.read();
  if (remembered === undefined || remembered.sourceUrl === sourceUrl)
    return remembered;
  await store.forget();
  await store.replaceDoubts([], runId);
  return undefined;
}

/**
 * Requests the latest statement.
 * @returns the statement, or a short reason why there is none
 */
async function askLatest(
  from: number,
  { proof, signal }: SourceStatementDeps,
): Promise<LatestAnswer | string> {
  try {
    const text = await proof.latest(from, signal);
    return decodeLatest(text) ?? 'its response is not a statement';
  } catch (error) {
    signal.throwIfAborted();
    return errorCode(error);
  }
}

/**
 * Reports a missing statement, but only if the source has served statements before or its
 * key is configured.
 */
function describeSilence(
  reason: string,
  remembered: RememberedSource | undefined,
  pinned: string | undefined,
): VerdictWithEvidence | undefined {
  if (remembered === undefined && pinned === undefined) return undefined;
  const problem =
    pinned === undefined
      ? `the source has served statements before, and served none tonight (${reason})`
      : `SOURCE_PROOF_KEY is set, and the source served no statement (${reason})`;
  return {
    verdict: pinned === undefined ? 'complete' : 'incomplete',
    evidence: { code: 'PROOF_SOURCE_SILENT', problem },
  };
}

/** The statement that the source signed, and the key that signed it. */
interface Stated {
  readonly statement: Statement;
  readonly publicKey: string;
}

/**
 * Verifies the response, and records how far the source's log extends. The key is the
 * configured one or, if none is configured, the first one that the source presented.
 * @throws PermanentError if the response is not signed with that key, or does not
 *   continue the log
 */
async function believe(
  answer: LatestAnswer,
  remembered: RememberedSource | undefined,
  store: SourceLogStore,
  { config: { sourceProofKey: pinned }, sourceUrl }: SourceStatementDeps,
): Promise<Stated> {
  const publicKey = pinned ?? remembered?.publicKey ?? answer.key;
  if (publicKey === null) {
    throw new PermanentError(
      "Cannot believe the source's statement: it does not show the key that signed it; set SOURCE_PROOF_KEY to the line that the source's keeper gives you",
      { code: 'PROOF_SOURCE_KEY' },
    );
  }
  if (answer.key !== null && answer.key !== publicKey) {
    throw new PermanentError(
      `Cannot believe the source's statement: it is signed by ${answer.key.slice(0, 300)}, and ` +
        `${pinned === undefined ? 'before it was' : 'SOURCE_PROOF_KEY is'} ${publicKey}; ` +
        "ask the source's keeper, and set SOURCE_PROOF_KEY to the new key if it is right",
      { code: 'PROOF_SOURCE_KEY' },
    );
  }
  const isOfSameKey = remembered?.publicKey === publicKey;
  const seen = isOfSameKey ? seenLog(remembered) : undefined;
  const key = decodeVerifierKey(publicKey);
  const { checkpoint, statement } = checkLatest(answer, key, seen);
  const { size } = checkpoint;
  const root = checkpoint.root.toString('hex');
  await store.remember({ sourceUrl, publicKey, size, root });
  return { statement, publicKey };
}

function seenLog({ size, root }: RememberedSource): SeenLog {
  return { size, root: Buffer.from(root, 'hex') };
}

async function compareNight(
  { runId, wanted }: ComparedNight,
  { statement, publicKey }: Stated,
  own: OwnLog,
  deps: SourceStatementDeps & { readonly store: SourceLogStore },
): Promise<VerdictWithEvidence> {
  const files = rememberingFiles(deps.proof, deps.signal);
  const compare = () => compareOnce(statement, files, wanted, own, deps);
  const first = await compare();
  const asked = first.ledgers.differing.slice(0, ASKED_AGAIN_MAX);
  for (const { party, months } of asked) {
    const { from, to } = rangeOfMonths(months.map(({ month }) => month));
    await deps.askAgain(party, { from, to: earlier(to, first.coveredTo) });
  }
  if (asked.length > 0) await deps.load();
  const last = asked.length > 0 ? await compare() : first;

  const { differing, behind, movedOn, unexamined } = last.ledgers;
  const still = new Set(differing.map(({ party }) => party));
  const repaired = asked.filter(({ party }) => !still.has(party));
  const { mirror, network, night, heldAt } = statement;
  const doubts = describeDoubts(last, mirror);
  await deps.store.replaceDoubts(doubts, runId);

  const isSame =
    doubts.length === 0 &&
    behind + movedOn + unexamined === 0 &&
    last.isOfSameHeight;
  return {
    verdict: doubts.length === 0 ? 'complete' : 'suspicious',
    evidence: {
      isSame,
      says: describeOutcome(statement, last, doubts, wanted),
      mirror,
      publicKey,
      night,
      height: network.height,
      heldAt,
      ...(asked.length === 0
        ? {}
        : { askedAgain: asked.length, repaired: namesOf(repaired) }),
      ...(differing.length === 0
        ? {}
        : {
            differing: differing.length,
            ledgers: differing.slice(0, NAMED_MAX),
          }),
      ...(last.lists.length === 0 ? {} : { lists: last.lists }),
      ...countsOf({ behind, movedOn, unexamined }),
    },
  };
}

interface Compared {
  readonly ledgers: LedgerComparison;
  /** The lists that differ although both mirrors know the same height. */
  readonly lists: readonly ('parties' | 'checkpoints')[];
  /** The instant up to which all of this mirror's ledgers are covered. */
  readonly coveredTo: Micros;
  /**
   * Whether both mirrors know the same height, in which case their lists must be the
   * same.
   */
  readonly isOfSameHeight: boolean;
}

async function compareOnce(
  statement: Statement,
  files: ProofFiles,
  wanted: readonly string[] | undefined,
  { log, proofDeps }: OwnLog,
  { warehouse, signal }: SourceStatementDeps,
): Promise<Compared> {
  const { store } = proofDeps;
  const { coveredTo } = await readCompleteness(warehouse.db);
  await using draft: DraftNight = await draftNight(log, coveredTo, proofDeps);
  const ledgers = await compareWithStatement(
    { ledgers: { ...draft.ledgers, coveredTo }, files: draft.files },
    { ledgers: statement.ledgers, files },
    wanted,
  );
  const { epoch, height } = await store.readNetwork();
  const isOfSameHeight = height === statement.network.height;
  const sums = isOfSameHeight ? await store.sumLists(epoch, signal) : undefined;
  const lists = (['parties', 'checkpoints'] as const).filter((list) => {
    const held = sums?.[list];
    const stated = statement.lists[list];
    return (
      held !== undefined &&
      (held.rows !== stated.rows || held.digest !== stated.digest)
    );
  });
  const reached = parseInstant(coveredTo ?? '') ?? nowMicros();
  return { ledgers, lists, coveredTo: reached, isOfSameHeight };
}

/** Caches the source's files, which never change, so that none is requested twice. */
function rememberingFiles(proof: ProofSource, signal: AbortSignal): ProofFiles {
  const read = new Map<string, Promise<Buffer | undefined>>();
  return {
    where: proof.where,
    read: (path, range) => {
      const name = `${path} ${range?.start}-${range?.end}`;
      const known = read.get(name) ?? proof.read(path, range, signal);
      read.set(name, known);
      return known;
    },
  };
}

function describeDoubts(
  { ledgers: { differing }, lists }: Compared,
  mirror: string,
): SourceDoubt[] {
  const code = 'PROOF_SOURCE_DIFFERS';
  const parties = namesOf(differing);
  const doubts: SourceDoubt[] = lists.map((subject) => ({
    subject,
    code,
    message: `the list is not what ${mirror} stated of the same height`,
  }));
  if (differing.length > 0) {
    const more = differing.length - NAMED_IN_MESSAGE;
    const named =
      parties.slice(0, NAMED_IN_MESSAGE).join(', ') +
      (more > 0 ? ` and ${formatCount(more)} more` : '');
    doubts.push({
      subject: 'ledgers',
      code,
      message: `not what ${mirror} stated, also when asked for again: ${named}`,
      parties,
    });
  }
  return doubts;
}

/** Describes the outcome in one sentence; the evidence has the figures. */
function describeOutcome(
  { mirror, network: { height } }: Statement,
  { ledgers, isOfSameHeight }: Compared,
  doubts: readonly SourceDoubt[],
  wanted: readonly string[] | undefined,
): string {
  const asOf = height === null ? '' : ` as of height ${height}`;
  if (doubts.length > 0) return `not the same as ${mirror}${asOf}`;
  const { behind, movedOn, unexamined } = ledgers;
  const open = behind + movedOn + unexamined;
  const among = wanted === undefined ? '' : ` in the configured parties`;
  const but =
    open === 0
      ? ''
      : `, but for ${formatPlural(open, 'ledger')} that cannot be judged tonight`;
  const lists = isOfSameHeight
    ? ''
    : '; the lists are of other heights and were not compared';
  return `the same as ${mirror}${asOf}, proven${among}${but}${lists}`;
}

function namesOf(ledgers: readonly DifferingLedger[]): readonly string[] {
  return ledgers.slice(0, NAMED_MAX).map(({ party }) => party);
}

/** Drops zero counts from the evidence. */
function countsOf(
  counts: Readonly<Record<string, number>>,
): Record<string, number> {
  return Object.fromEntries(
    Object.entries(counts).filter(([, count]) => count > 0),
  );
}
