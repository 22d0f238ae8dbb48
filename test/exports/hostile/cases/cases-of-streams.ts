/**
 * Forms of the stream: raw CSV, and messages in all the ways the interface document
 * leaves open.
 */
import {
  csvFor,
  declare,
  PARTLY,
  REFUSED,
  WHOLE,
  type ExportRequest,
  type HostileCase,
} from './case.ts';
import type { Entry } from '../ledger.ts';
import { change, THIRTEEN, TWELVE } from '../layout.ts';
import {
  cut,
  cutLines,
  errorBody,
  JSON_TYPE,
  message,
  messages,
  reply,
  type Reply,
} from '../reply.ts';

type Write = (csv: string, request: ExportRequest) => Reply;

const sends =
  (write: Write) => (request: ExportRequest, truth: readonly Entry[]) =>
    write(csvFor(request, truth), request);

const good = (name: string, meaning: string, write: Write): HostileCase =>
  declare(name, meaning, sends(write), WHOLE);
const bad = (name: string, meaning: string, write: Write): HostileCase =>
  declare(name, meaning, sends(write), PARTLY);

const inOne = (texts: readonly string[]): Reply =>
  reply([texts.join('')], { headers: [JSON_TYPE] });
const text = (value: unknown): string => JSON.stringify(value);

/** A column that makes each row 550 KB long. */
const FAT = change(
  THIRTEEN,
  { note: () => 'x'.repeat(550_000) },
  { columns: [...THIRTEEN.columns, 'note'] },
);

