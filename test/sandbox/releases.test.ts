import { describe, expect, test } from 'vitest';
import { parseInstant } from '../../src/time/time.ts';
import type { SandboxOptions } from '../support/sandbox.ts';
import { startSandbox, type Sandbox } from '../support/sandbox.ts';
import { ask, exportOf, rowsOf } from './client.ts';

const HEADER_13 =
  'vega_time,quantity,effect,transfer_type,asset_id,account_from_market_id,account_from_party_id,' +
  'account_from_account_type,account_from_balance,account_to_market_id,account_to_party_id,' +
  'account_to_account_type,account_to_balance';
const ID = '[0-9a-f]{64}';
const ROW = new RegExp(
  String.raw`^2023-05-0\d \d\d:\d\d:\d\d(\.\d*[1-9])?\+00,\d+,-?\d+,TRANSFER_TYPE_[A-Z_]+,${ID},` +
    `(""|${ID}),(network|${ID}),[A-Z_]+,\\d+,(""|${ID}),(network|${ID}),[A-Z_]+,\\d+$`,
);
const FROM = '2023-05-01T01:00:00Z';
const TO = '2023-05-01T03:00:00Z';

function network(options: SandboxOptions): Promise<Sandbox> {
  return startSandbox({
    parties: 20,
    historyMs: 6 * 3_600_000,
    whaleEntries: 4000,
    ...options,
  });
}

function whaleOf(sandbox: Sandbox): string {
  const [whale] = [...sandbox.truth.parties()];
  return whale!.id;
}

function nanos(text: string): string {
  return `${parseInstant(text)! * 1000n}`;
}

async function rows(
  sandbox: Sandbox,
  query: Record<string, string> = {},
): Promise<string[]> {
  return rowsOf((await ask(sandbox, exportOf(whaleOf(sandbox), query))).body);
}

const isOutgoing = (row: string, party: string): boolean =>
  row.split(',')[6] === party;
const isIncoming = (row: string, party: string): boolean =>
  row.split(',')[10] === party;
const millis = (row: string): number =>
  Date.parse(`${row.slice(0, 19).replace(' ', 'T')}Z`);

describe.each(['0.71.6', '0.73'] as const)('release %s', (release) => {
  test('sends both sides in 13 columns, as its truth says', async () => {
    await using sandbox = await network({ release });
    const { body } = await ask(sandbox, exportOf(whaleOf(sandbox)));
    expect(body.split('\n')[0]).toBe(HEADER_13);
    const all = rowsOf(body);
    for (const row of all) expect(row).toMatch(ROW);
    expect(all.toSorted()).toEqual(
      [...sandbox.truth.rows(whaleOf(sandbox))].toSorted(),
    );
    expect(all.some((row) => !isOutgoing(row, whaleOf(sandbox)))).toBe(true);
    expect(all.some((row) => !isIncoming(row, whaleOf(sandbox)))).toBe(true);
  });

  test('says with its effect what an entry does to the party', async () => {
    await using sandbox = await network({ release });
    const party = whaleOf(sandbox);
    for (const row of await rows(sandbox)) {
      const [, quantity, effect] = row.split(',');
      const sign =
        Number(isIncoming(row, party)) - Number(isOutgoing(row, party));
      expect(BigInt(effect!)).toBe(BigInt(quantity!) * BigInt(sign));
    }
  });

  test('comes in the order of time', async () => {
    await using sandbox = await network({ release });
    const times = (await rows(sandbox)).map((row) =>
      parseInstant(row.split(',')[0]!)!,
    );
    expect(times).toEqual(times.toSorted((a, b) => Number(a - b)));
  });
});

describe('release 0.71.6 filters wrongly', () => {
  test('release 0.71.6 filters wrongly lets everything that comes in pass the bounds and the asset', async () => {
    await using sandbox = await network({ release: '0.71.6' });
    const party = whaleOf(sandbox);
    const [assetId] = sandbox.truth.assetIds();
    const truth = [...sandbox.truth.rows(party)];
    const query = {
      assetId: assetId!,
      'dateRange.startTimestamp': nanos(FROM),
    };
    const expected = truth.filter(
      (row) =>
        isIncoming(row, party) ||
        (row.split(',')[4] === assetId &&
          row >= FROM.slice(0, 19).replace('T', ' ')),
    );
    expect((await rows(sandbox, query)).toSorted()).toEqual(
      expected.toSorted(),
    );
  });

  test('release 0.71.6 filters wrongly lets nothing that goes out pass a start and an end', async () => {
    await using sandbox = await network({ release: '0.71.6' });
    const party = whaleOf(sandbox);
    const query = {
      'dateRange.startTimestamp': nanos(FROM),
      'dateRange.endTimestamp': nanos(TO),
    };
    const sent = await rows(sandbox, query);
    expect(sent.filter((row) => !isIncoming(row, party))).toEqual([]);
    expect(sent).toHaveLength(
      [...sandbox.truth.rows(party)].filter((row) => isIncoming(row, party))
        .length,
    );
  });

  test.each(['connection', 'crash'] as const)(
    'release 0.71.6 filters wrongly dies of an end without a start: %s',
    async (onFatalQuestion) => {
      await using sandbox = await network({
        release: '0.71.6',
        onFatalQuestion,
      });
      const query = { 'dateRange.endTimestamp': nanos(TO) };
      await expect(rows(sandbox, query)).rejects.toThrow(/hang up|ECONNRESET/);
      expect(sandbox.fatalQuestions()).toBe(1);
      const after = await rows(sandbox).then(
        () => 'answers',
        () => 'is gone',
      );
      expect(after).toBe(onFatalQuestion === 'crash' ? 'is gone' : 'answers');
    },
  );
});

describe('release 0.73 filters by a time that it does not send', () => {
  test('so that an entry can appear in the second after its own', async () => {
    await using sandbox = await network({ release: '0.73' });
    const truth = [...sandbox.truth.rows(whaleOf(sandbox))];
    const pieces: string[] = [];
    let strays = 0;
    const start = parseInstant('2023-05-01T00:00:00Z')!;
    // The last entry's own time may lie behind the last block's second.
    for (let minute = 0n; minute <= 361n; minute += 1n) {
      const from = start + minute * 60_000_000n;
      const to = start + (minute + 1n) * 60_000_000n;
      const sent = await rows(sandbox, {
        'dateRange.startTimestamp': `${from * 1000n}`,
        'dateRange.endTimestamp': `${to * 1000n}`,
      });
      const second = Number(from / 1000n);
      expect(
        sent.filter(
          (row) =>
            millis(row) < second - 1000 || millis(row) >= second + 60_000,
        ),
      ).toEqual([]);
      strays += sent.filter((row) => millis(row) < second).length;
      pieces.push(...sent);
    }
    expect(pieces.toSorted()).toEqual(truth.toSorted());
    expect(strays).toBeGreaterThan(0);
  });

  test('release 0.73 filters by a time that it does not send but filters correctly by the asset', async () => {
    await using sandbox = await network({ release: '0.73' });
    const parts: string[] = [];
    for (const assetId of sandbox.truth.assetIds()) {
      const sent = await rows(sandbox, { assetId });
      expect(sent.toSorted()).toEqual(
        [...sandbox.truth.rows(whaleOf(sandbox), { assetId })].toSorted(),
      );
      parts.push(...sent);
    }
    expect(parts.toSorted()).toEqual(
      [...sandbox.truth.rows(whaleOf(sandbox))].toSorted(),
    );
  });
});
