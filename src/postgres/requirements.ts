/**
 * Checks the server before anything on it is changed. Each missing requirement has its
 * own message.
 */
import { PermanentError } from '../errors/errors.ts';
import { type RowOf, statement } from './statement.ts';

/**
 * The oldest supported version, which is the first with `nulls not distinct` and with
 * views that run with their reader's permissions.
 */
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

/**
 * The state of a database: which parts of the mirror it has, the role that opened it, and
 * its server.
 */
export type ServerState = RowOf<typeof SERVER_COLUMNS>;

/**
 * The value of `extension` is `here` if it is installed, `absent` if the server does not
 * have it, `closed` if it is not on the cloud's list of allowed extensions, `refused` if
 * this role may not create it, or `ready` if it can be created.
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
 * Checks the requirements.
 * @throws PermanentError `DATABASE_VERSION`; and if the mirror's tables do not exist yet,
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
