import { createHash } from 'node:crypto';
import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { parseInstant } from '../../src/time/time.ts';
import {
  ACCOUNT_TYPE,
  type Movement,
} from '../../src/sandbox/network/ledger.ts';
import { KIND } from '../../src/sandbox/network/seeded.ts';
import {
  openCheckpointList,
  openPartyList,
} from '../../src/sandbox/http/lists.ts';
import {
  openNetwork,
  rfc3339Nano,
  timestamptz,
} from '../../src/sandbox/network/network.ts';
import { Settings } from '../../src/sandbox/options.ts';
import { openPage, type Listing } from '../../src/sandbox/http/paging.ts';
import { RELEASES } from '../../src/sandbox/release.ts';

/** Nothing is stored, so everything rests on formulas and their inverses. */
const anyNetwork = fc
  .record({
    seed: fc.string(),
    parties: fc.integer({ min: 1, max: 5000 }),
    historyMs: fc.integer({ min: 100_000, max: 100_000_000 }),
    blockIntervalMs: fc.constantFrom(1, 700, 1000, 15_000),
    checkpointIntervalMs: fc.constantFrom(15_000, 60_000),
    tieRows: fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 32 }),
  })
  .filter(
    ({ parties, historyMs, blockIntervalMs }) =>
      parties * blockIntervalMs < historyMs * 60,
  )
  .map((options) => openNetwork(new Settings(options)));
const ordinal = fc.integer({ min: 1, max: 3_000_000 });

describe('the blocks of the network', () => {
  test('the blocks of the network are found for every instant', () => {
    fc.assert(
      fc.property(anyNetwork, ordinal, ({ chain }, block) => {
        const time = chain.timeOf(block);
        expect(chain.timeOf(block + 1) > time).toBe(true);
        expect([chain.newestAt(time), chain.newestAt(time - 1n)]).toEqual([
          block,
          block - 1,
        ]);
        expect([chain.firstFrom(time), chain.firstFrom(time + 1n)]).toEqual([
          block,
          block + 1,
        ]);
      }),
    );
  });
});

describe('parties', () => {
  test('parties are counted as they arrive, and their number is exact at the end of the history', () => {
    fc.assert(
      fc.property(
        anyNetwork,
        fc.nat({ max: 9000 }),
        ({ parties, settings, ...rest }, index) => {
          const block = parties.arrivalBlock(index);
          expect(parties.arrivalBlock(index + 1)).toBeGreaterThanOrEqual(block);
          expect(parties.countBy(block)).toBeGreaterThan(index);
          expect(parties.countBy(block - 1)).toBeLessThanOrEqual(index);
          const end = Math.floor(settings.historyMs / settings.blockIntervalMs);
          expect(parties.countBy(end)).toBe(settings.parties);
          expect(rest.ids.indexOf(KIND.party, parties.row(index).id)).toBe(
            index,
          );
        },
      ),
    );
  });

  test('parties have ids that cannot be forged or confused', () => {
    fc.assert(
      fc.property(
        anyNetwork,
        fc.nat(),
        fc.nat({ max: 63 }),
        ({ ids }, index, at) => {
          const id = ids.id(KIND.party, index);
          const forged = `${id.slice(0, at)}${id[at] === '0' ? '1' : '0'}${id.slice(at + 1)}`;
          expect(ids.indexOf(KIND.party, forged)).toBeUndefined();
          expect(ids.indexOf(KIND.asset, id)).toBeUndefined();
          expect(ids.indexOf(KIND.party, id.slice(2))).toBeUndefined();
          expect(ids.indexOf(KIND.party, id)).toBe(index);
        },
      ),
    );
  });
});

describe('checkpoints', () => {
  test('checkpoints are found by their block, ties and all', () => {
    fc.assert(
      fc.property(
        anyNetwork,
        fc.nat({ max: 5000 }),
        ({ checkpoints }, position) => {
          const block = checkpoints.row(position).atBlock;
          expect(checkpoints.floor(block)).toBeLessThanOrEqual(position);
          expect(checkpoints.floor(block + 1)).toBeGreaterThan(position);
          expect(checkpoints.row(checkpoints.floor(block)).atBlock).toBe(block);
        },
      ),
    );
  });
});

describe('the ledger', () => {
  test('the ledger is the same in whatever windows it is read, many cycles to a block or many blocks to a cycle', () => {
    const busy = fc
      .record({
        seed: fc.string(),
        whaleEntries: fc.constantFrom(1, 50, 900, 30_000),
      })
      .map((options) =>
        openNetwork(
          new Settings({ ...options, parties: 40, historyMs: 1_000_000 }),
        ),
      );
    fc.assert(
      fc.property(
        busy,
        fc.nat({ max: 1000 }),
        fc.nat({ max: 20 }),
        (network, at, length) => {
          const read = (from: number, to: number): Movement[] => [
            ...network.movementsOfPair(0, { from, to }),
          ];
          const end = at + length;
          const whole = read(1, 1020);
          expect([
            ...read(1, at),
            ...read(at + 1, end),
            ...read(end + 1, 1020),
          ]).toEqual(whole);
          const blocks = whole.map((movement) => movement.block);
          expect(blocks).toEqual(blocks.toSorted((a, b) => a - b));

          const balances = (movements: Iterable<Movement>): string[] =>
            [...movements]
              .filter(({ from }) => from.owner === 1)
              .map(({ fromBalance }) => `${fromBalance}`)
              .toSorted();
          const all = {
            party: 1,
            asset: undefined,
            from: undefined,
            to: undefined,
            headBlock: end,
            call: at,
          };
          expect(balances(RELEASES['0.71.4'].select(network, all))).toEqual(
            balances(read(1, end)),
          );
        },
      ),
      { numRuns: 20 },
    );
  });
});

