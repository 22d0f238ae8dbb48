/**
 * Amounts in whole units beside those in the smallest unit, in the views that analysts
 * read. The new columns are the last ones, so nothing moves for readers of the others.
 */
import { type Kysely, sql } from 'kysely';
import comments from './comments.json' with { type: 'json' };

/** For each view, its new columns and the amounts that they show. */
const AMOUNTS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  flows_daily: { amount: 'quantity' },
  fees_daily: { amount: 'paid' },
  counterparties: { sent_amount: 'sent', received_amount: 'received' },
  holders_monthly: { amount: 'held' },
  payments_monthly: { amount: 'quantity' },
  market_fees_monthly: { amount: 'paid' },
  statement_lines: { amount: 'change', balance_amount: 'balance' },
};

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const [view, columns] of Object.entries(AMOUNTS)) {
    const relation = `mirror.${view}`;
    const { rows } = await sql<{ text: string }>`
      select rtrim(pg_get_viewdef(${relation}::regclass), ';') as text`.execute(
      db,
    );
    const added = Object.entries(columns).map(
      ([name, from]) =>
        // A product of decimals is exact at any size, as a quotient is not.
        `v.${from} * ('1e-' || a.decimals)::numeric as ${name}`,
    );
    // The planner drops the join if a query reads none of the new columns.
    await sql
      .raw(
        `create or replace view ${relation} as
          select v.*, a.symbol as asset_symbol, ${added.join(', ')}
            from (${rows[0]?.text ?? ''}) v left join mirror.assets a on a.asset_id = v.asset_id`,
      )
      .execute(db);
    const described = comments.find((one) => one.relation === relation);
    const meanings: Readonly<Record<string, string | undefined>> =
      described?.columns ?? {};
    for (const name of ['asset_symbol', ...Object.keys(columns)])
      await sql`comment on column ${sql.raw(`${relation}.${name}`)} is ${sql.lit(meanings[name] ?? '')}`.execute(
        db,
      );
  }
}
