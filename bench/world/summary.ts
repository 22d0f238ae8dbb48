/**
 * The one table of several benchmarks: a row for each figure that has a target, with its
 * verdict, and a row for each benchmark that did not end as it should. The functions are
 * pure, so that a test can cover them.
 */

/** A measured figure that has a target. */
export interface Figure {
  readonly what: string;
  readonly measured: string;
  readonly wanted: string;
  readonly isMet: boolean;
}

/** How a benchmark's process ended, and what it had reported by then. */
export interface Ended {
  readonly bench: string;
  readonly figures: readonly Figure[];
  /** Undefined if a signal ended it. */
  readonly code: number | undefined;
  /** Whether it was ended because it took longer than any benchmark may. */
  readonly isOverdue: boolean;
  readonly seconds: number;
}

/**
 * The exit code of a benchmark that ran to its end and fell short. It differs from the
 * codes that Node gives a process that crashes, so that a crash after a missed target can
 * still be recognised.
 */
export const SHORT_CODE = 3;

/** Returns whether every benchmark ran to its end and met each of its targets. */
export function isEverythingMet(all: readonly Ended[]): boolean {
  return all.every(
    (ended) =>
      troubleOf(ended) === undefined &&
      ended.figures.every(({ isMet }) => isMet),
  );
}

/** Formats the table as Markdown; the last line counts what fell short. */
export function formatSummary(all: readonly Ended[]): string {
  const rows = all.flatMap((ended) => {
    const { bench, figures, seconds } = ended;
    const shown = figures.map(({ what, measured, wanted, isMet }) =>
      formatRow([bench, what, measured, wanted, isMet ? 'ok' : '**short**']),
    );
    const trouble = troubleOf(ended);
    if (trouble === undefined) return shown;
    const end = `${trouble} after ${seconds.toFixed(0)} s`;
    return [
      ...shown,
      formatRow([bench, 'the benchmark itself', end, 'an end', '**short**']),
    ];
  });
  return [
    formatRow(['bench', 'what', 'measured', 'wanted', 'verdict']),
    formatRow(['---', '---', '---', '---', '---']),
    ...rows,
    '',
    countShort(all),
    '',
  ].join('\n');
}

function countShort(all: readonly Ended[]): string {
  const figures = all.flatMap((ended) => ended.figures);
  const short = figures.filter(({ isMet }) => !isMet).length;
  const broken = all.filter((ended) => troubleOf(ended) !== undefined).length;
  const seconds = all.reduce((sum, ended) => sum + ended.seconds, 0);
  const minutes = (seconds / 60).toFixed(1);
  const counts = `${short} of ${figures.length} figures fall short`;
  const crashes = `${broken} of ${all.length} benchmarks did not end well`;
  return `${counts}, ${crashes}; it took ${minutes} minutes.`;
}

/**
 * Returns what is wrong with the end of a benchmark, apart from its figures; undefined if
 * nothing is. A benchmark that ends with the exit code for falling short must have
 * reported which figure did.
 */
function troubleOf(ended: Ended): string | undefined {
  const { code, isOverdue, figures } = ended;
  if (isOverdue) return 'no end';
  if (code === undefined) return 'ended by a signal';
  const hasShort = figures.some(({ isMet }) => !isMet);
  if (code === SHORT_CODE && hasShort) return undefined;
  if (code === SHORT_CODE) return 'short of a target that it did not report';
  return code === 0 ? undefined : `crashed with code ${code}`;
}

/** A `|` within a cell would begin another cell. */
function formatRow(cells: readonly string[]): string {
  const escaped = cells.map((cell) =>
    cell.replaceAll('|', String.raw`\|`).replaceAll('\n', ' '),
  );
  return `| ${escaped.join(' | ')} |`;
}
