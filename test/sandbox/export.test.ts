import { createHash } from 'node:crypto';
import { get } from 'node:http';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseInstant } from '../../src/time/time.ts';
import {
  ACCOUNT_TYPE,
  NETWORK,
  type Account,
} from '../../src/sandbox/network/ledger.ts';
import { openNetwork } from '../../src/sandbox/network/network.ts';
import { Settings } from '../../src/sandbox/options.ts';
import { startSandbox, type Sandbox } from '../support/sandbox.ts';
import { ask, exportOf, rowsOf } from './client.ts';

const HEADER =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_to_market_id,account_to_party_id,account_to_account_type,' +
  'account_from_balance,account_to_balance\n';
const ROW = new RegExp(
  String.raw`^2023-05-0\d \d\d:\d\d:\d\d(\.\d*[1-9])?\+00,\d+,TRANSFER_TYPE_[A-Z_]+,\\x[0-9a-f]{64},` +
    String.raw`(\\x([0-9a-f]{64})?,\\x(03|[0-9a-f]{64}),\d+,){2}\d+,\d+$`,
);
const FAILURE =
  '{"error":{"code":13,"message":"Internal error","details":[{"@type":"type.googleapis.com/vega.ErrorDetail",' +
  '"code":260002,"message":"failed to export ledger entries","inner":"copying to stdout: boom"}]}}';

let sandbox: Sandbox;
/** The two that are busiest, and some more. */
let whale: string;
let others: string[];

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 60,
    historyMs: 6 * 3_600_000,
    entriesMean: 60,
    whaleEntries: 9000,
  });
  const ids = [...sandbox.truth.parties()].map((party) => party.id);
  const counts = new Map(
    ids.map((id) => [id, sandbox.truth.party(id).entries]),
  );
  const busiest = ids.toSorted(
    (a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0),
  );
  whale = busiest[0]!;
  others = busiest.slice(1);
});
afterAll(() => sandbox.stop());

describe('what an export holds', () => {
  test('an export of the sandbox holds the truth of every party, as a multiset', async () => {
    for (const id of [whale, ...others]) {
      const { status, body, whole } = await ask(sandbox, exportOf(id));
      expect([status, whole]).toEqual([200, true]);
      expect(body.startsWith(HEADER)).toBe(true);
      const rows = rowsOf(body);
      expect(rows.toSorted()).toEqual([...sandbox.truth.rows(id)].toSorted());
      const digest = rows.reduce(
        (sum, row) =>
          (sum +
            BigInt(`0x${createHash('sha256').update(row).digest('hex')}`)) %
          2n ** 256n,
        0n,
      );
      expect(sandbox.truth.party(id)).toMatchObject({
        entries: rows.length,
        digest: digest.toString(16).padStart(64, '0'),
      });
    }
  });

  test('an export of the sandbox is written as release 0.71.4 writes it, amounts beyond 2^53 and times without a fraction among it', async () => {
    const rows = rowsOf((await ask(sandbox, exportOf(whale))).body);
    for (const row of rows) expect(row).toMatch(ROW);
    const quantities = rows.map((row) => row.split(',')[1]!);
    expect(quantities.some((quantity) => quantity.length >= 30)).toBe(true);
    expect(quantities.some((quantity) => quantity.length <= 13)).toBe(true);
    expect(rows.some((row) => /^\S+ \d\d:\d\d:\d\d\+00,/.test(row))).toBe(true);
    expect(new Set(rows.map((row) => row.split(',')[2])).size).toBeGreaterThan(
      5,
    );
    expect(new Set(rows.map((row) => row.split(',')[5])).size).toBe(1);
  });

  test('an export of the sandbox has rows that are equal to the last letter', async () => {
    const rows = rowsOf((await ask(sandbox, exportOf(whale))).body);
    expect(new Set(rows).size).toBeLessThan(rows.length);
    const repeated = rows.filter((row, nth) => rows.indexOf(row) < nth);
    expect(repeated.some((row) => row.split(',')[1] === '0')).toBe(true);
    expect(repeated.some((row) => row.split(',')[1] !== '0')).toBe(true);
  });

  test('an export of release 0.71.4 comes in an order that changes from call to call', async () => {
    const orders = new Set<string>();
    for (let call = 0; call < 4; call += 1)
      orders.add((await ask(sandbox, exportOf(whale))).body);
    expect(orders.size).toBeGreaterThan(1);
    expect(
      new Set([...orders].map((body) => rowsOf(body).toSorted().join('\n')))
        .size,
    ).toBe(1);
  });

  test('exports of single assets add up to the export of all', async () => {
    const parts: string[] = [];
    for (const assetId of sandbox.truth.assetIds()) {
      const rows = rowsOf(
        (
          await ask(
            sandbox,
            exportOf(whale, { assetId: assetId.toUpperCase() }),
          )
        ).body,
      );
      expect(rows.every((row) => row.split(',')[3] === `\\x${assetId}`)).toBe(
        true,
      );
      expect(rows.toSorted()).toEqual(
        [...sandbox.truth.rows(whale, { assetId })].toSorted(),
      );
      parts.push(...rows);
    }
    expect(parts.toSorted()).toEqual([...sandbox.truth.rows(whale)].toSorted());
  });

  test('an export is cut to half-open whole seconds, which tile exactly', async () => {
    const nanos = (text: string): string =>
      `${(parseInstant(text) ?? 0n) * 1000n}`;
    const bounds = [
      '2023-05-01T00:00:00Z',
      '2023-05-01T02:31:07.9Z',
      '2023-05-01T02:31:08.1Z',
      '2023-05-02T00:00:00Z',
    ];
    const parts: string[] = [];
    for (const [nth, from] of bounds.slice(0, -1).entries()) {
      const to = bounds[nth + 1]!;
      const query = {
        'dateRange.startTimestamp': nanos(from),
        'date_range.end_timestamp': nanos(to),
      };
      const rows = rowsOf((await ask(sandbox, exportOf(whale, query))).body);
      const second = (text: string): string =>
        text.slice(0, 19).replace('T', ' ');
      expect(rows.every((row) => row >= second(from) && row < second(to))).toBe(
        true,
      );
      parts.push(...rows);
    }
    expect(parts.toSorted()).toEqual([...sandbox.truth.rows(whale)].toSorted());
    const after = { 'dateRange.startTimestamp': nanos('2023-05-02') };
    expect((await ask(sandbox, exportOf(whale, after))).body).toBe(HEADER);
    const reversed = {
      'dateRange.startTimestamp': nanos('2023-05-02'),
      'dateRange.endTimestamp': '-5',
    };
    expect((await ask(sandbox, exportOf(whale, reversed))).body).toBe(HEADER);
  });

  test('an export without rows is a header', async () => {
    const unknown = 'f'.repeat(64);
    for (const target of [
      exportOf(unknown),
      exportOf(whale, { assetId: unknown }),
    ]) {
      expect(await ask(sandbox, target)).toMatchObject({
        status: 200,
        body: HEADER,
      });
    }
  });
});

