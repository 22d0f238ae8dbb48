/**
 * Serves one answer of any size from memory, like a source on the same machine: raw CSV,
 * or messages. Also serves the lists of a small network, from which a command reads the
 * time.
 */
import type { ServerResponse } from 'node:http';
import { RELEASES } from '../../src/sandbox/release.ts';
import { sendAnswer, startSandbox } from '../../src/sandbox/http/server.ts';

const PIECE_BYTES = 2 ** 20;
/** The number of different pieces, which together exceed a compressor's window. */
const PIECES = 32;
const PARTY = 'ab'.repeat(32);
const header = Buffer.from(RELEASES['0.71.4'].header);
const made = Array.from({ length: PIECES }, (_, nth) => pieces(nth));
const csvBytes = made[0]?.[0].length ?? PIECE_BYTES;

/**
 * Returns a MiB of rows that look like a market maker's, as CSV and as a message. The
 * server sends these pieces again and again.
 */
function pieces(nth: number): [Buffer, Buffer] {
  const rows: string[] = [];
  for (let bytes = 0, index = 0; bytes < PIECE_BYTES; index += 1) {
    const second = String(index % 60).padStart(2, '0');
    const market = (0x1000 + (index % 7)).toString(16).repeat(16);
    const row =
      `2023-05-10 10:${String(Math.floor(index / 60) % 60).padStart(2, '0')}:${second}.${100_000 + index}+00,` +
      `${(nth + 1) * 1_000_003 * (index + 17)},TRANSFER_TYPE_MARGIN_LOW,\\x${'c0'.repeat(32)},\\x,\\x${PARTY},4,` +
      `\\x${market},\\x${PARTY},3,${10n ** 21n + BigInt(index)},${(index + nth * 31) * 104_729}\n`;
    rows.push(row);
    bytes += row.length;
  }
  const csv = Buffer.from(rows.join(''));
  return [
    csv,
    Buffer.from(
      `{"result":{"contentType":"text/csv","data":"${csv.toString('base64')}"}}\n`,
    ),
  ];
}

async function send(
  response: ServerResponse,
  first: Buffer,
  sent: readonly Buffer[],
  count: number,
): Promise<void> {
  response.write(first);
  for (let nth = 0; nth < count && !response.destroyed; nth += 1) {
    const hasRoom = response.write(sent[nth % sent.length] ?? '');
    if (!hasRoom) await drained(response);
  }
  response.end();
}

/** Resolves when there is room again, or when the client has stopped reading. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off('drain', done).off('close', done);
      resolve();
    };
    response.on('drain', done).on('close', done);
  });
}

/** The rows are from the network's eleventh day. */
const NETWORK = {
  parties: 10,
  historyMs: 20 * 86_400_000,
  rateLimit: 'none',
} as const;

const { url } = await startSandbox(
  NETWORK,
  async (request, response, answerTo) => {
    const { pathname } = new URL(request.url ?? '/', 'http://bench');
    const [, form, megabytes] = pathname.split('/');
    if (form === 'api') return sendAnswer(request, response, answerTo);
    const count = Math.ceil((Number(megabytes) * 1e6) / csvBytes);
    const opening = Buffer.from(
      `{"result":{"data":"${header.toString('base64')}"}}\n`,
    );
    return form === 'messages'
      ? send(
          response,
          opening,
          made.map(([, message]) => message),
          count,
        )
      : send(
          response,
          header,
          made.map(([csv]) => csv),
          count,
        );
  },
);
process.stdout.write(`${url}\n`);
process.stdin.resume().once('end', () => process.exit());
