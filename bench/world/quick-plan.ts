/**
 * What `npm run bench -- all --quick` runs: the most telling figures come first, each in
 * the shortest form that still compares like with like. Together they take at most ten
 * minutes on two quiet cores.
 */

/** A benchmark, and the parts of it that are run. */
export interface Planned {
  readonly bench: string;
  readonly args: readonly string[];
}

export const QUICK_PLAN: readonly Planned[] = [
  { bench: 'lists', args: ['latency', 'speed'] },
  { bench: 'export', args: ['command'] },
  { bench: 'load', args: ['copy', 'lake'] },
  { bench: 'api', args: ['hour', 'pages', 'stream'] },
  { bench: 'start', args: [] },
  { bench: 'pages', args: ['20000', '100000'] },
  { bench: 'nightly', args: ['1000'] },
  { bench: 'store', args: ['1000'] },
  { bench: 'recovery', args: ['parties'] },
  { bench: 'orders', args: ['10000', '1000'] },
];
