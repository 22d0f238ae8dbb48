import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fc } from '../support/properties.ts';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  knownAssets,
  readConfig,
  type Config,
} from '../../src/config/environment.ts';
import { SETTINGS } from '../../src/config/settings.ts';
import { UsageError } from '../../src/errors/errors.ts';

const PARTY = 'ab'.repeat(32);

let cwd = '';
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), 'ledger-mirror-config-'));
});
afterEach(() => rmSync(cwd, { recursive: true, force: true }));

function read(env: Record<string, string>): Config {
  return readConfig({ env, cwd });
}

function problemsOf(env: Record<string, string>): readonly string[] {
  try {
    read(env);
  } catch (error) {
    if (error instanceof UsageError) return error.problems;
    throw error;
  }
  return [];
}

describe('the defaults of settings', () => {
  test('are read exactly as if a user had written them', () => {
    const written = Object.fromEntries(
      SETTINGS.flatMap(({ name, fallback }) =>
        fallback === undefined ? [] : [[name, fallback]],
      ),
    );
    const { origins: _origins, ...byDefault } = read({});
    const { origins, ...explicit } = read(written);
    expect(explicit).toEqual(byDefault);
    expect(origins.apiPort).toBe('environment');
  });

  test('are those of the contract', () => {
    expect(read({})).toMatchObject({
      sourcePageSize: 1000,
      sourceRate: 10,
      sourceExportConcurrency: 1,
      sourceExportTime: 'ns',
      dataDir: join(cwd, 'data'),
      schedule: '0 2 * * *',
      scheduleTz: 'UTC',
      nightlyParties: { kind: 'all' },
      exportCompression: 'zstd',
      exportSegmentMax: 2 ** 30,
      apiHost: '127.0.0.1',
      apiPort: 8080,
    });
  });

  test('an empty value counts as unset', () => {
    writeFileSync(join(cwd, '.env'), 'SOURCE_RATE=\nREDIS_URL=\n');
    const config = read({ API_PORT: '', DATABASE_URL: '' });
    expect(config.apiPort).toBe(8080);
    expect(config.databaseUrl).toBeUndefined();
    expect(config.origins).toMatchObject({
      apiPort: 'default',
      sourceRate: 'default',
      redisUrl: 'unset',
      databaseUrl: 'unset',
    });
  });
});

describe('.env', () => {
  test('is read, and the environment goes before it', () => {
    writeFileSync(
      join(cwd, '.env'),
      'SOURCE_RATE=3\nAPI_PORT=81\n# a comment\nAWS_REGION=eu-1\n',
    );
    const config = read({ API_PORT: '82' });
    expect(config).toMatchObject({ sourceRate: 3, apiPort: 82 });
    expect(config.origins).toMatchObject({
      sourceRate: '.env',
      apiPort: 'environment',
    });
    expect(config.ambient).toMatchObject({ AWS_REGION: 'eu-1' });
  });

  test('refuses any name it does not know', () => {
    writeFileSync(
      join(cwd, '.env'),
      'DATABSE_URL=postgres://x/y\nHTTPS_PROXY=http://p:1\n',
    );
    expect(problemsOf({})).toEqual([
      expect.stringMatching(
        /^DATABSE_URL: not a setting \(in \.env\); 'ledger-mirror --help' lists the settings/,
      ),
    ]);
  });

  test('that cannot be read is one line', () => {
    rmSync(join(cwd, '.env'), { force: true });
    writeFileSync(join(cwd, 'file'), '');
    expect(() => readConfig({ env: {}, cwd: join(cwd, 'file') })).toThrow(
      UsageError,
    );
  });
});

