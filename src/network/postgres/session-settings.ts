/**
 * What a session of Postgres goes by, whatever the server, its database or the role have set. It is
 * set after connecting: a pooler refuses startup parameters, or drops them in silence.
 */
import type { ClientBase } from 'pg';

/** Names and values, as `current_setting` shows them. */
export type SessionSettings = Readonly<Record<string, string>>;

/** Those that no session of ours can do without: the form of values, and no limits of a role. */
export const PLAIN_SETTINGS: SessionSettings = {
  TimeZone: 'UTC',
  DateStyle: 'ISO, MDY',
  IntervalStyle: 'postgres',
  client_encoding: 'UTF8',
  extra_float_digits: '1',
  bytea_output: 'hex',
  standard_conforming_strings: 'on',
  default_transaction_isolation: 'read committed',
  // A role's own limits are for people who forget a session; COPY and verify take their time.
  statement_timeout: '0',
  idle_session_timeout: '0',
  transaction_timeout: '0',
};

/** Older servers do not know all of them. */
const APPLY = `select count(set_config(name, wanted, false))
  from unnest($1::text[], $2::text[]) as asked(name, wanted)
  where current_setting(name, true) is not null`;

/** Sets them on a new connection, before anything else is run on it. */
export async function applySettings(
  client: Pick<ClientBase, 'query'>,
  settings: SessionSettings,
): Promise<void> {
  await client.query(APPLY, [Object.keys(settings), Object.values(settings)]);
}
