import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../support/sandbox.ts';
import { ask, page, readList } from './client.ts';

let sandbox: Sandbox;
/** Ids oldest first, without `network`. */
let parties: string[];
const COUNT = 40;

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: COUNT,
    historyMs: 600_000,
    checkpointIntervalMs: 5000,
    rateLimit: 'none',
  });
  parties = [...sandbox.truth.parties()].map((party) => party.id);
});
afterAll(() => sandbox.stop());

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const newest = (count: number): string[] =>
  parties.toReversed().slice(0, count);

describe('which page a request gets', () => {
  test('which page a request gets gives the newest first, `network` before all, where nothing is asked', async () => {
    const reply = await page(sandbox, 'parties');
    expect(reply.ids).toEqual(['network', ...parties.toReversed()]);
    expect(reply).toMatchObject({ next: false, previous: false });
    expect(reply.start).toBe(
      'eyJJRCI6Im5ldHdvcmsiLCJUeEhhc2giOiIwMSIsIlZlZ2FUaW1lIjpudWxsfQ==',
    );
    expect(reply.end).toBe(reply.cursors.at(-1));
  });

  test('which page a request gets gives every row where only an order is asked', async () => {
    await using large = await startSandbox({
      parties: 1500,
      rateLimit: 'none',
    });
    expect((await page(large, 'parties')).ids).toHaveLength(1000);
    const all = await page(large, 'parties', {
      'pagination.newestFirst': 'false',
    });
    expect(all).toMatchObject({ next: false, previous: false });
    expect(all.ids).toHaveLength(1501);
    expect(all.ids.at(-1)).toBe('network');
    const { cursors } = await page(large, 'parties', {
      'pagination.first': '2',
    });
    expect(
      (await page(large, 'parties', { 'pagination.after': cursors[1]! })).ids,
    ).toHaveLength(1000);
  });

  test('which page a request gets pages forward and back, in both orders', async () => {
    const first = await page(sandbox, 'parties', { 'pagination.first': '5' });
    expect(first).toMatchObject({
      ids: ['network', ...newest(4)],
      next: true,
      previous: false,
    });
    const second = await page(sandbox, 'parties', {
      'pagination.first': '5',
      'pagination.after': first.end,
    });
    expect(second).toMatchObject({
      ids: newest(9).slice(4),
      next: true,
      previous: true,
    });
    const back = await page(sandbox, 'parties', {
      'pagination.last': '3',
      'pagination.before': second.end,
    });
    expect(back).toMatchObject({
      ids: newest(8).slice(5),
      next: true,
      previous: true,
    });
    const oldest = await page(sandbox, 'parties', {
      'pagination.last': '3',
      'pagination.before': (
        await page(sandbox, 'parties', {
          'pagination.first': '9',
          'pagination.newestFirst': 'false',
        })
      ).end,
      'pagination.newestFirst': 'false',
    });
    expect(oldest.ids).toEqual(parties.slice(5, 8));
  });

  test('which page a request gets infers the flags of a last page from counts', async () => {
    const end = await page(sandbox, 'parties', { 'pagination.last': '4' });
    expect(end).toMatchObject({
      ids: parties.slice(0, 4).toReversed(),
      next: false,
      previous: true,
    });
    const behind = await page(sandbox, 'parties', {
      'pagination.first': '4',
      'pagination.after': end.end,
    });
    expect(behind).toEqual({
      ids: [],
      cursors: [],
      next: false,
      previous: true,
      start: '',
      end: '',
    });
    const exact = await page(sandbox, 'parties', {
      'pagination.first': '3',
      'pagination.after': end.start,
    });
    expect(exact).toMatchObject({
      ids: end.ids.slice(1),
      next: false,
      previous: true,
    });
  });

  test('which page a request gets ignores what does not belong together, forward winning', async () => {
    const three = { 'pagination.first': '3' };
    const some = (await page(sandbox, 'parties', { 'pagination.first': '9' }))
      .end;
    const expected = (await page(sandbox, 'parties', three)).ids;
    for (const more of [
      { 'pagination.last': '7' },
      { 'pagination.before': some },
      { 'pagination.before': '' },
    ]) {
      expect(
        (await page(sandbox, 'parties', { ...three, ...more })).ids,
      ).toEqual(expected);
    }
    const mixed = await page(sandbox, 'parties', {
      'pagination.last': '3',
      'pagination.after': '%',
    });
    expect(mixed.ids).toEqual(
      (await page(sandbox, 'parties', { 'pagination.last': '3' })).ids,
    );
  });

  test('which page a request gets ends a readList at one row a page, because nothing compares with the time of `network`', async () => {
    expect(await readList(sandbox, 'parties', 1, true)).toEqual(['network']);
  });

  test('which page a request gets promises a page that is empty where only `network` is left, oldest first', async () => {
    const query = {
      'pagination.first': `${COUNT}`,
      'pagination.newestFirst': 'false',
    };
    const first = await page(sandbox, 'parties', query);
    expect(first).toMatchObject({ ids: parties, next: true });
    const second = await page(sandbox, 'parties', {
      ...query,
      'pagination.after': first.end,
    });
    expect(second).toMatchObject({ ids: [], next: false, previous: true });
  });

  test('which page a request gets is empty oldest first behind a cursor beyond the newest party, even of `network`', async () => {
    const beyond = base64(
      `{"ID":"ff","TxHash":"01","VegaTime":"2023-05-01T05:00:00Z"}`,
    );
    const query = {
      'pagination.newestFirst': 'false',
      'pagination.after': beyond,
    };
    expect(await page(sandbox, 'parties', query)).toMatchObject({
      ids: [],
      next: false,
      previous: false,
    });
  });

  test('which page a request gets drops the first row where a cursor is empty or its row is gone', async () => {
    const far = base64(
      `{"ID":"ff","TxHash":"01","VegaTime":"9999-12-31T00:00:00Z"}`,
    );
    expect(
      await page(sandbox, 'parties', {
        'pagination.first': '3',
        'pagination.after': far,
      }),
    ).toMatchObject({
      ids: newest(4).slice(1),
      next: true,
    });
    for (const cursor of ['{}', '{"blockHeight":12}', '{"ID":null}']) {
      const reply = await page(sandbox, 'parties', {
        'pagination.first': '3',
        'pagination.after': base64(cursor),
      });
      expect(reply).toMatchObject({
        ids: newest(3),
        next: true,
        previous: true,
      });
    }
    const gone = base64(
      `{"ID":"${'0'.repeat(64)}","TxHash":"01","VegaTime":"2023-05-01T00:05:00Z"}`,
    );
    const reply = await page(sandbox, 'parties', {
      'pagination.first': '3',
      'pagination.after': gone,
      'pagination.newestFirst': 'false',
    });
    const later = [...sandbox.truth.parties()].filter(
      (party) => party.firstSeen >= 1_682_899_500_000_000n,
    );
    expect(reply.ids).toEqual(later.slice(1, 4).map((party) => party.id));
  });

  test('which page a request gets reads parameters in either spelling and ignores those it does not know', async () => {
    const reply = await ask(
      sandbox,
      '/api/v2/parties?pagination.first=2&pagination.newest_first=f&pagination.limit=1&x[y]=1',
    );
    expect(
      JSON.parse(reply.body).parties.edges.map(
        (edge: { node: object }) => edge.node,
      ),
    ).toEqual([{ id: parties[0] }, { id: parties[1] }]);
  });

  test('which page a request gets filters by party, whatever page is asked', async () => {
    for (const id of [parties[7]!, parties[7]!.toUpperCase()]) {
      const reply = await page(sandbox, 'parties', {
        partyId: id,
        'pagination.first': '3',
      });
      expect(reply).toMatchObject({
        ids: [parties[7]],
        next: false,
        previous: false,
      });
      expect(reply.start).toBe(reply.end);
    }
    expect(
      (await page(sandbox, 'parties', { partyId: 'network' })).ids,
    ).toEqual(['network']);
    expect((await page(sandbox, 'parties', { partyId: '' })).ids).toHaveLength(
      COUNT + 1,
    );
  });

  test('which page a request gets indents where it is asked to be pretty', async () => {
    const reply = await ask(
      sandbox,
      '/api/v2/parties?pagination.first=2&pretty',
    );
    expect(reply.body).toMatch(/^\{\n {1}"parties": \{\n {2}"edges": \[\n/);
  });
});

describe('errors of the lists', () => {
  const detail = (code: number, message: string, inner: string): string =>
    `"details":[{"@type":"type.googleapis.com/vega.ErrorDetail","code":${code},"message":"${message}","inner":"${inner}"}]}`;
  const invalid = (inner: string): string =>
    `{"code":3,"message":"InvalidArgument error",${detail(10028, 'invalid pagination', inner)}`;
  const gateway = (message: string): string =>
    JSON.stringify({ code: 3, message, details: [] });
  const integer = (
    name: string,
    text: string,
    reason = 'invalid syntax',
  ): string =>
    gateway(
      `parsing field "${name}": strconv.ParseInt: parsing "${text}": ${reason}`,
    );

  const both = 'cannot set both a before and after cursor';
  const small = 'pagination limit must be greater than 0';
  const undecoded =
    'failed to decode after cursor: failed to decode cursor: illegal base64 data at input byte';
  test.each([
    [
      'pagination.first=2&pagination.after=e30%3D&pagination.before=e30%3D',
      invalid(both),
    ],
    ['pagination.after=&pagination.before=', invalid(both)],
    ['pagination.first=0', invalid(small)],
    ['pagination.last=-1', invalid(small)],
    [
      'pagination.after=',
      invalid('failed to decode after cursor: cursor is empty'),
    ],
    [
      'pagination.last=1&pagination.before=',
      invalid('failed to decode before cursor: cursor is empty'),
    ],
    ['pagination.first=2&pagination.after=a%25b%3D', invalid(`${undecoded} 1`)],
    ['pagination.first=2&pagination.after=ab+c', invalid(`${undecoded} 2`)],
    ['pagination.first=2&pagination.after=YWJjZ', invalid(`${undecoded} 4`)],
    ['pagination.first=abc', integer('first', 'abc')],
    ['pagination.first=', integer('first', '')],
    [
      'pagination.last=2147483648',
      integer('last', '2147483648', 'value out of range'),
    ],
    [
      'pagination.newestFirst=yes',
      gateway(
        'parsing field "newest_first": strconv.ParseBool: parsing "yes": invalid syntax',
      ),
    ],
    [
      'pagination.first=1&pagination.first=2',
      gateway('too many values for field "first": 1, 2'),
    ],
    [
      'pagination[first]=1',
      gateway('too many values for field "pagination": first, 1'),
    ],
    [
      'pagination=1',
      gateway(
        'parsing field "pagination": unsupported message type: "datanode.api.v2.Pagination"',
      ),
    ],
    ['pagination.after=%zz', gateway('invalid URL escape "%zz"')],
  ])('errors of the lists answers 400 to %s', async (query, body) => {
    for (const list of ['parties', 'checkpoints']) {
      expect(await ask(sandbox, `/api/v2/${list}?${query}`)).toMatchObject({
        status: 400,
        body,
      });
    }
  });

  const failed = {
    parties: [50001, 'failed to get parties'],
    checkpoints: [290001, 'failed to get checkpoints'],
  } as const;
  test.each([
    ['parties', 'pagination.first=2147483647'],
    ['checkpoints', 'pagination.last=2147483647'],
    ['parties', `pagination.after=${encodeURIComponent(base64('no json'))}`],
    ['parties', `pagination.after=${encodeURIComponent(base64('[1]'))}`],
    ['parties', `pagination.after=${encodeURIComponent(base64('{"ID":7}'))}`],
    [
      'checkpoints',
      `pagination.after=${encodeURIComponent(base64('{"blockHeight":"12"}'))}`,
    ],
    [
      'checkpoints',
      `pagination.after=${encodeURIComponent(base64('{"blockHeight":9223372036854775808}'))}`,
    ],
  ] as const)(
    'errors of the lists answers 500 to %s?%s',
    async (list, query) => {
      const reply = await ask(sandbox, `/api/v2/${list}?${query}`);
      expect(reply.status).toBe(500);
      const [code, message] = failed[list];
      expect(JSON.parse(reply.body)).toMatchObject({
        code: 13,
        message: 'Internal error',
        details: [{ code, message }],
      });
    },
  );

  test('errors of the lists answers 400 to what is no id and 404 to an id nobody has', async () => {
    expect(await ask(sandbox, '/api/v2/parties?partyId=bad')).toMatchObject({
      status: 400,
      body: `{"code":3,"message":"InvalidArgument error",${detail(50001, 'failed to get parties', 'not a valid hex id (or well known exception)')}`,
    });
    for (const id of ['abcd', 'f'.repeat(64), 'F'.repeat(64), 'VOTE']) {
      expect(await ask(sandbox, `/api/v2/parties?partyId=${id}`)).toMatchObject(
        {
          status: 404,
          body: `{"code":5,"message":"NotFound error",${detail(50001, 'failed to get parties', 'no resource corresponding to this id')}`,
        },
      );
    }
    expect(
      (await page(sandbox, 'parties', { partyId: parties[0]! })).ids,
    ).toEqual([parties[0]]);
  });

  test('errors of the lists has JSON and gRPC headers where a handler failed, and no block headers where the gateway did', async () => {
    const handler = await ask(sandbox, '/api/v2/parties?pagination.first=0');
    expect(
      handler.headers
        .filter(([name]) => name === 'Content-Type')
        .map(([, value]) => value),
    ).toEqual(['application/json', 'application/grpc']);
    expect(handler.headers.map(([name]) => name)).toContain('X-Block-Height');
    const gatewayed = await ask(sandbox, '/api/v2/parties?pagination.first=x');
    expect(
      gatewayed.headers.filter(([name]) => name === 'Content-Type'),
    ).toHaveLength(1);
    expect(gatewayed.headers.map(([name]) => name)).not.toContain(
      'X-Block-Height',
    );
  });

  test('errors of the lists knows three paths and one method', async () => {
    for (const path of ['/', '/api/v2/parties/', '/api/v2/party']) {
      expect(await ask(sandbox, path)).toMatchObject({
        status: 404,
        body: '{"code":5,"message":"Not Found","details":[]}',
      });
    }
    const posted = await fetch(`${sandbox.url}/api/v2/parties`, {
      method: 'POST',
      body: '{}',
    });
    expect([posted.status, await posted.text()]).toEqual([
      501,
      '{"code":12,"message":"Method Not Allowed","details":[]}',
    ]);
  });

  test('errors of the lists refuses a page that is too large for it', async () => {
    await using large = await startSandbox({ parties: 70_000 });
    const reply = await ask(
      large,
      '/api/v2/parties?pagination.newestFirst=true',
    );
    expect(reply.status).toBe(429);
    expect(JSON.parse(reply.body)).toEqual({
      code: 8,
      message: expect.stringMatching(
        /^grpc: received message larger than max \(\d+ vs\. 20971520\)$/,
      ),
      details: [],
    });
  });
});

describe('checkpoints', () => {
  test('checkpoints lists several rows of one height, some the same', () => {
    const rows = [...sandbox.truth.checkpoints()].map(
      (row) => `${row.atBlock} ${row.hash}`,
    );
    const heights = new Set(rows.map((row) => row.split(' ')[0]));
    expect(heights.size).toBe(120);
    expect(rows.length).toBeGreaterThan(heights.size + 10);
    expect(new Set(rows).size).toBeGreaterThan(heights.size);
    expect(new Set(rows).size).toBeLessThan(rows.length);
  });

  test.each([true, false])(
    'checkpoints ends at the truth, whole, where no page border cuts a height (newest first: %s)',
    async (newestFirst) => {
      const truth = [...sandbox.truth.checkpoints()].map(
        (row) => `${row.atBlock} ${row.hash} ${row.blockHash}`,
      );
      expect(
        (await readList(sandbox, 'checkpoints', 1000, newestFirst)).toSorted(),
      ).toEqual(truth.toSorted());
    },
  );

  test('checkpoints turns round for ever in a height with more rows than a page', async () => {
    await using tied = await startSandbox({
      parties: 2,
      tieRows: [9],
      rateLimit: 'none',
    });
    const rows = [...tied.truth.checkpoints()].map((row) => row.atBlock);
    const height = rows.find((at, nth) => rows[nth + 1] === at);
    const after = base64(`{"blockHeight":${height}}`);
    const query = { 'pagination.first': '4', 'pagination.after': after };
    expect(await page(tied, 'checkpoints', query)).toMatchObject({
      next: true,
      end: after,
    });
  });

  test('checkpoints forgets whole days, and then drops a row behind a cursor that is gone', async () => {
    const day = 86_400_000;
    await using short = await startSandbox({
      parties: 2,
      historyMs: 3.5 * day,
      checkpointRetentionMs: day,
      tieRows: [1],
      rateLimit: 'none',
    });
    const truth = [...short.truth.checkpoints()].map(
      (row) => `${row.atBlock} ${row.hash} ${row.blockHash}`,
    );
    expect(truth).toHaveLength(432 + 1);
    const gone = {
      'pagination.newestFirst': 'false',
      'pagination.after': base64('{"blockHeight":600}'),
    };
    expect(
      (await page(short, 'checkpoints', { ...gone, 'pagination.first': '3' }))
        .ids,
    ).toEqual(truth.slice(1, 4));
  });
});

describe('reading a list to its end', () => {
  test.each([2, 3, 7, 10, 100])(
    'reading a list to its end reach every party at %i a page, both ways',
    async (rowsMax) => {
      const forward = await readList(sandbox, 'parties', rowsMax, true);
      expect(forward).toEqual(['network', ...parties.toReversed()]);
      const backward = await readList(sandbox, 'parties', rowsMax, false);
      expect(backward.filter((id) => id !== 'network')).toEqual(parties);
    },
  );

  test('reading a list to its end gives rows ordered by time and id, several parties in one block included', () => {
    const rows = [...sandbox.truth.parties()];
    const sorted = rows.toSorted((a, b) => {
      if (a.firstSeen !== b.firstSeen)
        return a.firstSeen < b.firstSeen ? -1 : 1;
      return a.id < b.id ? -1 : 1;
    });
    expect(rows).toEqual(sorted);
    expect(new Set(rows.map((row) => row.firstSeen)).size).toBeLessThan(
      rows.length,
    );
  });

  test('reading a list to its end pages through a million parties at any depth', async () => {
    await using million = await startSandbox({
      parties: 1_000_000,
      rateLimit: 'none',
    });
    const deep = [...million.truth.parties().drop(3000).take(4)];
    expect(million.truth.partyCount()).toBe(1_000_000);
    const newestPage = await page(million, 'parties', {
      'pagination.first': '1000',
    });
    expect(newestPage.ids).toHaveLength(1000);
    const cursor = (await page(million, 'parties', { partyId: deep[0]!.id }))
      .end;
    const query = {
      'pagination.first': '3',
      'pagination.after': cursor,
      'pagination.newestFirst': 'false',
    };
    expect((await page(million, 'parties', query)).ids).toEqual(
      deep.slice(1).map((party) => party.id),
    );
  });
});
