/** Sources that break their own rules: what is stored stays right, and the verdict says what happened. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { PermanentError, RetryableError, UnreachableError } from '../../src/core/errors.ts';
import type { Page, PageQuestion } from '../../src/walk/ports.ts';
import { freshDatabase } from '../support/database.ts';
import {
  addParties,
  checkpoint,
  checkpoints,
  ListDouble,
  networkParty,
  parties,
  party,
} from './list-double.ts';
import { openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

function refuse(): never {
  throw new PermanentError('Cannot ask the source: status 400', { code: 'SOURCE_STATUS' });
}

function partiesDouble(count: number): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(count);
  return double;
}

const isUp = ({ newestFirst, before }: PageQuestion): boolean => !newestFirst && before === undefined;
const isDown = ({ newestFirst, before }: PageQuestion): boolean => newestFirst && before === undefined;

describe('one way only', () => {
  test('a source without oldest first: every row is there, the end is not proven', async () => {
    const double = partiesDouble(60);
    double.answer = ({ question, page }) => (question.newestFirst ? page : refuse());
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('incomplete');
    expect(evidence).toMatchObject({ oneWay: { answered: 'newest first' }, missing: [{ code: 'TAIL' }] });
    await world.expectParties(double);
  });

  test('a source that takes no notice of the order asked for', async () => {
    const double = partiesDouble(60);
    double.answer = ({ question }) => double.compute({ ...question, newestFirst: true });
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('suspicious');
    expect(evidence).toMatchObject({
      oneWay: { answered: 'newest first' },
      violations: [{ code: 'ORDER_BROKEN' }],
    });
    await world.expectParties(double);
  });

  test('a source without newest first', async () => {
    const double = partiesDouble(60);
    double.answer = ({ question, page }) => (question.newestFirst ? refuse() : page);
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('incomplete');
    expect(evidence).toMatchObject({
      oneWay: { answered: 'oldest first' },
      missing: [{ code: 'HEAD_UNPROVEN' }],
    });
    await world.expectParties(double);
  });

  test('once it answers both ways, what is there is used', async () => {
    const double = partiesDouble(60);
    double.answer = ({ question, page }) => (question.newestFirst ? page : refuse());
    await world.walk(double, { list: 'parties' });
    double.answer = ({ page }) => page;
    const asked = double.questions.length;
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect({ verdict, requests: double.questions.length - asked, newRows: evidence.newRows }).toEqual({
      verdict: 'complete',
      requests: 2,
      newRows: '0',
    });
  });

  test('a source that answers nothing', async () => {
    const double = partiesDouble(60);
    double.answer = refuse;
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('failed');
    expect(evidence.missing).toMatchObject([{ code: 'HEAD', reasons: [{ code: 'SOURCE_STATUS' }] }]);
  });
});

describe('pages that lie', () => {
  test('a short read is asked about once more and read on', async () => {
    const double = partiesDouble(90);
    double.answer = ({ number, page }) =>
      number === 4 || number === 7 ? { ...page, hasNextPage: false } : page;
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect({ verdict, shortReads: evidence.shortReads }).toEqual({ verdict: 'complete', shortReads: 2 });
    await world.expectParties(double);
  });

  test('a direction that ends early for good is left to the other', async () => {
    const double = partiesDouble(90);
    double.answer = ({ question, page }) =>
      isDown(question) &&
      page.rows.some(({ key }) => key === party(60).row.key) &&
      question.after !== undefined
        ? { ...page, rows: [], startCursor: '', endCursor: '', hasNextPage: false }
        : page;
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('complete');
    expect(evidence.ladder.map(({ role, step }) => [role, step])).toContainEqual([
      'down',
      'leave it to the other side',
    ]);
    await world.expectParties(double);
  });

  test('an empty page that promises more, once and for good', async () => {
    const double = partiesDouble(90);
    const empty = (page: Page): Page => ({
      ...page,
      rows: [],
      startCursor: '',
      endCursor: '',
      hasNextPage: true,
    });
    double.answer = ({ number, page }) => (number === 5 ? empty(page) : page);
    expect(await world.walk(double, { list: 'parties' })).toMatchObject({ verdict: 'complete' });
    await world.reset();
    double.answer = ({ question, page }) =>
      question.after !== undefined && isUp(question) ? empty(page) : page;
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('suspicious');
    expect(evidence.violations).toMatchObject([{ code: 'EMPTY_PAGE_PROMISES_MORE' }]);
    await world.expectParties(double);
  });

  test('an envelope that contradicts its edges', async () => {
    const double = partiesDouble(90);
    double.answer = ({ number, page }) => (number === 5 ? { ...page, endCursor: page.startCursor } : page);
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('suspicious');
    expect(evidence).toMatchObject({ missing: [], violations: [{ code: 'ENVELOPE_CONTRADICTS' }] });
    await world.expectParties(double);
  });

  test.each([1, 2, 5])('a cursor cycle of %i pages in one direction is left to the other', async (length) => {
    const double = partiesDouble(120);
    const seen: Page[] = [];
    double.answer = ({ question, page }) => {
      if (!isUp(question) || question.after === undefined) return page;
      seen.push(page);
      return seen.length > length ? seen[(seen.length - 1) % length]! : page;
    };
    const { evidence } = await world.walk(double, { list: 'parties' });
    expect(evidence.missing).toEqual([]);
    expect(double.questions.length).toBeLessThan(40);
    await world.expectParties(double);
  });

  test('a cycle in both directions ends, incomplete, with the keys between which rows are missing', async () => {
    const double = partiesDouble(200);
    const first = new Map<boolean, Page>();
    double.answer = ({ question, page }) => {
      if (question.after === undefined) return page;
      const held = first.get(question.newestFirst);
      if (held === undefined) first.set(question.newestFirst, page);
      return held ?? page;
    };
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).not.toBe('complete');
    expect(evidence.missing[0]).toMatchObject({
      code: 'GAP',
      belowKey: expect.any(String),
      aboveKey: expect.any(String),
    });
    expect(double.questions.length).toBeLessThan(30);
  });

  test('rows in the wrong order', async () => {
    const double = partiesDouble(60);
    double.answer = ({ number, page }) => {
      if (number < 4) return page;
      const rows = page.rows.toSpliced(4, 2, page.rows[5]!, page.rows[4]!);
      return { ...page, rows };
    };
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('suspicious');
    expect(evidence.violations.map(({ code }) => code)).toContain('ORDER_BROKEN');
  });

  test('a row left out at a border, in one direction, is found again by overlap', async () => {
    const double = partiesDouble(150);
    double.answer = ({ question, number, page }) =>
      number % 3 === 0 && isUp(question) && question.after !== undefined
        ? { ...page, rows: page.rows.slice(1), startCursor: page.rows[1]?.cursor ?? '' }
        : page;
    const { verdict } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('complete');
    await world.expectParties(double);
  });

  test('a source that refuses large pages', async () => {
    const double = partiesDouble(90);
    double.answer = ({ question, page }) => {
      if (question.size <= 6) return page;
      throw new PermanentError('Cannot ask: larger than max', { code: 'PAGE_TOO_LARGE' });
    };
    const { verdict, evidence } = await world.walk(double, { list: 'parties', pageSize: 40 });
    expect({ verdict, pageSize: evidence.pageSize }).toEqual({ verdict: 'complete', pageSize: 5 });
    await world.expectParties(double);
  });
});

describe('errors of the source', () => {
  test('one page that fails for ever: what lies around it is stored, and which keys it is between', async () => {
    const double = partiesDouble(100);
    double.answer = ({ page }) => {
      if (!page.rows.some(({ key }) => key === party(50).row.key)) return page;
      throw new RetryableError('Cannot ask: status 500', { code: 'SOURCE_STATUS' });
    };
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('incomplete');
    expect(evidence.missing[0]).toMatchObject({
      code: 'GAP',
      reasons: [{ trouble: { code: 'SOURCE_STATUS' } }, {}],
    });
    double.answer = ({ page }) => page;
    expect(await world.walk(double, { list: 'parties' })).toMatchObject({ verdict: 'complete' });
    await world.expectParties(double);
  });

  test.each([
    new UnreachableError('Cannot reach', { code: 'SOURCE_UNREACHABLE' }),
    new RetryableError('Banned', { code: 'SOURCE_BANNED', retryAfterMs: 600_000 }),
  ])('what concerns the whole walk ends it at once and leaves it to be resumed: $code', async (error) => {
    const double = partiesDouble(100);
    double.before = (_, number) => {
      if (number === 6) throw error;
    };
    const [run] = (await world.pool.query('select gen_random_uuid() as id')).rows;
    await world.pool.query(
      `insert into mirror.runs (run_id, kind, subject, state) values ($1, 'walk', 'parties', 'running')`,
      [run.id],
    );
    await expect(world.walk(double, { list: 'parties', runId: run.id })).rejects.toBe(error);
    const resumed = await world.walk(double, { list: 'parties', runId: run.id });
    expect(resumed).toMatchObject({ verdict: 'complete', evidence: { resumed: true } });
    await world.expectParties(double);
  });

  test('a cursor that is refused on resume is no loss: the gap is filled from above', async () => {
    const double = partiesDouble(40);
    await world.walk(double, { list: 'parties' });
    addParties(double, 60);
    double.answer = ({ question, page }) => {
      if (!isUp(question)) return page;
      throw new PermanentError('Cannot ask: cursor', { code: 'CURSOR_REFUSED' });
    };
    expect(await world.walk(double, { list: 'parties' })).toMatchObject({ verdict: 'complete' });
    await world.expectParties(double);
  });

  test('another node: its cursors are not sent to this one', async () => {
    const double = partiesDouble(40);
    await world.walk(double, { list: 'parties' });
    addParties(double, 60);
    double.baseUrl = 'http://node-2';
    const asked = double.questions.length;
    expect(await world.walk(double, { list: 'parties' })).toMatchObject({ verdict: 'complete' });
    expect(
      double.questions.slice(asked).some((question) => isUp(question) && question.after !== undefined),
    ).toBe(false);
    await world.expectParties(double);
  });
});

describe('lists that lose rows', () => {
  test('the anchor row is removed between two pages: one real row is dropped, and noticed', async () => {
    const double = partiesDouble(100);
    let removed = 0;
    double.before = ({ after, newestFirst }) => {
      if (after === undefined || newestFirst || removed > 2) return;
      double.lists.parties = double.lists.parties.filter(({ row }) => row.cursor !== after);
      removed += 1;
    };
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect({ verdict, auditDue: evidence.auditDue }).toEqual({ verdict: 'suspicious', auditDue: true });
    const held = new Set(
      (await world.pool.query('select party_id from mirror.parties')).rows.map((row) => row.party_id),
    );
    expect(double.lists.parties.filter(({ row }) => !held.has(row.key))).toEqual([]);
    double.before = () => undefined;
    const audit = await world.walk(double, { list: 'parties', kind: 'audit' });
    expect(audit).toMatchObject({ verdict: 'complete', evidence: { audit: { served: '99', gone: '1' } } });
    const { rows } = await world.pool.query(
      'select party_id from mirror.places where gone_since is null order by pos',
    );
    expect(rows.map(({ party_id }) => party_id)).toEqual(
      double.lists.parties.slice(0, -1).map(({ row }) => row.key),
    );
  });

  test('the newest rows vanish: nothing is deleted, and it is said', async () => {
    const double = partiesDouble(40);
    await world.walk(double, { list: 'parties' });
    double.lists.parties = [...parties(35).slice(0, -1), networkParty];
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(verdict).toBe('suspicious');
    expect(evidence.auditDue).toBe(true);
    expect(await world.placedParties()).toHaveLength(40);
  });

  test('the whole list vanishes', async () => {
    const double = partiesDouble(40);
    await world.walk(double, { list: 'parties' });
    double.lists.parties = [networkParty];
    expect(await world.walk(double, { list: 'parties' })).toMatchObject({
      verdict: 'suspicious',
      evidence: { violations: [{ code: 'LIST_SHRANK' }] },
    });
  });

  test('a list without a row is not called complete', async () => {
    const double = partiesDouble(0);
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect({ verdict, code: evidence.violations[0]?.code }).toEqual({
      verdict: 'suspicious',
      code: 'LIST_EMPTY',
    });
    expect((await world.pool.query('select party_id from mirror.parties')).rows).toEqual([
      { party_id: 'network' },
    ]);
  });

  test('retention overtook the mirror: the gap is kept in the books, later runs are complete', async () => {
    const double = new ListDouble();
    double.lists.checkpoints = checkpoints(40);
    await world.walk(double, { list: 'checkpoints' });
    double.lists.checkpoints = checkpoints(60, { from: 70 });
    const lost = await world.walk(double, { list: 'checkpoints' });
    expect(lost.verdict).toBe('incomplete');
    expect(lost.evidence.knownGaps).toHaveLength(1);
    const later = await world.walk(double, { list: 'checkpoints' });
    expect(later.verdict).toBe('complete');
    expect(later.evidence.knownGaps).toHaveLength(1);
    const keys = [...checkpoints(40), ...checkpoints(60, { from: 70 })].map(({ row }) => row.key);
    expect(new Set(await world.checkpointKeys())).toEqual(new Set(keys));
  });

  test('retention eats the tail during the walk', async () => {
    const double = new ListDouble();
    double.lists.checkpoints = checkpoints(60);
    const all = double.lists.checkpoints.map(({ row }) => row.key);
    double.before = (_, number) => {
      if (number > 2 && number % 2 === 0) double.lists.checkpoints = double.lists.checkpoints.slice(1);
    };
    const { evidence } = await world.walk(double, { list: 'checkpoints', pageSize: 6 });
    expect(evidence.missing).toEqual([]);
    const held = new Set(await world.checkpointKeys());
    expect(all.slice(20).filter((key) => !held.has(key))).toEqual([]);
  });
});

describe('the seam', () => {
  test.each([
    ['confirmed', ({ page }: { page: Page }): Page => page, 'complete'],
    [
      'refused',
      ({ question, page }: { question: PageQuestion; page: Page }): Page =>
        question.before === undefined ? page : refuse(),
      'complete',
    ],
    [
      'contradicted',
      ({ question, page }: { question: PageQuestion; page: Page }): Page =>
        question.before === undefined
          ? page
          : {
              ...page,
              rows: page.rows.toSpliced(-2, 1),
              startCursor: page.rows[0]?.cursor ?? '',
              endCursor: page.rows.at(-1)?.cursor ?? '',
            },
      'suspicious',
    ],
  ] as const)('one backward page: %s', async (backward, answer, expected) => {
    const double = partiesDouble(120);
    double.answer = answer;
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect({ verdict, backward: evidence.seams[0]?.backward }).toEqual({ verdict: expected, backward });
    await world.expectParties(double);
  });
});

test('a stranger between two placed rows is stored in its place, and an audit is due', async () => {
  const double = partiesDouble(40);
  double.lists.parties = double.lists.parties.filter(({ rank }) => rank !== 36n);
  await world.walk(double, { list: 'parties' });
  double.lists.parties = parties(42);
  const { verdict, evidence } = await world.walk(double, { list: 'parties' });
  expect(verdict).toBe('suspicious');
  expect(evidence).toMatchObject({ violations: [{ code: 'ROWS_INSERTED' }], auditDue: true });
  await world.expectParties(double);
  const after = await world.walk(double, { list: 'parties' });
  expect(after.verdict).toBe('complete');
});

test('checkpoints that change at a known height are kept beside each other', async () => {
  const double = new ListDouble();
  double.lists.checkpoints = checkpoints(20, { ties: 1 });
  await world.walk(double, { list: 'checkpoints' });
  const before = await world.checkpointKeys();
  double.lists.checkpoints.splice(18, 1, checkpoint(190, 7));
  const { verdict } = await world.walk(double, { list: 'checkpoints' });
  expect(verdict).toBe('suspicious');
  expect(await world.checkpointKeys()).toEqual(
    expect.arrayContaining([...before, checkpoint(190, 7).row.key]),
  );
});