describe('a configuration that is not accepted', () => {
  test.each([
    ['SOURCE_URL', 'ftp://x'],
    ['SOURCE_URL', 'http://x/?part=1'],
    ['SOURCE_URL', 'http://x/#part'],
    ['SOURCE_URL', 'x'],
    ['SOURCE_PAGE_SIZE', '1'],
    ['SOURCE_PAGE_SIZE', '1e3'],
    ['SOURCE_RATE', '0'],
    ['SOURCE_RATE', '-1'],
    ['SOURCE_EXPORT_PATH', 'api'],
    ['SOURCE_EXPORT_PARAM_FROM', 'a b'],
    ['SOURCE_EXPORT_TIME', 'us'],
    ['SOURCE_ASSETS', 'btc'],
    ['DATABASE_URL', 'mysql://h/d'],
    ['REDIS_URL', 'http://h'],
    ['OBJECT_STORE_URL', 's3://'],
    ['OBJECT_STORE_URL', 's3://bucket/x?regio=eu'],
    ['OBJECT_STORE_URL', 'file://host/dir'],
    ['OBJECT_STORE_URL', 'file:///dir?endpoint=minio'],
    ['SCHEDULE', 'at two'],
    ['SCHEDULE_TZ', 'Mars/Base'],
    ['NIGHTLY_PARTIES', 'alice,,bob'],
    ['NIGHTLY_PARTIES', '@'],
    ['NIGHTLY_EXPORTS_MAX', 'many'],
    ['HISTORY_RETENTION', '13d'],
    ['EXPORT_COMPRESSION', 'lz4'],
    ['EXPORT_SEGMENT_MAX', '1KiB'],
    ['EXPORT_SEGMENT_MAX', '256 MiB'],
    ['NOTIFY_URL', 'mail'],
    ['API_HOST', 'a b'],
    ['API_PORT', '65536'],
    ['DATABASE_URL', 'postgres://me:50%off@h/d'],
    ['REDIS_URL', 'redis://:50%@h'],
    [
      'OBJECT_STORE_URL',
      's3://bucket/x?endpoint=http%3A%2F%2Fme%3A50%25off%40h',
    ],
    ['API_TOKEN', 'short'],
    ['API_TOKEN', 'aaaaaaaaaaaaaaaaaaaaaaaa'],
    ['API_TOKEN', 'change-this-token'],
    ['API_TOKEN', 'with a blank 0123456789abcdef'],
    ['API_BASE_PATH', 'ledger'],
    ['API_BASE_PATH', '/ledger/../admin'],
    ['API_BASE_PATH', '/ledger?x=1'],
    ['API_HOSTS', 'mirror.example,bad name'],
    ['API_HOSTS', 'https://mirror.example'],
    ['WORKER_HEALTH_PORT', 'x'],
    ['LOG_LEVEL', 'loud'],
  ])(
    '%s=%s is one line with name, value and what is accepted',
    (name, value) => {
      const setting = SETTINGS.find((declared) => declared.name === name);
      const shown =
        setting?.secret === true
          ? 'a secret, not shown'
          : JSON.stringify(value);
      expect(problemsOf({ [name]: value })).toEqual([
        expect.stringContaining(`${name}: `),
      ]);
      const [line] = problemsOf({ [name]: value });
      expect(line).toContain(shown);
      expect(line).toContain(setting?.accepted ?? 'a declared setting');
    },
  );

  test('reports every problem at once', () => {
    writeFileSync(join(cwd, '.env'), 'SOURCE_RAET=1\n');
    const problems = problemsOf({
      API_PORT: 'x',
      LOG_LEVEL: 'loud',
      EXPORT_COLUMN: 'csv',
      NIGHTLY_PARTIES: '@no',
    });
    expect(new Set(problems.map((line) => line.split(':', 1)[0]))).toEqual(
      new Set([
        'API_PORT',
        'EXPORT_COLUMN',
        'LOG_LEVEL',
        'NIGHTLY_PARTIES',
        'SOURCE_RAET',
      ]),
    );
  });

  test.each([
    'SOURCE_RAET',
    'EXPORT_COMPRESS_ION',
    'NIGHTLY_PARTIE',
    'SOURCE_URL_FILE',
  ])('the environment may not hold %s', (name) => {
    expect(problemsOf({ [name]: 'x' })).toEqual([
      expect.stringMatching(`^${name}: not a setting`),
    ]);
  });

  test.each([
    ['SOURCE_DATE_EPOCH', '1'],
    ['SOURCE_COMMIT', 'abc'],
    ['NIGHTLY_SERVICE_HOST', '10.0.0.1'],
    ['SOURCE_PORT', 'tcp://10.0.0.1:80'],
    ['API_PORT', 'tcp://10.0.0.1:80'],
  ])("ignores another program's %s", (name, value) => {
    expect(problemsOf({ [name]: value })).toEqual([]);
    expect(read({ [name]: value }).apiPort).toBe(8080);
  });

  test.each([
    ['INFO', 'info'],
    ['Warning', 'warn'],
    ['verbose', 'debug'],
    ['CRITICAL', 'error'],
    ['off', 'silent'],
  ])('takes the level %s for %s', (given, level) => {
    expect(read({ LOG_LEVEL: given }).logLevel).toBe(level);
  });

  test('reads .env with a byte order mark, and refuses UTF-16 in one line', () => {
    writeFileSync(join(cwd, '.env'), '\uFEFFSOURCE_RATE=3\n');
    expect(read({}).sourceRate).toBe(3);
    writeFileSync(join(cwd, '.env'), '\uFEFFSOURCE_RATE=3\n', 'utf16le');
    expect(problemsOf({})).toEqual([
      expect.stringContaining('save it as UTF-8'),
    ]);
  });

  test('refuses a # in .env that Compose and systemd would take for a part of the value', () => {
    const set = (line: string) => writeFileSync(join(cwd, '.env'), `${line}\n`);
    set('SOURCE_AUTHORIZATION=Bearer ab#cd');
    expect(problemsOf({})).toEqual([
      expect.stringMatching(/^SOURCE_AUTHORIZATION: has a # .* single quotes/),
    ]);
    set(
      "API_PORT=1\nSOURCE_AUTHORIZATION='Bearer ab#cd'\nSOURCE_RATE=3 # a comment\n#X=a#b",
    );
    expect(read({}).sourceAuthorization).toBe('Bearer ab#cd');
  });

  test('ignores other names in the environment', () => {
    expect(
      problemsOf({ PATH: '/bin', DATABASE_NAME: 'x', SOURCES: 'y', HOME: '/' }),
    ).toEqual([]);
  });

  test('is either a configuration or a list of problems for any input', () => {
    const names = SETTINGS.map((setting) => setting.name);
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.constantFrom(...names),
          fc.string({ unit: 'grapheme' }),
        ),
        (env) => {
          for (const problem of problemsOf(env))
            expect(problem).toMatch(/^[A-Z_]+: [^\n]+$/);
        },
      ),
    );
  });
});

