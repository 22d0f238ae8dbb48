/** What the demo says to a person. */
import type { Run } from '../../../runs/store/run.ts';
import { z } from 'zod';
import type { CommandContext } from '../../context.ts';
import { formatCount, formatDuration } from '../../output/format.ts';
import { COMMAND, commandOn } from '../../typed.ts';

/** With --json stdout belongs to the document. */
export function say({ isJson, stdout, stderr }: CommandContext, text: string): void {
  (isJson ? stderr : stdout).write(`${text}\n`);
}

export function summary(
  verdict: string,
  tookMs: number,
  ledgers: number,
  isKept: boolean,
  dataDir: string,
): string {
  const isComplete = verdict === 'complete';
  return [
    '',
    `${isComplete ? 'Done' : 'Ended'}: verdict ${verdict}, in ${formatDuration(tookMs)}.`,
    ...(isComplete
      ? [
          `Every row that the network lists and every entry of ${formatCount(ledgers)} ledgers is in the mirror, and every sum agrees.`,
        ]
      : ['The evidence above says what is missing.']),
    '',
    'Next:',
    `  what can be asked:                ${commandOn(dataDir)} query --list`,
    `  a question of your own:           ${commandOn(dataDir)} query "select count(*) from entries"`,
    ...(isKept ? [] : [`  the same, with the console open:  ${commandOn(dataDir)} demo --keep`]),
    `  a real service:                   SOURCE_URL=https://… ${COMMAND} nightly`,
    `  forget the demo:                  rm -rf '${dataDir}'`,
    '',
  ].join('\n');
}

/** Whose ledgers the night asked for. */
export function ledgersOf({ evidence }: Run): number {
  const asked = z.object({ exports: z.object({ parties: z.number() }) }).safeParse(evidence);
  return asked.success ? asked.data.exports.parties : 0;
}
