/** `status`: is the mirror whole, how fresh is it, what needs a person. */
import { glance, type MirrorStatus } from '../../api/glance.ts';
import { openApp } from '../../app/app.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';
import { formatAge, formatBytes, formatCount } from '../format.ts';
import { formatTable } from '../table.ts';

export async function status(_options: object, context: CommandContext): Promise<CommandResult> {
  await using app = await openApp(context);
  const found = glance(await app.status.facts());
  return { exitCode: EXIT.done, document: { ...found }, text: describe(found, Date.now()) };
}

function describe(found: MirrorStatus, nowMs: number): string {
  const streams = found.streams.map((stream) => [
    stream.name,
    stream.verdict ?? 'not yet',
    stream.checkedAt === null ? '' : formatAge(Date.parse(stream.checkedAt), nowMs),
    stream.asOfBlock ?? '',
    stream.asOfTime?.slice(0, 19).replace('T', ' ') ?? '',
    formatCount(BigInt(stream.rows)),
  ]);
  const { ledger } = found;
  const lines = [
    found.sentence,
    ...(found.sourceUrl === null ? [] : [`Source: ${found.sourceUrl}`]),
    '',
    formatTable(['stream', 'verdict', 'checked', 'as of block', 'as of (UTC)', 'rows'], streams).trimEnd(),
    '',
    `Ledgers: ${formatCount(BigInt(ledger.parties))} parties in ${formatCount(BigInt(ledger.segments))} segments, ${formatBytes(BigInt(ledger.bytes))}` +
      (ledger.notLoaded === '0' ? '' : `, ${formatCount(BigInt(ledger.notLoaded))} segments not loaded yet`),
    ...(found.openRuns === '0' ? [] : [`Runs under way: ${found.openRuns}`]),
    ...found.attention.flatMap(({ what, why, todo }) => ['', `! ${what}: ${why}`, `  ${todo}`]),
    '',
  ];
  return lines.join('\n');
}