describe('money', () => {
  test('money is conserved: each movement shows the balances it leads to, and no account goes below zero', () => {
    const network = openNetwork(
      new Settings({ parties: 60, historyMs: 6 * 3_600_000, entriesMean: 200 }),
    );
    let movements = 0;
    for (let party = 0; party < 60; party += 2) {
      const pair = [
        ...network.movementsOfPair(party, {
          from: 1,
          to: network.head().block,
        }),
      ];
      const balances = new Map<string, bigint>();
      const wrong: string[] = [];
      const post = (
        account: Account,
        asset: number,
        amount: bigint,
        shown: bigint,
      ): void => {
        const key = `${account.owner} ${account.type} ${account.market} ${asset}`;
        const outside = account.type === 'EXTERNAL';
        const balance = outside ? 0n : (balances.get(key) ?? 0n) + amount;
        balances.set(key, balance);
        if (balance < 0n || balance !== shown)
          wrong.push(`${key}: ${balance}, shown ${shown}`);
      };
      for (const [
        nth,
        { block, from, to, asset, quantity, fromBalance, toBalance },
      ] of pair.entries()) {
        post(from, asset, -quantity, fromBalance);
        post(to, asset, quantity, toBalance);
        if (pair[nth + 1]?.block === block) continue;
        // What passes through the network's accounts has left them when the block ends.
        const left = [...balances].filter(
          ([key, balance]) => key.startsWith(`${NETWORK} `) && balance !== 0n,
        );
        wrong.push(
          ...left.map(([key]) => `${key}: left over in block ${block}`),
        );
      }
      expect(wrong).toEqual([]);
      movements += pair.length;
    }
    expect(movements).toBeGreaterThan(1000);
  });

  test('the truth of the sandbox has balances and sums', () => {
    const { sums } = sandbox.truth.party(whale);
    const rows = [...sandbox.truth.rows(whale)].map((row) => row.split(','));
    for (const { assetId, type, day, entries, quantity } of sums) {
      const summed = rows.filter(
        (row) =>
          row[0]!.startsWith(day) &&
          row[2] === type &&
          row[3] === `\\x${assetId}`,
      );
      expect(summed).toHaveLength(entries);
      expect(summed.reduce((sum, row) => sum + BigInt(row[1]!), 0n)).toBe(
        quantity,
      );
    }
    expect(sums.reduce((sum, { entries }) => sum + entries, 0)).toBe(
      rows.length,
    );
    const general = sandbox.truth
      .balances(whale)
      .filter(({ accountType }) => accountType === ACCOUNT_TYPE.GENERAL);
    expect(general.map(({ assetId }) => assetId).toSorted()).toEqual(
      sandbox.truth.assetIds().toSorted(),
    );
    expect(general.every(({ balance }) => balance > 0n)).toBe(true);
  });
});

