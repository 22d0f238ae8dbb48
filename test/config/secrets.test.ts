/**
 * Which values of the configuration are secret: settings, parts of URLs, other libraries'
 * keys.
 */
import { describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config/environment.ts';
import { secretsOf } from '../../src/config/secrets.ts';

function secrets(env: Record<string, string>): readonly string[] {
  return secretsOf(readConfig({ env, cwd: '/nonexistent' }));
}

describe('the secrets of a configuration', () => {
  test('are the values of secret settings', () => {
    expect(secrets({ SOURCE_AUTHORIZATION: 'Bearer abcdef' })).toContain(
      'Bearer abcdef',
    );
  });

  test('are the value of each header of SOURCE_HEADERS', () => {
    const given = { SOURCE_HEADERS: 'x-api-key: abcdefgh\nX-Tenant: blue' };
    expect(secrets(given)).toEqual(
      expect.arrayContaining(['abcdefgh', 'blue']),
    );
  });

  test.each([
    ['SOURCE_URL', 'https://me:p%40ssw0rd@ledger.example/'],
    ['DATABASE_URL', 'postgres://me:p%40ssw0rd@db/mirror'],
    ['REDIS_URL', 'redis://:p%40ssw0rd@cache'],
    ['NOTIFY_URL', 'https://me:p%40ssw0rd@hooks.example/x'],
    [
      'OBJECT_STORE_URL',
      's3://b/p?endpoint=http%3A%2F%2Fme%3Ap%2540ssw0rd%40store%3A9000',
    ],
    ['HTTPS_PROXY', 'http://me:p%40ssw0rd@proxy:3128'],
    ['https_proxy', 'me:p%40ssw0rd@proxy:3128'],
    ['ALL_PROXY', 'me:p%40ssw0rd@proxy:3128'],
  ])(
    'are the password of %s, as it is written and as it is meant',
    (name, url) => {
      expect(secrets({ [name]: url })).toEqual(
        expect.arrayContaining(['p@ssw0rd', 'p%40ssw0rd']),
      );
    },
  );

  test('are the path and the parameters of NOTIFY_URL, which chat services use as a key', () => {
    const found = secrets({
      NOTIFY_URL:
        'https://hooks.example/services/T000000000/B111111111?key=abcdefgh',
    });
    expect(found).toEqual(
      expect.arrayContaining([
        '/services/T000000000/B111111111',
        'T000000000',
        'B111111111',
        'abcdefgh',
      ]),
    );
  });

  test.each([
    ['AWS_SECRET_ACCESS_KEY', 'wJalrXUtnFEMI', 'wJalrXUtnFEMI'],
    ['AWS_SESSION_TOKEN', 'IQoJb3JpZ2lu', 'IQoJb3JpZ2lu'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'api-key=deadbeef,x=1', 'deadbeef'],
  ])('are what other libraries read from %s', (name, value, secret) => {
    expect(secrets({ [name]: value })).toContain(secret);
  });

  test('are not a password that is shown beside itself as user or database: it would blot out words', () => {
    const found = secrets({
      DATABASE_URL: 'postgres://postgres:postgres@db/mirror',
    });
    expect(found).toEqual([]);
  });
});
