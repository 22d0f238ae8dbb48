/**
 * The decisions of an export, tested alone: every state with every event, and every doubt
 * with every request about a plan. No source, no database.
 */
import { describe, expect, test } from 'vitest';
import type { Coverage } from '../../src/catalog/coverage-rows.ts';
import {
  CONTRADICTIONS_MAX,
  type Decision,
  type ExportEvent,
  type ExportState,
  FRUITLESS_MAX,
  initialState,
  next,
  REQUESTS_MAX,
  REQUESTS_PER_SHOWN_MAX,
} from '../../src/exports/export-state.ts';
import type {
  AnswerFacts,
  Doubt,
} from '../../src/exports/validation/assess-answer.ts';

const SUM = { rows: '1', digest: '00' };
const DOUBTS = {
  fewer: { state: 'fewer', expected: SUM, received: SUM },
  repeated: { state: 'repeated', expected: SUM, received: SUM },
  other: { state: 'other', expected: SUM, received: SUM },
  less: { state: 'less than seen' },
  lessShown: { state: 'less than shown', shownRows: '2', receivedRows: '0' },
  fewerOpen: {
    state: 'fewer in the open segment',
    knownRows: '2',
    receivedRows: '1',
  },
  nothingLeft: { state: 'nothing left' },
  startUnproven: { state: 'start unproven' },
  endUnproven: { state: 'end unproven' },
} as const satisfies Record<string, Doubt>;
type DoubtName = keyof typeof DOUBTS;
const DOUBT_NAMES = Object.keys(DOUBTS) as DoubtName[];
/** The doubts after which the release has to prove again how it filters. */
const DISTRUSTS_BOUNDS = new Set([
  'fewer',
  'repeated',
  'other',
  'less',
  'fewerOpen',
]);

/** An answer that nothing speaks against. */
const GOOD: AnswerFacts = {
  isOutdated: false,
  overlap: 'verified',
  doubt: undefined,
  isNothingLeft: false,
  isFramed: true,
  sums: 'sums',
  shrunk: [],
  openShrunk: [],
  hasLeaving: true,
  hasClosedRows: true,
  hasNewRows: true,
  hasKnownRows: true,
  hasOpenLine: false,
  replacesClosed: false,
  isRested: false,
  compared: [7n],
  shownMore: undefined,
  isWindow: false,
  isFirstShown: false,
  hasTimes: true,
  mayBeUnknown: false,
};
const NOTHING_AUDITED = { audited: [], hasForeignRows: false };
const DONE = { do: 'finish', outcome: { verdict: 'complete', evidence: {} } };

describe('next() with an event that cannot happen', () => {
  const events: Record<ExportEvent['kind'], ExportEvent> = {
    planned: planned(),
    probed: { kind: 'probed' },
    refused: { kind: 'refused' },
    cancelled: { kind: 'cancelled', hasLeaving: false },
    answered: { kind: 'answered', facts: GOOD },
    published: { kind: 'published', facts: NOTHING_AUDITED },
    shrunk: { kind: 'shrunk', rows: [] },
  };
  const accepted: Record<ExportState['kind'], readonly ExportEvent['kind'][]> =
    {
      planning: ['planned'],
      probing: ['probed'],
      requesting: ['refused', 'cancelled', 'answered'],
      publishing: ['published', 'shrunk'],
      done: [],
    };
  const pairs = Object.entries(accepted).flatMap(([kind, names]) =>
    Object.values(events).map((event) => ({
      name: `${kind}, ${event.kind}`,
      state: stateOf(kind as ExportState['kind']),
      event,
      isAccepted: names.includes(event.kind),
    })),
  );
  const taken = pairs.filter(({ isAccepted }) => isAccepted);
  const refused = pairs.filter(({ isAccepted }) => !isAccepted);

  test('tries all five states with all seven events', () => {
    expect([taken.length, refused.length]).toEqual([7, 28]);
  });

  test.each(taken)('next() takes the event: $name', ({ state, event }) => {
    expect(next(state, event)).toHaveLength(2);
  });

  test.each(refused)('next() throws: $name', ({ state, event }) => {
    expect(() => next(state, event)).toThrow('unexpected event');
  });
});