describe('secret settings', () => {
  const secrets = SETTINGS.filter((setting) => setting.secret === true);

  test('are those that carry credentials', () => {
    expect(secrets.map((setting) => setting.name)).toEqual(
      expect.arrayContaining([
        'SOURCE_AUTHORIZATION',
        'API_TOKEN',
        'DATABASE_URL',
        'REDIS_URL',
      ]),
    );
  });

  test.each(secrets.map((setting) => setting.name))(
    '%s is never shown in a problem',
    (name) => {
      const problems = problemsOf({ [name]: 'se\tcr' });
      expect(problems).toHaveLength(1);
      expect(problems.join('\n')).not.toContain('se\tcr');
      expect(problems.join('\n')).not.toContain(String.raw`se\tcr`);
    },
  );

  test('come from a file', () => {
    writeFileSync(join(cwd, 'token'), '0f3a-from-a-file\n');
    const config = read({ API_TOKEN_FILE: 'token' });
    expect(config.apiToken).toBe('0f3a-from-a-file');
    expect(config.origins.apiToken).toBe(`file ${join(cwd, 'token')}`);
  });

  test('given twice, or from a file that is not there, are problems', () => {
    expect(
      problemsOf({ API_TOKEN: '0123456789abcdef', API_TOKEN_FILE: 'token' }),
    ).toEqual([expect.stringContaining('given twice')]);
    expect(problemsOf({ API_TOKEN_FILE: 'token' })).toEqual([
      expect.stringContaining('ENOENT'),
    ]);
  });

  test.each([
    'API_TOKEN',
    'API_READ_TOKEN',
    'DATABASE_URL',
    'NOTIFY_URL',
    'REDIS_URL',
  ])('%s from a file that is empty is a problem, not an open door', (name) => {
    writeFileSync(join(cwd, 'secret'), ' \n');
    const others =
      name === 'API_READ_TOKEN' ? { API_TOKEN: '0123456789abcdef' } : {};
    expect(problemsOf({ ...others, [`${name}_FILE`]: 'secret' })).toEqual([
      expect.stringMatching(new RegExp(`^${name}: .* is not accepted`)),
    ]);
  });
});

describe('PROOF_KEY_FILE', () => {
  const KEY =
    'PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz';
  const path = () => join(cwd, 'proof key');
  const given = { PROOF_KEY_FILE: 'proof key' };

  test.each([0o600, 0o440, 0o644])('may have the mode %o', (mode) => {
    writeFileSync(path(), `${KEY}\n`, { mode });
    expect(read(given).proofKey).toBe(KEY);
  });

  test.each([
    ['', 'it is empty'],
    [
      '-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n',
      'a key of OpenSSL or OpenSSH',
    ],
    [KEY.replace('PRIVATE+KEY+', ''), 'a public key, which cannot sign'],
    [KEY.replace('+c74f20a3+A', '+c74f20a3+B'), 'is not an Ed25519 key'],
    [KEY.slice(0, -4), 'is not an Ed25519 key'],
    ['b'.repeat(64), 'PRIVATE+KEY+<name>+<hash>+<key>'],
  ])('is refused with its path and the reason: %j', (text, reason) => {
    writeFileSync(path(), text);
    const [problem, ...others] = problemsOf(given);
    expect(others).toEqual([]);
    expect(problem).toContain(`PROOF_KEY: the value of the file ${path()}`);
    expect(problem).toContain(reason);
    expect(problem).not.toContain(KEY.slice(-40, -4));
  });

  test('is refused if it is a folder', () => {
    mkdirSync(path());
    expect(problemsOf(given)).toEqual([
      `PROOF_KEY_FILE: cannot read "${path()}" (EISDIR); give a readable file`,
    ]);
  });
});

