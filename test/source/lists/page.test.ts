import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import {
  errorCode,
  PermanentError,
  RetryableError,
} from '../../../src/errors/errors.ts';
import { isOddKey } from '../../../src/ledger/ids.ts';
import { parsePage } from '../../../src/source/lists/page.ts';
import type { ListName } from '../../../src/lists/ports.ts';
import { pageJson } from '../wire/wire-server.ts';

const ID = 'ab'.repeat(32);
const NODE = { hash: 'a1', blockHash: 'b2', atBlock: '7' };

const ROWS_MAX = 10;

function parse(list: ListName, json: string) {
  return parsePage(list, Buffer.from(json), ROWS_MAX);
}

/** One checkpoint whose node is the given JSON text. */
function checkpointJson(node: string): string {
  return pageJson('checkpoints', [{}]).replace('"node":{}', `"node":${node}`);
}

function fieldsOf(node: string): readonly string[] | undefined {
  return parse('checkpoints', checkpointJson(node)).rows[0]?.key.split('/');
}

/** Why the one checkpoint of a page is not understood. */
function whyOdd(node: string): string | undefined {
  const [row] = parse('checkpoints', checkpointJson(node)).rows;
  return row?.odd?.because;
}

function shapeError(work: () => unknown): PermanentError {
  try {
    work();
  } catch (error) {
    if (error instanceof PermanentError && error.code === 'PAGE_SHAPE')
      return error;
    throw error;
  }
  throw new Error('accepted');
}

function outcomeOf(json: string): string {
  try {
    parse('checkpoints', json);
    return 'page';
  } catch (error) {
    return errorCode(error);
  }
}

describe('heights of a page', () => {
  test.each([
    ['"0"', '0'],
    ['"123456789012345"', '123456789012345'],
    ['"18446744073709551615"', '18446744073709551615'],
    ['12', '12'],
    ['9007199254740993', '9007199254740993'],
    ['18446744073709551615', '18446744073709551615'],
    ['1029945231787545500', '1029945231787545500'],
    ['7.0', '7'],
  ])('%s is exact', (written, height) => {
    expect(
      fieldsOf(`{"hash":"a","blockHash":"b","atBlock":${written}}`),
    ).toEqual([height, 'a', 'b']);
  });

  test.each([
    '"18446744073709551616"',
    '18446744073709551616',
    '-1',
    '"-1"',
    '1.5',
    '1e30',
    '"1e3"',
    '"07"',
    '""',
    '" 1"',
    'null',
    'true',
    '{}',
  ])('%s is none', (written) => {
    expect(
      whyOdd(`{"hash":"a","blockHash":"b","atBlock":${written}}`),
    ).toContain('checkpoints.edges[0].node.atBlock');
  });

  test('are read the same beside a longer number', () => {
    const json = pageJson('checkpoints', [NODE])
      .replace('"7"', '7.0')
      .replace('{', '{"x":12345678901234567890,');
    expect(parse('checkpoints', json).rows[0]?.key.split('/')[0]).toBe('7');
  });

  test('are kept exactly for every uint64, as text and as number', () => {
    fc.assert(
      fc.property(
        fc.bigInt(0n, 2n ** 64n - 1n),
        fc.boolean(),
        (height, isText) => {
          const written = isText ? `"${height}"` : String(height);
          expect(
            fieldsOf(`{"atBlock":${written},"hash":"a","blockHash":""}`),
          ).toEqual([String(height), 'a', '']);
        },
      ),
    );
  });
});