describe('next() after a plan', () => {
  test('finishes complete and covered if nothing was left before any request', () => {
    const [state, decision] = next(
      start(),
      planned({ isLeft: false, requests: 0 }),
    );
    expect(state.kind).toBe('done');
    const outcome = { verdict: 'complete', evidence: { covered: true } };
    expect(decision).toEqual({ do: 'finish', outcome, learns: undefined });
  });

  test('finishes complete if nothing is left after requests', () => {
    const [, decision] = next(start(), planned({ isLeft: false, requests: 2 }));
    expect(decision).toMatchObject(DONE);
  });

  test.each([
    ['too many requests in vain', { fruitless: FRUITLESS_MAX }, 9],
    ['too many requests', { fruitless: 0 }, REQUESTS_MAX],
  ])('finishes incomplete after %s', (_, run, requests) => {
    const before = start();
    const state = { ...before, run: { ...before.run, ...run } };
    const [, decision] = next(state, planned({ requests }));
    expect(decision).toMatchObject({
      do: 'finish',
      outcome: { verdict: 'incomplete' },
    });
  });

  test('probes first if the plan needs an end that is unproven', () => {
    const [probing, decision] = next(start(), planned({ needsProbe: true }));
    expect(decision).toEqual({ do: 'probe' });
    expect(probing).toMatchObject({ kind: 'probing', run: { fruitless: 1 } });
    const [planning, again] = next(probing, { kind: 'probed' });
    expect(again).toEqual({ do: 'plan', discards: false });
    expect(planning.plan.requests).toBe(0);
  });

  test('requests, and counts the request as fruitless until something is published', () => {
    const [state, decision] = next(start(), planned());
    expect(decision).toEqual({ do: 'request', way: 'primary', fruitless: 0 });
    expect(state).toMatchObject({
      run: { fruitless: 1 },
      plan: { requests: 1 },
    });
  });

  test('plans again if the source refuses a request without bounds', () => {
    const [, decision] = next(requesting(), { kind: 'refused' });
    expect(decision).toEqual({ do: 'plan', discards: false });
  });
});

describe('next() after an answer without doubts', () => {
  test.each([
    ['the last answer', {}, true],
    ['a window of a larger range', { isWindow: true }, false],
    [
      'the first answer that shows the time of the source',
      { isFirstShown: true },
      false,
    ],
  ])('publishes %s as closed', (_, facts, isLast) => {
    const [publishing, decision] = answer(requesting(), facts);
    expect(decision).toMatchObject({ do: 'publish', as: 'closed', isLast });
    const [state, after] = publishWith(publishing);
    expect(after).toMatchObject(
      isLast ? DONE : { do: 'plan', discards: false },
    );
    expect(state.run).toMatchObject({
      fruitless: 0,
      verdicts: [],
      overlap: 'verified',
    });
  });

  test('discards an answer to a request that was made for another release', () => {
    const [state, decision] = answer(requesting(), { isOutdated: true });
    expect(decision).toEqual({ do: 'plan', discards: true });
    expect(state.plan.doubts).toEqual([]);
  });

  test('believes the third answer although it is of another release', () => {
    const [, decision] = answer(requesting(2), { isOutdated: true });
    expect(decision).toMatchObject({ do: 'publish', as: 'closed' });
  });

  test.each(['nothing', ...DOUBT_NAMES] as const)(
    'publishes nothing of an unlisted party without entries, whatever it doubts: %s',
    (name) => {
      const found = name === 'nothing' ? undefined : DOUBTS[name];
      const [after, decision] = next(requesting(), {
        kind: 'answered',
        facts: { ...GOOD, doubt: found, mayBeUnknown: true },
      });
      expect(after.kind).toBe('done');
      expect(decision).toMatchObject({
        do: 'finish',
        outcome: { verdict: 'incomplete' },
      });
    },
  );

  test('keeps closed segments that the answer would replace by fewer rows', () => {
    const row = coverage(3n);
    const [state, decision] = answer(requesting(), { shrunk: [row] });
    expect(decision).toMatchObject({
      do: 'plan',
      discards: true,
      keeps: { rows: [row] },
    });
    expect([...state.run.kept]).toEqual([3n]);
    expect(state.run.verdicts).toEqual(['suspicious']);
  });

  test('keeps segments of which the answer would take more than it brings', () => {
    const [publishing] = answer(requesting(), {});
    const [state, decision] = next(publishing, {
      kind: 'shrunk',
      rows: [coverage(4n)],
    });
    expect(decision).toMatchObject({ do: 'plan', discards: true });
    expect([...state.run.kept]).toEqual([4n]);
  });

  test.each([
    ['foreign rows', { ...NOTHING_AUDITED, hasForeignRows: true }],
    [
      'an audit that differs',
      { audited: [{ row: coverage(1n), isSame: false }] },
    ],
  ])('is suspicious about %s', (_, facts) => {
    const [publishing] = answer(requesting(), {});
    const [state] = publishWith(publishing, facts);
    expect(state.run.verdicts).toEqual(['suspicious']);
  });

  test('does not request an audited range again once it came', () => {
    const first = initialState([1n, 2n], 0);
    const [asked] = next(first, planned());
    const [publishing] = answer(asked, {});
    const audited = [{ row: coverage(1n), isSame: true }];
    const [state] = publishWith(publishing, { audited });
    expect([...state.run.audited]).toEqual([2n]);
    expect(state.run.verdicts).toEqual([]);
  });
});

