/** `logs`: a run's log lines, whichever process wrote them. */
import { validate as isUuid } from 'uuid';
import { openApp } from '../../app/app.ts';
import { UsageError } from '../../core/errors.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';
import { readableLog } from '../output/log-lines.ts';

const PAGE_LINES = 1_000;
const LINES_MAX = 50_000;

export async function logs(
  { runId }: { readonly runId: string },
  context: CommandContext,
): Promise<CommandResult> {
  if (!isUuid(runId)) {
    throw new UsageError([
      `logs: ${JSON.stringify(runId.slice(0, 80))} is no run id; 'ledger-mirror runs' lists them`,
    ]);
  }
  await using app = await openApp(context);
  const run = await app.jobs.runs.get(runId);
  if (run === undefined)
    throw new UsageError([`logs: there is no run ${runId}; 'ledger-mirror runs' lists them`]);
  const lines: Record<string, unknown>[] = [];
  for (let next: string | undefined = '0'; next !== undefined && lines.length < LINES_MAX;) {
    const page = await app.runLogs.read(runId, PAGE_LINES, next);
    for (const { at, level, message, fields } of page.lines)
      lines.push({ level, time: at, msg: message, ...fields });
    next = page.next;
  }
  const text =
    lines.length === 0
      ? 'No lines are kept of this run.\n'
      : lines.map((line) => readableLog(JSON.stringify(line))).join('');
  return { exitCode: EXIT.done, document: lines, text };
}
