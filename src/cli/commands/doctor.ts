/** `doctor`: checks the configuration and everything it points to. */
import { examine } from '../../app/doctor.ts';
import { createLog } from '../../core/log.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';

const MARK = { ok: 'ok     ', warning: 'warning', wrong: 'WRONG  ', skipped: 'skipped' } as const;

export async function doctor(_options: object, context: CommandContext): Promise<CommandResult> {
  // Each finding says what a warning of the log would.
  const findings = await examine({ ...context, log: createLog('error') });
  const isWrong = findings.some((finding) => finding.state === 'wrong');
  const text = findings.map(({ what, state, detail }) => `${MARK[state]}  ${what}: ${detail}\n`).join('');
  return { exitCode: isWrong ? EXIT.wrong : EXIT.done, document: { findings }, text };
}
