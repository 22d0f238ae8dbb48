/**
 * Decides what is at fault when objects are missing. If only a few are lost, the objects
 * are at fault, and their segments are quarantined and requested again. If many are lost
 * at once, the store is at fault: it is the wrong store, or it has lost its content. In
 * that case no segment is quarantined, because the source would have to send everything
 * again. Verifying, loading and merging all apply this rule at the end, when the number
 * of missing objects is known.
 */
import { PermanentError } from '../errors/errors.ts';

/**
 * The store is at fault in two cases: if at least `MANY_MISSING_MIN` objects are missing
 * and they make up more than one in `MANY_MISSING_SHARE` of all objects read; or if at
 * least `ALL_MISSING_MIN` objects were read and all of them are missing.
 */
const MANY_MISSING_MIN = 10;
const MANY_MISSING_SHARE = 10;
const ALL_MISSING_MIN = 3;

/**
 * Whether this many missing objects, out of all that were read, mean that the store is at
 * fault.
 */
export function isLossOfStore(missing: number, read: number): boolean {
  const isAll = missing === read && read >= ALL_MISSING_MIN;
  const areMany =
    missing >= MANY_MISSING_MIN && missing * MANY_MISSING_SHARE > read;
  return isAll || areMany;
}

/**
 * Returns the error to report if the store has lost its objects.
 * @param url the store's URL
 */
export function lossOfStore(
  url: string,
  missing: number,
  read: number,
): PermanentError {
  return new PermanentError(
    `${missing} of ${read} objects are missing in ${url}; no segment is ` +
      'distrusted: check OBJECT_STORE_URL, or restore the objects from a backup; if ' +
      "they are lost for good, run 'ledger-mirror verify --accept-lost', then " +
      "'ledger-mirror nightly'",
    { code: 'OBJECTS_MISSING', meta: { store: url, missing, read } },
  );
}
