/**
 * `npm run test:image`: tests the image and the compose files on a real Docker engine. If
 * no engine answers, or an image cannot be pulled, it says so. NODE_IMAGE,
 * POSTGRES_IMAGE, REDIS_IMAGE, S3_IMAGE and PROXY_IMAGE choose other images.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { command, expect, NotRun, ROOT, runSteps, succeed } from './steps.ts';

const RUN = `ledger-mirror-test-${randomBytes(3).toString('hex')}`;
const IMAGE = 'ledger-mirror:image-test';
const TOKEN = 'sandbox-trial-token-0001';
const API_PORT = '18080';
const WAIT_MAX_MS = 180_000;
/** The grace time of `docker stop`. A container that misses SIGTERM uses all of it. */
const GRACE_SECONDS = 15;

const environment = {
  COMPOSE_PROJECT_NAME: RUN,
  MIRROR_VERSION: 'image-test',
  API_PORT,
  POSTGRES_PORT: '15433',
  ...Object.fromEntries(
    ['NODE_IMAGE', 'POSTGRES_IMAGE', 'REDIS_IMAGE', 'S3_IMAGE', 'PROXY_IMAGE']
      .filter((name) => process.env[name] !== undefined)
      .map((name) => [name, process.env[name]]),
  ),
};
const SANDBOX = ['compose', '--env-file', 'sandbox.env'];

function docker(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  return succeed('docker', args, { env: { ...environment, ...env } });
}

function compose(...args: readonly string[]): Promise<string> {
  return docker([...SANDBOX, ...args]);
}

async function needEngine(): Promise<void> {
  const { code, output } = await command(
    'docker',
    ['info', '--format', '{{.ServerVersion}}'],
    {
      timeoutMs: 10_000,
    },
  );
  if (code !== 0)
    throw new NotRun(
      `no Docker engine answers: ${output.trim().split('\n').at(-1)}`,
    );
}

/** Makes sure that the image named in a file, or its replacement, is available. */
async function needImage(variable: string, file: string): Promise<void> {
  await needEngine();
  const text = await readFile(join(ROOT, file), 'utf8');
  const named = new RegExp(
    `(?:ARG ${variable}=|\\$\\{${variable}:-)([^}\\s]+)`,
  ).exec(text)?.[1];
  const image = process.env[variable] ?? named ?? variable;
  if ((await command('docker', ['image', 'inspect', image])).code === 0) return;
  const { code, output } = await command('docker', ['pull', '--quiet', image]);
  if (code !== 0)
    throw new NotRun(
      `cannot pull ${image}: ${output.trim().split('\n').at(-1)}`,
    );
}

async function needBuilt(): Promise<void> {
  await needEngine();
  if ((await command('docker', ['image', 'inspect', IMAGE])).code !== 0)
    throw new NotRun('the image was not built');
}

async function needStores(): Promise<void> {
  await needBuilt();
  for (const name of ['POSTGRES_IMAGE', 'REDIS_IMAGE', 'S3_IMAGE'])
    await needImage(name, 'docker-compose.yml');
}

async function until(
  what: string,
  isSo: () => Promise<boolean>,
): Promise<void> {
  const limitMs = performance.now() + WAIT_MAX_MS;
  while (!(await isSo().catch(() => false))) {
    if (performance.now() > limitMs)
      throw new Error(`${what}: not within ${WAIT_MAX_MS / 1000} s`);
    await sleep(500);
  }
}

interface RunDocument {
  readonly kind: string;
  readonly verdict: string | null;
}

async function runs(): Promise<readonly RunDocument[]> {
  return JSON.parse(
    await compose('exec', '-T', 'worker', 'ledger-mirror', 'runs', '--json'),
  ) as RunDocument[];
}

async function nightly(): Promise<void> {
  const text = await compose(
    'exec',
    '-T',
    'worker',
    'ledger-mirror',
    'nightly',
    '--json',
  );
  const { verdict } = JSON.parse(text) as RunDocument;
  expect(verdict === 'complete', `the night ended ${verdict}`);
}

async function healthyWorkers(): Promise<number> {
  const ids = (await compose('ps', '--quiet', 'worker')).trim().split('\n');
  const states = await Promise.all(
    ids.map((id) =>
      docker(['inspect', '--format', '{{.State.Health.Status}}', id]),
    ),
  );
  return states.filter((state) => state.trim() === 'healthy').length;
}

/**
 * @returns the exit code and the duration if SIGTERM arrives as soon as the container
 *   starts
 */
