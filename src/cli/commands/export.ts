/** `export`: one party's ledger entries now, and waits. */
import { openApp, type App } from '../../app/app.ts';
import { sourceMissing } from '../../config/environment.ts';
import { errorCode, errorLine, UsageError } from '../../core/errors.ts';
import { worst } from '../../core/verdict.ts';
import { canonicalId, canonicalPartyId, isExportableParty, isHexId } from '../../core/ids.ts';
import { ceilSecond, floorSecond, formatInstant, parseInstant, type Micros } from '../../core/time.ts';
import { EXIT, exitCodeOf, type CommandContext, type CommandResult } from '../context.ts';
import { outputProblem, STDOUT, writeCsv } from '../output/destination.ts';
import { followRun } from '../follow/follow.ts';
import { joinOrCreate } from '../follow/start.ts';
import { chooseParty, openMirror } from '../mirror.ts';
import type { LedgerQuestion } from '../../ledger/ledger-range.ts';
import { formatWritten, type Written } from '../output/format.ts';
import type { Run } from '../../runs/store/run.ts';
import { runSummary } from '../output/summary.ts';
import { runDocument } from '../../runs/run-document.ts';

export interface ExportOptions {
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

export async function exportParty(options: ExportOptions, context: CommandContext): Promise<CommandResult> {
  const given = parse(options, context);
  if (context.config.sourceUrl === undefined) return writeCovered(given, options, context);
  await using app = await openApp(context);
  const wanted = { ...given, partyId: await knownParty(given.partyId, app) };
  // JSON leaves out what is undefined: equal questions have equal parameters.
  const params = {
    assetId: wanted.assetId,
    from: wanted.from === undefined ? undefined : formatInstant(wanted.from),
    to: wanted.to === undefined ? undefined : formatInstant(wanted.to),
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
  const written =
    ended.verdict !== 'failed' && options.out !== undefined
      ? await write(app, wanted, options.out, context)
      : undefined;
  const loaded = await followLoad(app, ended, context);
  const verdict = worst([ended.verdict ?? 'failed', loaded?.verdict ?? 'complete']);
  const document = runDocument(ended);
  const load = loaded && runDocument(loaded);
  const lines = [runSummary(document), load && runSummary(load), written && formatWritten(written)];
  return {
    exitCode: exitCodeOf(verdict, ended.evidence),
    document: { ...document, verdict, load, written },
    // With `--out -` stdout carries the CSV and nothing else.
    text: options.out === STDOUT ? undefined : lines.join(''),
  };
}

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
    return {
      exitCode: EXIT.done,
      document: { kind: 'export', subject: partyId, verdict: 'complete', written },
      text:
        out === STDOUT
          ? undefined
          : `Covered already; nothing was asked of the source.\n${formatWritten(written)}`,
    };
  } catch (error) {
    if (errorCode(error) !== 'LEDGER_NOT_MIRRORED') throw error;
    throw sourceMissing(`not all of the range is covered (${errorLine(error)})`);
  }
}

/** What was published is in the warehouse and the lake when the command ends. */
async function followLoad(app: App, { evidence }: Run, context: CommandContext): Promise<Run | undefined> {
  const loadRunId = evidence['loadRunId'];
  const load = typeof loadRunId === 'string' ? await app.jobs.runs.get(loadRunId) : undefined;
  return load === undefined ? undefined : followRun(app, load, context);
}

/** The source says what it thinks of a whole hex id; any other text means a party that is listed. */
async function knownParty(given: string, app: App): Promise<string> {
  return isHexId(given) ? given : chooseParty(given, await app.jobs.stages.listedParties(given));
}

/** Everything that is wrong, at once. */
function parse(options: ExportOptions, { isJson }: CommandContext): Wanted {
  const problems: string[] = [];
  const show = (text: string): string => JSON.stringify(text.slice(0, 80));
  const partyId = canonicalPartyId(options.party);
  if (partyId === undefined || !isExportableParty(partyId)) {
    problems.push(
      `--party: ${show(options.party)} cannot be exported; give a party id as the source lists it`,
    );
  }
  const assetId = options.asset === undefined ? undefined : canonicalId(options.asset);
  if (options.asset !== undefined && assetId === undefined) {
    problems.push(`--asset: ${show(options.asset)} is no asset id; give 64 hex digits`);
  }
  const instant = (
    name: string,
    text: string | undefined,
    whole: (at: Micros) => Micros,
  ): Micros | undefined => {
    const parsed = text === undefined ? undefined : parseInstant(text);
    if (text !== undefined && parsed === undefined) {
      problems.push(
        `${name}: ${show(text)} is no time; give RFC 3339, such as 2023-05-01T00:00:00Z, or a day`,
      );
    }
    return parsed === undefined ? undefined : whole(parsed);
  };
  const from = instant('--from', options.from, floorSecond);
  const to = instant('--to', options.to, ceilSecond);
  if (from !== undefined && to !== undefined && from >= to) {
    problems.push(
      `--from, --to: ${formatInstant(from)} is not before ${formatInstant(to)}; give a range that is not empty`,
    );
  }
  if (options.out === STDOUT && isJson)
    problems.push('--out -: cannot go with --json, both write to stdout; give a file');
  const unwritable = outputProblem('--out', options.out);
  if (unwritable !== undefined) problems.push(unwritable);
  if (problems.length > 0 || partyId === undefined) throw new UsageError(problems);
  return { partyId, assetId, from, to };
}