describe('ids and hashes of a page', () => {
  test('are lower-cased where they are hexadecimal, and kept where they are words', () => {
    const page = parse(
      'parties',
      pageJson('parties', [{ id: ID.toUpperCase() }, { id: 'network' }]),
    );
    expect(page.rows.map((row) => row.key)).toEqual([ID, 'network']);
  });

  test.each([
    '',
    ' x',
    'a\u0000b',
    'a\u200bb',
    'x'.repeat(1_025),
    5,
    null,
    undefined,
  ])('%j is no id, and keeps no other row from being read', (id) => {
    const { rows } = parse(
      'parties',
      pageJson('parties', [{ id: ID }, { id }, { id: 'other' }]),
    );
    expect(rows.map(({ key }) => isOddKey(key))).toEqual([false, true, false]);
    expect(rows[1]?.odd).toEqual({
      because: expect.stringContaining('parties.edges[1].node.id'),
      row: JSON.stringify({ id }).slice(0, 2_000),
    });
  });

  test('may hold joiners between other characters', () => {
    const ids = [
      'fam-👨\u200d👩\u200d👧',
      '\u0646\u0627\u0645\u0647\u200c\u0627\u06cc',
    ];
    const nodes = [...ids, '\u200dx', 'x\u200d'].map((id) => ({ id }));
    const { rows } = parse('parties', pageJson('parties', nodes));
    expect(rows.map(({ key, odd }) => odd === undefined && key)).toEqual([
      ...ids,
      false,
      false,
    ]);
  });

  test('of rows that are not understood are the same for the same JSON alone', () => {
    const nodes = [{ id: 5 }, { id: 6 }, { id: 5 }];
    const { rows } = parse('parties', pageJson('parties', nodes));
    const [first, second, third] = rows.map(({ key }) => key);
    expect(first).toBe(third);
    expect(first).not.toBe(second);
  });

  test('are kept as they came where they can be printed', () => {
    expect(fieldsOf(JSON.stringify({ ...NODE, hash: 'BH=/é' }))).toEqual([
      '7',
      'BH=%2Fé',
      'b2',
    ]);
    for (const hash of [
      'a\u0000',
      'a\n',
      '\ud800',
      'x'.repeat(1_025),
      5,
      null,
    ]) {
      expect(whyOdd(JSON.stringify({ ...NODE, hash }))).toContain('.node.hash');
    }
  });

  test('name a checkpoint by height, hash and block hash together', () => {
    const page = parse('checkpoints', pageJson('checkpoints', [NODE]));
    expect(page.rows[0]).toEqual({
      cursor: 'c0==',
      key: '7/a1/b2',
      extra: undefined,
    });
  });
});

describe('an unknown field', () => {
  test('is kept exactly inside a node and ignored around it', () => {
    const json = pageJson('parties', [
      { id: ID, alias: 'a\u0000b\ud800', metadata: [{ key: '"', value: 12 }] },
    ])
      .replace('12', '12345678901234567890.5')
      .replace('{"parties"', '{"next":1,"parties"');
    expect(parse('parties', json).rows[0]?.extra).toEqual({
      alias: 'a\ufffdb\ufffd',
      metadata: [{ key: '"', value: '12345678901234567890.5' }],
    });
  });
});

