/**
 * The views that answer what the lake's ready questions answer: holders over time, who
 * pays whom, fees by market, activity of every party, and statements.
 */
import { type Kysely, sql } from 'kysely';
import comments from './comments.json' with { type: 'json' };

const ACCOUNT = 'party_id, asset_id, account_type, market_id';

const VIEWS = [
  // The last balances of each account in each month count until the month of the next
  // ones. Entries of one block have no order, so a last block may leave several: the
  // highest counts, and `unresolved` says how many accounts that concerns.
  `create view mirror.holders_monthly as
    with known as (
      select *, date_trunc('month', vega_time at time zone 'UTC')::date as month,
             max(vega_time) over (partition by ${ACCOUNT}, date_trunc('month', vega_time at time zone 'UTC')) as last_time
        from mirror.balances where balance is not null and party_id <> 'network'),
    closing as (
      select ${ACCOUNT}, month, min(balance) as lowest, max(balance) as highest
        from known where vega_time = last_time group by ${ACCOUNT}, month),
    spans as (
      select *, lead(month) over (partition by ${ACCOUNT} order by month) as next_month from closing),
    months as (
      select generate_series(min(month), max(month), interval '1 month')::date as month from closing)
    select m.month, s.asset_id, count(distinct s.party_id) filter (where highest > 0) as holders,
           count(*) filter (where highest > 0) as accounts, coalesce(sum(highest) filter (where highest > 0), 0) as held,
           count(*) filter (where lowest <> highest) as unresolved
      from months m join spans s on s.month <= m.month and (s.next_month is null or m.month < s.next_month)
     group by m.month, s.asset_id`,

  `create view mirror.payments_monthly as
    select date_trunc('month', vega_time at time zone 'UTC')::date as month,
           account_from_party_id as payer, account_to_party_id as payee, asset_id, count(*) as entries,
           sum(quantity) as quantity, min(vega_time) as first_at, max(vega_time) as last_at
      from mirror.entries where account_from_party_id is distinct from account_to_party_id
     group by 1, 2, 3, 4`,

  `create view mirror.market_fees_monthly as
    select date_trunc('month', vega_time at time zone 'UTC')::date as month,
           coalesce(account_from_market_id, account_to_market_id) as market_id, asset_id, transfer_type,
           count(*) as payments, count(distinct account_from_party_id) as payers, sum(quantity) as paid
      from mirror.entries where transfer_type like '%\\_FEE\\_PAY' group by 1, 2, 3, 4`,

  // A listed party whose ledger is not loaded has no entries here, which proves nothing.
  `create view mirror.last_activity as
    select party_id, coalesce(entries, 0) as entries, last_at
      from mirror.activity full join (select party_id from mirror.parties) as listed using (party_id)
     where party_id <> 'network'`,

  `create view mirror.statement_lines as
    select account_from_party_id as party_id, vega_time, asset_id, account_from_account_type as account_type,
           account_from_market_id as market_id, transfer_type, account_to_party_id as counterparty_id,
           -quantity as change, account_from_balance as balance
      from mirror.entries
    union all
    select account_to_party_id, vega_time, asset_id, account_to_account_type, account_to_market_id, transfer_type,
           account_from_party_id, quantity, account_to_balance
      from mirror.entries`,
];

const NAMES = [
  'holders_monthly',
  'payments_monthly',
  'market_fees_monthly',
  'last_activity',
  'statement_lines',
].map((name) => `mirror.${name}`);

const LATER = new Set(['asset_symbol', 'amount', 'balance_amount']);

const GRANT = `do $$ begin
  if exists (select from pg_roles where rolname = 'mirror_reader') then
    grant select on ${NAMES.join(', ')} to mirror_reader;
  end if;
end $$`;

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const view of VIEWS) await sql.raw(view).execute(db);
  await sql.raw(GRANT).execute(db);
  for (const { relation, text, columns } of comments) {
    if (!NAMES.includes(relation)) continue;
    await sql`comment on view ${sql.raw(relation)} is ${sql.lit(text)}`.execute(
      db,
    );
    for (const [column, meaning] of Object.entries(columns)) {
      // Later migrations add columns, and comment on them.
      if (LATER.has(column)) continue;
      await sql`comment on column ${sql.raw(`${relation}.${column}`)} is ${sql.lit(meaning)}`.execute(
        db,
      );
    }
  }
}
