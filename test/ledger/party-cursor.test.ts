import { describe, expect, test } from 'vitest';
import { readPartyCursor } from '../../src/ledger/party-cursor.ts';

const ID = 'ab'.repeat(32);
const TIME = '2023-05-01T00:00:01.5Z';

function cursor(text: string): string {
  return Buffer.from(text).toString('base64');
}

describe("a party's cursor", () => {
  test('gives away when the party was first seen, and its id', () => {
    const text = `{"ID":"${ID}","TxHash":"cd","VegaTime":"${TIME}"}`;
    expect(readPartyCursor(cursor(text))).toEqual({ id: ID, time: 1_682_899_201_500_000n });
  });

  test.each([
    ['of the network', cursor('{"ID":"network","TxHash":"01","VegaTime":null}')],
    ['without an id', cursor(`{"VegaTime":"${TIME}"}`)],
    ['with a day that is none', cursor(`{"ID":"${ID}","VegaTime":"2023-02-30T00:00:00Z"}`)],
    ['of a mirror', '0123456789abcdef'.repeat(2)],
    ['that is cut', cursor(`{"ID":"${ID}","VegaTime":"${TIME}"}`).slice(0, -5)],
    ['that is no base64', 'eyJ"*"'],
    ['that is empty', ''],
  ])('%s tells nothing', (_, text) => {
    expect(readPartyCursor(text)).toBeUndefined();
  });
});
