/**
 * A source that is a fleet: behind one address, nodes at different heights answer, some
 * of another network. What a node lacks is neither forgotten nor called complete.
 */
import { describe, expect, test } from 'vitest';
import type { ListName, ListSource } from '../../src/lists/ports.ts';
import {
  checkpoint,
  checkpoints,
  ListDouble,
  parties,
  party,
} from './list-double.ts';
import { freshSyncWorld } from './sync-world.ts';

const world = await freshSyncWorld();

const LISTS = ['parties', 'checkpoints'] as const;

/** A node of one network that has come so far. */
function node(rows: number, height: bigint | undefined): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(rows);
  double.lists.checkpoints = checkpoints(rows);
  double.height = height;
  return double;
}

/** How many rows a list of such a node has: ties, and the party of the network. */
function sizeOf(list: ListName, rows: number): number {
  return list === 'parties' ? parties(rows).length : checkpoints(rows).length;
}

/** Answers by one node after the other. */
function balancer(nodes: readonly ListSource[]): ListSource {
  let turn = 0;
  const next = (): ListSource => {
    const answering = nodes[turn % nodes.length];
    turn += 1;
    if (answering === undefined) throw new Error('there is no node');
    return answering;
  };
  return {
    page: (question, signal) => next().page(question, signal),
    party: (id, signal) => next().party(id, signal),
  };
}

function missingOf(evidence: Readonly<Record<string, unknown>>): unknown {
  return (evidence['missing'] as readonly { readonly code: string }[])[0]?.code;
}

describe.each(LISTS)('%s of a fleet', (list: ListName) => {
  test.each([false, true])(
    'a node that lags is no reason to forget a row (audit: %s)',
    async (isAudit) => {
      await world.sync(node(40, 400n), { list });
      const held = await world.held(list);
      const lagging = node(38, 360n);
      const { verdict, evidence } = await world.sync(lagging, {
        list,
        isAudit,
      });
      expect([verdict, missingOf(evidence)]).toEqual([
        'incomplete',
        'SOURCE_BEHIND',
      ]);
      expect(await world.held(list)).toEqual(held);
      expect(await world.openDoubts(list)).toEqual([]);

      const whole = await world.sync(node(41, 410n), { list, isAudit });
      expect(whole.verdict).toBe('complete');
      expect(await world.held(list)).toHaveLength(sizeOf(list, 41));
    },
  );

  test('the next node is asked if one is behind, and the list is complete', async () => {
    await world.sync(node(40, 400n), { list });
    const fleet = balancer([node(36, 360n), node(45, 450n)]);
    const { verdict, evidence } = await world.sync(fleet, {
      list,
      isAudit: true,
    });
    expect(verdict).toBe('complete');
    expect(await world.held(list)).toHaveLength(sizeOf(list, 45));
    expect(JSON.stringify(evidence['warnings'])).toContain('SOURCE_BEHIND');
  });

  test('rows that are inserted before the oldest one are taken in by an audit', async () => {
    const before = node(40, 400n);
    before.lists.parties.splice(0, 2);
    before.lists.checkpoints.splice(0, 2);
    await world.sync(before, { list });
    const repaired = node(41, 410n);
    const audit = await world.sync(repaired, { list, isAudit: true });
    expect([audit.verdict, missingOf(audit.evidence)]).toEqual([
      'complete',
      undefined,
    ]);
    expect(await world.held(list)).toHaveLength(sizeOf(list, 41));
    expect((await world.sync(repaired, { list })).verdict).toBe('complete');
  });

  test('the highest claim counts after audits, and for the other list', async () => {
    await world.sync(node(40, 400n), { list });
    await world.sync(node(40, 400n), { list, isAudit: true });
    const behind = await world.sync(node(40, 399n), { list, isAudit: true });
    expect(missingOf(behind.evidence)).toBe('SOURCE_BEHIND');
    const other = list === 'parties' ? 'checkpoints' : 'parties';
    const first = await world.sync(node(38, 399n), { list: other });
    expect([first.verdict, missingOf(first.evidence)]).toEqual([
      'incomplete',
      'SOURCE_BEHIND',
    ]);
  });

  test('a node that lags and names no block is doubted, and nothing is gone', async () => {
    await world.sync(node(40, undefined), { list });
    const held = await world.held(list);
    for (const isAudit of [false, true]) {
      const silent = await world.sync(node(39, undefined), { list, isAudit });
      expect(silent.verdict).toBe('suspicious');
      expect(await world.held(list)).toEqual(held);
    }
    expect(await world.openDoubts(list)).toEqual(['NEWEST_ROWS_MISSING']);
    const whole = await world.sync(node(40, undefined), { list });
    expect(whole.verdict).toBe('complete');
  });

  test('a newest row that stays away at a later block is gone at the second audit', async () => {
    await world.sync(node(40, 400n), { list });
    const first = await world.sync(node(39, 410n), { list });
    expect(first.verdict).toBe('suspicious');
    const second = await world.sync(node(39, 420n), { list });
    expect(second.verdict).toBe('complete');
    expect(await world.held(list)).toHaveLength(sizeOf(list, 39));
  });

  test('a node whose blocks are lower and whose rows are all foreign is another network', async () => {
    await world.sync(node(40, 400n), { list });
    const held = await world.held(list);
    const foreign = node(0, 20n);
    foreign.lists.parties = [party(900), party(901)];
    foreign.lists.checkpoints = [checkpoint(7), checkpoint(9)];
    const found = await world.sync(foreign, { list });
    expect(found.verdict).toBe('suspicious');
    expect(await world.openDoubts(list)).toEqual(['OTHER_NETWORK']);
    expect(await world.held(list)).toEqual(held);
    expect((await world.sync(node(41, 410n), { list })).verdict).toBe(
      'complete',
    );
  });

  test('a list does not erode by a tenth at each audit', async () => {
    await world.sync(node(100, 400n), { list });
    const middle = (rows: number, height: bigint): ListDouble => {
      const double = node(100, height);
      const cut = 100 - rows;
      double.lists[list] = double.lists[list].toSpliced(40, cut);
      return double;
    };
    const first = await world.sync(middle(91, 410n), { list, isAudit: true });
    expect(first.verdict).toBe('complete');
    const second = await world.sync(middle(83, 420n), { list, isAudit: true });
    // Checkpoints that are gone are counted from the last claim.
    expect(second.verdict).toBe(list === 'parties' ? 'suspicious' : 'complete');
  });
});

