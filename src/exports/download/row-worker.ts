/**
 * A thread that reads blocks of rows, one after another, for any export of the process.
 * It is started only by the pool.
 */
import { parentPort } from 'node:worker_threads';
import { readBlock, type RowQuestion } from './block-reader.ts';

/** A block of whole rows, and the request to check them against. */
export type BlockTask = readonly [question: RowQuestion, rows: Uint8Array];

parentPort?.on('message', ([question, rows]: BlockTask) => {
  const findings = readBlock(
    question,
    Buffer.from(rows.buffer, rows.byteOffset, rows.byteLength),
  );
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
  parentPort?.postMessage(findings);
});
