/** What a server must be before the first change is made to it: each lack has a line of its own. */
import { PermanentError } from '../errors/errors.ts';
import { type RowOf, statement } from './statement.ts';

/** Views that run with the rights of their reader, and `nulls not distinct`. */
export const POSTGRES_MAJOR_MIN = 15;
const EXTENSION = 'btree_gist';

const SERVER_COLUMNS = {
  hasSchema: 'boolean',
  hasSteps: 'boolean',
  mayCreate: 'boolean',
  name: 'text',
  role: 'text',
  server: 'text',
  major: 'int',
  encoding: 'text',
  isStandby: 'boolean',
  extension: 'text',
} as const;

/** What there is of the mirror in a database, who has opened it, and on which server. */
export type ServerState = RowOf<typeof SERVER_COLUMNS>;

/**
 * `extension` is `here`, `absent` from the server, `closed` by a cloud's list of those allowed,
 * `refused` to this role, or `ready`.
 */
export const SERVER_STATE = statement(SERVER_COLUMNS)`
  select to_regnamespace('mirror') is not null as "hasSchema",
    to_regclass('mirror.migrations') is not null as "hasSteps",
    has_database_privilege(current_database(), 'CREATE') as "mayCreate",
    current_database() as name, current_user as role,
    current_setting('server_version') as server,
    current_setting('server_version_num')::int / 10000 as major,
    current_setting('server_encoding') as encoding,
    pg_is_in_recovery() as "isStandby",
    case
      when exists (select from pg_extension where extname = 'btree_gist') then 'here'
      when not exists (select from pg_available_extensions where name = 'btree_gist') then 'absent'
      when current_setting('azure.extensions', true) not ilike '%btree_gist%' then 'closed'
      when (select rolsuper from pg_roles where rolname = current_user) then 'ready'
      when has_database_privilege(current_database(), 'CREATE') and exists (
        select from pg_available_extension_versions where name = 'btree_gist' and trusted) then 'ready'
      else 'refused'
    end as extension`;

/**
 * @throws PermanentError `DATABASE_VERSION`; and if the mirror's tables are not there yet,
 *   `DATABASE_STANDBY`, `DATABASE_ENCODING`, `DATABASE_RIGHTS` or `DATABASE_EXTENSION`
 */
export function requireServer(state: ServerState): void {
  const { name, role } = state;
  const refuse = (code: string, line: string): never => {
    throw new PermanentError(`Cannot use the database ${name}: ${line}`, {
      code,
      meta: { database: name, role, server: state.server },
    });
  };
  if (state.major < POSTGRES_MAJOR_MIN)
    refuse(
      'DATABASE_VERSION',
      `the server is Postgres ${state.server}; ${POSTGRES_MAJOR_MIN} or later is needed`,
    );
  if (state.hasSteps) return;
  if (state.isStandby)
    refuse(
      'DATABASE_STANDBY',
      'the server is a standby, which takes no writes; point DATABASE_URL at the primary',
    );
  if (state.encoding !== 'UTF8')
    refuse(
      'DATABASE_ENCODING',
      `its encoding is ${state.encoding}; make one by: create database mirror ` +
        "encoding 'UTF8' template template0",
    );
  if (!state.hasSchema && !state.mayCreate)
    throw new PermanentError(
      `Cannot migrate the database: ${role} may not create a schema in ${name}; ` +
        `let its owner run: grant create on database "${name}" to "${role}"`,
      { code: 'DATABASE_RIGHTS', meta: { role, database: name } },
    );
  const lack = EXTENSION_LACKS[state.extension];
  if (lack !== undefined) refuse('DATABASE_EXTENSION', lack);
}

const EXTENSION_LACKS: Readonly<Record<string, string>> = {
  absent:
    `the server lacks the extension ${EXTENSION}; install its package with the further ` +
    'modules (postgresql-contrib)',
  closed:
    `the server does not allow the extension ${EXTENSION}; add it to the server ` +
    'parameter azure.extensions',
  refused:
    `this user may not create the extension ${EXTENSION}; let an administrator run ` +
    `in it: create extension ${EXTENSION}`,
};
