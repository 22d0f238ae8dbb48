/**
 * What the image and the compose files say, told without an engine; `npm run test:image`
 * runs them on one.
 */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config/environment.ts';
import { SETTINGS } from '../../src/config/settings.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const COMPOSE_FILES = [
  'docker-compose.yml',
  'compose.sandbox.yaml',
  'compose.proxy.yaml',
  'compose.secrets.yaml',
];
const SETTING_NAMES = new Set(SETTINGS.map(({ name }) => name));
/** The AWS SDK's own. */
const AWS = 'AWS_SHARED_CREDENTIALS_FILE';

let dir = '';
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ledger-mirror compose '));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

function read(name: string): string {
  return readFileSync(resolve(ROOT, name), 'utf8');
}

/** Names that a compose file takes from `.env` or the shell. */
function interpolated(text: string): string[] {
  return [
    ...new Set(
      [...text.matchAll(/\$\{([A-Z][A-Z_0-9]*)/g)].map(
        ([, name]) => name ?? '',
      ),
    ),
  ];
}

async function configFrom(dotEnv: string): Promise<unknown> {
  await writeFile(join(dir, '.env'), dotEnv);
  return readConfig({ env: {}, cwd: dir });
}

describe('the compose files', () => {
  test.each(COMPOSE_FILES)(
    '%s takes only names that the program accepts in the same .env',
    async (file) => {
      const own = interpolated(read(file)).filter(
        (name) => !SETTING_NAMES.has(name),
      );
      await expect(
        configFrom(own.map((name) => `${name}=1`).join('\n')),
      ).resolves.toBeDefined();
    },
  );

  test('give the mirror only settings and the location of its S3 keys', () => {
    const [, environment = ''] =
      /environment: &environment\n((?: {4}.*\n)+)/.exec(
        read('docker-compose.yml'),
      ) ?? [];
    const names = [...environment.matchAll(/^ +([A-Z_]+):/gm)].map(
      ([, name]) => name ?? '',
    );
    expect(names).toContain('DATABASE_URL');
    expect(names.filter((name) => !SETTING_NAMES.has(name))).toEqual([AWS]);
  });

  test('start nothing without a source: no address stands in for the one that is missing', () => {
    expect(read('docker-compose.yml')).toMatch(/SOURCE_URL: \$\{SOURCE_URL:\?/);
    expect(read('docker-compose.yml')).not.toMatch(/\$\{SOURCE_URL:?-/);
  });

  test('give each of several workers a spool of its own: its /data has no name that they could share', () => {
    const [, worker = ''] =
      /\n  worker:\n((?:(?: {4}.*)?\n)+)/.exec(read('docker-compose.yml')) ??
      [];
    const [, volumes = ''] = /^ {4}volumes: \[(.*)\]$/m.exec(worker) ?? [];
    const mounts = volumes
      .split(', ')
      .map((mount) => mount.replaceAll("'", ''));
    expect(mounts.filter((mount) => /(?:^|:)\/data\b/.test(mount))).toEqual([
      '/data',
    ]);
    // Where the image says that what is spooled lies.
    expect(read('Dockerfile') + read('docker-compose.yml')).toMatch(
      /DATA_DIR[=:] ?\/data/,
    );
  });

  test("take no keys of the developer's shell for the bundled store", () => {
    const taken = COMPOSE_FILES.flatMap((file) => interpolated(read(file)));
    expect(taken.filter((name) => name.startsWith('AWS_'))).toEqual([AWS]);
  });

  test('name every image by its digest, the base of ours as the Dockerfile does', () => {
    const text = COMPOSE_FILES.map(read).join('\n');
    const images = [...text.matchAll(/\$\{[A-Z0-9]+_IMAGE:-([^}]+)\}/g)].map(
      ([, image]) => image ?? '',
    );
    expect(images).toHaveLength(5);
    for (const image of images) expect(image).toMatch(/@sha256:[0-9a-f]{64}$/);
    const [, base = ''] =
      /^ARG NODE_IMAGE=(\S+)/m.exec(read('Dockerfile')) ?? [];
    expect(images).toContain(base);
  });

  test("call our image by the package's version", () => {
    const { version } = JSON.parse(read('package.json')) as { version: string };
    for (const file of ['docker-compose.yml', 'compose.sandbox.yaml']) {
      const named = [
        ...read(file).matchAll(/\$\{MIRROR_VERSION:-([^}]+)\}/g),
      ].map(([, text]) => text);
      expect([...new Set(named)]).toEqual([version]);
    }
    expect(read('Dockerfile')).toContain(`ARG VERSION=${version}\n`);
  });
});

describe('sandbox.env', () => {
  test('is a configuration that the program accepts, of a project of its own', async () => {
    const text = read('sandbox.env');
    await expect(configFrom(text)).resolves.toMatchObject({
      sourceUrl: new URL('http://sandbox:8090'),
    });
    expect(text).toMatch(/^COMPOSE_PROJECT_NAME=ledger-mirror-sandbox$/m);
    expect(read('docker-compose.yml')).toMatch(/^name: ledger-mirror$/m);
  });
});

describe('the Dockerfile', () => {
  test('copies only what .dockerignore lets in', () => {
    const copied = [
      ...read('Dockerfile').matchAll(/^COPY (?!--from)(.+) \S+$/gm),
    ].flatMap(([, names]) => (names ?? '').split(' '));
    expect(copied.length).toBeGreaterThan(5);
    const allowed = read('.dockerignore');
    for (const name of copied)
      expect(allowed).toContain(`!${name.replace(/^\.\//, '')}\n`);
  });
});