describe('a node that keeps fewer checkpoints than its fleet', () => {
  const list = 'checkpoints';

  /**
   * Answers so many requests of the readings by the pruned node, and the others by the
   * whole one; requests for a few rows are answered by each in turn.
   */
  function withPruned(whole: ListDouble, prunedAnswers: number): ListSource {
    const pruned = node(41, 410n);
    pruned.lists.checkpoints.splice(0, 9);
    const inTurn = balancer([pruned, pruned, whole]);
    let answered = 0;
    return {
      page: (question, signal) => {
        answered += 1;
        const ofReading = answered <= prunedAnswers ? pruned : whole;
        const answering = question.size > 5 ? ofReading : inTurn;
        return answering.page(question, signal);
      },
      party: (id) => whole.party(id),
    };
  }

  test('makes no row expire, even if it answers every reading', async () => {
    await world.sync(node(40, 400n), { list });
    const held = await world.held(list);
    const fleet = withPruned(node(41, 410n), Infinity);
    const night = await world.sync(fleet, { list, isAudit: true });
    expect([night.verdict, missingOf(night.evidence)]).toEqual([
      'incomplete',
      'READINGS_DIFFER',
    ]);
    expect(await world.held(list)).toEqual(held);
  });

  test('is no obstacle once a whole node answers a reading', async () => {
    await world.sync(node(40, 400n), { list });
    const fleet = withPruned(node(41, 410n), 3);
    const night = await world.sync(fleet, { list, isAudit: true });
    expect(night.verdict).toBe('complete');
    expect(JSON.stringify(night.evidence['warnings'])).toContain(
      'OLDEST_ROWS_MISSING',
    );
    expect(await world.held(list)).toHaveLength(sizeOf(list, 41));
  });

  test('records no gap where another node shows the rows between', async () => {
    await world.sync(node(40, 400n), { list });
    const held = await world.held(list);
    const whole = node(80, 800n);
    const young = node(80, 800n);
    young.lists.checkpoints.splice(0, sizeOf(list, 60));
    const inTurn = balancer([young, whole]);
    const fleet: ListSource = {
      page: (question, signal) =>
        (question.size > 5 && question.list === list ? young : inTurn).page(
          question,
          signal,
        ),
      party: (id) => whole.party(id),
    };
    const night = await world.sync(fleet, { list, isAudit: true });
    expect(night.verdict).toBe('incomplete');
    expect(await world.held(list)).toEqual(held);
  });
});

describe.each(LISTS)('rows of %s that one reading did not show', (list) => {
  test('are gone only if the next reading does not show them either', async () => {
    await world.sync(node(40, 400n), { list });
    const whole = node(41, 410n);
    const lacking = node(41, 410n);
    lacking.lists[list] = lacking.lists[list].toSpliced(20, 2);
    let readings = 0;
    const fleet: ListSource = {
      page: (question, signal) => {
        const isStart = question.after === undefined && !question.newestFirst;
        if (isStart) readings += 1;
        return (readings === 1 ? lacking : whole).page(question, signal);
      },
      party: (id) => whole.party(id),
    };
    const night = await world.sync(fleet, { list, isAudit: true });
    expect(night.verdict).toBe('complete');
    expect(await world.held(list)).toHaveLength(sizeOf(list, 41));
  });
});

describe('the oldest row that the source serves no longer', () => {
  test.each([
    ['parties', '0'],
    ['checkpoints', '1'],
  ] as const)(
    'of %s: %s of them keep a place, because retention removes checkpoints only',
    async (list, placed) => {
      await world.sync(node(40, 400n), { list });
      const later = node(41, 410n);
      later.lists[list] = later.lists[list].toSpliced(0, 1);
      const audit = await world.sync(later, { list, isAudit: true });
      expect(audit.verdict).toBe('complete');
      const { rows } = await world.pool.query(
        `select count(pos) as placed, count(*) as gone
         from mirror.${list} where gone_since is not null`,
      );
      expect(rows.map(({ placed: of, gone }) => [`${of}`, `${gone}`])).toEqual([
        [placed, '1'],
      ]);
      expect((await world.sync(later, { list })).verdict).toBe('complete');
    },
  );
});

