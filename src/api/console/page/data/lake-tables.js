// The tables of the lake, read once for all parts of the page that only need their names.
import { ask } from '../common/ask.js';

let reading;

/**
 * Returns the tables with their columns and comments. After a failure, the next call asks
 * again.
 */
export function readTables() {
  reading ??= ask('console/tables').catch((error) => {
    reading = undefined;
    throw error;
  });
  return reading;
}
