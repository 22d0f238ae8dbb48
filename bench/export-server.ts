/** Serves one answer of any size from memory, as a source on this machine would: raw CSV, or messages. */
import { createServer, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import { RELEASES } from '../src/sandbox/release.ts';

const PIECE_BYTES = 2 ** 20;
const PARTY = 'ab'.repeat(32);
const header = Buffer.from(RELEASES['0.71.4'].header);
const [csvPiece, messagePiece] = pieces();

/** A MiB of rows that look like a market maker's, and the same as a message. They are sent again and again. */
function pieces(): [Buffer, Buffer] {
  const rows: string[] = [];
  for (let bytes = 0, index = 0; bytes < PIECE_BYTES; index += 1) {
    const second = String(index % 60).padStart(2, '0');
    const market = (0x1000 + (index % 7)).toString(16).repeat(16);
    const row =
      `2023-05-10 10:${String(Math.floor(index / 60) % 60).padStart(2, '0')}:${second}.${100_000 + index}+00,` +
      `${1_000_000 + index * 7919},TRANSFER_TYPE_MARGIN_LOW,\\x${'c0'.repeat(32)},\\x,\\x${PARTY},4,` +
      `\\x${market},\\x${PARTY},3,${10n ** 21n + BigInt(index)},${index * 104_729}\n`;
    rows.push(row);
    bytes += row.length;
  }
  const csv = Buffer.from(rows.join(''));
  return [csv, Buffer.from(`{"result":{"contentType":"text/csv","data":"${csv.toString('base64')}"}}\n`)];
}

async function send(response: ServerResponse, first: Buffer, piece: Buffer, count: number): Promise<void> {
  response.write(first);
  for (let sent = 0; sent < count && !response.destroyed; sent += 1) {
    if (!response.write(piece)) await Promise.race([once(response, 'drain'), once(response, 'close')]);
  }
  response.end();
}

const server = createServer((request, response) => {
  const url = new URL(request.url ?? '/', 'http://bench');
  const [, form, megabytes] = url.pathname.split('/');
  const count = Math.ceil((Number(megabytes) * 1e6) / csvPiece.length);
  const opening = Buffer.from(`{"result":{"data":"${header.toString('base64')}"}}\n`);
  void (form === 'messages'
    ? send(response, opening, messagePiece, count)
    : send(response, header, csvPiece, count));
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const address = server.address();
process.stdout.write(`http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}\n`);
process.stdin.resume().once('end', () => process.exit());
