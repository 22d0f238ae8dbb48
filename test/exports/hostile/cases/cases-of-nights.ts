/**
 * What follows an export that went well: growth, late rows, lag, loss, another chain.
 * Each phase is one more run.
 */
import { DAY, HOUR, makeLedger, type Entry } from '../ledger.ts';
import {
  declare,
  honestAnswer,
  NO_LIE,
  PARTLY,
  select,
  telling,
  WHOLE,
  type Expected,
  type HostileCase,
  type Phase,
} from './case.ts';
import { THIRTEEN, writeCsv } from '../layout.ts';
import { refusal, reply } from '../reply.ts';

type MakeLedger = Phase['truth'];

/** Rows of 30 days that end so many hours before now. */
const until =
  (hours: number, seed = 'nights'): MakeLedger =>
  (now, party) =>
    makeLedger(now, {
      seed,
      party,
      fromHours: 720,
      toHours: 1,
      rows: 240,
    }).filter(({ time }) => time < now - BigInt(hours) * HOUR);
const since =
  (truth: MakeLedger, hours: number): MakeLedger =>
  (now, party) =>
    truth(now, party).filter(({ time }) => time >= now - BigInt(hours) * HOUR);
const both =
  (a: MakeLedger, b: MakeLedger): MakeLedger =>
  (now, party) =>
    [...a(now, party), ...b(now, party)].toSorted((x, y) =>
      x.time < y.time ? -1 : 1,
    );
const newer =
  (hours: number) =>
  (truth: readonly Entry[], now: bigint): readonly Entry[] =>
    truth.filter(({ time }) => time >= now - BigInt(hours) * HOUR);

/** The first run is two days before now, and everything in it is right. */
function nights(
  name: string,
  meaning: string,
  followedBy: readonly Phase[],
  first: Partial<HostileCase> = {},
): HostileCase {
  return declare(name, meaning, honestAnswer, WHOLE, {
    clock: -48,
    truth: until(48),
    followedBy,
    ...first,
  });
}

function phase(
  clock: Phase['clock'],
  truth: MakeLedger,
  expected: Expected,
  rest: Partial<Phase> = {},
): Phase {
  return { clock, truth, expected, answer: honestAnswer, ...rest };
}

/** The truth still have what the source does not serve. */
function lost(
  clock: Phase['clock'],
  truth: MakeLedger,
  served: MakeLedger,
  expected: Expected,
): Phase {
  return phase(clock, truth, expected, {
    answer: (request, _, now) =>
      reply(
        writeCsv(
          THIRTEEN,
          select(request, served(now, request.party)),
          request.party,
        ),
      ),
  });
}

/** New rows contradict nothing: they are published whatever else is doubted. */
const NEW_ROWS: Expected = { ...NO_LIE, mustHold: newer(40) };
const DOUBT: Expected = { ...NO_LIE, verdicts: ['suspicious', 'incomplete'] };
const BLIND: Expected = { ...NO_LIE, cannotKnow: true };
const AGAIN: Partial<Phase> = { isAgain: true };
const EITHER: Expected = { ...WHOLE, verdicts: ['complete', 'incomplete'] };
const STILL_DOUBTED: Expected = {
  ...WHOLE,
  verdicts: ['complete', 'suspicious'],
};

const oneLate: MakeLedger = (now, party) =>
  makeLedger(now, { seed: 'late', party, rows: 1, fromHours: 400 });
const dropThree =
  (truth: MakeLedger): MakeLedger =>
  (now, party) => {
    const all = truth(now, party);
    const gone = all
      .filter(({ time }) => time < now - 2n * DAY - HOUR)
      .slice(-3);
    return all.filter((entry) => !gone.includes(entry));
  };
/** The last row that the first run closed has another quantity. */
const changeLast =
  (truth: MakeLedger): MakeLedger =>
  (now, party) => {
    const all = truth(now, party);
    const at = all.findLastIndex(({ time }) => time < now - 49n * HOUR);
    return all.map((entry, index) =>
      index === at ? { ...entry, quantity: `${entry.quantity}0` } : entry,
    );
  };

/** Rows of 53 to 50 hours before now come twice. */
const doubled: Phase['answer'] = (request, truth, now) => {
  const rows = select(request, truth);
  const again = rows.filter(
    ({ time }) => time >= now - 53n * HOUR && time < now - 50n * HOUR,
  );
  return reply(writeCsv(THIRTEEN, [...rows, ...again], request.party));
};

/** It takes a start to be in another unit: nothing is that late. */
const deafToStarts: Phase['answer'] = (request, truth, now) =>
  (request.from ?? 0n) === 0n
    ? honestAnswer(request, truth, now)
    : reply(writeCsv(THIRTEEN, [], request.party));

/** Only the from side, and no effect. */
const otherRelease: Phase['answer'] = (request, truth) => {
  const columns = THIRTEEN.columns.filter((name) => name !== 'effect');
  const own = select(request, truth).filter(
    (entry) => entry.from.party === request.party,
  );
  return reply(writeCsv({ ...THIRTEEN, columns }, own, request.party));
};

