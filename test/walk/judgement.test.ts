/** What is decided from what was seen: identity, verdict, order, envelopes, and reading one ahead. */
import { describe, expect, test } from 'vitest';
import { compareParties, readPartyCursor } from '../../src/ledger/party-cursor.ts';
import { Ahead } from '../../src/walk/ahead.ts';
import { cutPage } from '../../src/walk/groups.ts';
import { checkEnvelope, checkOrder } from '../../src/walk/guards.ts';
import { judge, type Fingerprint } from '../../src/walk/identity.ts';
import { verdictOf } from '../../src/walk/verdict.ts';
import { checkpoints, ListDouble, networkParty, parties } from './list-double.ts';

describe('which network is this', () => {
  const print: Fingerprint = {
    agreeing: 0,
    foreign: 0,
    isBelowAll: false,
    oldestKnown: undefined,
    heightWentDown: false,
  };
  test.each([
    ['checkpoints agree', { agreeing: 3 }, 'same'],
    ['checkpoints agree, heights went down', { agreeing: 3, heightWentDown: true }, 'lagging'],
    ['a checkpoint that cannot be, parties known', { agreeing: 3, foreign: 1, oldestKnown: true }, 'reset'],
    ['a checkpoint that cannot be, parties unknown', { foreign: 1, oldestKnown: false }, 'another'],
    ['a checkpoint that cannot be, parties not to be had', { foreign: 1 }, 'another'],
    ['all below, parties known', { isBelowAll: true, heightWentDown: true, oldestKnown: true }, 'reset'],
    ['all below a height that did not go down', { isBelowAll: true, oldestKnown: true }, 'same'],
    ['nothing to compare but unknown parties', { oldestKnown: false }, 'another'],
    ['nothing to compare, heights went down', { heightWentDown: true }, 'unknown'],
    ['nothing to compare at all', {}, 'same'],
  ] as const)('%s', (_, seen, kind) => {
    expect(judge({ ...print, ...seen }).kind).toBe(kind);
  });
});

describe('verdicts', () => {
  test.each([
    [[], [{ code: 'GAP' }], 'incomplete'],
    [[], [{ code: 'HEAD' }], 'failed'],
    [[{ code: 'ORDER_BROKEN', meta: {} }], [{ code: 'GAP' }], 'suspicious'],
    [[{ code: 'NEVER_HEARD_OF', meta: {} }], [], 'suspicious'],
    [[], [], 'incomplete'],
  ] as const)('%j and %j', (violations, missing, verdict) => {
    expect(verdictOf(violations, missing)).toBe(verdict);
  });
});

describe('a page by itself', () => {
  const double = new ListDouble();
  double.lists.parties = parties(12);
  double.lists.checkpoints = checkpoints(12);
  const page = (list: 'parties' | 'checkpoints', newestFirst: boolean): ReturnType<ListDouble['compute']> =>
    double.compute({ list, newestFirst, size: 9 });

  test.each(['parties', 'checkpoints'] as const)('%s in order, and backwards', (list) => {
    const { whole } = cutPage(list, page(list, true));
    expect(checkOrder(list, whole, 'down')).toBeUndefined();
    expect(checkOrder(list, whole, 'up')).toMatchObject({ code: 'ORDER_BROKEN' });
    expect(checkOrder(list, [...whole, whole[0]!], 'down')).toMatchObject({ code: 'ORDER_BROKEN' });
  });

  test('the envelope goes with its edges', () => {
    expect(checkEnvelope(page('parties', true))).toBeUndefined();
    expect(checkEnvelope({ ...page('parties', true), endCursor: 'other' })).toMatchObject({
      code: 'ENVELOPE_CONTRADICTS',
    });
    const empty = { ...page('parties', true), rows: [], startCursor: '', endCursor: '' };
    expect(checkEnvelope(empty)).toBeUndefined();
    expect(checkEnvelope({ ...empty, endCursor: 'c' })).toBeDefined();
  });

  test('"network" is apart, and a group at the border is not whole', () => {
    const cut = cutPage('parties', page('parties', true));
    expect({ network: cut.network?.key, whole: cut.whole.length }).toEqual({ network: 'network', whole: 8 });
    const ties = cutPage('checkpoints', page('checkpoints', false));
    expect(ties.partial).toBeDefined();
    expect(
      cutPage('checkpoints', { ...page('checkpoints', false), hasNextPage: false }).partial,
    ).toBeUndefined();
  });

  test('a full page may cut a group, even where its envelope says that nothing follows', () => {
    const last = { ...page('checkpoints', false), hasNextPage: false };
    expect(cutPage('checkpoints', last, last.rows.length).partial).toBeDefined();
    expect(cutPage('checkpoints', last, last.rows.length + 1).partial).toBeUndefined();
  });
});

describe('cursors of parties', () => {
  const cursor = (id: string, time: string): string =>
    Buffer.from(JSON.stringify({ ID: id, TxHash: 'AB', VegaTime: time })).toString('base64');

  test('tell id and time, to the microsecond, in any zone', () => {
    const older = readPartyCursor(cursor('aa', '2023-05-01T10:00:00.5Z'))!;
    const newer = readPartyCursor(cursor('aa', '2023-05-01T12:00:00.500001+02:00'))!;
    expect(compareParties(older, newer)).toBeLessThan(0);
    expect(compareParties(newer, older)).toBeGreaterThan(0);
    expect(compareParties(older, { ...older, id: 'ab' })).toBeLessThan(0);
    expect(compareParties(older, older)).toBe(0);
  });

  test.each([networkParty.row.cursor, 'AAAA', '', cursor('aa', 'yesterday'), '%%%'])(
    '%j tells nothing',
    (text) => {
      expect(readPartyCursor(text)).toBeUndefined();
    },
  );
});

describe('one ahead', () => {
  test('the next is pulled once one is in hand, and no more', async () => {
    const pulled: number[] = [];
    async function* numbers(): AsyncGenerator<number, void> {
      for (let number = 0; number < 5; number += 1) {
        pulled.push(number);
        yield await Promise.resolve(number);
      }
    }
    await using ahead = new Ahead(numbers(), new AbortController());
    await ahead.arrived();
    await new Promise(setImmediate);
    expect(pulled).toEqual([0]);
    expect(await ahead.take()).toBe(0);
    await new Promise(setImmediate);
    expect(pulled).toEqual([0, 1]);
    expect(await ahead.take()).toBe(1);
    await new Promise(setImmediate);
    expect(pulled).toEqual([0, 1, 2]);
  });

  test('an error waits for whoever asks, and disposing hears of it too', async () => {
    async function* failing(): AsyncGenerator<number, void> {
      yield await Promise.resolve(1);
      throw new Error('broke');
    }
    const ahead = new Ahead(failing(), new AbortController());
    expect(await ahead.take()).toBe(1);
    await expect(ahead.take()).rejects.toThrow('broke');
    await ahead[Symbol.asyncDispose]();
  });
});
