/**
 * Decides who is at fault when objects are missing. Losing single objects is a fault of these objects:
 * their segments are quarantined, and requested again. Losing many at once is the
 * store's, which is another one or has lost its content: then nothing is held against a
 * segment, because the source would be asked for everything again. Verifying, loading and
 * merging decide by this one rule, each at its end, when it knows how many are missing.
 */
import { PermanentError } from '../errors/errors.ts';

/**
 * If at least this many are missing and more than one in `MANY_MISSING_SHARE`, or if at
 * least `ALL_MISSING_MIN` were read and none is there, then it is a fault of the store.
 */
const MANY_MISSING_MIN = 10;
const MANY_MISSING_SHARE = 10;
const ALL_MISSING_MIN = 3;

/** Whether so many missing objects, of all that were read, are a fault of the store. */
export function isLossOfStore(missing: number, read: number): boolean {
  const isAll = missing === read && read >= ALL_MISSING_MIN;
  const areMany =
    missing >= MANY_MISSING_MIN && missing * MANY_MISSING_SHARE > read;
  return isAll || areMany;
}

/** @param url of the store */
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