export const CASES_OF_NIGHTS: readonly HostileCase[] = [
  nights('growth', 'two days of rows more', [phase(0, until(2), WHOLE)]),
  nights('nothing-new', 'the same rows, two days later', [
    phase(0, until(48), WHOLE),
  ]),
  nights('growth-in-three-nights', 'a day more, and another one', [
    phase(-24, until(24), WHOLE),
    phase(0, until(1), WHOLE),
  ]),
  nights(
    'late-rows',
    'rows of the last hours before the first run are booked after it',
    [
      phase(0, until(2), { ...BLIND, mustHold: newer(40) }),
      phase(0, until(2), WHOLE, AGAIN),
    ],
    { truth: until(53) },
  ),
  nights(
    'row-late-by-weeks',
    'one row is booked two weeks back, between two runs',
    [
      phase(0, both(until(2), oneLate), { ...BLIND, mustHold: newer(40) }),
      phase(0, both(until(2), oneLate), WHOLE, AGAIN),
    ],
  ),
  nights(
    'clock-and-rows-lag',
    'the second run meets a replica a day behind, the third one does not',
    [
      lost(-72, until(48), until(72), NO_LIE),
      phase(0, until(2), STILL_DOUBTED),
    ],
  ),
  nights(
    'clock-goes-back',
    'the source’s clock is an hour earlier than before',
    [phase(-49, until(48), NO_LIE)],
  ),
  nights(
    'no-clock',
    'the source tells no time in either run',
    [phase('none', until(1), EITHER)],
    {
      clock: 'none',
      expected: EITHER,
    },
  ),
  nights('retention-cut', 'the source has lost all but the last three days', [
    lost(0, until(2), since(until(2), 72), NEW_ROWS),
  ]),
  nights(
    'retention-shorter-than-the-rest',
    'nothing that is held is served any longer; what is new is',
    [
      lost(0, until(2), since(until(2), 30), {
        ...NEW_ROWS,
        mustHold: newer(30),
      }),
    ],
  ),
  nights(
    'pause-longer-than-retention',
    'a first run three weeks ago; the rows between have gone',
    [
      lost(0, both(until(500), since(until(2), 72)), since(until(2), 72), {
        ...NEW_ROWS,
        mustHold: newer(72),
      }),
    ],
    { clock: -500, truth: until(500) },
  ),
  nights(
    'all-rows-lost',
    'the source has no rows any longer, and no new ones',
    [lost(0, until(48), () => [], NO_LIE)],
  ),
  nights('another-chain', 'nothing of before, and rows of a new chain', [
    lost(
      0,
      both(until(48), since(until(1, 'reset'), 40)),
      since(until(1, 'reset'), 40),
      NEW_ROWS,
    ),
  ]),
  nights('row-changes', 'the last row of before has another quantity', [
    phase(
      0,
      changeLast(until(2)),
      { ...DOUBT, mustHold: newer(40) },
      { mayStay: until(48) },
    ),
    phase(0, changeLast(until(2)), STILL_DOUBTED, AGAIN),
  ]),
  nights('rows-doubled', 'rows of before come twice', [
    phase(0, until(2), NO_LIE, { answer: doubled }),
  ]),
  nights('fewer-rows', 'three rows of before have gone', [
    lost(0, until(2), dropThree(until(2)), { ...DOUBT, mustHold: newer(40) }),
  ]),
  nights(
    'fewer-rows-once',
    'the second run meets a node that lacks three rows of before, the third one does not',
    [
      lost(-24, until(24), dropThree(until(24)), DOUBT),
      phase(0, until(2), STILL_DOUBTED),
    ],
  ),
  nights(
    'release-changes',
    'the second run meets a release without `effect`, that sends the from side only',
    [
      phase(0, until(2), telling({ ...BLIND }, 'the columns have changed'), {
        answer: otherRelease,
      }),
    ],
    { lacks: ['effect'] },
  ),
  nights(
    'fails-then-heals',
    'every answer of the second run is a 500; the third run is right',
    [
      phase(-24, until(48), PARTLY, {
        answer: () => refusal(500, 'Internal error'),
      }),
      phase(0, until(2), WHOLE),
    ],
  ),
  nights(
    'first-answer-lags',
    'the first run meets a node that has no row yet, the second one does not',
    [phase(0, until(2), { ...WHOLE, verdicts: ['suspicious'] })],
    {
      expected: BLIND,
      answer: (request) => reply(writeCsv(THIRTEEN, [], request.party)),
    },
  ),
  nights(
    'start-not-understood',
    'a start lets nothing out; the ledger gets its rows after the first run',
    [
      phase(-24, since(until(24), 47), WHOLE, { answer: deafToStarts }),
      phase(0, since(until(2), 47), DOUBT, { answer: deafToStarts }),
    ],
    { truth: () => [] },
  ),
  nights(
    'second-answer-is-empty',
    'the second run gets a header line and no rows; the third is right',
    [lost(-24, until(24), () => [], DOUBT), phase(0, until(2), STILL_DOUBTED)],
  ),
];
