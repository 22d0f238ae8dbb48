/**
 * The kinds of request in which a real data node (v0.73.13, 242 requests) and the mirror once
 * differed, with what a client of the node relies on. The node's answers are written out here,
 * because its code does not run in this suite.
 */
import { get, type IncomingMessage } from 'node:http';
import { afterAll, describe, expect, test } from 'vitest';
import { call, startSmallMirror } from './small-mirror.ts';

const EXPORT = '/api/v2/ledgerentry/export';
const UNKNOWN_ASSET = 'ab'.repeat(32);
const NANOS_MIN = '-9223372036854775808';
const NANOS_MAX = '9223372036854775807';

const mirror = await startSmallMirror();
afterAll(() => mirror[Symbol.asyncDispose]());
const [party = ''] = mirror.parties;
await mirror.exportLedger(party);
for (const list of ['parties', 'checkpoints'] as const) {
  const { runs, stages } = mirror.app.jobs;
  const { runId } = await runs.create({ kind: 'sync', subject: list });
  await stages.sync({ runId, list, full: true }, call);
}

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
}

async function ask(
  path: string,
  method = 'GET',
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get(`${mirror.url}${path}`, { method, headers }, resolve).on(
      'error',
      reject,
    );
  });
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += String(chunk);
  return { status: response.statusCode, headers: response.headers, text };
}

interface ListBody {
  readonly parties: {
    readonly edges: readonly { readonly node: { readonly id: string } }[];
    readonly pageInfo: { readonly hasNextPage: boolean };
  };
}

async function askParties(query: string): Promise<ListBody['parties']> {
  const { status, text } = await ask(`/api/v2/parties?${query}`);
  expect(status).toBe(200);
  return (JSON.parse(text) as ListBody).parties;
}

function detailOf({ text }: Answer): unknown {
  const { details } = JSON.parse(text) as { readonly details: unknown[] };
  return details[0];
}

const withRows = await ask(`${EXPORT}?partyId=${party}`);
const [header = ''] = withRows.text.split('\n', 1);

describe('a page as the real node cuts it', () => {
  test('an order alone is a page and not the whole list', async () => {
    const { edges, pageInfo } = await askParties('pagination.newestFirst=true');
    const plain = await askParties('');
    expect({ edges, pageInfo }).toEqual(plain);
  });

  test.each(['first', 'last'])(
    'more than 5,000 rows in `%s` is a 400 and never a shorter page',
    async (field) => {
      for (const list of ['parties', 'checkpoints']) {
        const path = `/api/v2/${list}?pagination.${field}=`;
        expect((await ask(`${path}5000`)).status).toBe(200);
        const refused = await ask(`${path}5001`);
        expect(refused.status).toBe(400);
        expect(detailOf(refused)).toMatchObject({
          code: 10_028,
          inner: 'pagination limit must be in range 0-5000',
        });
      }
    },
  );

  test('`last` counts for nothing beside `first`, however large it is', async () => {
    const { edges } = await askParties(
      'pagination.first=2&pagination.last=9999',
    );
    expect(edges).toHaveLength(2);
  });

  test.each([
    ['a page', 'pagination.first=1'],
    ['an error of a handler', 'pagination.first=0'],
    ['an error of the gateway', 'pagination.first=abc'],
  ])('%s is indented by one space for `pretty`', async (_, query) => {
    const { text } = await ask(`/api/v2/parties?pretty&${query}`);
    expect(text).toBe(JSON.stringify(JSON.parse(text), undefined, 1));
    expect(text).toContain('\n ');
  });
});

describe('a party as the real node looks it up', () => {
  test.each(['network', '03'])('`%s` is the network', async (id) => {
    const { edges } = await askParties(`partyId=${id}`);
    expect(edges.map(({ node }) => node.id)).toEqual(['network']);
  });

  test.each([
    ['zz', 400, 'not a valid hex id (or well known exception)'],
    ['NETWORK', 400, 'not a valid hex id (or well known exception)'],
    ['abc', 400, 'not a valid hex id (or well known exception)'],
    ['0C', 404, 'no resource corresponding to this id'],
    ['abcd', 404, 'no resource corresponding to this id'],
    [UNKNOWN_ASSET, 404, 'no resource corresponding to this id'],
  ])('`%s` is a %i with the words of the node', async (id, status, inner) => {
    const answer = await ask(`/api/v2/parties?partyId=${id}`);
    expect(answer.status).toBe(status);
    expect(detailOf(answer)).toMatchObject({ code: 50_001, inner });
  });
});

describe('an export as the real node sends it', () => {
  const path = `${EXPORT}?partyId=${party}`;

  test.each(['application/json', 'application/json+pretty', 'text/html'])(
    'is CSV for a client that accepts %s',
    async (accept) => {
      const answer = await ask(path, 'GET', { accept });
      expect(answer.headers['content-type']).toBe('text/csv');
      expect(answer.text).toBe(withRows.text);
    },
  );

  test.each([
    ['an asset without entries', `&assetId=${UNKNOWN_ASSET}`],
    ['an end at the epoch', '&dateRange.endTimestamp=0'],
    ['an end before the epoch', '&dateRange.endTimestamp=-5'],
    ['a start at the end of time', `&dateRange.startTimestamp=${NANOS_MAX}`],
    [
      'an end before the start',
      '&dateRange.startTimestamp=1600000000000000000' +
        '&dateRange.endTimestamp=1500000000000000000',
    ],
  ])('has the header of the other exports for %s', async (_, query) => {
    const answer = await ask(`${path}${query}`);
    expect([answer.status, answer.text]).toEqual([200, `${header}\n`]);
  });

  test.each(['0', '-1', NANOS_MIN])(
    'has every row for a start at %s nanoseconds',
    async (start) => {
      const answer = await ask(`${path}&dateRange.startTimestamp=${start}`);
      expect([answer.status, answer.text]).toEqual([200, withRows.text]);
    },
  );

  test.each(['03', 'network', 'zz', UNKNOWN_ASSET.slice(2)])(
    'of `%s`, which is not a party, is a 400 in the envelope of a stream',
    async (id) => {
      const answer = await ask(`${EXPORT}?partyId=${id}`);
      expect(answer.status).toBe(400);
      expect(JSON.parse(answer.text)).toMatchObject({
        error: { code: 3, details: [{ message: 'invalid party id' }] },
      });
    },
  );
});

describe('a method other than GET', () => {
  test.each(['/api/v2/parties', '/api/v2/checkpoints', EXPORT])(
    'is a 501 at %s, HEAD too',
    async (path) => {
      for (const method of ['HEAD', 'PUT', 'DELETE', 'TRACE'])
        expect([method, (await ask(path, method)).status]).toEqual([
          method,
          501,
        ]);
    },
  );
});

describe('a page of another origin', () => {
  test('is refused in words that name the setting which allows it', async () => {
    const answer = await ask('/api/v2/parties', 'GET', {
      origin: 'https://app.example',
    });
    expect(answer.status).toBe(403);
    expect(answer.text).toContain('API_ORIGINS');
  });
});