describe('how an export is sent', () => {
  const names = (headers: [string, string][]): Record<string, string> =>
    Object.fromEntries(headers);

  test('an export names its file and has none of the headers of lists', async () => {
    const asset = sandbox.truth.assetIds()[0]!;
    const query = {
      assetId: asset,
      'dateRange.startTimestamp': '1682899200500000000',
      'dateRange.endTimestamp': '1682985600000000000',
    };
    const { headers } = await ask(sandbox, exportOf(whale, query));
    expect(names(headers)).toMatchObject({
      'Content-Type': 'text/csv',
      'Content-Disposition': `attachment;filename=ledger_entries_${whale}_${asset}_2023-05-01T00_00_00Z-2023-05-02T00_00_00Z.csv`,
      'Transfer-Encoding': 'chunked',
    });
    expect(
      Object.keys(names(headers)).filter((name) =>
        /^(?:x-|ratelimit)/i.test(name),
      ),
    ).toEqual([]);
  });

  test('an export is compressed if the request names gzip, even to refuse it', async () => {
    const reply = await ask(sandbox, exportOf(others[0]!), {
      'accept-encoding': 'gzip;q=0',
    });
    expect(names(reply.headers)['Content-Encoding']).toBe('gzip');
    const plain = gunzipSync(Buffer.from(reply.body, 'latin1')).toString();
    expect(rowsOf(plain).toSorted()).toEqual(
      [...sandbox.truth.rows(others[0]!)].toSorted(),
    );
  });

  test('an export is sent in pieces that end on rows, or whole if it is small', async () => {
    const pieces: number[] = [];
    await using messages = await startSandbox({
      parties: 4,
      historyMs: 60_000,
      whaleEntries: 9000,
      form: 'messages',
    });
    const [first] = [...messages.truth.parties()];
    const { body, headers } = await ask(messages, exportOf(first!.id));
    expect(names(headers)['Content-Type']).toBe('application/json');
    const parts = body
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).result as Record<string, string>);
    for (const [nth, part] of parts.entries()) {
      expect(Object.keys(part)).toEqual(
        nth === 0
          ? ['contentType', 'data', 'extensions']
          : ['contentType', 'data'],
      );
      const data = Buffer.from(part['data']!, 'base64');
      expect(data.at(-1)).toBe(0x0a);
      pieces.push(data.length);
    }
    expect(pieces.length).toBeGreaterThan(1);
    expect(
      pieces
        .slice(0, -1)
        .every((bytes) => bytes >= 1_048_576 && bytes < 1_048_576 + 1024),
    ).toBe(true);
    const csv = parts
      .map((part) => Buffer.from(part['data']!, 'base64').toString())
      .join('');
    expect(rowsOf(csv).toSorted()).toEqual(
      [...messages.truth.rows(first!.id)].toSorted(),
    );
  });
});