describe('an answer that is no page', () => {
  const page = JSON.parse(pageJson('parties', [{ id: ID }])) as {
    parties: Record<string, unknown>;
  };
  const edge = { node: { id: ID }, cursor: 'c' };
  test.each([
    ['the answer', []],
    ['parties', {}],
    ['parties', { parties: [] }],
    ['parties.pageInfo', { parties: { ...page.parties, pageInfo: 'x' } }],
    ['parties.edges', { parties: { ...page.parties, edges: {} } }],
    ['parties.edges[0]', { parties: { ...page.parties, edges: ['x'] } }],
    [
      'parties.edges[0].node',
      { parties: { ...page.parties, edges: [{ ...edge, node: null }] } },
    ],
    [
      'parties.edges[0].cursor',
      { parties: { ...page.parties, edges: [{ ...edge, cursor: '' }] } },
    ],
    [
      'parties.edges[0].cursor',
      { parties: { ...page.parties, edges: [{ ...edge, cursor: 7 }] } },
    ],
  ])('%s is named', (path, value) => {
    const error = shapeError(() => parse('parties', JSON.stringify(value)));
    expect(error.meta).toMatchObject({ path });
    expect(error.message).toContain(path);
  });

  test.each(['hasNextPage', 'startCursor', 'endCursor'])(
    '%s of another type is named, and may be left out',
    (name) => {
      const { meta } = shapeError(() =>
        parse('parties', pageJson('parties', [{ id: ID }], { [name]: 1 })),
      );
      expect(meta).toMatchObject({
        path: `parties.pageInfo.${name}`,
        value: '1',
      });
      for (const value of [undefined, null]) {
        expect(
          parse('parties', pageJson('parties', [{ id: ID }], { [name]: value }))
            .rows,
        ).toHaveLength(1);
      }
    },
  );

  test.each([
    '{"parties":null}',
    '{"parties":{}}',
    '{"parties":{"edges":null}}',
    '{"parties":{"edges":[],"pageInfo":null}}',
  ])('%s is an empty page, not none', (json) => {
    expect(parse('parties', json)).toEqual({
      rows: [],
      hasNextPage: false,
      startCursor: undefined,
      endCursor: undefined,
    });
  });

  test('is retryable where it is not JSON or not UTF-8', () => {
    const cut = pageJson('parties', [{ id: ID }]).slice(0, -1);
    for (const body of [
      Buffer.from('<html>'),
      Buffer.from(cut),
      Buffer.from(''),
      Buffer.from([0x22, 0xff, 0x22]),
    ]) {
      expect(() => parsePage('parties', body, ROWS_MAX)).toThrow(
        RetryableError,
      );
    }
  });

  const rows = JSON.parse(pageJson('parties', [{ id: ID }])) as {
    parties: object;
  };
  const long = 'x'.repeat(5_000);

  test.each([
    [
      'an error beside its rows',
      {
        ...rows,
        error: { code: 13, message: `shard 3 of 3 timed out ${long}` },
      },
    ],
    [
      'an error of another form beside its rows',
      { ...rows, error: { code: 'INTERNAL' } },
    ],
    [
      'errors beside an empty page',
      { parties: { edges: [] }, errors: [{ message: 'partial' }] },
    ],
    [
      'an error instead of a page',
      { parties: null, error: { code: 13, message: long } },
    ],
    [
      'an error within the page',
      { parties: { ...rows.parties, error: 'partial' } },
    ],
    ['a bare error', { code: 13, message: long, details: [] }],
  ])('is retryable where it tells %s', (_what, answer) => {
    expect(() =>
      parsePage('parties', Buffer.from(JSON.stringify(answer)), ROWS_MAX),
    ).toThrow(/reports an error/);
  });

  test.each([
    ['no error', { error: null, errors: [] }],
    ['an empty error', { error: {}, errors: null }],
    [
      'a code of success',
      { code: 0, message: 'ok', error: { code: 0, message: '' } },
    ],
  ])('is read where its envelope tells %s', (_what, beside) => {
    const answer = Buffer.from(JSON.stringify({ ...beside, ...rows }));
    expect(parsePage('parties', answer, ROWS_MAX).rows).toHaveLength(1);
  });

  test('fails with a known error for any bytes', () => {
    const json = pageJson('checkpoints', [NODE, NODE]);
    fc.assert(
      fc.property(
        fc.nat(json.length),
        fc.nat(json.length),
        fc.json(),
        (start, end, insert) => {
          const mangled =
            json.slice(0, Math.min(start, end)) +
            insert +
            json.slice(Math.max(start, end));
          expect(['page', 'PAGE_SHAPE', 'ANSWER_NOT_UNDERSTOOD']).toContain(
            outcomeOf(mangled),
          );
        },
      ),
      { numRuns: 500 },
    );
  });

  test('is told from an empty page, which is accepted', () => {
    expect(parse('parties', `\ufeff ${pageJson('parties', [])}`)).toEqual({
      rows: [],
      hasNextPage: false,
      startCursor: '',
      endCursor: '',
    });
  });
});

describe('a page that would exhaust the process', () => {
  test.each([
    ['brackets', '['.repeat(30_000) + ']'.repeat(30_000)],
    [
      'brackets inside a node',
      checkpointJson(`{"x":${'['.repeat(40)}${']'.repeat(40)}}`),
    ],
    ['millions of empty objects', `[${'{},'.repeat(1_000_000)}{}]`],
    [
      'a node of countless fields',
      checkpointJson(`{${'"a":1,'.repeat(10_000)}"hash":"a"}`),
    ],
  ])('of %s is refused as no page before it is parsed', (_what, json) => {
    expect(shapeError(() => parse('checkpoints', json)).message).toMatch(
      /it contains (?:more than|objects or arrays nested more than) \d+/,
    );
  });

  test('with more rows than were asked for is refused', () => {
    const rows = Array.from({ length: ROWS_MAX + 1 }, () => NODE);
    const error = shapeError(() =>
      parse('checkpoints', pageJson('checkpoints', rows)),
    );
    expect(error.meta).toMatchObject({
      path: 'checkpoints.edges.length',
      value: '11',
    });
    expect(
      parse('checkpoints', pageJson('checkpoints', rows.slice(1))).rows,
    ).toHaveLength(ROWS_MAX);
  });
});

describe('a hash', () => {
  test.each(['\u202e', '\u200b', '\u2066', '\ufeff', '\u2028', '\u0007'])(
    'with the invisible character %j is refused, for it would show as another',
    (character) => {
      const node = JSON.stringify({ ...NODE, hash: `ab${character}cd` });
      expect(whyOdd(node)).toContain('checkpoints.edges[0].node.hash');
    },
  );
});
