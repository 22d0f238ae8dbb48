/** Framing, lengths, trailers, compression and pauses. */
import { gzipSync, deflateSync } from 'node:zlib';
import type { Entry } from '../ledger.ts';
import {
  csvFor,
  declare,
  NO_LIE,
  PARTLY,
  REFUSED,
  select,
  telling,
  WHOLE,
  type Choice,
  type Expected,
  type ExportRequest,
  type HostileCase,
} from './case.ts';
import { THIRTEEN, writeCsv } from '../layout.ts';
import {
  CSV_TYPE,
  cutLines,
  JSON_TYPE,
  messages,
  reply,
  type Part,
  type Reply,
} from '../reply.ts';

type Write = (csv: string, request: ExportRequest) => Reply;

function framed(
  name: string,
  meaning: string,
  expected: Expected,
  write: Write,
  choice: Choice = {},
): HostileCase {
  return declare(
    name,
    meaning,
    (request, truth) => write(csvFor(request, truth), request),
    expected,
    choice,
  );
}

/**
 * The rows of the window but for some of the last; each request loses another number of
 * them.
 */
function cutAtRowEnd(request: ExportRequest, truth: readonly Entry[]): string {
  const rows = select(request, truth);
  return writeCsv(
    THIRTEEN,
    rows.slice(0, Math.max(0, rows.length - 1 - (request.n % 7))),
    request.party,
  );
}

const UNPROVEN = telling(PARTLY, 'the end of the answer is not proven');
const EITHER: Expected = {
  ...WHOLE,
  verdicts: ['complete', 'incomplete'],
  published: 'at-most',
};
const gzip = { headers: [CSV_TYPE, ['Content-Encoding', 'gzip']] } as const;
const gzipMembers = (csv: string, lines = 10): Buffer[] =>
  cutLines(csv, lines).map((piece) => gzipSync(piece));
/** The header line, and rows from the first one on. */
const firstHalf = (csv: string): string => {
  const lines = csv.split(/(?<=\n)/);
  return lines.slice(0, Math.ceil(lines.length / 2)).join('');
};
const half = (bytes: Buffer): Buffer =>
  bytes.subarray(0, Math.floor(bytes.length / 2));