describe('next() after the first doubt about a plan', () => {
  const ways: Record<DoubtName, string> = {
    fewer: 'fallback',
    repeated: 'fallback',
    other: 'fallback',
    less: 'fallback',
    lessShown: 'primary',
    fewerOpen: 'fallback',
    nothingLeft: 'fallback',
    startUnproven: 'startless fallback',
    endUnproven: 'primary',
  };

  test.each(DOUBT_NAMES)(
    'requests the same rows in another way: %s',
    (name) => {
      const [state, decision] = doubt(requesting(), name);
      const learns = DISTRUSTS_BOUNDS.has(name) ? 'distrust bounds' : undefined;
      expect(decision).toEqual({ do: 'plan', discards: true, learns });
      expect(state.plan.doubts).toEqual([DOUBTS[name]]);
      expect(state.run.verdicts).toEqual([]);
      expect(next(state, planned())[1]).toMatchObject({
        do: 'request',
        way: ways[name],
      });
    },
  );

  test.each(DOUBT_NAMES)(
    'believes a second answer without doubts: %s',
    (name) => {
      const [state, decision] = answer(secondRequest(name), {});
      expect(decision).toMatchObject({ do: 'publish', as: 'closed' });
      const isMissed = name === 'startUnproven';
      expect(state.run.verdicts).toEqual(isMissed ? ['suspicious'] : []);
      const [after] = publishWith(state);
      const isSurprise = ['other', 'less', 'lessShown'].includes(name);
      expect(after.run.verdicts).toEqual(
        isMissed || isSurprise ? ['suspicious'] : [],
      );
      expect(after.plan.doubts).toEqual([]);
    },
  );

  test('learns that bounds are broken if entries left the party after all', () => {
    const [, decision] = answer(secondRequest('nothingLeft'), {});
    expect(decision).toMatchObject({
      do: 'publish',
      learns: 'bounds are broken',
    });
    const [, without] = answer(secondRequest('nothingLeft'), {
      hasLeaving: false,
    });
    expect(without).toMatchObject({ do: 'publish', learns: undefined });
  });

  test('believes an end that no transport proves if the second answer is the same', () => {
    const unframed = { isFramed: false, sums: 'unframed' };
    const [, same] = answer(secondRequest('endUnproven'), unframed);
    expect(same).toMatchObject({ do: 'publish', as: 'closed' });
    const different = { ...unframed, sums: 'different' };
    const [, again] = answer(secondRequest('endUnproven'), different);
    expect(again).toMatchObject({ do: 'plan', discards: true });
  });
});

describe('next() after the second doubt about a plan', () => {
  test('audits the compared coverage if the same surprise came twice', () => {
    const [state, decision] = doubt(secondRequest('other'), 'other');
    expect(decision).toMatchObject({ do: 'plan', discards: true });
    expect([...state.run.audited]).toEqual([7n]);
    expect(next(state, planned())[1]).toMatchObject({ way: 'primary' });
  });

  test.each([
    'fewer',
    'less',
    'fewerOpen',
    'nothingLeft',
    'startUnproven',
  ] as const)('shows new rows as open, and requests no more: %s', (name) => {
    const [state, decision] = doubt(secondRequest(name), name);
    expect(decision).toMatchObject({ do: 'publish', as: 'open', isLast: true });
    expect(state.run).toMatchObject({
      contradictions: 1,
      verdicts: ['suspicious'],
    });
    expect(publishWith(state)[1]).toMatchObject(DONE);
  });

  test('publishes nothing if every known row came several times', () => {
    const [state, decision] = doubt(secondRequest('repeated'), 'repeated');
    expect(short(decision)).toBe('nothing');
    expect(state.run.verdicts).toEqual(['suspicious']);
  });

  test('requests a third time if the end is still unproven', () => {
    const [, decision] = doubt(secondRequest('endUnproven'), 'endUnproven', {
      sums: 'different',
    });
    expect(decision).toMatchObject({ do: 'plan', discards: true });
  });
});

