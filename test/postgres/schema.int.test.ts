/** What the migrations make, and how databases of other versions are met. */
import { readdir, readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import {
  DUMPED_MAJOR,
  dumpSchema,
  schemaName,
} from '../../scripts/schema-dump.ts';
import { schemaTypes } from '../../scripts/schema-types.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { type Baseline, migrate } from '../../src/postgres/migrate.ts';
import { freshDatabase, openFreshDatabase } from '../support/database.ts';

const GOLDEN = resolve(import.meta.dirname, '../../migrations/schema.sql');
const TYPES = resolve(
  import.meta.dirname,
  '../../src/postgres/schema.generated.ts',
);
const BASELINE = resolve(GOLDEN, '../baseline.json');

const database = await freshDatabase({ isMigrated: true });
const { rows } = await database.pool.query<{ version: string }>(
  `select current_setting('server_version_num') as version`,
);
const isDumpedMajor =
  Math.floor(Number(rows[0]?.version) / 10_000) === DUMPED_MAJOR;

// Other majors print the same schema in other words.
test.runIf(isDumpedMajor)(
  "the schema is the golden one; 'npm run schema' writes it anew",
  async () => {
    expect(await dumpSchema(database.pool)).toBe(
      await readFile(GOLDEN, 'utf8'),
    );
  },
);

test("the row types are those of the migrated tables; 'npm run schema' writes them anew", async () => {
  expect(await schemaTypes(database.pool)).toBe(await readFile(TYPES, 'utf8'));
});

test('the baseline is named after the golden schema, while no migration was added behind it', async () => {
  const { migrations, schema } = JSON.parse(
    await readFile(BASELINE, 'utf8'),
  ) as Baseline;
  const files = (await readdir(resolve(BASELINE, '..'))).filter((file) =>
    file.endsWith('.ts'),
  );
  const isAlone = files.length === migrations.length;
  expect(isAlone ? schemaName(await readFile(GOLDEN, 'utf8')) : schema).toBe(
    schema,
  );
});

test('the dump tells one schema from another', async () => {
  await using other = await openFreshDatabase({ isMigrated: true });
  const before = await dumpSchema(other.pool);
  await other.pool.query(
    'alter table mirror.segments alter column open drop default',
  );
  const after = await dumpSchema(other.pool);
  expect(before).toContain('  open boolean not null default false');
  expect(after).toBe(
    before.replace(
      /(table mirror\.segments[^]*?open boolean not null) default false/,
      '$1',
    ),
  );
});

test('many that migrate at once migrate once, under a lock', async () => {
  await using empty = await openFreshDatabase();
  const warehouses = Array.from({ length: 4 }, () =>
    openWarehouse({ url: empty.url, onIdleError: () => undefined }),
  );
  try {
    const migrated = await Promise.all(warehouses.map(({ db }) => migrate(db)));
    const names = migrated.flat();
    expect(names.length).toBeGreaterThan(1);
    expect(new Set(names).size).toBe(names.length);
    const applied = await empty.pool.query<{ name: string }>(
      'select name from mirror.migrations order by name',
    );
    expect(applied.rows.map(({ name }) => name)).toEqual(names.toSorted());
  } finally {
    for (const warehouse of warehouses) await warehouse[Symbol.asyncDispose]();
  }
});

test('a database that is newer is refused, and left as it is', async () => {
  await using newer = await openFreshDatabase({ isMigrated: true });
  await newer.pool.query(
    `insert into mirror.migrations (name, timestamp) values ('9999-from-the-future', '2099-01-01T00:00:00Z')`,
  );
  const before = await dumpSchema(newer.pool);
  const warehouse = openWarehouse({
    url: newer.url,
    onIdleError: () => undefined,
  });
  try {
    await expect(migrate(warehouse.db)).rejects.toMatchObject({
      code: 'DATABASE_NEWER',
      message: expect.stringMatching(
        /9999-from-the-future.*use the newer ledger-mirror/,
      ),
    });
  } finally {
    await warehouse[Symbol.asyncDispose]();
  }
  expect(await dumpSchema(newer.pool)).toBe(before);
});

test.each(['0001-mirror', '0001-identity', '0001-identity-0123456789ab'])(
  'a database of an earlier baseline, %s, is refused with the way to rebuild it, and left as it is',
  async (first) => {
    await using older = await openFreshDatabase({ isMigrated: true });
    await older.pool.query(
      `update mirror.migrations set name = $1 where name like '0001-%'`,
      [first],
    );
    const before = await dumpSchema(older.pool);
    const warehouse = openWarehouse({
      url: older.url,
      onIdleError: () => undefined,
    });
    try {
      await expect(migrate(warehouse.db)).rejects.toMatchObject({
        code: 'DATABASE_OLDER',
        message: expect.stringMatching(
          /empty database.*ledger-mirror load --all/,
        ),
      });
    } finally {
      await warehouse[Symbol.asyncDispose]();
    }
    expect(await dumpSchema(older.pool)).toBe(before);
  },
);