async function stopAtOnce(): Promise<{ exitCode: string; seconds: number }> {
  const name = `${RUN}-stopped`;
  await docker([
    'run',
    '--detach',
    '--name',
    name,
    IMAGE,
    'sandbox',
    '--port',
    '0',
  ]);
  const startedMs = performance.now();
  await docker(['stop', '--time', String(GRACE_SECONDS), name]);
  const seconds = (performance.now() - startedMs) / 1000;
  const exitCode = (
    await docker(['inspect', '--format', '{{.State.ExitCode}}', name])
  ).trim();
  await docker(['rm', name]);
  return { exitCode, seconds };
}

async function publishedApi(): Promise<void> {
  const name = `${RUN}-up`;
  const source = [
    '--env',
    'SOURCE_URL=http://127.0.0.1:9',
    '--env',
    'FIRST_RUN=scheduled',
  ];
  const refused = await command('docker', ['run', '--rm', ...source, IMAGE]);
  expect(
    refused.code === 1 && refused.output.includes('API_TOKEN is not set'),
    refused.output,
  );
  expect(
    !refused.output.includes('Postgres'),
    `a database was started first:\n${refused.output}`,
  );
  const published = [
    '--publish',
    '127.0.0.1:18081:8080',
    '--env',
    `API_TOKEN=${TOKEN}`,
  ];
  await docker([
    'run',
    '--detach',
    '--read-only',
    '--name',
    name,
    ...source,
    ...published,
    IMAGE,
  ]);
  try {
    await until(
      'the published port answers',
      async () => (await fetch('http://127.0.0.1:18081/healthz')).ok,
    );
    const status = (await fetch('http://127.0.0.1:18081/mirror/status')).status;
    expect(status === 401, `without the token: ${status}`);
  } finally {
    await docker(['rm', '--force', '--volumes', name]);
  }
}

async function analystReads(): Promise<void> {
  const query = (sql: string): Promise<string> =>
    compose(
      'exec',
      '-T',
      'postgres',
      'psql',
      'postgres://analyst:sandbox@127.0.0.1/mirror',
      '--tuples-only',
      '--no-align',
      '--command',
      sql,
    );
  expect(
    Number(await query('select count(*) from mirror.entries')) > 0,
    'the analyst sees no entries',
  );
  const written = await query('delete from mirror.ledger_entries').then(
    () => 'allowed',
    (error: Error) => error.message,
  );
  expect(
    written.includes('permission denied'),
    `the analyst may write: ${written}`,
  );
}

async function killedWorker(): Promise<void> {
  const before = await nightsOf();
  const [victim] = (await compose('ps', '--quiet', 'worker'))
    .trim()
    .split('\n');
  await docker(['kill', '--signal', 'KILL', victim ?? '']);
  // The engine treats a manual kill as a stop, so the restart policy does not apply;
  // `up` takes its place.
  await compose('up', '--detach', '--scale', 'worker=3', '--wait');
  await nightly();
  expect((await nightsOf()) > before, 'no new night');
  expect((await healthyWorkers()) === 3, 'not all three workers are healthy');
}

async function nightsOf(): Promise<number> {
  return (await runs()).filter(({ kind }) => kind === 'nightly').length;
}

async function upgrade(): Promise<void> {
  const env = { MIRROR_VERSION: 'image-test-next' };
  await docker(['tag', IMAGE, 'ledger-mirror:image-test-next']);
  await docker([...SANDBOX, 'up', '--detach', '--no-build', '--wait'], env);
  const images = await docker(
    [...SANDBOX, 'ps', '--format', '{{.Image}}', 'worker'],
    env,
  );
  expect(images.includes('image-test-next'), images);
  await nightly();
}

async function proxied(): Promise<void> {
  await needStores();
  await needImage('PROXY_IMAGE', 'compose.proxy.yaml');
  const files = [
    '-f',
    'docker-compose.yml',
    '-f',
    'compose.sandbox.yaml',
    '-f',
    'compose.proxy.yaml',
  ];
  const env = { PROXY_PORT: '127.0.0.1:18082' };
  await docker(
    [
      ...SANDBOX,
      ...files,
      'up',
      '--detach',
      '--no-build',
      '--scale',
      'api=2',
      '--wait',
      'api',
      'proxy',
    ],
    env,
  );
  const headers = { authorization: `Bearer ${TOKEN}`, host: 'localhost:8080' };
  await until('both answer behind one port', async () => {
    const answers = await Promise.all(
      Array.from({ length: 6 }, () =>
        fetch('http://127.0.0.1:18082/mirror/status', { headers }),
      ),
    );
    return answers.every(({ ok }) => ok);
  });
}

