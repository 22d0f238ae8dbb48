/** Statuses, error bodies, redirects, and answers that are something else. */
import { ASSETS } from '../ledger.ts';
import {
  csvFor,
  declare,
  honestAnswer,
  NO_LIE,
  PARTLY,
  REFUSED,
  telling,
  WHOLE,
  type Expected,
  type ExportRequest,
  type HostileCase,
} from './case.ts';
import { writeHeader, THIRTEEN } from '../layout.ts';
import { errorBody, json, refusal, reply, type Reply } from '../reply.ts';

const HTML =
  '<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>';
const HTML_TYPE = ['Content-Type', 'text/html; charset=utf-8'] as const;

function always(
  name: string,
  meaning: string,
  answer: (request: ExportRequest) => Reply,
  expected: Expected = REFUSED,
): HostileCase {
  return declare(name, meaning, answer, expected);
}

/** Refused at first; from the second request on as it should be. */
function once(name: string, meaning: string, first: () => Reply): HostileCase {
  return declare(
    name,
    meaning,
    (request, truth, now) =>
      request.n === 0 ? first() : honestAnswer(request, truth, now),
    WHOLE,
  );
}

const ASSET_REQUIRED = {
  code: 3,
  message: 'InvalidArgument error',
  details: [
    {
      '@type': 'type.example/ErrorDetail',
      code: 10017,
      message: 'missing asset ID',
      inner: '',
    },
  ],
};
const NO_ASSET = telling(
  REFUSED,
  'the source demands an asset, none is known, and which setting names them',
);
const redirect = (location: string, status = 302): Reply =>
  reply('', { status, headers: [['Location', location]], framing: 'length' });

