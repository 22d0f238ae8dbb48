/**
 * The settings that every Postgres session of this process needs, and how settings are
 * applied. They override those of the server, its database and the role. They are applied
 * after connecting, because a pooler refuses startup parameters or drops them silently.
 */
import type { ClientBase } from 'pg';

/** Settings by name. The values are formatted as `current_setting` returns them. */
export type SessionSettings = Readonly<Record<string, string>>;

/**
 * Settings that all our sessions need: how values are formatted as text, and no limits
 * set by the role.
 */
export const PLAIN_SETTINGS: SessionSettings = {
  TimeZone: 'UTC',
  DateStyle: 'ISO, MDY',
  IntervalStyle: 'postgres',
  client_encoding: 'UTF8',
  extra_float_digits: '1',
  bytea_output: 'hex',
  standard_conforming_strings: 'on',
  default_transaction_isolation: 'read committed',
  // A role's limits are meant to end forgotten sessions, but COPY and verify may
  // legitimately run for hours.
  statement_timeout: '0',
  idle_session_timeout: '0',
  transaction_timeout: '0',
};

/**
 * Sets only settings that the server knows, because older servers do not have all of
 * them.
 */
const APPLY = `select count(set_config(name, wanted, false))
  from unnest($1::text[], $2::text[]) as asked(name, wanted)
  where current_setting(name, true) is not null`;

/** Applies the settings to a new connection, before anything else runs on it. */
export async function applySettings(
  client: Pick<ClientBase, 'query'>,
  settings: SessionSettings,
): Promise<void> {
  await client.query(APPLY, [Object.keys(settings), Object.values(settings)]);
}
