/**
 * A run with its evidence, as `runs ID` shows it: the problems and how to solve them,
 * sentences that describe what the run does or did, and every figure in a table. Only
 * `--json` shows all values in full.
 */
import { ADVICE } from '../../errors/advice.generated.ts';
import type { ProgressLine } from '../../runs/progress.ts';
import {
  endLines,
  FAULTS,
  type Fault,
  type Fields,
  fields,
  humanName,
  INDENT,
  isNothing,
  isRecord,
  items,
  itemText,
  labelled,
  listFaults,
  word,
} from './evidence.ts';
import { formatAge, formatCount } from '../../format/format.js';
import { formatTable, truncate } from './format.ts';
import { progressText } from './progress-text.ts';
import { runHead } from './run-text.ts';
import { runSentences } from './run-sentences.ts';

/** The current state of a run that has not ended. */
export interface RunNow {
  /** The steps that the run currently reports; may be empty. */
  readonly lines: readonly ProgressLine[];
  /** True if no process is working on the run any more. */
  readonly isGone: boolean;
  readonly nowMs: number;
}

const FAULTS_SHOWN_MAX = 20;
const FIGURES_SHOWN_MAX = 120;
const FIGURE_CHARACTERS_MAX = 120;
/**
 * How many levels of nested evidence are split into separate figures; anything deeper is
 * shown in one line.
 */
const FIGURE_DEPTH_MAX = 3;
/**
 * Fields that the report already shows elsewhere, or that are the same in every report.
 */
const TOLD = new Set(['error', 'verdict', 'runId']);

/**
 * Formats the whole report.
 * @param run `{ runId, kind, subject, state, verdict, queuedAt, startedAt, finishedAt,
 *   evidence }`
 * @param now undefined if the run has ended
 * @returns lines, each with a trailing line break
 */
export function runReport(run: Fields, now?: RunNow): string {
  const evidence = fields(run['evidence']);
  const sections: (readonly [title: string, lines: readonly string[]])[] = [
    ['Needs attention', faultLines(run, evidence)],
    ['Now', now === undefined ? [] : nowLines(run, now)],
    [
      'What happened',
      runSentences(run).map(([label, told]) => labelled(label, told)),
    ],
    ['Figures', figureLines(word(run['runId']), evidence)],
  ];
  return endLines([
    runHead(run),
    `${INDENT}run  ${word(run['runId'])}`,
    ...sections.flatMap(([title, lines]) =>
      lines.length === 0 ? [] : ['', title, ...lines],
    ),
  ]);
}

function faultLines(run: Fields, evidence: Fields): string[] {
  const { runId, state, verdict } = run;
  if (state === 'cancelled')
    return [
      `${INDENT}! It was cancelled. The rows that it stored are kept, and the next run continues from them.`,
    ];
  const faults = [...listFaults(evidence), ...reasonFaults(evidence)];
  const isUnexplained =
    faults.length === 0 && state === 'done' && verdict !== 'complete';
  const logs = `'ledger-mirror logs ${word(runId)}' shows what it logged.`;
  if (isUnexplained)
    return [`${INDENT}! Its evidence does not say why.`, `${INDENT}  ${logs}`];
  const more = faults.length - FAULTS_SHOWN_MAX;
  return [
    ...faults
      .slice(0, FAULTS_SHOWN_MAX)
      .flatMap(({ text, todo }) => [
        `${INDENT}! ${text}`,
        `${INDENT}  ${todo ?? logs}`,
      ]),
    ...(more > 0
      ? [`${INDENT}… and ${formatCount(more)} more; --json has them`]
      : []),
  ];
}

/**
 * Returns the reasons why the mirror is not complete, as determined at the end of a
 * nightly run.
 */
function reasonFaults(evidence: Fields): Fault[] {
  return items(fields(evidence['mirror'])['reasons']).map((reason) => {
    const code = word(reason);
    const known = ADVICE[code];
    return {
      text: `${known?.meaning ?? 'The mirror is not complete.'} (${code})`,
      todo: known?.todo,
    };
  });
}

function nowLines(run: Fields, { lines, isGone, nowMs }: RunNow): string[] {
  const { state, queuedAt, startedAt } = run;
  const since = (at: unknown) => formatAge(Date.parse(word(at)), nowMs);
  if (state === 'queued')
    return [
      `${INDENT}It waits for a worker; it was ordered ${since(queuedAt)}.`,
      `${INDENT}If nothing takes it: 'ledger-mirror status' says how many workers run.`,
    ];
  if (isGone)
    return [
      `${INDENT}No process is working on it any more; it began ` +
        `${since(startedAt)}.`,
      `${INDENT}A worker or the next nightly run continues from what it ` +
        'committed.',
    ];
  const told = lines.map((line) => `${INDENT}${progressText(line)}`);
  const begun = `${INDENT}It is under way; it began ${since(startedAt)}.`;
  return told.length > 0
    ? [begun, ...told]
    : [begun, `${INDENT}It reports no step at the moment.`];
}

/**
 * Lists every figure that is not empty or zero, and the names of the empty and zero
 * ones.
 */
function figureLines(runId: string, evidence: Fields): string[] {
  const figures = flatten(evidence, [], 0);
  if (figures.length === 0) return [];
  const some = figures.filter(({ value }) => !isNothing(value));
  const none = figures.filter(({ value }) => isNothing(value));
  const more = some.length - FIGURES_SHOWN_MAX;
  const names = none.map(({ path, name }) =>
    humanName([path.at(-1) ?? '', name].join(' ').trim()),
  );
  return [
    ...tableLines(some.slice(0, FIGURES_SHOWN_MAX)),
    ...(more > 0 ? [`${INDENT}… and ${formatCount(more)} more`] : []),
    ...(names.length === 0
      ? []
      : [`${INDENT}None or zero: ${itemText([...new Set(names)])}`]),
    `${INDENT}'ledger-mirror runs ${runId} --json' has all of it, uncut.`,
  ];
}

function tableLines(figures: readonly Figure[]): string[] {
  if (figures.length === 0) return [];
  const rows = figures.map(({ path, name, value }) => [
    path.map(humanName).join(' · '),
    humanName(name.replace(/Ms$/, '')),
    figureText(name, value),
  ]);
  return formatTable(['part', 'figure', 'value'], rows)
    .trimEnd()
    .split('\n')
    .map((line) => `${INDENT}${line}`);
}

/** Formats a figure. Faults are only counted, because they are listed above. */
function figureText(name: string, value: unknown): string {
  if (Array.isArray(value) && FAULTS.has(name))
    return `${formatCount(value.length)}, see above`;
  return truncate(itemText(value, name), FIGURE_CHARACTERS_MAX);
}

interface Figure {
  /** The names of the enclosing parts, outermost first. */
  readonly path: readonly string[];
  readonly name: string;
  readonly value: unknown;
}

/**
 * Flattens nested evidence. A part's own figures come before those of its nested parts.
 */
function flatten(
  evidence: Fields,
  path: readonly string[],
  depth: number,
): Figure[] {
  const isPart = (value: unknown): value is Fields =>
    isRecord(value) && !isNothing(value) && depth < FIGURE_DEPTH_MAX;
  const told = Object.entries(evidence).filter(([name]) => !TOLD.has(name));
  const own = told.filter(([, value]) => !isPart(value));
  const parts = told.filter(([, value]) => isPart(value));
  return [
    ...own.map(([name, value]) => ({ path, name, value })),
    ...parts.flatMap(([name, value]) =>
      flatten(fields(value), [...path, name], depth + 1),
    ),
  ];
}
