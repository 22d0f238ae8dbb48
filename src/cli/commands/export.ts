/** `export`: exports one party's ledger entries now and waits for the result. */
import { openApp, type App } from '../../app/app.ts';
import { sourceMissing } from '../../config/environment.ts';
import { errorCode, errorLine, UsageError } from '../../errors/errors.ts';
import { worst } from '../../errors/verdict.ts';
import {
  canonicalId,
  canonicalPartyId,
  isExportableParty,
  isHexId,
} from '../../ledger/ids.ts';
import {
  ceilSecond,
  floorSecond,
  formatInstant,
  type Micros,
  nowMicros,
} from '../../time/time.ts';
import { readTypedRange } from '../../time/typed-range.ts';
import { exitCodeOf, type CommandContext, type Handler } from '../context.ts';
import { followRun, joinOrCreate } from '../follow.ts';
import {
  formatWritten,
  outputProblems,
  STDOUT,
  type Written,
  writeCsv,
} from '../output/destination.ts';
import { chooseParty, openMirror } from '../mirror.ts';
import { describeMissing } from '../../ledger/missing-range.ts';
import type { LedgerQuery } from '../../ledger/ledger-range.ts';
import { runSummary } from '../output/run-text.ts';
import { describeRun } from '../../runs/run-document.ts';

interface ExportOptions {
  readonly party: string;
  readonly asset?: string;
  readonly from?: string;
  readonly to?: string;
  /** A whole month, as an alternative to `from` and `to`. */
  readonly month?: string;
  readonly out?: string;
  /** Whether to fetch the range again even if it is already covered. */
  readonly again: boolean;
  /**
   * Whether to load the exported segments. `--no-load` leaves that to the next nightly
   * run.
   */
  readonly load: boolean;
}

const exportParty: Handler<ExportOptions> = async (options, context) => {
  const given = parse(options, context);
  if (context.config.sourceUrl === undefined)
    return writeCovered(given, options, context);
  await using app = await openApp(context);
  await app.ownership.refuseStrange(context.signal);
  const wanted = { ...given, partyId: await knownParty(given.partyId, app) };
  const tell = (at: Micros | undefined) =>
    at === undefined ? undefined : formatInstant(at);
  // JSON omits undefined values, so equal requests have equal parameters.
  const params = {
    assetId: wanted.assetId,
    from: tell(wanted.from),
    to: tell(wanted.to),
    again: options.again ? true : undefined,
    load: options.load ? undefined : false,
  };
  const { run, isJoined } = await joinOrCreate(app, {
    kind: 'export',
    subject: wanted.partyId,
    params,
  });
  const ended = await followRun(app, run, context).catch(
    async (error: unknown) => {
      // The user has stopped waiting, so cancel the export, unless another command is
      // waiting for it too.
      if (context.signal.aborted && !isJoined)
        await app.jobs.runs.requestCancel(run.runId);
      throw error;
    },
  );
  const isWritable = ended.verdict !== 'failed' && options.out !== undefined;
  const found = isWritable
    ? await writeFound(wanted, options.out, app, context)
    : undefined;
  const missing = found?.missing ?? [];
  // Wait for the load as well, so that the published rows are in the warehouse and the
  // lake when the command ends.
  const { loadRunId } = ended.evidence;
  const load =
    typeof loadRunId === 'string'
      ? await app.jobs.runs.get(loadRunId)
      : undefined;
  const loaded = load && (await followRun(app, load, context));
  const verdict = worst([
    ended.verdict ?? 'failed',
    loaded?.verdict ?? 'complete',
    missing.length === 0 ? 'complete' : 'incomplete',
  ]);
  const document = describeRun(ended);
  const loading = loaded && describeRun(loaded);
  return {
    exitCode: exitCodeOf(verdict, ended.evidence),
    document: {
      ...document,
      verdict,
      load: loading,
      written: found?.written,
      missing: missing.length === 0 ? undefined : missing,
    },
    // With `--out -`, stdout carries only the CSV.
    text:
      options.out === STDOUT
        ? undefined
        : [
            runSummary(document),
            loading && runSummary(loading),
            found && formatWritten(found.written),
          ].join(''),
  };
};

