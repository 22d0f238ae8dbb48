/** The fleet and its oracle, without a mirror. */
import { describe, expect, test } from 'vitest';
import { Random } from '../lists/plain-source/random.ts';
import { Fleet, nothingServed } from './fleet.ts';
import type { HeldByMirror } from './held.ts';
import {
  type FleetNode,
  shownCheckpoints,
  shownEntries,
  shownParties,
} from './node.ts';
import { findLies } from './oracle.ts';
import { makeChain } from './sequence.ts';

const TIP: FleetNode = { kind: 'tip', lag: 0n };
const LAGGING: FleetNode = { kind: 'lagging', lag: 144n };

async function readParties(url: string): Promise<string[]> {
  const ids: string[] = [];
  let after = '';
  for (;;) {
    const query = `pagination.first=4&pagination.newestFirst=false${after}`;
    const answer = await fetch(`${url}/api/v2/parties?${query}`);
    const { parties } = (await answer.json()) as {
      parties: {
        edges: { node: { id: string } }[];
        pageInfo: { hasNextPage: boolean; endCursor: string };
      };
    };
    ids.push(...parties.edges.map(({ node }) => node.id));
    if (!parties.pageInfo.hasNextPage) return ids;
    after = `&pagination.after=${parties.pageInfo.endCursor}`;
  }
}

describe('the fleet', () => {
  test('serves all parties page by page, and a lagging node none of the newest', async () => {
    const chain = makeChain(new Random(1), 1, 5_000n);
    await using fleet = new Fleet(new Random(2), chain);
    const url = await fleet.listen();
    const before = await readParties(url);
    while (chain.parties.length === before.length) chain.grow(100n);

    expect(await readParties(url)).toHaveLength(chain.parties.length);
    fleet.nodes = [{ kind: 'lagging', lag: chain.height - 5_000n }];
    expect(await readParties(url)).toEqual(before);
    expect(fleet.ever.parties).toEqual(
      new Set(chain.parties.map(({ id }) => id)),
    );
    expect(fleet.ever.heads.get('parties')).toBe(chain.height);
  });
});

describe('the oracle', () => {
  const chain = makeChain(new Random(3), 1, 5_000n);
  chain.grow(144n);

  function heldFrom(node: FleetNode, asOfBlock: bigint): HeldByMirror {
    const keysOf = (rows: readonly { readonly key: string }[]) =>
      new Set(rows.map(({ key }) => key));
    const parties = shownParties(node, chain);
    const everything = { from: 0n, to: undefined };
    return {
      parties: { keys: keysOf(parties), asOfBlock },
      checkpoints: { keys: keysOf(shownCheckpoints(node, chain)), asOfBlock },
      closedTo: new Map(parties.map(({ key }) => [key, chain.time])),
      entries: new Map(
        parties.map(({ key }) => {
          const entries = shownEntries(node, chain, key, everything);
          return [key, new Set(entries.map(({ number }) => number))];
        }),
      ),
    };
  }

  const night = {
    chain,
    startHeight: chain.height,
    keptFrom: 0n,
    ever: nothingServed(),
    lately: nothingServed(),
  };
  night.lately.heads.set('parties', chain.height);

  test('accepts what the most advanced node serves', () => {
    expect(findLies(heldFrom(TIP, chain.height), night)).toEqual([]);
  });

  test('finds an older state behind one that was served, and entries that are missing', () => {
    const lies = findLies(heldFrom(LAGGING, 5_000n), night);
    expect(lies).toContain('parties: as of 5000, a node had answered at 5144');
    expect(lies.join()).toMatch(/ledger of .* entries missing/);
  });

  test('finds a row that the network never had', () => {
    const held = heldFrom(TIP, chain.height);
    const keys = new Set([...held.parties.keys, 'somebody']);
    const parties = { ...held.parties, keys };
    expect(findLies({ ...held, parties }, night)).toEqual([
      'parties: 1 rows of nobody, somebody',
    ]);
  });
});
