/** Questions that come up every day, ready by name. Entries between two mirrored parties count once. */

export interface ReadyQuestion {
  readonly name: string;
  readonly title: string;
  /** Names of the options it takes, besides `since`. */
  readonly parameters: readonly QuestionParameter[];
  readonly sql: string;
}

export type QuestionParameter = 'since' | 'until' | 'party' | 'asset';

/** Absent options are NULL: no limit. Times are RFC 3339. */
export type QuestionValues = Readonly<Partial<Record<QuestionParameter, string>>>;

const IN_RANGE = `(cast($since as varchar) is null or vega_time >= cast($since as timestamptz))
     and (cast($until as varchar) is null or vega_time < cast($until as timestamptz))`;
const OF_ASSET = `(cast($asset as varchar) is null or asset_id = $asset)`;

export const READY_QUESTIONS: readonly ReadyQuestion[] = [
  {
    name: 'top-parties',
    title: 'the twenty parties with the most entries, and what they moved of each asset',
    parameters: ['since', 'until', 'asset'],
    sql: `with busiest as (
  select party_id, count(*) as of_party from ledger_entries
   where ${IN_RANGE} and ${OF_ASSET}
   group by party_id order by of_party desc, party_id limit 20)
select party_id, asset_id, count(*) as entries,
       exact_sum(case when account_from_party_id = party_id then quantity end,
                 case when account_from_party_id = party_id then quantity_text end) as sent,
       exact_sum(case when account_to_party_id = party_id then quantity end,
                 case when account_to_party_id = party_id then quantity_text end) as received,
       max(vega_time) as latest
  from ledger_entries join busiest using (party_id)
 where ${IN_RANGE} and ${OF_ASSET}
 group by party_id, asset_id, of_party order by of_party desc, party_id, asset_id`,
  },
  {
    name: 'daily-flows',
    title: 'what moved each day, by asset and type',
    parameters: ['since', 'until', 'asset'],
    sql: `select cast(vega_time as date) as day, asset_id, transfer_type, count(*) as entries,
       exact_sum(quantity, quantity_text) as quantity
  from ledger_entries
 where is_counted and ${IN_RANGE} and ${OF_ASSET}
 group by 1, 2, 3 order by day, asset_id, transfer_type`,
  },
  {
    name: 'fees',
    title: 'fees paid, by month, asset and kind',
    parameters: ['since', 'until', 'asset', 'party'],
    sql: `select strftime(vega_time, '%Y-%m') as month, asset_id, transfer_type, count(*) as payments,
       count(distinct account_from_party_id) as payers, exact_sum(quantity, quantity_text) as paid
  from ledger_entries
 where is_counted and transfer_type like '%\\_FEE\\_PAY' escape '\\'
   and ${IN_RANGE} and ${OF_ASSET} and (cast($party as varchar) is null or account_from_party_id = $party)
 group by 1, 2, 3 order by month, asset_id, transfer_type`,
  },
  {
    name: 'balances',
    title: "each account's balance after its last entry; several where its last block leaves it open",
    parameters: ['until', 'party', 'asset'],
    sql: `with sides as (
  select account_from_party_id as party_id, account_from_account_type as account_type,
         account_from_market_id as market_id, asset_id, vega_time,
         account_from_balance as balance, account_from_balance_text as balance_text
    from ledger_entries where is_counted
  union all
  select account_to_party_id, account_to_account_type, account_to_market_id, asset_id, vega_time,
         account_to_balance, account_to_balance_text
    from ledger_entries where is_counted),
known as (
  select * from sides
   where party_id <> 'network' and (balance is not null or balance_text is not null)
     and (cast($until as varchar) is null or vega_time < cast($until as timestamptz))
     and (cast($party as varchar) is null or party_id = $party) and ${OF_ASSET}),
latest as (
  select party_id, asset_id, account_type, market_id, max(vega_time) as as_of
    from known group by party_id, asset_id, account_type, market_id)
select party_id, asset_id, account_type, latest.market_id, as_of,
       string_agg(distinct coalesce(cast(balance as varchar), balance_text), ' or ') as balance
  from latest join known using (party_id, asset_id, account_type)
 where known.vega_time = as_of and known.market_id is not distinct from latest.market_id
 group by party_id, asset_id, account_type, latest.market_id, as_of
 order by party_id, asset_id, account_type, latest.market_id`,
  },
  {
    name: 'cadence',
    title: 'checkpoints: how many, how far apart, and the widest gap',
    parameters: [],
    sql: `with heights as (
  select epoch, at_block, count(*) as at_height, at_block - lag(at_block) over (partition by epoch order by at_block) as gap
    from checkpoints group by epoch, at_block)
select epoch, sum(at_height) as checkpoints, count(*) as heights, min(at_block) as first_block, max(at_block) as last_block,
       median(gap) as median_gap, max(gap) as widest_gap, arg_max(at_block, gap) as before_block
  from heights group by epoch order by epoch`,
  },
];

export function readyQuestion(name: string): ReadyQuestion | undefined {
  return READY_QUESTIONS.find((question) => question.name === name);
}

/** What `runQuery` wants for a ready question. */
export function questionParameters(
  values: QuestionValues,
): Readonly<Record<QuestionParameter, string | null>> {
  const { since = null, until = null, party = null, asset = null } = values;
  return { since, until, party, asset };
}