describe('the whole network', () => {
  test('the whole network stays what it was: data of an earlier run keeps its genesis and must not meet another network', () => {
    const options = {
      seed: 'golden',
      parties: 200,
      historyMs: 86_400_000,
      entriesMean: 30,
    };
    const whole = openNetwork(new Settings(options));
    const { parties, checkpoints } = whole;
    const head = whole.head();
    const hash = createHash('sha256');
    for (const { id, txHash, firstSeen } of parties.rows(
      0,
      parties.countBy(head.block),
    )) {
      hash.update(`${id} ${txHash} ${firstSeen}\n`);
    }
    for (
      let position = 0;
      position < checkpoints.visible(head).to;
      position += 1
    ) {
      const row = checkpoints.row(position);
      hash.update(`${row.atBlock} ${row.hash} ${row.blockHash}\n`);
    }
    const account = ({ owner, type, market }: Movement['from']): string =>
      `${owner}:${ACCOUNT_TYPE[type]}:${market}`;
    for (let party = 0; party < options.parties; party += 2) {
      for (const { from, to, ...entry } of whole.movementsOfPair(party, {
        from: 1,
        to: head.block,
      })) {
        const balances = `${entry.fromBalance} ${entry.toBalance}`;
        const what = `${entry.type} ${entry.asset} ${entry.quantity}`;
        hash.update(
          `${entry.block} ${what} ${account(from)} ${account(to)} ${balances}\n`,
        );
      }
    }
    expect(hash.digest('hex')).toBe(
      '33e69ca01b09330de0d29d8d52b0d27c7b6c6bbcdffa416cac2cd71f62f8a3f1',
    );
  });
});

describe('pages', () => {
  const base64 = (text: string | undefined): string =>
    Buffer.from(text ?? '').toString('base64');

  /** The nodes that following the edges of pages yields, in the order asked. */
  function follow(
    list: Listing,
    rows: number,
    newestFirst: boolean,
    forward: boolean,
  ): string[] {
    const nodes: string[] = [];
    let cursor: string | undefined;
    for (;;) {
      const size = forward ? { first: rows } : { last: rows };
      const direction = forward ? { after: cursor } : { before: cursor };
      const from = cursor === undefined ? {} : direction;
      const page = openPage({ ...size, ...from, newestFirst })(list);
      const shown = page.edges.map(
        ({ node }) => node['id'] ?? node['atBlock'] ?? '',
      );
      if (forward) nodes.push(...shown);
      else nodes.unshift(...shown);
      if (
        !(forward ? page.hasNextPage : page.hasPreviousPage) ||
        shown.length === 0
      )
        return nodes;
      cursor = base64(page.edges.at(forward ? -1 : 0)?.cursor);
    }
  }

  test('pages of parties show each once, in either order and direction', () => {
    fc.assert(
      fc.property(
        anyNetwork,
        fc.integer({ min: 2, max: 50 }),
        fc.boolean(),
        fc.boolean(),
        (net, rows, newest, forward) => {
          const head = {
            block: Math.min(net.head().block, net.parties.arrivalBlock(200)),
            time: net.head().time,
          };
          const list = openPartyList(net, head);
          const truth = [...net.parties.rows(0, list.to - 1)].map(
            (row) => row.id,
          );
          const shown = follow(list, rows, newest, forward).filter(
            (id) => id !== 'network',
          );
          expect(shown).toEqual(newest ? truth.toReversed() : truth);
        },
      ),
    );
  });

  test('pages of checkpoints show each height if no tie is larger than a page', () => {
    fc.assert(
      fc.property(
        anyNetwork,
        fc.boolean(),
        fc.boolean(),
        (net, newest, forward) => {
          const list = openCheckpointList(net, { ...net.head(), block: 4000 });
          const truth = new Set<string>();
          for (let at = list.from; at < list.to; at += 1)
            truth.add(`${net.checkpoints.row(at).atBlock}`);
          const shown = new Set(follow(list, 45, newest, forward));
          expect(shown).toEqual(truth);
        },
      ),
    );
  });
});

describe('times', () => {
  test.each([
    ['2023-05-01T10:00:00Z', '2023-05-01 10:00:00+00'],
    ['2023-05-01T10:00:00.12Z', '2023-05-01 10:00:00.12+00'],
    ['2023-05-01T10:00:00.000001Z', '2023-05-01 10:00:00.000001+00'],
    ['2023-05-01T20:00:10.1Z', '2023-05-01 20:00:10.1+00'],
  ])('%s is written as the service does', (nano, postgres) => {
    const instant = parseInstant(nano) ?? -1n;
    expect([rfc3339Nano(instant), timestamptz(instant)]).toEqual([
      nano,
      postgres,
    ]);
  });
});
