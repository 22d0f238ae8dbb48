/**
 * Makes a readable ledger from the given bytes, for tests of the code that sends ledgers.
 */
import type { LedgerReading } from '../../src/exports/reading/read-ledger.ts';

/**
 * @param chunks called each time the rows are read; every reading begins at the first
 *   byte
 */
export function readingOf(
  chunks: () => AsyncIterable<Buffer>,
  parts: Partial<LedgerReading> = {},
): LedgerReading {
  return {
    knownFrom: undefined,
    knownTo: undefined,
    provenTo: 0n,
    missing: [],
    tag: 'of-a-test',
    measure: async () => {
      let size = 0n;
      for await (const chunk of chunks()) size += BigInt(chunk.length);
      return size;
    },
    rows: async function* (start = 0n) {
      let left = Number(start);
      for await (const chunk of chunks()) {
        const rest = chunk.subarray(Math.min(left, chunk.length));
        left -= chunk.length - rest.length;
        if (rest.length > 0) yield rest;
      }
    },
    ...parts,
  };
}
