/** What a command answers that did one run. */
import { runDocument } from '../runs/run-document.ts';
import type { Run } from '../runs/store/run.ts';
import { exitCodeOf, type CommandResult } from './context.ts';
import { runSummary } from './output/summary.ts';

export function runResult(ended: Run): CommandResult {
  const document = runDocument(ended);
  return { exitCode: exitCodeOf(ended.verdict, ended.evidence), document, text: runSummary(document) };
}