describe('next() after the third answer to a plan that is doubted', () => {
  const missing = coverage(5n);

  test.each([
    // doubt, facts of the answer, runs that contradicted before, expected decision
    ['fewer', {}, 0, 'open'],
    ['fewer', { hasNewRows: false }, 0, 'nothing'],
    ['fewer', { replacesClosed: true }, 0, 'nothing'],
    ['fewer', {}, CONTRADICTIONS_MAX - 1, 'closed'],
    ['fewer', { isFramed: false, sums: 'new' }, CONTRADICTIONS_MAX - 1, 'open'],
    ['fewer', { hasKnownRows: false, isRested: true }, 0, 'closed'],
    ['fewer', { hasKnownRows: true, isRested: true }, 0, 'open'],
    ['fewer', { hasKnownRows: false, isRested: false }, 0, 'open'],
    ['repeated', {}, 0, 'nothing'],
    ['repeated', {}, CONTRADICTIONS_MAX - 1, 'closed'],
    ['other', {}, 0, 'open'],
    ['other', {}, CONTRADICTIONS_MAX - 1, 'open'],
    ['less', {}, 0, 'open'],
    ['less', {}, CONTRADICTIONS_MAX - 1, 'closed'],
    ['fewerOpen', { openShrunk: [missing] }, 0, 'kept'],
    ['fewerOpen', { openShrunk: [missing], hasTimes: false }, 0, 'closed'],
    ['nothingLeft', { hasLeaving: false }, 0, 'open'],
    ['nothingLeft', { hasLeaving: false }, CONTRADICTIONS_MAX - 1, 'closed'],
    ['startUnproven', { hasNewRows: false }, 0, 'nothing'],
    ['startUnproven', { hasNewRows: false }, CONTRADICTIONS_MAX - 1, 'closed'],
    ['endUnproven', { sums: 'third' }, 0, 'open'],
    ['endUnproven', { sums: 'third', hasOpenLine: true }, 0, 'nothing'],
    ['endUnproven', { sums: 'third' }, CONTRADICTIONS_MAX - 1, 'open'],
  ] as const)(
    '%s with %o, contradicted by %i runs: %s',
    (name, facts, before, expected) => {
      const [state, decision] = doubt(requesting(2, before), name, facts);
      expect(short(decision)).toBe(expected);
      const isEnd = name === 'endUnproven';
      expect(state.run.verdicts).toEqual([isEnd ? 'incomplete' : 'suspicious']);
      const isSettled = expected === 'closed' || expected === 'kept' || isEnd;
      expect(state.run.contradictions).toBe(isSettled ? 0 : before + 1);
    },
  );
});

describe('next() after an answer with fewer rows than an earlier one showed', () => {
  const shrunk = [coverage(5n)];

  test('requests again, as often as it takes to meet another node', () => {
    for (let before = 0; before < REQUESTS_PER_SHOWN_MAX - 1; before += 1) {
      const [state, decision] = doubt(requesting(before), 'lessShown');
      expect(decision).toMatchObject({ do: 'plan', discards: true });
      expect(state.run.contradictions).toBe(0);
    }
  });

  test('audits the compared coverage once the surprise came twice, however late', () => {
    let state = requesting();
    for (const name of ['other', 'lessShown', 'other'] as const)
      [state] = next(doubt(state, name)[0], planned());
    expect([...state.run.audited]).toEqual([7n]);
  });

  test.each([
    // facts of the answer, runs that contradicted before, expected decision
    [{}, 0, 'open'],
    [{ replacesClosed: true }, 0, 'nothing'],
    [{}, CONTRADICTIONS_MAX - 1, 'closed'],
    [{ shrunk }, CONTRADICTIONS_MAX - 1, 'kept'],
  ] as const)(
    'decides after the last request with %o, contradicted by %i runs: %s',
    (facts, before, expected) => {
      const last = requesting(REQUESTS_PER_SHOWN_MAX - 1, before);
      const [state, decision] = doubt(last, 'lessShown', facts);
      expect(short(decision)).toBe(expected);
      expect(state.run.verdicts[0]).toBe('suspicious');
    },
  );

  test('stays suspicious if a later answer has the rows', () => {
    const [doubted] = doubt(requesting(), 'lessShown');
    const [asked] = next(doubted, planned());
    const [publishing] = answer(asked, {});
    const [state] = publishWith(publishing);
    expect(state.run.verdicts).toEqual(['suspicious']);
  });
});