describe('another network', () => {
  /** Blocks far above ours: what is held is older than all of it. */
  function otherNetwork(): ListDouble {
    const double = new ListDouble();
    double.lists.parties = [party(900), party(901), party(902)];
    double.lists.checkpoints = Array.from({ length: 30 }, (_, at) =>
      checkpoint(100_000 + at),
    );
    double.height = 1_000_000n;
    return double;
  }

  async function syncBoth(source: ListSource): Promise<readonly string[]> {
    const verdicts = [];
    for (const list of LISTS)
      verdicts.push((await world.sync(source, { list })).verdict);
    return verdicts;
  }

  test('is not taken for a gap, and is gone once the address is right again', async () => {
    await syncBoth(node(40, 400n));
    const held = await Promise.all(LISTS.map((list) => world.held(list)));
    for (let night = 0; night < 3; night += 1) {
      expect(await syncBoth(otherNetwork())).not.toContain('complete');
      expect(await Promise.all(LISTS.map((list) => world.held(list)))).toEqual(
        held,
      );
    }
    await syncBoth(node(41, 410n));
    expect(await syncBoth(node(42, 420n))).toEqual(['complete', 'complete']);
    expect(await world.held('checkpoints')).toHaveLength(
      sizeOf('checkpoints', 42),
    );
    expect(await world.openDoubts('checkpoints')).toEqual([]);
  });

  test.each([
    ['parties', 'checkpoints'],
    ['checkpoints', 'parties'],
  ] as const)(
    'is settled by one night at the right address, although %s ends long before %s',
    async (early, late) => {
      await syncBoth(node(40, 400n));
      await syncBoth(otherNetwork());
      const quick = node(41, 410n);
      const slow = node(41, 410n);
      slow.latencyMs = 150;
      const night = [
        world.sync(quick, { list: early }),
        world.sync(slow, { list: late }),
      ];
      const verdicts = (await Promise.all(night)).map(({ verdict }) => verdict);
      expect(verdicts).toEqual(['complete', 'complete']);
    },
  );

  test('a list waits for no other that nobody reads', async () => {
    await syncBoth(node(40, 400n));
    await syncBoth(otherNetwork());
    const { verdict, evidence } = await world.sync(node(41, 410n), {
      list: 'parties',
    });
    expect([verdict, missingOf(evidence)]).toEqual([
      'incomplete',
      'OTHER_NETWORK',
    ]);
  });

  test('checkpoints alone show it too: a gap needs a party that is held', async () => {
    await syncBoth(node(40, 400n));
    const found = await world.sync(otherNetwork(), { list: 'checkpoints' });
    expect(found.verdict).toBe('suspicious');
    expect(await world.openDoubts('checkpoints')).toEqual(['OTHER_NETWORK']);
  });

  test('a gap of the same network is believed as before', async () => {
    await syncBoth(node(40, 400n));
    const later = node(41, 1_000_000n);
    later.lists.checkpoints = Array.from({ length: 30 }, (_, at) =>
      checkpoint(100_000 + at),
    );
    await world.sync(later, { list: 'checkpoints' });
    const confirmed = await world.sync(later, { list: 'checkpoints' });
    expect(confirmed.verdict).toBe('complete');
    expect(confirmed.evidence['knownGaps']).toHaveLength(1);
  });

  test('one list that is of another network keeps both from being complete', async () => {
    await syncBoth(node(40, 400n));
    await world.sync(otherNetwork(), { list: 'parties' });
    const { verdict, evidence } = await world.sync(node(41, 410n), {
      list: 'checkpoints',
    });
    expect([verdict, missingOf(evidence)]).toEqual([
      'incomplete',
      'OTHER_NETWORK',
    ]);
  });
});

describe('a row is what the source shows now', () => {
  test.each([
    ['a field that changed', { id: 'ABC' }, { id: 'abc' }],
    ['a field that went away', { id: 'ABC', note: 'x' }, undefined],
    ['a field that came', undefined, { note: 'x' }],
  ])('%s is stored by the next audit', async (_, before, after) => {
    const show = (extra: Readonly<Record<string, unknown>> | undefined) => {
      const double = node(10, 400n);
      const [first, ...rest] = double.lists.parties;
      if (first === undefined) throw new Error('there is no party');
      double.lists.parties = [
        { ...first, row: { ...first.row, extra } },
        ...rest,
      ];
      return double;
    };
    await world.sync(show(before), { list: 'parties' });
    await world.sync(show(after), { list: 'parties', isAudit: true });
    const { rows } = await world.pool.query<{ extra: unknown }>(
      'select extra from mirror.parties order by pos limit 1',
    );
    expect(rows[0]?.extra).toEqual(after ?? null);
  });
});
