/** The questions that the demo asks of the lake, and how their answers are shown. */
import { PassThrough } from 'node:stream';
import { json as readJson } from 'node:stream/consumers';
import { z } from 'zod';
import type { App } from '../../../app/app.ts';
import { scratchDirOf } from '../../../app/data-dir.ts';
import { openLake, type Lake } from '../../../lake/query/lake.ts';
import { inquiry, readyQuestion } from '../../../lake/query/questions.ts';
import { runQuery } from '../../../lake/query/query.ts';
import type { CommandContext } from '../../context.ts';
import { formatTable, type Cell } from '../../output/table.ts';

/** Tells a person. */
export type Say = (text: string) => void;

const QUESTIONS = [
  { name: 'top-parties', asks: 'Who has the most entries?', rowsShown: 5 },
  { name: 'daily-flows', asks: 'What moved each day?', rowsShown: 5 },
  { name: 'cadence', asks: 'How regular are the checkpoints?', rowsShown: 5 },
] as const;

export async function answer(
  app: App,
  context: CommandContext,
  say: Say,
): Promise<Readonly<Record<string, unknown>>> {
  await using lake = await openLake(
    { objects: app.store, scratchDir: scratchDirOf(context.config) },
    context.signal,
  );
  const answers: Record<string, unknown> = {};
  for (const { name, asks, rowsShown } of QUESTIONS) {
    const rows = await ask(lake, name, context);
    say(`\n${asks}  (query ${name})`);
    say(answerTable(rows, rowsShown, context.stdout.columns));
    answers[name] = rows;
  }
  return answers;
}

const answerDocument = z.object({
  rows: z.array(z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))),
});
type AnswerRows = z.output<typeof answerDocument>['rows'];

async function ask(lake: Lake, name: string, context: CommandContext): Promise<AnswerRows> {
  const question = readyQuestion(name);
  if (question === undefined) throw new RangeError(`no such question: ${name}`);
  const { sql, parameters } = inquiry(question);
  const output = new PassThrough();
  const [document] = await Promise.all([
    readJson(output),
    runQuery(lake, sql, { format: 'json', parameters }, output, context.signal).finally(() => output.end()),
  ]);
  return answerDocument.parse(document).rows;
}

/** Ids are cut to what tells them apart: `query` shows them whole. */
function answerTable(rows: AnswerRows, rowsMax: number, columns: number | undefined): string {
  const header = Object.keys(rows[0] ?? {});
  const short = (cell: AnswerRows[number][string] | undefined): Cell => {
    // Numbers and truth as `query` writes them: whether one comes as a number or as text says nothing to a reader.
    if (typeof cell === 'number' || typeof cell === 'boolean') return String(cell);
    if (typeof cell !== 'string') return cell;
    return /^[0-9a-f]{64}$/.test(cell) ? `${cell.slice(0, 8)}…` : cell;
  };
  const cells = rows.map((row) => header.map((name) => short(row[name])));
  return formatTable(header, cells, { rowsMax, columns }).trimEnd();
}
