/**
 * Measures which parties are late, and by how much, if a night cannot request every
 * party: `npm run bench -- lateness [PARTIES [NIGHTS]]`. It simulates a year of nights on
 * a real Postgres, with the product's own code to plan, order and settle exports. Each
 * night makes all earlier requests a day older. There is no source: the entries are drawn
 * from a seed, and every requested entry arrives immediately.
 */
import { openApp, type App } from '../src/app/app.ts';
import { readConfig } from '../src/config/environment.ts';
import { createLog } from '../src/logging/log.ts';
import {
  planNightly,
  readLateness,
} from '../src/runs/store/nightly/nightly-plan.ts';
import { fraction, noise } from '../src/sandbox/network/seeded.ts';
import { say } from './world/report.ts';
import { givenNumbers, openFolder } from './world/scratch-world.ts';

const [PARTIES = 2_000, NIGHTS = 365] = givenNumbers();
const SEED = 7;
const SCOPE = { partyIds: undefined, everyParty: false, idleNightsMax: 28 };
/** The share of all parties that a night can request. */
const SHARES = [0.5, 0.2, 0.1, 0.05];
/**
 * Kinds of parties: their percentage of all parties, and the percentage of nights on
 * which they have entries.
 */
const KINDS = [
  { kind: 'daily', parties: 2, nights: 100 },
  { kind: 'monthly', parties: 8, nights: 3 },
  { kind: 'yearly', parties: 90, nights: 0.3 },
] as const;

type Kind = (typeof KINDS)[number];

interface Party {
  readonly partyId: string;
  readonly kind: Kind;
  /** The nights after which the party had entries that have not been requested yet. */
  unknown: number[];
  isAsked: boolean;
}

interface Year {
  readonly delays: Map<string, number[]>;
  firstPassNights: number | undefined;
  asked: number;
  late: number;
}

/** Returns the kind of the party at this percentage of all parties. */
function kindAt(percent: number): (typeof KINDS)[number] {
  const [first, second, third] = KINDS;
  if (percent < first.parties) return first;
  return percent < first.parties + second.parties ? second : third;
}

function makeParties(): Party[] {
  return Array.from({ length: PARTIES }, (_, index) => {
    const percent = (index * 100) / PARTIES;
    const kind = kindAt(percent);
    return {
      partyId: `${kind.kind}-${index}`,
      kind,
      unknown: [],
      isAsked: false,
    };
  });
}

/** Lets a night pass, by making all earlier requests a day older. */
async function age(app: App): Promise<void> {
  await app.warehouse.pool.query(
    `update mirror.exports set last_asked_at = last_asked_at - interval '1 day', last_entry_at = last_entry_at - interval '1 day'`,
  );
}

async function askNight(
  app: App,
  capacity: number,
): Promise<readonly string[]> {
  const { db, runs, nightly } = app.jobs;
  const { runId } = await runs.create({ kind: 'nightly', subject: 'bench' });
  await planNightly(db, {
    ...SCOPE,
    runId,
    exportsMax: undefined,
  });
  const taken = await nightly.take(runId, capacity);
  return settleNight(
    app,
    runId,
    taken.map(({ partyId }) => partyId),
  );
}

async function settleNight(
  app: App,
  runId: string,
  partyIds: readonly string[],
): Promise<readonly string[]> {
  const rows = partyIds.map(
    (partyId) => parties.get(partyId)?.unknown.length ?? 0,
  );
  await app.warehouse.pool.query(
    `insert into mirror.exports (party_id, last_asked_at, last_entry_at)
     select party_id, clock_timestamp(), case when rows > 0 then clock_timestamp() end
     from unnest($1::text[], $2::int[]) as t(party_id, rows)
     on conflict (party_id, asset_id) do update
     set last_asked_at = excluded.last_asked_at, last_entry_at = coalesce(excluded.last_entry_at, exports.last_entry_at)`,
    [partyIds, rows],
  );
  const settled = partyIds.map((partyId, index) => ({
    partyId,
    state: 'done' as const,
    outcome: { verdict: 'complete', rows: String(rows[index]) },
  }));
  await app.jobs.nightly.settle(runId, settled);
  await app.warehouse.pool.query(
    `drop table mirror.nightly_units_${runId.replaceAll('-', '')}`,
  );
  await app.jobs.runs.finish(runId, 'complete', {});
  return partyIds;
}

async function simulateYear(app: App, capacity: number): Promise<Year> {
  const year: Year = {
    delays: new Map(),
    firstPassNights: undefined,
    asked: 0,
    late: 0,
  };
  for (let night = 1; night <= NIGHTS; night += 1) {
    for (const [index, party] of [...parties.values()].entries())
      if (fraction(noise(SEED, night, index)) * 100 < party.kind.nights)
        party.unknown.push(night);
    const asked = await askNight(app, capacity);
    for (const partyId of asked) know(partyId, night, year);
    year.asked += asked.length;
    if (
      year.firstPassNights === undefined &&
      [...parties.values()].every(({ isAsked }) => isAsked)
    )
      year.firstPassNights = night;
    await age(app);
  }
  year.late = (await readLateness(app.jobs.db, SCOPE)).late;
  return year;
}

/**
 * Records that a party's entries are known. The first pass brings the history, so only
 * later entries can be late.
 */
function know(
  partyId: string,
  night: number,
  { delays, firstPassNights }: Year,
): void {
  const party = parties.get(partyId);
  if (party === undefined) return;
  const known = delays.get(party.kind.kind) ?? [];
  if (firstPassNights !== undefined)
    for (const since of party.unknown) known.push(night - since);
  delays.set(party.kind.kind, known);
  party.unknown = [];
  party.isAsked = true;
}

function delaysOf(year: Year): string {
  return KINDS.map(({ kind }) => {
    const delays = (year.delays.get(kind) ?? []).toSorted(
      (one, other) => one - other,
    );
    if (delays.length === 0) return `${kind} none`;
    const mean = delays.reduce((sum, delay) => sum + delay, 0) / delays.length;
    return `${kind} ${mean.toFixed(1)} (worst ${delays.at(-1)})`;
  }).join(', ');
}

let parties = new Map<string, Party>();
await using stack = new AsyncDisposableStack();
const dataDir = await openFolder(stack);
const config = readConfig({
  env: { SOURCE_URL: 'http://127.0.0.1:9', DATA_DIR: dataDir },
  cwd: dataDir,
});
await using app = await openApp({
  config,
  log: createLog('warn'),
  signal: new AbortController().signal,
});
for (const share of SHARES) {
  parties = new Map(makeParties().map((party) => [party.partyId, party]));
  await app.warehouse.pool.query(
    'truncate mirror.exports, mirror.parties, mirror.runs cascade',
  );
  await app.warehouse.pool.query(
    'insert into mirror.parties (party_id, first_epoch) select unnest($1::text[]), 1',
    [[...parties.keys()]],
  );
  const capacity = Math.floor(PARTIES * share);
  const year = await simulateYear(app, capacity);
  say(
    `${share * 100} % of ${PARTIES} a night`,
    `first pass ${year.firstPassNights ?? `more than ${NIGHTS}`} nights; asked a night ${(year.asked / NIGHTS).toFixed(0)}; nights until an entry is known: ${delaysOf(year)}; told as late at the end ${year.late}`,
  );
}