export const CASES_OF_STREAMS: readonly HostileCase[] = [
  good('raw-csv', 'the CSV itself, chunked', (csv) => reply(cutLines(csv, 20))),
  good('raw-csv-with-length', 'the CSV itself, with its length', (csv) =>
    reply(csv, { framing: 'length' }),
  ),
  good('raw-csv-byte-by-byte', 'each byte in a chunk of its own', (csv) =>
    reply(cut(csv.slice(0, 4000), 1).concat(csv.slice(4000))),
  ),
  good('raw-csv-cut-anywhere', 'chunks of 777 bytes', (csv) =>
    reply(cut(csv, 777)),
  ),
  good(
    'messages-of-base64',
    'a message a line, ten rows each, data as base64',
    (csv) => messages(cutLines(csv, 10), 'base64'),
  ),
  good(
    'messages-of-plain-text',
    'a message a line, ten rows each, data as it is',
    (csv) => messages(cutLines(csv, 10), 'plain'),
  ),
  good('one-message-of-base64', 'one JSON document with everything', (csv) =>
    messages([csv], 'base64', ''),
  ),
  good(
    'one-message-of-plain-text',
    'one JSON document with everything, data as it is',
    (csv) => messages([csv], 'plain', ''),
  ),
  good('messages-cut-in-rows', 'base64 messages end anywhere in a row', (csv) =>
    messages(cut(csv, 333), 'base64'),
  ),
  good(
    'plain-messages-cut-in-rows',
    'plain messages end anywhere in a row',
    (csv) => messages(cut(csv, 333), 'plain'),
  ),
  good('messages-of-one-byte', 'each message carries one byte', (csv) =>
    messages(cut(csv, 1), 'base64'),
  ),
  good(
    'messages-without-line-ends',
    'messages follow each other without a line end',
    (csv) => messages(cutLines(csv, 10), 'base64', ''),
  ),
  good('messages-with-crlf', 'messages end with CRLF', (csv) =>
    messages(cutLines(csv, 10), 'base64', '\r\n'),
  ),
  good('messages-with-blank-lines', 'blank lines between messages', (csv) =>
    messages(cutLines(csv, 10), 'base64', '\n\n\n'),
  ),
  good(
    'messages-split-across-chunks',
    'HTTP chunks cut messages anywhere',
    (csv) =>
      reply(cut([...messages(cutLines(csv, 7), 'base64').body].join(''), 97), {
        headers: [JSON_TYPE],
      }),
  ),
  good(
    'messages-without-data',
    'some messages have empty data, or none',
    (csv) =>
      reply(
        [
          text({ result: { contentType: 'text/csv', extensions: [] } }),
          '\n',
          ...cutLines(csv, 30).flatMap((piece) => [
            text(message(piece, 'base64')),
            '\n',
            text(message('', 'base64')),
            '\n',
          ]),
        ],
        { headers: [JSON_TYPE] },
      ),
  ),
  good(
    'messages-with-null-error',
    'each message has `error: null` beside its result',
    (csv) =>
      inOne(
        cutLines(csv, 30).map(
          (piece) => `${text({ ...message(piece, 'base64'), error: null })}\n`,
        ),
      ),
  ),
  good(
    'messages-with-unknown-members',
    'members that nobody knows, before and behind the result',
    (csv) =>
      inOne(
        cutLines(csv, 30).map(
          (piece) =>
            `${text({ meta: { a: [1, '}{'] }, ...message(piece, 'base64'), done: false })}\n`,
        ),
      ),
  ),
  good(
    'messages-over-several-lines',
    'each message is indented over several lines',
    (csv) =>
      inOne(
        cutLines(csv, 30).map(
          (piece) => `${JSON.stringify(message(piece, 'plain'), null, 2)}\n`,
        ),
      ),
  ),
  good(
    'messages-with-escapes',
    'plain data with every letter written as an escape',
    (csv) =>
      inOne(
        cutLines(csv, 30).map(
          (piece) =>
            `{"result":{"contentType":"text/csv","data":"${[...Buffer.from(piece)].map((byte) => `\\u${byte.toString(16).padStart(4, '0')}`).join('')}"}}\n`,
        ),
      ),
  ),
  good(
    'messages-as-text-csv',
    'messages under the content type of a CSV file',
    (csv) => reply([...messages(cutLines(csv, 10), 'base64').body], {}),
  ),
  good(
    'messages-of-types-that-change',
    'each message names another content type',
    (csv) =>
      inOne(
        cutLines(csv, 20).map(
          (piece, at) =>
            `${text(message(piece, 'base64', { contentType: ['text/csv', 'application/octet-stream', ''][at % 3] }))}\n`,
        ),
      ),
  ),
  bad('messages-in-an-array', 'a JSON array of messages', (csv) =>
    inOne([text(cutLines(csv, 20).map((piece) => message(piece, 'base64')))]),
  ),
  bad(
    'base64-cut-over-messages',
    'one base64 text, cut so that no message decodes by itself',
    (csv) =>
      inOne(
        cut(Buffer.from(csv).toString('base64'), 1001).map(
          (data) => `${text({ result: { contentType: 'text/csv', data } })}\n`,
        ),
      ),
  ),
  bad('messages-cut-in-json', 'the last message lacks its second half', (csv) =>
    reply(
      cut(
        [...messages(cutLines(csv, 20), 'base64').body].join('').slice(0, -60),
        500,
      ),
      {
        headers: [JSON_TYPE],
      },
    ),
  ),
  bad('message-that-is-no-object', 'a number between messages', (csv) =>
    inOne([text(message(csv, 'base64')), '\n42\n']),
  ),
  bad('messages-nested-too-deep', '20,000 brackets in a message', (csv) =>
    inOne([
      `{"result":{"contentType":"text/csv","extensions":${'['.repeat(20_000)}${']'.repeat(20_000)},"data":"`,
      Buffer.from(csv).toString('base64'),
      '"}}\n',
    ]),
  ),
  bad(
    'message-without-result',
    'a message with neither result nor error follows the rows',
    (csv) =>
      inOne([
        text(message(csv, 'base64')),
        '\n',
        text({ status: 'done' }),
        '\n',
      ]),
  ),
  bad('data-that-is-no-base64', 'data is neither CSV nor base64 of it', () =>
    messages(['%%%%', '????'], 'plain'),
  ),
  declare(
    'one-message-of-70-megabytes',
    'all rows of a window come in one message, 700 KB each',
    (request, truth) => messages([csvFor(request, truth, FAT)], 'base64'),
    { ...WHOLE, maxRequests: 60 },
    { isHeavy: true },
  ),
  declare(
    'endless-message',
    'one message that never ends',
    () =>
      reply(
        endlessText(
          '{"result":{"contentType":"text/csv","data":"',
          'QUFB'.repeat(16_000),
        ),
        {
          headers: [JSON_TYPE],
        },
      ),
    REFUSED,
    { isHeavy: true, isSlow: true },
  ),
  declare(
    'twelve-columns',
    'the older release: ids as bytes, kinds of accounts as numbers, only the from side',
    (request, truth) => reply(cutLines(csvFor(request, truth, TWELVE), 9)),
    WHOLE,
    { hasEffect: false, ledger: { side: 'from' } },
  ),
  declare(
    'twelve-columns-in-messages',
    'the older release in messages',
    (request, truth) =>
      messages(cut(csvFor(request, truth, TWELVE), 500), 'base64'),
    WHOLE,
    { hasEffect: false, ledger: { side: 'from' } },
  ),
  declare(
    'error-as-the-first-message',
    'the stream begins with an error',
    () => inOne([`${text({ error: errorBody(13, 'the query failed') })}\n`]),
    REFUSED,
  ),
  bad(
    'error-as-the-last-message',
    'an error follows messages that are whole',
    (csv) =>
      inOne([
        `${text(message(csv, 'base64'))}\n`,
        `${text({ error: errorBody(13, 'the query failed') })}\n`,
      ]),
  ),
  bad('result-and-error', 'the last message has rows and an error', (csv) =>
    inOne([
      `${text({ ...message(csv, 'base64'), error: errorBody(13, 'the query failed') })}\n`,
    ]),
  ),
  bad(
    'null-result-and-error',
    'the last message has `result: null` and an error',
    (csv) =>
      inOne([
        `${text(message(csv, 'base64'))}\n`,
        `${text({ result: null, error: errorBody(14, 'gone') })}\n`,
      ]),
  ),
  bad('error-without-members', 'the last message is `{"error":{}}`', (csv) =>
    inOne([`${text(message(csv, 'base64'))}\n{"error":{}}\n`]),
  ),
  bad(
    'error-glued-to-the-last-row',
    'an error follows the CSV without a line end',
    (csv, { n }) =>
      reply([
        csv.slice(0, csv.length - 40 - n),
        text({ error: errorBody(13, 'copying to stdout') }),
      ]),
  ),
  bad(
    'error-glued-to-a-whole-row',
    'an error follows the last line end of the CSV',
    (csv) => reply([csv, text({ error: errorBody(13, 'copying to stdout') })]),
  ),
  bad(
    'error-glued-over-chunks',
    'the error behind the rows comes in pieces',
    (csv) =>
      reply([
        csv,
        ...cut(text({ error: errorBody(13, 'copying to stdout') }), 5),
      ]),
  ),
  bad(
    'bare-error-behind-rows',
    'an error body without a frame follows the rows',
    (csv) => reply([csv, text(errorBody(13, 'copying to stdout'))]),
  ),
  declare(
    'error-glued-once',
    'the first answer ends in an error, the next ones do not',
    (request, truth) =>
      reply(
        request.n === 0
          ? `${csvFor(request, truth)}${text({ error: errorBody(13, 'once') })}`
          : csvFor(request, truth),
      ),
    WHOLE,
  ),
  declare(
    'huge-error-behind-rows',
    'an error whose code is beyond 2^53',
    (request, truth) =>
      reply(
        `${csvFor(request, truth)}{"error":{"code":9007199254740993,"message":"\\u0000","details":[]}}`,
      ),
    PARTLY,
  ),
];

function* endlessText(begin: string, piece: string): Iterable<string> {
  yield begin;
  for (;;) yield piece;
}