describe('an export that fails', () => {
  const detail = (code: number, message: string): string =>
    `{"error":{"code":3,"message":"InvalidArgument error","details":[{"@type":"type.googleapis.com/vega.ErrorDetail","code":${code},"message":"${message}","inner":""}]}}`;

  test.each([
    ['', detail(10014, 'missing party id')],
    ['partyId=', detail(10014, 'missing party id')],
    ['partyId=network', detail(10000, 'invalid party id')],
    [`partyId=${'ab'.repeat(31)}`, detail(10000, 'invalid party id')],
    [`partyId=${'ab'.repeat(32)}&assetId=z`, detail(10038, 'invalid asset ID')],
  ])(
    'an export that fails is refused in an envelope: %s',
    async (query, body) => {
      const reply = await ask(sandbox, `/api/v2/ledgerentry/export?${query}`);
      expect(reply).toMatchObject({ status: 400, body });
      expect(reply.headers).toContainEqual([
        'Content-Type',
        'application/json',
      ]);
      expect(reply.headers).toContainEqual(['Transfer-Encoding', 'chunked']);
    },
  );

  test('an export that the gateway cannot parse is refused without an envelope, with spaces', async () => {
    const reply = await ask(
      sandbox,
      exportOf(whale, { 'dateRange.startTimestamp': '1.5e9' }),
    );
    expect(reply).toMatchObject({
      status: 400,
      body: String.raw`{"code":3, "message":"parsing field \"start_timestamp\": strconv.ParseInt: parsing \"1.5e9\": invalid syntax", "details":[]}`,
    });
    expect(reply.headers).toContainEqual(['Content-Length', '124']);
  });

  test('an export demands an asset if the release does', async () => {
    await using strict = await startSandbox({
      parties: 4,
      assetRequired: true,
    });
    const [first] = [...strict.truth.parties()];
    expect(await ask(strict, exportOf(first!.id))).toMatchObject({
      status: 400,
      body: detail(10017, 'missing asset ID'),
    });
    expect(
      await ask(
        strict,
        exportOf(first!.id, { assetId: strict.truth.assetIds()[0]! }),
      ),
    ).toMatchObject({
      status: 200,
    });
  });

  test('an export that fails has a status of its own before the first byte', async () => {
    sandbox.faults.once('export', { errorAfterBytes: 0 });
    const reply = await ask(sandbox, exportOf(whale));
    expect(reply).toMatchObject({ status: 500, body: FAILURE, whole: true });
    expect(reply.headers.map(([name]) => name)).toContain(
      'Content-Disposition',
    );
    expect((await ask(sandbox, exportOf(whale))).status).toBe(200);
  });

  test.each([HEADER.length, 1000, 1_048_576, 2_000_000])(
    'an export that fails glues its error to a 200 after %i bytes',
    async (errorAfterBytes) => {
      sandbox.faults.once('export', { errorAfterBytes });
      const reply = await ask(sandbox, exportOf(whale));
      expect(reply).toMatchObject({ status: 200, whole: true });
      expect(reply.headers).toContainEqual(['Content-Type', 'text/csv']);
      expect(reply.body.length).toBe(errorAfterBytes + FAILURE.length);
      expect(reply.body.endsWith(FAILURE)).toBe(true);
    },
  );

  test('an export that fails sends its error as the last message in the message form', async () => {
    await using messages = await startSandbox({
      parties: 4,
      whaleEntries: 100,
      form: 'messages',
    });
    const [first] = [...messages.truth.parties()];
    messages.faults.once('export', { errorAfterBytes: 700 });
    const lines = (await ask(messages, exportOf(first!.id))).body
      .trimEnd()
      .split('\n');
    expect(lines.map((line) => Object.keys(JSON.parse(line)))).toEqual([
      ['result'],
      ['error'],
    ]);
    messages.faults.once('export', { errorAfterBytes: 0 });
    expect(
      JSON.parse((await ask(messages, exportOf(first!.id))).body),
    ).toMatchObject({
      code: 13,
    });
  });

  test.each(['identity', 'gzip'])(
    'an export that fails breaks off where it is told to (%s)',
    async (encoding) => {
      sandbox.faults.once('export', { cutAfterBytes: 5000 });
      const reply = await ask(sandbox, exportOf(whale), {
        'accept-encoding': encoding,
      });
      expect(reply).toMatchObject({ status: 200, whole: false });
      expect(reply.body.length > 0 && reply.body.length <= 5000).toBe(true);
    },
  );

  test('a silent export stays open until the client goes away', async () => {
    sandbox.faults.once('export', { stallAfterBytes: 5000 });
    sandbox.requests.clear();
    await new Promise<void>((resolve, reject) => {
      let bytes = 0;
      const request = get(`${sandbox.url}${exportOf(whale)}`, (response) => {
        response.on('error', () => {});
        response.on('data', (piece: Buffer) => {
          bytes += piece.length;
          if (bytes === 5000) resolve(void request.destroy());
          if (bytes > 5000) reject(new Error('went on'));
        });
      });
    });
    await expect.poll(() => sandbox.requests.of('export', 200)).toBe(1);
  });
});

describe('a large export', () => {
  test('a large export costs no memory, and stops when the client goes away', async () => {
    await using large = await startSandbox({
      parties: 2,
      historyMs: 3_600_000,
      whaleEntries: 40_000_000,
    });
    const [first] = [...large.truth.parties()];
    const late: number[] = [];
    await new Promise<void>((resolve) => {
      let bytes = 0;
      const request = get(`${large.url}${exportOf(first!.id)}`, (response) => {
        response.on('error', () => {});
        response.on('close', resolve);
        response.on('data', (piece: Buffer) => {
          bytes += piece.length;
          if (bytes > 100_000_000) late.push(process.memoryUsage.rss());
          if (bytes > 300_000_000) request.destroy();
        });
      });
    });
    expect(Math.max(...late) - late[0]!).toBeLessThan(100_000_000);
    await expect.poll(() => large.requests.of('export')).toBe(1);
    expect(large.requests.all()[0]!.bytes).toBeLessThan(400_000_000);
  });
});
