/** All dishonest behaviours of a plain source. */
import type { Fault } from './fault.ts';
import { FAULTS_IN_ANSWERS } from './faults-in-answers.ts';
import { FAULTS_IN_LISTS } from './faults-in-lists.ts';
import { FAULTS_IN_PAGES } from './faults-in-pages.ts';

export const FAULTS: readonly Fault[] = [
  ...FAULTS_IN_PAGES,
  ...FAULTS_IN_LISTS,
  ...FAULTS_IN_ANSWERS,
];

export function findFault(name: string): Fault {
  const fault = FAULTS.find((one) => one.name === name);
  if (fault === undefined)
    throw new Error(`Cannot find the fault ${name}: it is not declared`);
  return fault;
}
