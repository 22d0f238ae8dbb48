/** The questions that the demo asks of the lake, and how their answers are shown. */
import { PassThrough } from 'node:stream';
import { json as readJson } from 'node:stream/consumers';
import type { App } from '../../../app/app.ts';
import { inquiry, READY_QUESTIONS } from '../../../lake/query/questions.ts';
import { openLake } from '../../../lake/query/lake.ts';
import { runQuery } from '../../../lake/query/query.ts';
import type { CommandContext } from '../../context.ts';
import { formatTable } from '../../output/table.ts';

/** Tells a person. */
export type Say = (text: string) => void;
/** A row as `query --format json` writes it. */
type Row = Readonly<Record<string, string | number | boolean | null>>;

const QUESTIONS = new Map([
  ['top-parties', 'Who has the most entries?'],
  ['daily-flows', 'What moved each day?'],
  ['cadence', 'How regular are the checkpoints?'],
]);
const ROWS_SHOWN_MAX = 5;

/** @returns all rows of each answer, by the name of its question */
export async function answer(
  { lake: { objects, scratchDir } }: App,
  { signal, stdout: { columns } }: CommandContext,
  say: Say,
): Promise<Readonly<Record<string, readonly Row[]>>> {
  await using lake = await openLake({ objects, scratchDir }, signal);
  const answers: Record<string, readonly Row[]> = {};
  for (const question of READY_QUESTIONS.filter(({ name }) => QUESTIONS.has(name))) {
    const { name } = question;
    const { sql, parameters } = inquiry(question);
    const output = new PassThrough();
    const [document] = await Promise.all([
      readJson(output),
      runQuery(lake, sql, { format: 'json', parameters }, output, signal).finally(() => output.end()),
    ]);
    const { rows } = document as { readonly rows: readonly Row[] };
    answers[name] = rows;
    const cells = rows.map((row) => Object.values(row).map(shorten));
    const table = formatTable(Object.keys(rows[0] ?? {}), cells, { rowsMax: ROWS_SHOWN_MAX, columns });
    say(`\n${QUESTIONS.get(name)}  (query ${name})\n${table.trimEnd()}`);
  }
  return answers;
}

/** Numbers and truth as `query` writes them; ids are cut to what tells them apart. */
function shorten(cell: Row[string]): string | null {
  return cell === null ? null : String(cell).replace(/^([0-9a-f]{8})[0-9a-f]{56}$/, '$1…');
}
