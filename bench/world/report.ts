/**
 * What every benchmark prints: the rows of its table, and the verdict of each figure that
 * has a target. Every figure that has a target gets a verdict, so no target can be missed
 * in silence. If `npm run bench` started the benchmark, that process receives the
 * verdicts too.
 */
import { loadavg } from 'node:os';
import { type Figure, SHORT_CODE } from './summary.ts';

/** A target for a number. A number that could not be measured (NaN) misses it. */
export interface Target {
  readonly wanted: string;
  readonly isMet: (value: number) => boolean;
}

export function atLeast(least: number, unit = ''): Target {
  return {
    wanted: `at least ${least}${unit}`,
    isMet: (value) => value >= least,
  };
}

export function atMost(most: number, unit = ''): Target {
  return { wanted: `at most ${most}${unit}`, isMet: (value) => value <= most };
}

export function below(limit: number, unit = ''): Target {
  return { wanted: `below ${limit}${unit}`, isMet: (value) => value < limit };
}

export function between(least: number, most: number): Target {
  return {
    wanted: `${least} to ${most}`,
    isMet: (value) => value >= least && value <= most,
  };
}

/** Prints a row without a target. */
export function say(what: string, value: string): void {
  process.stdout.write(`| ${what} | ${value} | |\n`);
}

/** Prints a row that has a target: the benchmark fails if it is missed. */
export function sayGate(
  what: string,
  value: string,
  wanted: string,
  isMet: boolean,
): void {
  const shown = isMet ? value : `**${value}**`;
  process.stdout.write(`| ${what} | ${shown} | ${wanted} |\n`);
  const figure: Figure = { what, measured: value, wanted, isMet };
  process.send?.(figure);
  if (!isMet) process.exitCode = SHORT_CODE;
}

/**
 * Prints a number that has a target.
 * @param shown the number as the table shows it, with its unit and the number of rounds
 */
export function sayNumber(
  what: string,
  value: number,
  shown: string,
  { wanted, isMet }: Target,
): void {
  sayGate(what, shown, wanted, isMet(value));
}

export function sayLoad(when: 'before' | 'after'): void {
  const loads = loadavg().map((load) => load.toFixed(1));
  say(`load of the machine ${when}`, loads.join(' '));
}
