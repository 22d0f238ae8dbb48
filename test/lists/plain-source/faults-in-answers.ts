/** Faults of single answers: what comes is not a page at all, or not all of one. */
import type { Answer, Behaviour, Call, Fault, When } from './fault.ts';

function declare(
  name: string,
  meaning: string,
  when: When,
  answer: (answer: Answer, call: Call) => Answer,
): Fault {
  return {
    name,
    meaning,
    betrayedBy: 'the answer is no page',
    when,
    make: (): Behaviour => ({ answer }),
    shownBy: 'sync',
    since: 'first-sync',
    keepsOrder: true,
    heals: true,
    neverComplete: name === 'is-away',
  };
}

const HTML =
  '<!doctype html><title>Please wait</title><p>The service is being updated.</p>';
const JSON_TYPE = { 'content-type': 'application/json' };
const NOW_AND_THEN: When = { every: 3 };

function refuse(status: number, headers: Record<string, string> = {}) {
  const body = JSON.stringify({
    code: 13,
    message: `status ${status}`,
    details: [],
  });
  return (): Answer => ({
    status,
    headers: { ...JSON_TYPE, ...headers },
    body,
  });
}

interface AnyPage {
  readonly edges?: readonly unknown[];
}

function withError(body: string): string {
  const [[list, page] = ['', {}]] = Object.entries(
    JSON.parse(body) as Record<string, AnyPage | null>,
  );
  const partial = { ...page, edges: page?.edges?.slice(0, -1) ?? [] };
  const error = {
    code: 13,
    message: `shard 3 of 3 timed out${' '.repeat(5_000)}`,
    details: [],
  };
  return JSON.stringify({ [list]: partial, error });
}

export const FAULTS_IN_ANSWERS: readonly Fault[] = [
  declare(
    'answers-html-now-and-then',
    'every third answer is a web page under status 200',
    NOW_AND_THEN,
    (answer) => ({
      ...answer,
      headers: { 'content-type': 'text/html' },
      body: HTML,
    }),
  ),
  declare(
    'answers-500-now-and-then',
    'every third answer is a 500',
    NOW_AND_THEN,
    refuse(500),
  ),
  declare(
    'answers-503-once',
    'one answer is a 503',
    { times: 1, from: 1 },
    refuse(503, { 'retry-after': '0' }),
  ),
  declare(
    'answers-429-once',
    'one answer is a 429 with Retry-After',
    { times: 1, from: 1 },
    refuse(429, { 'retry-after': '1' }),
  ),
  declare(
    'answers-304-now-and-then',
    'every fourth answer is a 304 without a body',
    { every: 4 },
    () => ({
      status: 304,
      headers: {},
      body: '',
    }),
  ),
  declare(
    'answers-an-error-body',
    'every third answer is an error body under status 200',
    NOW_AND_THEN,
    (answer) => ({
      ...answer,
      body: '{"code":13,"message":"Internal error","details":[]}',
    }),
  ),
  declare(
    'tells-an-error-beside-rows',
    'every third answer is a page without its last row, and an error of 5 kB beside it',
    NOW_AND_THEN,
    (answer) => ({ ...answer, body: withError(answer.body) }),
  ),
  declare(
    'cuts-answers',
    'every third answer breaks off with its connection',
    NOW_AND_THEN,
    (answer) => ({
      ...answer,
      cutAfter: Math.floor(answer.body.length / 2),
    }),
  ),
  declare(
    'truncates-json',
    'every third answer is half its JSON, with a length that fits',
    NOW_AND_THEN,
    (answer) => ({
      ...answer,
      body: answer.body.slice(0, Math.floor(answer.body.length / 2)),
    }),
  ),
  declare(
    'answers-nothing',
    'one answer is a 200 without a body',
    { times: 1 },
    (answer) => ({
      ...answer,
      body: '',
    }),
  ),
  declare(
    'answers-the-other-list',
    'one answer is a page of the other list',
    { times: 1, from: 1 },
    (answer, call) => ({
      ...answer,
      body: answer.body.replace(
        /^\{"[a-z]+"/,
        call.request.list === 'parties' ? '{"checkpoints"' : '{"parties"',
      ),
    }),
  ),
  declare('is-away', 'no request is answered but by a 503', {}, refuse(503)),
];
