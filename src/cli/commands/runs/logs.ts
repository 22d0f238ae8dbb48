/** `logs`: the log lines of a run and of those below it, whichever process wrote them. */
import { EXIT, type CommandContext, type CommandResult } from '../../context.ts';
import { findRun, openMirrorReader } from '../../mirror.ts';
import { byTime, type RunLinePage } from '../../../runs/store/run-log-store.ts';
import { readableLog } from '../../output/log-lines.ts';

const PAGE_LINES = 1_000;
const LINES_MAX = 50_000;

export async function logs(
  { runId: given }: { readonly runId: string },
  context: CommandContext,
): Promise<CommandResult> {
  await using app = await openMirrorReader(context);
  const { runId } = await findRun(app, 'logs', given);
  const found: RunLinePage['lines'][number][] = [];
  for (let next: string | undefined = '0'; next !== undefined && found.length < LINES_MAX;) {
    const page = await app.status.logs(runId, PAGE_LINES, next);
    found.push(...page.lines);
    next = page.next;
  }
  const lines = byTime(found).map(({ at, level, message, fields }) => ({
    level,
    time: at,
    msg: message,
    ...fields,
  }));
  const text =
    lines.length === 0
      ? 'No lines are kept of this run.\n'
      : lines.map((line) => readableLog(JSON.stringify(line))).join('');
  return { exitCode: EXIT.done, document: lines, text };
}
