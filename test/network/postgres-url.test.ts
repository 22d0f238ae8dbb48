/** URLs of Postgres as psql and clouds write them, and what is said of those that are misread. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  placeOf,
  readPostgresUrl,
} from '../../src/network/postgres/postgres-url.ts';

describe('a URL of Postgres is read as libpq reads it', () => {
  test.each([
    [
      'postgres://me:secret@db.example:6432/mirror',
      {
        hosts: [{ host: 'db.example', port: 6432 }],
        user: 'me',
        password: 'secret',
        database: 'mirror',
        sslMode: 'prefer',
      },
    ],
    [
      'postgresql://me:secret@/mirror?host=/cloudsql/project:region:name',
      {
        hosts: [{ host: '/cloudsql/project:region:name', port: 5432 }],
        sslMode: 'disable',
      },
    ],
    [
      'postgres://me@%2Fvar%2Frun%2Fpostgresql/mirror',
      { hosts: [{ host: '/var/run/postgresql', port: 5432 }] },
    ],
    [
      'postgres://me@one:1,two,[2001:db8::1]:3/mirror',
      {
        hosts: [
          { host: 'one', port: 1 },
          { host: 'two', port: 5432 },
          { host: '2001:db8::1', port: 3 },
        ],
        wantsPrimary: true,
      },
    ],
    [
      'postgres://?host=one,two&port=7&dbname=mirror&user=me&password=p',
      {
        hosts: [
          { host: 'one', port: 7 },
          { host: 'two', port: 7 },
        ],
        user: 'me',
        password: 'p',
        database: 'mirror',
      },
    ],
    // libpq ends the password at the @ alone.
    ['postgres://u:12#3?x@h/db', { password: '12#3?x', database: 'db' }],
    ['postgres://u:p%40%2F%25@h/db', { password: 'p@/%' }],
    ['postgres:///mirror', { hosts: [], database: 'mirror' }],
    ['postgres://', { hosts: [], database: undefined, user: undefined }],
    [
      'postgres://me@h/db?sslmode=verify-full&sslrootcert=system',
      { sslMode: 'verify-full', sslRootCert: 'system' },
    ],
    ['postgres://me@h/db?ssl=true', { sslMode: 'require' }],
    [
      'postgres://me:p@ep-x.neon.example/db?sslmode=require&channel_binding=require&options=endpoint%3Dep-x',
      { bindsChannel: true, options: 'endpoint=ep-x', sslMode: 'require' },
    ],
    ['postgres://me@h/db?pgbouncer=true', { database: 'db' }],
  ])('%s', (text, wanted) => {
    expect(readPostgresUrl(text)).toMatchObject(wanted);
  });

  test('a service is looked up in its file, and the URL goes before it', () => {
    const file = join(
      mkdtempSync(join(tmpdir(), 'lm-service-')),
      'pg_service.conf',
    );
    writeFileSync(
      file,
      '# ours\n[other]\nhost=no\n[mirror]\nhost=db\nport = 6000\nuser=me\ndbname=one\n',
    );
    expect(
      readPostgresUrl(
        `postgres:///two?service=mirror&servicefile=${encodeURIComponent(file)}`,
      ),
    ).toMatchObject({
      hosts: [{ host: 'db', port: 6000 }],
      user: 'me',
      database: 'two',
    });
    expect(
      readPostgresUrl(
        `postgres://?service=none&servicefile=${encodeURIComponent(file)}`,
      ),
    ).toContain('does not contain');
  });
});

describe('a URL of Postgres that is misread has a line that says what to write', () => {
  test.each([
    ['postgres://u:se/cret@h/db', 'write it as %2F'],
    ['postgres://u:se@cret@h/db', 'write it as %40'],
    ['postgres://u:50%off@h/db', 'write it as %25'],
    ['jdbc:postgresql://h/db', 'begin it with postgres:'],
    ['postgresql+psycopg2://h/db', 'begin it with postgres:'],
    ['mysql://h/db', 'does not begin with postgres://'],
    ['postgres://h:port/db', 'host or a port'],
    ['postgres://h:99999/db', 'from 1 to 65535'],
    ['postgres://h/db?sslmode=on', 'verify-full'],
    ['postgres://h/db?connection_limit=5', '"connection_limit"'],
    ['postgres://h/db?passfile=/x', 'passfile, which is not supported'],
    ['postgres://a,b/db?target_session_attrs=standby', 'has to write'],
    ['postgres://h/db?sslrootcert=system', 'sslmode=verify-full'],
    ['postgres://a,b/db?port=1,2,3', 'number of ports'],
  ])('%s', (text, line) => {
    const read = readPostgresUrl(text);
    expect(read).toEqual(expect.stringContaining(line));
    expect(read).not.toContain('cret');
  });
});

test('the place of a database is shown without user and password', () => {
  const read = readPostgresUrl('postgres://me:secret@one:1,[::1]/db');
  expect(typeof read === 'string' ? read : placeOf(read)).toBe(
    'one:1, [::1]:5432',
  );
});
