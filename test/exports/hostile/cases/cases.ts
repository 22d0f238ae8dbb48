/** All answers of the hostile source. */
import type { HostileCase } from './case.ts';
import { CASES_OF_ENDINGS } from './cases-of-endings.ts';
import { CASES_OF_FILTERS } from './cases-of-filters.ts';
import { CASES_OF_NIGHTS } from './cases-of-nights.ts';
import { CASES_OF_REFUSALS } from './cases-of-refusals.ts';
import { CASES_OF_STREAMS } from './cases-of-streams.ts';
import { CASES_OF_TEXT } from './cases-of-text.ts';
import { CASES_OF_TRANSPORT } from './cases-of-transport.ts';
import { CASES_OF_VALUES } from './cases-of-values.ts';

export const CASES: readonly HostileCase[] = [
  ...CASES_OF_STREAMS,
  ...CASES_OF_TRANSPORT,
  ...CASES_OF_REFUSALS,
  ...CASES_OF_TEXT,
  ...CASES_OF_ENDINGS,
  ...CASES_OF_VALUES,
  ...CASES_OF_FILTERS,
  ...CASES_OF_NIGHTS,
];
