/** `export`: one party's ledger entries now, and waits. */
import { openApp, type App } from '../../app/app.ts';
import { sourceMissing } from '../../config/environment.ts';
import { errorCode, errorLine, UsageError } from '../../core/errors.ts';
import { worst } from '../../core/verdict.ts';
import { canonicalId, canonicalPartyId, isExportableParty, isHexId } from '../../core/ids.ts';
import { ceilSecond, floorSecond, formatInstant, parseInstant, type Micros } from '../../core/time.ts';
import { exitCodeOf, type CommandContext, type CommandResult, type Handler } from '../context.ts';
import { followRun, joinOrCreate } from '../follow.ts';
import { outputProblems, STDOUT, writeCsv } from '../output/destination.ts';
import { chooseParty, openMirror } from '../mirror.ts';
import type { LedgerQuestion } from '../../ledger/ledger-range.ts';
import { formatWritten, type Written } from '../output/format.ts';
import { runSummary } from '../output/run-text.ts';
import { runDocument } from '../../runs/run-document.ts';
import type { Run } from '../../runs/store/run-store.ts';

interface ExportOptions {
  readonly party: string;
  readonly asset?: string;
  readonly from?: string;
  readonly to?: string;
  readonly out?: string;
  /** What is covered in the range is not believed, and asked for anew. */
  readonly again: boolean;
  /** `--no-load`: loading is left to the next nightly run. */
  readonly load: boolean;
}

interface Wanted {
  readonly partyId: string;
  readonly assetId: string | undefined;
  readonly from: Micros | undefined;
  readonly to: Micros | undefined;
}

const exportParty: Handler<ExportOptions> = async (options, context) => {
  const given = parse(options, context);
  if (context.config.sourceUrl === undefined) return writeCovered(given, options, context);
  await using app = await openApp(context);
  const wanted = { ...given, partyId: await knownParty(given.partyId, app) };
  const tell = (at: Micros | undefined) => (at === undefined ? undefined : formatInstant(at));
  // JSON leaves out what is undefined: equal questions have equal parameters.
  const params = {
    assetId: wanted.assetId,
    from: tell(wanted.from),
    to: tell(wanted.to),
    again: options.again ? true : undefined,
    load: options.load ? undefined : false,
  };
  const { run, isJoined } = await joinOrCreate(app, { kind: 'export', subject: wanted.partyId, params });
  let ended: Run;
  try {
    ended = await followRun(app, run, context);
  } catch (error) {
    // Nobody waits for it any more, so the source need not answer it; unless others asked for it too.
    if (context.signal.aborted && !isJoined) await app.jobs.runs.requestCancel(run.runId);
    throw error;
  }
  const isWritable = ended.verdict !== 'failed' && options.out !== undefined;
  const written = isWritable ? await write(app, wanted, options.out, context) : undefined;
  // What was published is in the warehouse and the lake when the command ends.
  const { loadRunId } = ended.evidence;
  const load = typeof loadRunId === 'string' ? await app.jobs.runs.get(loadRunId) : undefined;
  const loaded = load && (await followRun(app, load, context));
  const verdict = worst([ended.verdict ?? 'failed', loaded?.verdict ?? 'complete']);
  const [document, loading] = [runDocument(ended), loaded && runDocument(loaded)];
  return {
    exitCode: exitCodeOf(verdict, ended.evidence),
    document: { ...document, verdict, load: loading, written },
    // With `--out -` stdout carries the CSV and nothing else.
    text:
      options.out === STDOUT
        ? undefined
        : [runSummary(document), loading && runSummary(loading), written && formatWritten(written)].join(''),
  };
};

function write(app: App, range: LedgerQuestion, out: string, context: CommandContext): Promise<Written> {
  return writeCsv(app.jobs.stages.readLedger(range, context.signal), out, context);
}

/**
 * Without a source: what the mirror holds already, where that is all that is wanted.
 * @throws UsageError that says why the source is needed
 */
async function writeCovered(
  given: Wanted,
  { out, again }: ExportOptions,
  context: CommandContext,
): Promise<CommandResult> {
  if (again) throw sourceMissing('--again asks the source');
  if (out === undefined) throw sourceMissing('an export without --out asks the source');
  if (given.to === undefined)
    throw sourceMissing('an export without --to reaches up to the present, which only the source knows');
  await using app = await openMirror(context);
  const partyId = await knownParty(given.partyId, app);
  try {
    const written = await write(app, { ...given, partyId, isProofNeeded: true }, out, context);
    const text = `Covered already; nothing was asked of the source.\n${formatWritten(written)}`;
    return {
      document: { kind: 'export', subject: partyId, verdict: 'complete', written },
      text: out === STDOUT ? undefined : text,
    };
  } catch (error) {
    if (errorCode(error) !== 'LEDGER_NOT_MIRRORED') throw error;
    throw sourceMissing(`not all of the range is covered (${errorLine(error)})`);
  }
}

/** The source says what it thinks of a whole hex id; any other text means a party that is listed. */
async function knownParty(given: string, app: App): Promise<string> {
  return isHexId(given) ? given : chooseParty(given, await app.jobs.stages.listedParties(given));
}

/** Everything that is wrong, at once. */
function parse(options: ExportOptions, { isJson }: CommandContext): Wanted {
  const problems: string[] = [];
  /** Reads an option where it is given. */
  const read = <Value>(
    name: 'party' | 'asset' | 'from' | 'to',
    toValue: (text: string) => Value | undefined,
    problem: string,
  ): Value | undefined => {
    const text = options[name];
    const value = text === undefined ? undefined : toValue(text);
    if (text !== undefined && value === undefined)
      problems.push(`--${name}: ${JSON.stringify(text.slice(0, 80))} ${problem}`);
    return value;
  };
  const noTime = 'is no time; give RFC 3339, such as 2023-05-01T00:00:00Z, or a day';
  const partyId = read(
    'party',
    (text) => [canonicalPartyId(text)].find((id) => id !== undefined && isExportableParty(id)),
    'cannot be exported; give a party id as the source lists it',
  );
  const assetId = read('asset', canonicalId, 'is no asset id; give 64 hex digits');
  const [from, to] = [read('from', parseInstant, noTime), read('to', parseInstant, noTime)];
  const range = { from: from && floorSecond(from), to: to && ceilSecond(to) };
  if (range.from !== undefined && range.to !== undefined && range.from >= range.to)
    problems.push(
      `--from, --to: ${formatInstant(range.from)} is not before ${formatInstant(range.to)}; give a range that is not empty`,
    );
  if (options.out === STDOUT && isJson)
    problems.push('--out -: cannot go with --json, both write to stdout; give a file');
  problems.push(...outputProblems('--out', options.out));
  if (problems.length > 0 || partyId === undefined) throw new UsageError(problems);
  return { partyId, assetId, ...range };
}

export { exportParty as export };
