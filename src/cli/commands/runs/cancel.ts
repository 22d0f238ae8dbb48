/** `cancel`: ends a run of any kind, and those below it, at its next safe point. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Reader } from '../../../app/reader.ts';
import { UsageError } from '../../../core/errors.ts';
import type { Run } from '../../../runs/store/run.ts';
import { EXIT, type CommandContext, type CommandResult } from '../../context.ts';
import { findRun, openMirrorReader } from '../../mirror.ts';
import { runDocument } from '../../../runs/run-document.ts';

const POLL_MS = 200;
/** A worker notices within three seconds; what it has in hand is given this long to reach a safe point. */
const WAIT_MAX_MS = 15_000;

export async function cancel(
  { runId: given }: { readonly runId: string },
  context: CommandContext,
): Promise<CommandResult> {
  await using app = await openMirrorReader(context);
  const { runId } = await findRun(app, 'cancel', given);
  const before = await app.runs.requestCancel(runId);
  if (before === undefined) throw new UsageError([`cancel: there is no run ${runId} any more`]);
  const run = await untilEnded(app, runId, context);
  return { exitCode: EXIT.done, document: runDocument(run), text: `${describe(run, before)}\n` };
}

async function untilEnded(app: Reader, runId: string, { signal }: CommandContext): Promise<Run> {
  const startedMs = performance.now();
  for (;;) {
    const run = await app.runs.get(runId);
    if (run === undefined) throw new UsageError([`cancel: there is no run ${runId} any more`]);
    const isOpen = run.state === 'queued' || run.state === 'running';
    if (!isOpen || performance.now() - startedMs > WAIT_MAX_MS) return run;
    await sleep(POLL_MS, undefined, { signal });
  }
}

function describe({ kind, subject, state, verdict }: Run, before: string): string {
  const what = `${kind} ${subject}`;
  if (before === 'done' || before === 'cancelled') return `${what} had ended already: ${verdict ?? before}`;
  if (state === 'cancelled') return `${what}: cancelled; what it committed stays`;
  if (state === 'done') return `${what}: ended by itself meanwhile: ${verdict ?? state}`;
  return `${what}: told to stop; it ends at its next safe point`;
}