/**
 * Writes the part of the ledger that the mirror has after the export. If the export could
 * not fetch some ranges, they are reported on stderr and in the document, and the exit
 * code is not 0.
 */
async function writeFound(
  wanted: LedgerQuery,
  out: string,
  app: App,
  context: CommandContext,
): Promise<{ written: Written; missing: readonly string[] }> {
  const query = { ...wanted, isPartial: true };
  const reading = await app.jobs.stages.openLedger(query, context.signal);
  const written = await writeCsv(reading.rows(), out, context);
  const missing = reading.missing.map(describeMissing);
  for (const range of missing)
    context.notices.warn(`Missing in ${out}: nothing is known ${range}`);
  return { written, missing };
}

/**
 * Serves an export without a source, if the mirror already covers the whole requested
 * range.
 * @throws UsageError that explains why the source is needed
 */
async function writeCovered(
  given: LedgerQuery,
  { out, again, month }: ExportOptions,
  context: CommandContext,
) {
  if (again)
    throw sourceMissing('--again asks the source', 'leave out --again');
  if (out === undefined)
    throw sourceMissing(
      'an export without --out asks the source',
      'give --out FILE, which writes what the mirror already has',
    );
  if (given.to === undefined)
    throw month === undefined
      ? sourceMissing(
          'an export without --to reaches up to the present, which only the source knows',
          'give --to, such as --to yesterday',
        )
      : sourceMissing(
          `the month ${month} is not over, so its end is only known by the source`,
          'give --from and --to instead of --month, such as --to yesterday',
        );
  await using app = await openMirror(context);
  const partyId = await knownParty(given.partyId, app);
  try {
    const question = { ...given, partyId, isProofNeeded: true };
    const reading = await app.jobs.stages.openLedger(question, context.signal);
    const written = await writeCsv(reading.rows(), out, context);
    const text = `Covered already; nothing was asked of the source.\n${formatWritten(written)}`;
    return {
      document: {
        kind: 'export',
        subject: partyId,
        verdict: 'complete',
        written,
      },
      text: out === STDOUT ? undefined : text,
    };
  } catch (error) {
    if (errorCode(error) !== 'LEDGER_NOT_MIRRORED') throw error;
    throw sourceMissing(
      `not all of the range is covered (${errorLine(error)})`,
      'give a range that is',
    );
  }
}

/**
 * Returns a complete hex id unchanged, because only the source can tell whether it
 * exists. Anything else must match a listed party.
 */
async function knownParty(given: string, app: App): Promise<string> {
  return isHexId(given)
    ? given
    : chooseParty(given, await app.jobs.stages.listedParties(given));
}

/**
 * Reads the options.
 * @throws UsageError that lists all problems at once
 */
function parse(
  { party, asset, out, ...times }: ExportOptions,
  { isJson }: CommandContext,
): LedgerQuery {
  const quote = (text = '') => JSON.stringify(text.slice(0, 80));
  const partyId = canonicalPartyId(party) ?? '';
  const assetId = asset === undefined ? undefined : canonicalId(asset);
  const range = readTypedRange(
    { start: times.from, end: times.to, month: times.month },
    { start: '--from', end: '--to' },
    nowMicros(),
  );
  const from = range.start === undefined ? undefined : floorSecond(range.start);
  const to = range.end === undefined ? undefined : ceilSecond(range.end);
  const problems = [
    !isExportableParty(partyId) &&
      `--party: ${quote(party)} cannot be exported; give a party id as the source ` +
        'lists it',
    asset !== undefined &&
      assetId === undefined &&
      `--asset: ${quote(asset)} is not an asset id; give 64 hex digits`,
    ...range.problems,
    out === STDOUT &&
      isJson &&
      '--out -: cannot go with --json, both write to stdout; give a file',
    ...outputProblems('--out', out),
  ].filter((problem) => problem !== false);
  if (problems.length > 0) throw new UsageError(problems);
  return { partyId, assetId, from, to };
}

export { exportParty as export };
