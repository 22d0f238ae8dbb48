/**
 * Measures how much space a ledger entry takes in Postgres, and how much it would take
 * with other types for its ids: `npm run bench -- bytes`. The entries come from a sandbox
 * and are loaded as usual; the variants are scratch tables next to them, with the same
 * indexes.
 */
import { Client } from 'pg';
import {
  openHome,
  runCommand,
  startScript,
  whaleOf,
} from './world/api-world.ts';
import { say } from './world/report.ts';
import { median, openScratch } from './world/scratch-world.ts';

const ENTRIES = process.argv.includes('--quick') ? 50_000 : 400_000;
const ROUNDS = 5;
const IDS = [
  'party_id',
  'asset_id',
  'account_from_market_id',
  'account_from_party_id',
  'account_to_market_id',
  'account_to_party_id',
] as const;
const TYPES = [
  'transfer_type',
  'account_from_account_type',
  'account_to_account_type',
] as const;
const OTHERS = [
  'quantity',
  'effect',
  'account_from_balance',
  'account_to_balance',
  'extra',
  'segment_id',
] as const;

/** Columns that are never null. */
const ALWAYS: ReadonlySet<string> = new Set([
  'party_id',
  'asset_id',
  'transfer_type',
]);

await using stack = new AsyncDisposableStack();
const { folder, connectionString } = await openScratch(stack);
const home = await openHome(connectionString, folder, 'bench_bytes');
let partyId = '';
{
  await using sandbox = await startScript('serve-sandbox.ts', [
    '20',
    '0',
    `${ENTRIES}`,
  ]);
  const env = { ...home.env, SOURCE_URL: sandbox.url, SOURCE_RATE: '100000' };
  partyId = await whaleOf(sandbox.url);
  await runCommand(['export', '--party', partyId], env);
}
const client = new Client({ connectionString: home.databaseUrl });
await client.connect();
stack.defer(() => client.end());
await client.query('create schema scratch');

/**
 * Creates a table of all entries, with the same indexes as the real one. The expressions
 * determine how ids and types are stored.
 */
async function buildForm(
  name: string,
  write: (column: string) => string,
): Promise<void> {
  const columns = [...IDS, ...TYPES].map(
    (column) => `${write(column)} as ${column}`,
  );
  await client.query(
    `create table scratch.${name} as select vega_time, ${[...columns, ...OTHERS].join(', ')} from mirror.ledger_entries`,
  );
  await client.query(`create index on scratch.${name} (party_id, vega_time)`);
  await client.query(`create index on scratch.${name} (asset_id, vega_time)`);
  await client.query(`create index on scratch.${name} (segment_id)`);
  await client.query(`vacuum analyze scratch.${name}`);
}

/** Returns the median time of one query, in milliseconds. */
async function timeOf(question: string): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    const startMs = performance.now();
    await client.query(question);
    if (round > 0) times.push(performance.now() - startMs);
  }
  return median(times);
}

async function tell(what: string, table: string, view: string): Promise<void> {
  const { rows } = await client.query<{ heap: number; indexes: number }>(
    `select sum(pg_table_size(c.oid))::float8 as heap, sum(pg_indexes_size(c.oid))::float8 as indexes
     from pg_class c where c.oid = '${table}'::regclass
        or c.oid in (select inhrelid from pg_inherits where inhparent = '${table}'::regclass)`,
  );
  const { rows: counted } = await client.query<{ count: string }>(
    `select count(*) from ${table}`,
  );
  const each = (bytes = 0): number =>
    Math.round(bytes / Number(counted[0]?.count));
  const { heap, indexes } = rows[0] ?? { heap: 0, indexes: 0 };
  const hour = await timeOf(
    `select * from ${view} where party_id = '${partyId}' order by vega_time desc limit 1000`,
  );
  const sums = await timeOf(
    `select asset_id, transfer_type, sum(quantity) from ${view} group by asset_id, transfer_type`,
  );
  say(
    what,
    `${each(heap + indexes)} bytes: ${each(heap)} table, ${each(indexes)} indexes; a party's last 1,000 ${hour.toFixed(1)} ms, sums of all ${sums.toFixed(0)} ms`,
  );
}

await client.query('vacuum analyze mirror.ledger_entries');
await tell(
  'the current form: ids as text',
  'mirror.ledger_entries',
  'mirror.ledger_entries',
);

const HEX = `'^([0-9a-f]{2})+$'`;
await buildForm('as_text', (column) => column);
await tell('the same, written in one go', 'scratch.as_text', 'scratch.as_text');

await buildForm('as_bytes', (column) =>
  isType(column)
    ? column
    : `case when ${column} ~ ${HEX} then decode(${column}, 'hex') else convert_to(${column}, 'UTF8') end`,
);
const texts = [...IDS, ...TYPES].map((column) =>
  isType(column)
    ? column
    : `case when length(${column}) = 32 then encode(${column}, 'hex') else convert_from(${column}, 'UTF8') end as ${column}`,
);
await client.query(
  `create view scratch.as_bytes_view as select vega_time, ${[...texts, ...OTHERS].join(', ')} from scratch.as_bytes`,
);
await tell(
  'ids as bytea below a view',
  'scratch.as_bytes',
  'scratch.as_bytes_view',
);

await client.query(
  'create table scratch.names (id int generated always as identity primary key, name text unique)',
);
for (const column of [...IDS, ...TYPES])
  await client.query(
    `insert into scratch.names (name) select distinct ${column} from mirror.ledger_entries where ${column} is not null
     on conflict do nothing`,
  );
await buildForm(
  'by_number',
  (column) => `(select id from scratch.names where name = ${column})`,
);
const named = [...IDS, ...TYPES].map(
  (column) => `${column}_n.name as ${column}`,
);
const joins = [...IDS, ...TYPES].map(
  (column) =>
    `${ALWAYS.has(column) ? '' : 'left '}join scratch.names ${column}_n on ${column}_n.id = e.${column}`,
);
await client.query(
  `create view scratch.by_number_view as
   select vega_time, ${[...named, ...OTHERS].join(', ')} from scratch.by_number e ${joins.join(' ')}`,
);
await client.query('analyze scratch.names');
await tell(
  'ids and types by number, from a dictionary below a view',
  'scratch.by_number',
  'scratch.by_number_view',
);
const { rows: size } = await client.query<{ bytes: string; names: string }>(
  `select pg_total_relation_size('scratch.names')::text as bytes, count(*)::text as names from scratch.names`,
);
say('the dictionary', `${size[0]?.names} names, ${size[0]?.bytes} bytes`);

function isType(column: string): boolean {
  return (TYPES as readonly string[]).includes(column);
}