export const CASES_OF_REFUSALS: readonly HostileCase[] = [
  always('status-500', 'every answer is a 500 with an error body', () =>
    refusal(500, 'Internal error'),
  ),
  always(
    'status-500-in-an-error-frame',
    'a 500 whose body is `{"error":…}`',
    () => json({ error: errorBody(13, 'Internal error') }, 500),
  ),
  always('status-500-without-a-body', 'a 500 with nothing', () =>
    reply('', { status: 500, headers: [], framing: 'length' }),
  ),
  always('status-500-of-html', 'a 500 as a web page', () =>
    reply(HTML, { status: 500, headers: [HTML_TYPE] }),
  ),
  always('status-400', 'the default status with an error body', () =>
    refusal(400, 'invalid party id'),
  ),
  always(
    'status-401',
    'every answer is a 401',
    () => refusal(401, 'who are you'),
    telling(REFUSED, 'SOURCE_AUTHORIZATION; it concerns all parties'),
  ),
  always(
    'status-403',
    'every answer is a 403',
    () => refusal(403, 'not you'),
    telling(REFUSED, 'it concerns all parties'),
  ),
  always(
    'status-404',
    'the path is not served',
    () => refusal(404, 'Not Found'),
    telling(REFUSED, 'SOURCE_EXPORT_PATH; it concerns all parties'),
  ),
  always('status-404-of-html', 'the path is not served, as a web page', () =>
    reply(HTML, { status: 404, headers: [HTML_TYPE] }),
  ),
  always('status-405', 'the method is not served', () =>
    refusal(405, 'Method Not Allowed'),
  ),
  always('status-413', 'the answer would be too large', () =>
    refusal(413, 'too large'),
  ),
  always('status-501', 'the operation is not served', () =>
    refusal(501, 'Unimplemented'),
  ),
  always('status-204', 'no content', () =>
    reply([], { status: 204, headers: [], framing: 'close' }),
  ),
  always('status-206', 'part of the content', (request) =>
    reply(writeHeader(THIRTEEN) + request.party, { status: 206 }),
  ),
  always('status-304', 'not modified', () =>
    reply([], { status: 304, headers: [], framing: 'close' }),
  ),
  once('status-500-once', 'the first answer is a 500', () =>
    refusal(500, 'Internal error'),
  ),
  once('status-503-once', 'the first answer is a 503 with Retry-After', () =>
    refusal(503, 'busy', [['Retry-After', '0']]),
  ),
  once('status-429-once', 'the first answer is a 429 with Retry-After', () =>
    refusal(429, 'slow down', [['Retry-After', '1']]),
  ),
  once(
    'status-429-without-a-time',
    'the first answer is a 429 that names no time',
    () => refusal(429, 'api request rate limit exceeded'),
  ),
  declare(
    'status-429-always',
    'every answer is a 429',
    () => refusal(429, 'slow down', [['Retry-After', '1']]),
    REFUSED,
    { isSlow: true },
  ),
  declare(
    'status-503-always',
    'every answer is a 503',
    () => refusal(503, 'busy'),
    REFUSED,
    {
      isSlow: true,
    },
  ),
  always('html', 'a web page under status 200', () =>
    reply(HTML, { headers: [HTML_TYPE] }),
  ),
  always('html-as-csv', 'a web page that says it is CSV', () => reply(HTML)),
  once('html-once', 'the first answer is a web page under status 200', () =>
    reply(HTML, { headers: [HTML_TYPE] }),
  ),
  always('status-ok', '`{"status":"ok"}` under status 200', () =>
    json({ status: 'ok' }),
  ),
  always('error-body-under-200', 'an error body under status 200', () =>
    json(errorBody(13, 'Internal error')),
  ),
  always('error-frame-under-200', '`{"error":…}` under status 200', () =>
    json({ error: errorBody(13, 'Internal error') }),
  ),
  always('null-under-200', '`null` under status 200', () => json(null)),
  always('empty-body', '200 and not one byte', () =>
    reply('', { framing: 'length' }),
  ),
  always('one-line-end', '200 and one line end', () => reply('\n')),
  declare(
    'header-only',
    'the header line alone: this party has no entries',
    honestAnswer,
    WHOLE,
    {
      truth: () => [],
    },
  ),
  declare(
    'header-only-without-a-line-end',
    'the header line alone, with a length that fits and no line end',
    () => reply(writeHeader(THIRTEEN).trimEnd(), { framing: 'length' }),
    { ...NO_LIE, published: 'nothing' },
    { truth: () => [] },
  ),
  declare(
    'redirect-to-itself',
    'a redirect to the same address, for ever',
    (request) =>
      redirect(
        `${request.url}/api/v2/ledgerentry/export?partyId=${request.party}`,
      ),
    REFUSED,
  ),
  declare(
    'redirect-elsewhere',
    'a redirect to another origin, which must not get the authorization',
    () => redirect('http://127.0.0.1:9/export', 307),
    REFUSED,
  ),
  declare(
    'redirect-without-a-place',
    'a redirect that names no address',
    () => reply('', { status: 301, headers: [], framing: 'length' }),
    REFUSED,
  ),
  declare(
    'asset-demanded',
    'without an asset: 400, missing asset ID; no asset is known',
    (request, truth, now) =>
      request.asset === undefined
        ? json({ error: ASSET_REQUIRED }, 400)
        : honestAnswer(request, truth, now),
    { ...NO_ASSET, verdicts: ['incomplete'] },
    { apart: 'asset' },
  ),
  declare(
    'asset-demanded-and-known',
    'the same, and a person has named every asset',
    (request, truth, now) =>
      request.asset === undefined
        ? json(ASSET_REQUIRED, 400)
        : honestAnswer(request, truth, now),
    { ...WHOLE, verdicts: ['complete', 'incomplete'], maxRequests: 24 },
    { assets: ASSETS },
  ),
  declare(
    'asset-demanded-inside-200',
    'without an asset: the same refusal as the first message under status 200',
    (request, truth, now) =>
      request.asset === undefined
        ? json({ error: ASSET_REQUIRED })
        : honestAnswer(request, truth, now),
    { ...NO_ASSET, verdicts: ['incomplete', 'failed'] },
    { apart: 'asset' },
  ),
  declare(
    'asset-refused-with-500',
    'any request with an asset is a 500, all others are right',
    (request, truth, now) =>
      request.asset === undefined
        ? honestAnswer(request, truth, now)
        : refusal(500, 'asset id'),
    WHOLE,
  ),
  declare(
    'every-other-answer-fails',
    'every other answer is a 502',
    (request, truth, now) =>
      request.n % 2 === 0
        ? refusal(502, 'bad gateway')
        : honestAnswer(request, truth, now),
    WHOLE,
  ),
  declare(
    'wide-windows-time-out',
    'windows of more than ten days are a 504, shorter ones are right',
    (request, truth) => {
      const days =
        request.from === undefined || request.to === undefined
          ? 365n
          : (request.to - request.from) / 86_400_000_000n;
      return days > 10n
        ? refusal(504, 'upstream timed out')
        : reply(csvFor(request, truth));
    },
    { ...PARTLY, verdicts: ['complete', ...PARTLY.verdicts] },
  ),
];
