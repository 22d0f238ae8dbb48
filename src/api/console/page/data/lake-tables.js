// The tables of the lake, read once for all parts of the page that only need their names.
import { ask, once } from '../common/ask.js';

/** Returns the tables with their columns and comments. */
export const readTables = once(() => ask('console/tables'));
