/** A thread that reads blocks of rows for whoever asks, one after the other. Started by the pool alone. */
import { parentPort } from 'node:worker_threads';
import { type Block, rowsOf } from './block-cutter.ts';
import { readBlock, type BlockFindings, type RowQuestion } from './block-reader.ts';

/** `memory` is shared and stays its owner's: it is only read, and only until the answer. */
export interface BlockTask extends Block {
  readonly id: number;
  readonly question: RowQuestion;
}

export interface BlockAnswer {
  readonly id: number;
  readonly findings: BlockFindings;
}

parentPort?.on('message', ({ id, question, ...block }: BlockTask) => {
  const answer: BlockAnswer = { id, findings: readBlock(question, rowsOf(block)) };
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
  parentPort?.postMessage(answer);
});
