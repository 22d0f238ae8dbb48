/** `runs`: what ran and how it ended; with an id, one run with its evidence. */
import { EXIT, type CommandContext, type CommandResult } from '../../context.ts';
import { findRun, openMirrorReader } from '../../mirror.ts';
import { formatAge, formatDuration } from '../../output/format.ts';
import { runReport } from '../../output/report.ts';
import { formatTable } from '../../output/table.ts';
import { runDocument } from '../../../runs/run-document.ts';

export interface RunsOptions {
  readonly runId: string | undefined;
  readonly limit: number;
}

/** The time at which the run was recorded, which its id begins with: enough to tell it from others. */
const PARENT_CHARACTERS = 13;

export async function runs(options: RunsOptions, context: CommandContext): Promise<CommandResult> {
  await using app = await openMirrorReader(context);
  if (options.runId !== undefined) {
    const run = runDocument(await findRun(app, 'runs', options.runId));
    return { exitCode: EXIT.done, document: run, text: runReport(run) };
  }
  const listed = await app.runs.list({ limit: options.limit });
  const now = Date.now();
  const rows = listed.map((run) => {
    const startMs = Date.parse(run.startedAt ?? run.queuedAt);
    const tookMs = (run.finishedAt === null ? now : Date.parse(run.finishedAt)) - startMs;
    return [
      run.runId,
      run.kind,
      run.subject,
      run.parentRunId === null ? '' : `${run.parentRunId.slice(0, PARENT_CHARACTERS)}…`,
      run.verdict ?? run.state,
      formatAge(startMs, now),
      formatDuration(tookMs),
    ];
  });
  const text =
    rows.length === 0
      ? `No runs yet. 'ledger-mirror nightly' starts the first.\n`
      : formatTable(['run', 'kind', 'subject', 'of', 'verdict', 'started', 'took'], rows);
  return { exitCode: EXIT.done, document: listed.map(runDocument), text };
}
