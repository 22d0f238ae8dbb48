/** The configuration as the console shows it: everything, and no secret. */
import { expect, test } from 'vitest';
import { shownSettings } from '../../src/config/secrets.ts';
import { changeSettings, readConfig } from '../../src/config/environment.ts';
import { SETTINGS } from '../../src/config/settings.ts';

const SECRET = 'hush-0123456789abc';
const config = readConfig({
  env: {
    SOURCE_URL: `https://user:${SECRET}@ledger.example.com/api`,
    SOURCE_AUTHORIZATION: `Bearer ${SECRET}`,
    DATABASE_URL: `postgres://user:${SECRET}@localhost/db`,
    REDIS_URL: `redis://:${SECRET}@localhost`,
    NOTIFY_URL: `https://hooks.example.com/${SECRET}`,
    API_TOKEN: SECRET,
    OBJECT_STORE_URL: `s3://bucket/prefix?region=eu-1&endpoint=${encodeURIComponent(`http://user:${SECRET}@store:9000`)}`,
    SOURCE_RATE: '7',
  },
  cwd: '/nonexistent',
});

test('the settings page shows every setting and no secret', () => {
  const shown = shownSettings(config);
  expect(shown.map(({ name }) => name)).toEqual(
    SETTINGS.map(({ name }) => name),
  );
  expect(JSON.stringify(shown)).not.toContain(SECRET);
  const of = (name: string): unknown => shown.find((one) => one.name === name);
  expect(of('SOURCE_URL')).toMatchObject({
    value: 'https://***:***@ledger.example.com/api',
  });
  expect(of('OBJECT_STORE_URL')).toMatchObject({
    value:
      's3://bucket/prefix?region=eu-1&endpoint=http%3A%2F%2F***%3A***%40store%3A9000%2F',
  });
  expect(of('API_TOKEN')).toMatchObject({
    value: '***',
    isSecret: true,
    origin: 'environment',
  });
  expect(of('SOURCE_RATE')).toMatchObject({
    value: '7',
    origin: 'environment',
  });
  expect(of('DATA_DIR')).toMatchObject({
    value: '/nonexistent/data',
    origin: 'default',
  });
  expect(of('SOURCE_ASSETS')).toMatchObject({ value: null, origin: 'unset' });
});

test('the settings page masks the parameters of an endpoint, as gateways take keys there', () => {
  const endpoint = encodeURIComponent(
    `https://user:${SECRET}@store/?key=${SECRET}`,
  );
  const env = { OBJECT_STORE_URL: `s3://bucket/prefix?endpoint=${endpoint}` };
  const shown = shownSettings(readConfig({ env, cwd: '/nonexistent' }));
  expect(JSON.stringify(shown)).not.toContain(SECRET);
});

test('the settings page shows durations, sizes and shares with units, a delimiter by name, and CSV columns by both names', () => {
  const env = {
    SOURCE_URL: 'http://127.0.0.1:1',
    LAKE_RETENTION: '90m',
    EXPORT_DELIMITER: 'tab',
    NIGHTLY_AUDIT_SHARE: '0.5%',
    EXPORT_COLUMNS: 'vega_time=when,asset_id=none',
    SOURCE_ASSETS: 'ab'.repeat(32),
  };
  const shown = shownSettings(readConfig({ env, cwd: '/nonexistent' }));
  const values = Object.fromEntries(
    shown.map(({ name, value }) => [name, value]),
  );
  expect(values).toMatchObject({
    HISTORY_RETENTION: '90d',
    LAKE_RETENTION: '90m',
    EXPORT_SEGMENT_MAX: '1GiB',
    EXPORT_DELIMITER: 'tab',
    NIGHTLY_AUDIT_SHARE: '0.5%',
    EXPORT_COLUMNS: 'vega_time=when,asset_id=none',
  });
});

test('the settings page tells what a command has set itself', () => {
  const changed = shownSettings(
    changeSettings(config, {
      sourcePageSize: '100',
      nightlyExportsMax: '3',
      redisUrl: undefined,
    }),
  );
  const origins = Object.fromEntries(
    changed.map(({ name, origin }) => [name, origin]),
  );
  expect(origins).toMatchObject({
    SOURCE_PAGE_SIZE: 'this command',
    NIGHTLY_EXPORTS_MAX: 'this command',
    REDIS_URL: 'unset',
    API_PORT: 'default',
  });
});