async function stopAll(): Promise<void> {
  await compose('stop');
  const codes = await compose(
    'ps',
    '--all',
    '--format',
    '{{.Service}} {{.ExitCode}}',
    'worker',
    'api',
  );
  const wrong = codes
    .split('\n')
    .filter((line) => line !== '' && !line.endsWith(' 0'));
  expect(wrong.length === 0, `ended otherwise than in 0: ${wrong.join(', ')}`);
}

const inspect = (format: string): Promise<string> =>
  docker(['image', 'inspect', '--format', format, IMAGE]);

try {
  await runSteps([
    {
      name: 'the image is built',
      run: async () => {
        await needImage('NODE_IMAGE', 'Dockerfile');
        const base = process.env['NODE_IMAGE'];
        const args =
          base === undefined ? [] : ['--build-arg', `NODE_IMAGE=${base}`];
        await docker([
          'build',
          '--network',
          'host',
          '--tag',
          IMAGE,
          ...args,
          '.',
        ]);
      },
    },
    {
      name: 'its user is a number, its labels say what it is, TypeScript and npm are not in it',
      run: async () => {
        await needBuilt();
        expect(
          (await inspect('{{.Config.User}}')).trim() === '1000:1000',
          'another user',
        );
        const version = await inspect(
          '{{index .Config.Labels "org.opencontainers.image.version"}}',
        );
        expect(version.trim() === '0.1.0', `version ${version}`);
        const found = await docker([
          'run',
          '--rm',
          '--entrypoint',
          'sh',
          IMAGE,
          '-c',
          'ls -d node_modules/typescript node_modules/@typescript 2>/dev/null; command -v npm; true',
        ]);
        expect(found.trim() === '', `found: ${found}`);
      },
    },
    {
      name: 'SIGTERM in the first instant ends it',
      run: async () => {
        await needBuilt();
        const { exitCode, seconds } = await stopAtOnce();
        expect(
          ['0', '143'].includes(exitCode),
          `exit code ${exitCode} after ${seconds.toFixed(1)} s`,
        );
      },
    },
    {
      name: 'docker run … demo, read-only and without capabilities',
      run: async () => {
        await needBuilt();
        const text = await docker([
          'run',
          '--rm',
          '--read-only',
          '--cap-drop',
          'ALL',
          IMAGE,
          'demo',
          '--json',
        ]);
        expect((JSON.parse(text) as RunDocument).verdict === 'complete', text);
      },
    },
    {
      name: 'docker run --publish answers from outside, and refuses to start without a token',
      run: async () => {
        await needBuilt();
        await publishedApi();
      },
    },
    {
      name: 'the sandbox trial: up, and its first night runs at once',
      run: async () => {
        await needStores();
        await compose('up', '--detach', '--no-build', '--wait');
        await until('the first night', async () =>
          (await runs()).some(
            (run) => run.kind === 'nightly' && run.verdict === 'complete',
          ),
        );
      },
    },
    {
      name: 'doctor finds everything in reach',
      run: async () => {
        await needStores();
        await compose('exec', '-T', 'worker', 'ledger-mirror', 'doctor');
      },
    },
    {
      name: 'an analyst reads the views, and nothing else',
      run: async () => {
        await needStores();
        await analystReads();
      },
    },
    {
      name: 'three workers reach the sandbox',
      run: async () => {
        await needStores();
        await compose(
          'up',
          '--detach',
          '--no-build',
          '--scale',
          'worker=3',
          '--wait',
        );
        expect((await healthyWorkers()) === 3, 'not all three are healthy');
        await nightly();
      },
    },
    {
      name: 'a worker killed -9 comes back, and the next night is complete',
      run: async () => {
        await needStores();
        await killedWorker();
      },
    },
    {
      name: 'an upgrade goes on with the same data',
      run: async () => {
        await needStores();
        await upgrade();
      },
    },
    { name: 'two APIs behind one port', run: proxied },
    {
      name: 'stop ends workers and APIs in 0',
      run: async () => {
        await needStores();
        await stopAll();
      },
    },
  ]);
} finally {
  const files = [
    '-f',
    'docker-compose.yml',
    '-f',
    'compose.sandbox.yaml',
    '-f',
    'compose.proxy.yaml',
  ];
  await command(
    'docker',
    [
      ...SANDBOX,
      ...files,
      'down',
      '--volumes',
      '--remove-orphans',
      '--timeout',
      '5',
    ],
    {
      env: environment,
    },
  );
}
