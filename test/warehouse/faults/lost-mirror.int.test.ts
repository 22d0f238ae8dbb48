/**
 * A mirror whose database is lost, through the real commands: everything comes back from
 * the store, and the next night asks the source what an ordinary night asks.
 */
import { expect, test } from 'vitest';
import { openHome } from '../../cli/mirror-home.ts';
import { expectLedgers } from '../../cli/expect-truth.ts';
import { openCopy, openFreshDatabase } from '../../support/database.ts';
import { startSandbox } from '../../support/sandbox.ts';
import { openMeter } from '../../support/measure/traffic-meter.ts';
import { heldCheckpoints, knownParties } from '../../support/mirror-state.ts';
import {
  addGoneParty,
  addPrunedCheckpoint,
} from '../../support/mirror-arrange.ts';

/** Other numbers show what the same costs there, with SHOW=1. */
const PARTIES = Number(process.env['PARTIES'] ?? 12);
const WHALE_ENTRIES = Number(process.env['WHALE_ENTRIES'] ?? 40_000);
const HOUR_MS = 3_600_000;
/** Little happens meanwhile, so that what is asked again shows. */
const BETWEEN_NIGHTS_MS = HOUR_MS / 6;

test('a lost database comes back with lists, ranges and tails, and its next night asks no more than an ordinary one and receives less than a hundredth of the ledgers', async () => {
  await using sandbox = await startSandbox({
    parties: PARTIES,
    entriesMean: 60,
    // A large ledger beside them: its news are a small part of it.
    whaleEntries: WHALE_ENTRIES,
    checkpointIntervalMs: HOUR_MS,
    rateLimit: 'none',
  });
  await using meter = await openMeter(sandbox.url);
  await using lost = await openFreshDatabase();
  await using home = await openHome({
    SOURCE_URL: meter.url,
    DATABASE_URL: lost.url,
  });
  const night = async (settings = {}) => {
    sandbox.advance(BETWEEN_NIGHTS_MS);
    meter.reset();
    const { code, document, stderr } = await home.json(['nightly'], settings);
    expect([code, document.verdict, code === 0 ? '' : stderr]).toEqual([
      0,
      'complete',
      '',
    ]);
    return { ...meter.counted };
  };
  const whole = await night();
  // The source keeps checkpoints for days: the mirror has some that it lacks.
  await addPrunedCheckpoint(lost.pool);
  await night();
  const ordinary = await night();
  const countParties = (): number => [...sandbox.truth.parties()].length;
  const known = countParties();
  const checkpoints = await heldCheckpoints(lost.pool);
  const parties = await knownParties(lost.pool);

  await using empty = await openFreshDatabase();
  const settings = { DATABASE_URL: empty.url };
  meter.reset();
  const rebuilt = await home.json(['load', '--all', '--take-over'], settings);
  const { verdict, evidence } = rebuilt.document;
  expect([verdict, verdict === 'complete' ? {} : evidence]).toEqual([
    'complete',
    {},
  ]);
  expect(meter.counted).toMatchObject({ exports: 0, lists: 0 });
  expect(evidence).toMatchObject({
    rebuilt: { problemCount: 0 },
    restoredLists: {
      checkpoints: expect.any(Number),
      parties: parties.length,
    },
  });
  expect(await knownParties(empty.pool)).toEqual(parties);
  const afterwards = await night(settings);

  if (process.env['SHOW'] !== undefined)
    process.stdout.write(
      `${JSON.stringify({ whole, ordinary, afterwards })}\n`,
    );
  // A party that has arrived since is asked for, too.
  const arrived = countParties() - known;
  expect(afterwards.exports).toBeLessThanOrEqual(ordinary.exports + arrived);
  expect(afterwards.lists).toBeLessThanOrEqual(ordinary.lists);
  expect(afterwards.exportBytes).toBeLessThan(whole.exportBytes / 100);
  const before = new Set(await heldCheckpoints(empty.pool));
  expect(checkpoints.filter((one) => !before.has(one))).toEqual([]);
  await expectLedgers(empty.pool, sandbox.truth, home.objectsDir);
  const inLake = await home.json(
    ['query', 'select count(*)::varchar as n from checkpoints'],
    settings,
  );
  expect(inLake.document['rows']).toEqual([{ n: String(before.size) }]);
  expect((await home.run(['verify', '--deep'], settings)).code).toBe(0);
});

test('a database restored without its last two nights asks as an ordinary night does, and receives less than a hundredth of the ledgers', async () => {
  await using sandbox = await startSandbox({
    parties: 4,
    entriesMean: 20,
    whaleEntries: WHALE_ENTRIES,
    // The hour that each answer brings again is a small part of a month.
    historyMs: 30 * 24 * HOUR_MS,
    checkpointIntervalMs: HOUR_MS,
    rateLimit: 'none',
  });
  await using meter = await openMeter(sandbox.url);
  await using original = await openFreshDatabase();
  await using home = await openHome({
    SOURCE_URL: meter.url,
    DATABASE_URL: original.url,
  });
  const night = async (settings = {}) => {
    sandbox.advance(BETWEEN_NIGHTS_MS);
    meter.reset();
    const { code, stderr } = await home.run(['nightly'], settings);
    expect([code, code === 0 ? '' : stderr]).toEqual([0, '']);
    return { ...meter.counted };
  };
  const whole = await night();
  await using restored = await openCopy(original);
  await night();
  const ordinary = await night();
  const known = [...sandbox.truth.parties()].length;

  const settings = { DATABASE_URL: restored.url };
  meter.reset();
  const adopted = await home.run(['load', '--all', '--take-over'], settings);
  expect([adopted.code, meter.counted]).toMatchObject([
    0,
    { exports: 0, lists: 0 },
  ]);
  const afterwards = await night(settings);
  const arrived = [...sandbox.truth.parties()].length - known;
  expect(afterwards.exports).toBeLessThanOrEqual(ordinary.exports + arrived);
  expect(afterwards.lists).toBeLessThanOrEqual(ordinary.lists);
  expect(afterwards.exportBytes).toBeLessThan(whole.exportBytes / 100);
  await expectLedgers(restored.pool, sandbox.truth, home.objectsDir);
});

test('a party that the source had removed comes back, and is asked for no longer', async () => {
  await using sandbox = await startSandbox({
    parties: 4,
    entriesMean: 20,
    rateLimit: 'none',
  });
  await using lost = await openFreshDatabase();
  await using home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: lost.url,
  });
  await home.run(['nightly']);
  const removed = await addGoneParty(lost.pool);
  expect((await home.run(['nightly'])).code).toBe(0);

  await using empty = await openFreshDatabase();
  const settings = { DATABASE_URL: empty.url };
  const rebuilt = await home.run(['load', '--all', '--take-over'], settings);
  expect(rebuilt.code).toBe(0);
  expect((await home.run(['nightly'], settings)).code).toBe(0);
  expect(await knownParties(empty.pool)).toContain(removed);
  expect(await goneParties(empty.pool)).toEqual([removed]);
});

async function goneParties(pool: {
  query: (text: string) => Promise<{ rows: { party_id: string }[] }>;
}): Promise<string[]> {
  const { rows } = await pool.query(
    'select party_id from mirror.parties where gone_since is not null',
  );
  return rows.map(({ party_id: partyId }) => partyId);
}
