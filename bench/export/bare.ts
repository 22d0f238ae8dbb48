/**
 * Does the least that an export must do, without checks, parts, a database or protection
 * against crashes: receives an answer, hashes its bytes, hashes each row in a thread, and
 * writes everything. Prints the seconds.
 */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { request } from 'undici';
import { hashRow, RowDigest } from '../../src/ledger/digest.ts';

const LINE_FEED = 0x0a;
const BLOCK_BYTES = 512 * 2 ** 10;
/**
 * The number of blocks. While some are being filled, others are waiting, or being read or
 * written.
 */
const BLOCKS = 8;

interface Block {
  readonly memory: SharedArrayBuffer;
  readonly bytes: number;
}

function sumRows({ memory, bytes }: Block): string {
  const rows = Buffer.from(memory, 0, bytes);
  const digest = new RowDigest();
  for (let start = 0, end = 0; start < bytes; start = end + 1) {
    end = rows.indexOf(LINE_FEED, start);
    digest.add(hashRow(rows, start, end));
  }
  return digest.hex();
}

async function receive(url: string, path: string): Promise<void> {
  const thread = new Worker(new URL(import.meta.url));
  const summed: (() => void)[] = [];
  // The answers arrive in the order of the messages.
  thread.on('message', () => summed.shift()?.());
  await using file = await open(path, 'w');
  const sha256 = createHash('sha256');
  const free = Array.from(
    { length: BLOCKS },
    () => new SharedArrayBuffer(BLOCK_BYTES),
  );
  const away: Promise<SharedArrayBuffer>[] = [];
  let writing: Promise<unknown> = Promise.resolve();
  let memory = free.pop() ?? new SharedArrayBuffer(BLOCK_BYTES);
  let filled = 0;

  const handOn = async (): Promise<void> => {
    const given = memory;
    const block = Buffer.from(given);
    const bytes = block.lastIndexOf(LINE_FEED, filled - 1) + 1;
    const reading = new Promise<void>((resolve) => summed.push(resolve));
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
    thread.postMessage({ memory: given, bytes } satisfies Block);
    sha256.update(block.subarray(0, bytes));
    writing = writing.then(() => file.write(block, 0, bytes));
    away.push(Promise.all([reading, writing]).then(() => given));
    memory = free.pop() ?? (await away.shift()) ?? given;
    filled = block.copy(Buffer.from(memory), 0, bytes, filled);
  };

  const { body } = await request(url);
  for await (const chunk of body as AsyncIterable<Buffer>) {
    for (let from = 0; from < chunk.length;) {
      const copied = chunk.copy(Buffer.from(memory), filled, from);
      from += copied;
      filled += copied;
      if (filled === BLOCK_BYTES) await handOn();
    }
  }
  if (filled > 0) await handOn();
  await Promise.all(away);
  await file.sync();
  await thread.terminate();
}

if (isMainThread) {
  const [url = '', path = ''] = process.argv.slice(2);
  const startMs = performance.now();
  await receive(url, path);
  process.stdout.write(`${(performance.now() - startMs) / 1000}\n`);
} else {
  parentPort?.on('message', (block: Block) =>
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
    parentPort?.postMessage(sumRows(block)),
  );
}
