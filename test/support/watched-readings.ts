/** Readings of a long ledger that record how far their readers have got. */
import { setTimeout as sleep } from 'node:timers/promises';

/** One reading of the ledger. */
export interface WatchedReading {
  /** How many bytes the reading has handed out. */
  readonly bytes: number;
  readonly isOver: boolean;
}

export interface WatchedReadings {
  readonly readings: readonly WatchedReading[];
  /** Begins a reading. */
  readonly rows: () => AsyncGenerator<Buffer>;
  /** Whether a reading has stopped handing out bytes. */
  readonly standsStill: (index: number) => Promise<boolean>;
}

/**
 * @param chunks called for each reading; every reading begins at the first byte
 */
export function watchReadings(chunks: () => Iterable<Buffer>): WatchedReadings {
  const readings: { bytes: number; isOver: boolean }[] = [];
  return {
    readings,
    async *rows() {
      const reading = { bytes: 0, isOver: false };
      readings.push(reading);
      try {
        for (const chunk of chunks()) {
          reading.bytes += chunk.length;
          yield chunk;
        }
      } finally {
        reading.isOver = true;
      }
    },
    async standsStill(index) {
      const before = readings[index]?.bytes ?? 0;
      await sleep(200);
      return before > 0 && readings[index]?.bytes === before;
    },
  };
}