export const CASES_OF_TRANSPORT: readonly HostileCase[] = [
  framed(
    'http-1.0-without-length',
    'HTTP/1.0; only the end of the connection ends the body; every answer is whole',
    telling(EITHER, 'counts when a second answer has the same sums'),
    (csv) => reply(csv, { protocol: 'HTTP/1.0', framing: 'close' }),
  ),
  framed(
    'closed-without-length',
    'HTTP/1.1 without length or chunks; every answer is whole',
    EITHER,
    (csv) => reply(csv, { framing: 'close' }),
  ),
  declare(
    'http-1.0-cut-at-a-row-end',
    'HTTP/1.0 without length; each answer ends at another row',
    (request, truth) =>
      reply(cutAtRowEnd(request, truth), {
        protocol: 'HTTP/1.0',
        framing: 'close',
      }),
    UNPROVEN,
  ),
  declare(
    'closed-and-cut-at-a-row-end',
    'HTTP/1.1 without length; each answer ends at another row',
    (request, truth) =>
      reply(cutAtRowEnd(request, truth), { framing: 'close' }),
    UNPROVEN,
  ),
  framed(
    'http-1.0-with-length',
    'HTTP/1.0 with a length that fits',
    WHOLE,
    (csv) => reply(csv, { protocol: 'HTTP/1.0', framing: 'length' }),
  ),
  framed(
    'messages-without-length',
    'messages, ended by the connection; every answer is whole',
    EITHER,
    (csv) => ({ ...messages(cutLines(csv, 10), 'base64'), framing: 'close' }),
  ),
  framed(
    'length-too-large',
    'the connection ends before the length is reached',
    PARTLY,
    (csv) => reply(csv, { framing: csv.length + 500 }),
  ),
  framed(
    'length-too-small',
    'the length ends in the middle of a row',
    PARTLY,
    (csv) => reply(csv, { framing: Math.max(10, csv.length - 60) }),
  ),
  framed(
    'chunked-without-an-end',
    'the last chunk never comes; all rows have',
    PARTLY,
    (csv) => reply(cutLines(csv, 10), { ending: 'cut' }),
  ),
  framed(
    'chunked-cut-in-a-row',
    'the connection ends in the middle of a row',
    PARTLY,
    (csv) => reply([csv.slice(0, -30)], { ending: 'cut' }),
  ),
  framed(
    'connection-reset',
    'the connection breaks after half the rows',
    PARTLY,
    (csv) => reply([csv.slice(0, csv.length / 2), 5], { ending: 'reset' }),
  ),
  framed(
    'reset-once',
    'the first connection breaks, the next ones do not',
    WHOLE,
    (csv, { n }) =>
      n === 0
        ? reply([csv.slice(0, csv.length / 2), 5], { ending: 'reset' })
        : reply(csv),
  ),
  framed(
    'chunk-size-that-is-no-number',
    'a chunk says that it has ZZ bytes',
    PARTLY,
    (csv) =>
      reply(
        [
          `${Buffer.byteLength(csv).toString(16)}\r\n${csv}\r\nZZ\r\nmore\r\n0\r\n\r\n`,
        ],
        {
          framing: 'close',
          headers: [CSV_TYPE, ['Transfer-Encoding', 'chunked']],
        },
      ),
  ),
  framed(
    'trailer-tells-an-error',
    'a trailer says Grpc-Status 13 behind all rows',
    PARTLY,
    (csv) =>
      reply(csv, {
        trailers: [
          ['Grpc-Status', '13'],
          ['Grpc-Message', 'copying to stdout'],
        ],
      }),
  ),
  framed(
    'trailer-tells-success',
    'a trailer says Grpc-Status 0',
    WHOLE,
    (csv) =>
      reply(csv, {
        trailers: [
          ['Grpc-Status', '0'],
          ['X-Rows', '7'],
        ],
      }),
  ),
  framed(
    'trailer-tells-an-error-in-messages',
    'a trailer says Grpc-Status 8 behind all messages',
    PARTLY,
    (csv) => ({
      ...messages(cutLines(csv, 10), 'base64'),
      trailers: [['grpc-status', '8']],
    }),
  ),
  framed('gzip', 'the CSV as gzip', WHOLE, (csv) =>
    reply([gzipSync(csv)], gzip),
  ),
  framed(
    'gzip-of-two-members',
    'two gzip members, one behind the other',
    WHOLE,
    (csv) =>
      reply([gzipSync(csv.slice(0, 900)), gzipSync(csv.slice(900))], gzip),
  ),
  framed(
    'gzip-of-many-members-without-length',
    'a gzip member for every ten rows, ended by the connection; every answer is whole',
    EITHER,
    (csv) => reply(gzipMembers(csv), { ...gzip, framing: 'close' }),
  ),
  declare(
    'gzip-cut-at-a-member-without-length',
    'a gzip member for every row, no length; each answer ends behind another member',
    (request, truth) =>
      reply(gzipMembers(cutAtRowEnd(request, truth), 1), {
        ...gzip,
        framing: 'close',
      }),
    UNPROVEN,
  ),
  framed(
    'gzip-with-zeros-behind',
    'zero bytes and an error in plain text follow half the rows',
    PARTLY,
    (csv) =>
      reply([gzipSync(firstHalf(csv)), '\0\0{"error":{"code":13}}'], gzip),
  ),
  framed(
    'gzip-with-zeros-and-a-length',
    'zero bytes follow half the rows; the length fits',
    PARTLY,
    (csv) =>
      reply([gzipSync(firstHalf(csv)), Buffer.alloc(512)], {
        ...gzip,
        framing: 'length',
      }),
  ),
  framed(
    'gzip-cut',
    'the gzip stream lacks its second half; the HTTP body is whole',
    PARTLY,
    (csv) => reply([half(gzipSync(csv))], gzip),
  ),
  framed(
    'gzip-without-its-trailer',
    'the gzip stream lacks its last eight bytes: all rows, no checksum',
    PARTLY,
    (csv) => reply([gzipSync(csv).subarray(0, -8)], gzip),
  ),
  framed(
    'gzip-that-is-none',
    'plain text that says it is gzip',
    PARTLY,
    (csv) => reply(csv, gzip),
  ),
  framed(
    'gzip-with-an-error-behind',
    'an error in plain text follows the gzip stream',
    PARTLY,
    (csv) => reply([gzipSync(csv), '{"error":{"code":13}}'], gzip),
  ),
  framed('deflate-that-nobody-asked-for', 'the CSV as deflate', NO_LIE, (csv) =>
    reply([deflateSync(csv)], {
      headers: [CSV_TYPE, ['Content-Encoding', 'deflate']],
    }),
  ),
  declare(
    'gzip-bomb',
    'half a megabyte of gzip that is one row of 500 megabytes',
    (request, truth) =>
      reply([gzipSync(csvFor(request, truth)), ...bomb()], gzip),
    PARTLY,
    { isHeavy: true },
  ),
  framed(
    'content-type-twice',
    'a good answer has two Content-Type headers',
    WHOLE,
    (csv) =>
      reply(csv, { headers: [CSV_TYPE, ['Content-Type', 'application/grpc']] }),
  ),
  framed(
    'content-type-missing',
    'a good answer has no Content-Type',
    WHOLE,
    (csv) => reply(csv, { headers: [] }),
  ),
  framed(
    'content-type-of-bytes',
    'CSV as application/octet-stream',
    WHOLE,
    (csv) =>
      reply(csv, { headers: [['Content-Type', 'application/octet-stream']] }),
  ),
  framed('content-type-of-json', 'CSV that says it is JSON', WHOLE, (csv) =>
    reply(csv, { headers: [JSON_TYPE] }),
  ),
  framed(
    'early-hints',
    'an informational answer comes before the real one',
    WHOLE,
    (csv) =>
      reply(csv, { prelude: 'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n' }),
  ),
  framed('many-headers', 'fifty headers, two of them cookies', WHOLE, (csv) =>
    reply(csv, {
      headers: [
        CSV_TYPE,
        ['Set-Cookie', 'a=1'],
        ['Set-Cookie', 'b=2'],
        ...Array.from({ length: 48 }, (_, at) => [`X-${at}`, 'value'] as const),
      ],
    }),
  ),
  framed(
    'no-answer-at-all',
    'the connection ends without a byte',
    REFUSED,
    () => reply([], { protocol: 'none', framing: 'close' }),
  ),
  framed('not-http', 'the answer is not HTTP', REFUSED, () =>
    reply('SSH-2.0-OpenSSH_9.6\r\n\r\n', {
      protocol: 'none',
      framing: 'close',
    }),
  ),
  framed('slow-but-steady', 'some rows every few milliseconds', WHOLE, (csv) =>
    reply(paced(cutLines(csv, 10), 20)),
  ),
  framed(
    'keep-alive-lines-before-the-rows',
    'blank lines come while the query runs, then the CSV',
    WHOLE,
    (csv) => reply(['\n', 50, '\n', 50, '\n', 50, csv]),
  ),
  framed(
    'keep-alive-lines-before-messages',
    'blank lines come while the query runs, then messages',
    WHOLE,
    (csv) => ({
      ...messages(cutLines(csv, 10), 'base64'),
      body: ['\n', 50, '\n', 50, ...messages(cutLines(csv, 10), 'base64').body],
    }),
  ),
  framed(
    'drip-of-blank-lines',
    'blank lines for ever behind the header line',
    REFUSED,
    (csv) => reply(endless(csv.split('\n')[0] ?? '', '\n\n\n\n', 20)),
    { isSlow: true },
  ),
  framed(
    'drip-of-empty-messages',
    'empty messages for ever',
    REFUSED,
    () =>
      reply(endless('', `{"result":{}}\n`.repeat(8), 20), {
        headers: [JSON_TYPE],
      }),
    { isSlow: true },
  ),
  framed(
    'drip-of-spaces',
    'white space for ever, in place of an answer',
    REFUSED,
    () => reply(endless('', ' '.repeat(100), 20), { headers: [JSON_TYPE] }),
    { isSlow: true },
  ),
  framed(
    'silence-behind-the-head',
    'the head comes, then nothing',
    REFUSED,
    () => reply(endless('', '', 100)),
    { isSlow: true },
  ),
  framed(
    'silence-among-rows',
    'half the rows come, then nothing',
    PARTLY,
    (csv) => reply(endless(csv.slice(0, csv.length / 2), '', 100)),
    { isSlow: true },
  ),
  framed(
    'drip-of-one-row',
    'a byte every second',
    NO_LIE,
    (csv) => reply(paced(csv.split(''), 1000)),
    {
      isSlow: true,
    },
  ),
];

function* paced(pieces: readonly string[], pauseMs: number): Iterable<Part> {
  for (const piece of pieces) {
    yield piece;
    yield pauseMs;
  }
}

function* endless(
  begin: string,
  piece: string,
  pauseMs: number,
): Iterable<Part> {
  yield begin;
  for (;;) {
    yield piece;
    yield pauseMs;
  }
}

function bomb(): Buffer[] {
  const tenMegabytes = gzipSync(Buffer.alloc(10 * 1024 * 1024, '0'), {
    level: 9,
  });
  return Array.from({ length: 50 }, () => tenMegabytes);
}
