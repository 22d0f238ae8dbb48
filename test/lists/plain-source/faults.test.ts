/**
 * The faults of the plain source: each does something that a client can see, and heals.
 */
import { afterEach, describe, expect, test } from 'vitest';
import { PLAIN } from './dialect.ts';
import { isConsistent } from './fault.ts';
import { FAULTS, findFault } from './faults.ts';
import { ask, readNewest, readOldestFirst } from './naive-reader.ts';
import { isLie, judgeList } from './oracle.ts';
import { LISTS, RowMaker } from './rows.ts';
import { startPlainSource, type PlainSource } from './start.ts';

const open: PlainSource[] = [];
const PAGE = 20;

/** A source of five pages that has grown since a client saw it. */
async function startGrown(fault?: string): Promise<PlainSource> {
  const maker = new RowMaker();
  const source = await startPlainSource({
    dialect: PLAIN,
    ...maker.make(83, 83),
  });
  open.push(source);
  if (fault !== undefined) source.misbehave(findFault(fault));
  source.append(maker.make(17, 17));
  return source;
}

/** What a client sees that reads oldest first, then the newest page, twice. */
async function look(source: PlainSource): Promise<string[]> {
  const seen: string[] = [];
  for (const list of LISTS) {
    const rule = {
      'pagination.first': String(PAGE),
      'pagination.newestFirst': 'false',
    };
    let after: string | undefined;
    for (let request = 0; request < 14; request += 1) {
      const query = {
        ...rule,
        ...(after === undefined ? {} : { 'pagination.after': after }),
      };
      const page = await ask(source.url, list, query).catch(
        (error: unknown) => error as Error,
      );
      if (page instanceof Error) seen.push('broken');
      else {
        seen.push(`${page.status} ${page.body}`);
        after = page.endCursor || after;
      }
    }
    seen.push(
      ...(await readNewest(source.url, list, PAGE).catch(() => ['broken'])),
    );
  }
  return seen;
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((source) => source.close()));
});

describe('the faults', () => {
  test('are many, and each has a name of its own', () => {
    const names = FAULTS.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThanOrEqual(25);
    for (const { meaning, betrayedBy } of FAULTS)
      expect(meaning && betrayedBy).not.toBe('');
  });

  test.each(FAULTS)('$name shows in what is answered', async ({ name }) => {
    expect(await look(await startGrown(name))).not.toEqual(
      await look(await startGrown()),
    );
  });

  test.each(FAULTS)(
    '$name leaves nothing behind when it is healed',
    async ({ name }) => {
      const source = await startGrown(name);
      await look(source);
      source.heal();
      for (const list of LISTS) {
        const truth = source.snapshot(list);
        const held = await readOldestFirst(source.url, list, PAGE);
        expect(held).toEqual(truth.rows.map(({ key }) => key));
        expect(isLie(judgeList({ held, atStart: truth, atEnd: truth }))).toBe(
          false,
        );
      }
    },
  );
});

describe('a fault', () => {
  test('meets only the requests that it is told to meet', async () => {
    const source = await startGrown();
    source.misbehave(findFault('answers-500-now-and-then'), {
      list: 'parties',
      every: 2,
      from: 1,
      times: 2,
    });
    for (let request = 0; request < 7; request += 1) {
      await ask(source.url, 'parties', {});
      await ask(source.url, 'checkpoints', {});
    }
    const statuses = source.requests
      .filter(({ list }) => list === 'parties')
      .map(({ status }) => status);
    expect(statuses).toEqual([200, 500, 200, 500, 200, 200, 200]);
    expect(
      source.requests
        .filter(({ list }) => list === 'checkpoints')
        .every(({ status }) => status === 200),
    ).toBe(true);
  });

  test('that every request meets is all that can be known of the source', async () => {
    const source = await startGrown('restarts');
    expect(isConsistent(findFault('restarts'))).toBe(true);
    const served = source.snapshot('checkpoints');
    expect(await readOldestFirst(source.url, 'checkpoints', PAGE)).toEqual(
      served.rows.map(({ key }) => key),
    );
    const [heights, held] = [source.truth.checkpoints, served.rows].map(
      (rows) => rows.length,
    );
    expect(held).toBe(heights);
    expect(served.rows.every(({ key }) => !served.ever.has(key))).toBe(true);
  });

  test('that prunes everything held hides rows that nobody has seen, too', async () => {
    const source = await startGrown('prunes-everything-held');
    const served = source.snapshot('parties').rows.map(({ key }) => key);
    expect(served).toEqual(source.truth.parties.slice(86));
  });

  test('of an endless list shows new rows at every request, in both orders', async () => {
    const source = await startGrown('is-endless');
    const seen = await readOldestFirst(source.url, 'parties', 100);
    expect(seen.length).toBeGreaterThan(10_000);
    expect(await readNewest(source.url, 'parties', 3)).not.toEqual(
      await readNewest(source.url, 'parties', 3),
    );
  });
});
