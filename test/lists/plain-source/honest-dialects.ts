/** All honest dialects of a plain source. */
import { HONEST_CURSORS } from './honest-cursors.ts';
import { HONEST_FORMS } from './honest-forms.ts';
import type { HonestDialect } from './honest-source.ts';

export const HONEST_DIALECTS: readonly HonestDialect[] = [
  ...HONEST_CURSORS,
  ...HONEST_FORMS,
];