describe('next() after an answer that was cancelled', () => {
  const cancelled = (hasLeaving: boolean): ExportEvent => ({
    kind: 'cancelled',
    hasLeaving,
  });

  test('plans a smaller request if nothing was doubted', () => {
    const [state, decision] = next(requesting(), cancelled(false));
    expect(decision).toEqual({ do: 'plan', discards: false });
    expect(state.plan.isEmptyBelieved).toBe(false);
  });

  test.each(DOUBT_NAMES.filter((name) => name !== 'nothingLeft'))(
    'ends suspicious if the doubt cannot be settled: %s',
    (name) => {
      const [, decision] = next(secondRequest(name), cancelled(false));
      expect(decision).toMatchObject({ outcome: { verdict: 'suspicious' } });
    },
  );

  test('settles whether entries left the party', () => {
    const broken = next(secondRequest('nothingLeft'), cancelled(true))[1];
    expect(broken).toMatchObject({ do: 'plan', learns: 'bounds are broken' });
    const [believed] = next(secondRequest('nothingLeft'), cancelled(false));
    expect(believed.plan.isEmptyBelieved).toBe(true);
    const [asked, decision] = next(believed, planned());
    expect(decision).toMatchObject({ way: 'primary' });
    const nothing = { isNothingLeft: true, hasLeaving: false };
    expect(answer(asked, nothing)[1]).toMatchObject({
      do: 'publish',
      as: 'closed',
    });
  });
});

function start(contradictionsBefore = 0): ExportState {
  return initialState([], contradictionsBefore);
}

function planned(
  how: Partial<Omit<ExportEvent & { kind: 'planned' }, 'kind'>> = {},
): ExportEvent {
  return {
    kind: 'planned',
    isLeft: true,
    needsProbe: false,
    requests: 1,
    ...how,
  };
}

/** A request is at the source, after so many about the same plan. */
function requesting(requestsBefore = 0, contradictionsBefore = 0): ExportState {
  const [state] = next(start(contradictionsBefore), planned());
  return { ...state, plan: { ...state.plan, requests: requestsBefore + 1 } };
}

/**
 * The second request about a plan is at the source, after the first answer was doubted.
 */
function secondRequest(name: DoubtName): ExportState {
  const [doubted] = doubt(requesting(), name);
  return next(doubted, planned())[0];
}

function stateOf(kind: ExportState['kind']): ExportState {
  const { run, plan } = start();
  return kind === 'publishing'
    ? { kind, run, plan, as: 'closed', isLast: true }
    : { kind, run, plan };
}

function answer(state: ExportState, facts: Partial<AnswerFacts>) {
  return next(state, { kind: 'answered', facts: { ...GOOD, ...facts } });
}

/** Two of the doubts follow from other facts. */
function doubt(
  state: ExportState,
  name: DoubtName,
  facts: Partial<AnswerFacts> = {},
) {
  if (name === 'nothingLeft')
    return answer(state, { isNothingLeft: true, hasLeaving: false, ...facts });
  if (name === 'endUnproven')
    return answer(state, { isFramed: false, sums: 'unframed', ...facts });
  return answer(state, { doubt: DOUBTS[name], ...facts });
}

function publishWith(state: ExportState, facts: object = {}) {
  return next(state, {
    kind: 'published',
    facts: { ...NOTHING_AUDITED, ...facts },
  });
}

function coverage(coverageId: bigint): Coverage {
  return {
    coverageId,
    assetId: undefined,
    from: 0n,
    to: 1n,
    open: false,
    sides: 'both',
    objectKey: undefined,
    rows: 1n,
    tail: undefined,
  };
}

function short(decision: Decision): string {
  if (decision.do === 'publish') return decision.as;
  if (decision.do === 'plan')
    return decision.keeps === undefined ? 'again' : 'kept';
  return 'nothing';
}