describe('NIGHTLY_PARTIES', () => {
  test('takes a list, in canonical form and once each', () => {
    expect(
      read({ NIGHTLY_PARTIES: `${PARTY.toUpperCase()}, ${PARTY}` })
        .nightlyParties,
    ).toEqual({
      kind: 'list',
      ids: [PARTY],
    });
  });

  test('takes a file of ids', () => {
    writeFileSync(
      join(cwd, 'parties.txt'),
      `${PARTY}\r\n\n${'cd'.repeat(32)}\n${PARTY}\n`,
    );
    expect(read({ NIGHTLY_PARTIES: '@parties.txt' }).nightlyParties).toEqual({
      kind: 'list',
      ids: [PARTY, 'cd'.repeat(32)],
    });
  });

  test('takes ids of a source that has its own, in a list and in a file, where each is a line', () => {
    expect(read({ NIGHTLY_PARTIES: 'alice, bob' }).nightlyParties).toEqual({
      kind: 'list',
      ids: ['alice', 'bob'],
    });
    writeFileSync(join(cwd, 'parties.txt'), `Zoë & Söhne, Ltd\n${PARTY}\n`);
    expect(read({ NIGHTLY_PARTIES: '@parties.txt' }).nightlyParties).toEqual({
      kind: 'list',
      ids: ['Zoë & Söhne, Ltd', PARTY],
    });
  });

  test.each([
    ['what is no id', `${PARTY}\nbo\u0001b\n`, 'which is no party id'],
    ['nothing', '\n', 'no party id'],
  ])('refuses a file that holds %s', (_, content, shown) => {
    writeFileSync(join(cwd, 'parties.txt'), content);
    expect(problemsOf({ NIGHTLY_PARTIES: '@parties.txt' })).toEqual([
      expect.stringContaining(shown),
    ]);
  });
});

describe('ASSETS_FILE', () => {
  const asset = { id: PARTY, symbol: 'USDT', decimals: 6 };

  test('is read with the configuration, and no file means no assets', () => {
    writeFileSync(join(cwd, 'assets.json'), JSON.stringify([asset]));
    const config = read({ ASSETS_FILE: 'assets.json' });
    expect(knownAssets(config)).toEqual([asset]);
    expect(config.texts.assetsFile).toBe(join(cwd, 'assets.json'));
    expect(knownAssets(read({}))).toEqual([]);
  });

  test('is refused if it cannot be read or used, with what to do', () => {
    expect(problemsOf({ ASSETS_FILE: 'none.json' })).toEqual([
      `ASSETS_FILE: cannot read ${JSON.stringify(join(cwd, 'none.json'))} (ENOENT); give a readable JSON file of assets, or none`,
    ]);
    writeFileSync(
      join(cwd, 'assets.json'),
      JSON.stringify([{ ...asset, decimals: 39 }]),
    );
    expect(problemsOf({ ASSETS_FILE: 'assets.json' })).toEqual([
      expect.stringMatching(
        /^ASSETS_FILE: cannot use ".*assets\.json": entry 1 has no decimals from 0 to 38; give /,
      ),
    ]);
  });
});

describe('the tokens of the API', () => {
  const token = '0123456789abcdef';
  const other = 'fedcba9876543210';

  test('are two different ones, and the one that only reads needs the other', () => {
    expect(read({ API_TOKEN: token, API_READ_TOKEN: other })).toMatchObject({
      apiReadToken: other,
    });
    expect(problemsOf({ API_READ_TOKEN: other })).toEqual([
      expect.stringContaining('set API_TOKEN too'),
    ]);
    expect(problemsOf({ API_TOKEN: token, API_READ_TOKEN: token })).toEqual([
      expect.stringContaining('is the same as API_TOKEN'),
    ]);
  });
});

test.each(['localhost:24001', 'ledger.example.com', 'node:8080/path'])(
  'a URL without its scheme is answered with what lacks: %s',
  (given) => {
    expect(problemsOf({ SOURCE_URL: given })).toEqual([
      expect.stringContaining(
        'is not accepted: it does not begin with http:// or https://; give ',
      ),
    ]);
  },
);

test('a schedule in words is answered with an example', () => {
  expect(problemsOf({ SCHEDULE: 'every night' })).toEqual([
    expect.stringContaining('such as 0 2 * * * (daily at 02:00)'),
  ]);
});

test('a URL that is not accepted is told without its password', () => {
  const [line] = problemsOf({ SOURCE_URL: 'https://me:50%off@h/' });
  expect(line).toContain('https://[secret]@h/');
  expect(line).not.toContain('50%off');
});
