/**
 * Measures the speed of an export in two ways. The whole command, from its start to its
 * exit as a user waits for it, is compared with `curl | DuckDB`. The export alone is
 * compared with common tools on the same stream, as ratios within one run. All checks and
 * both sums are enabled, and the result is one object in a local store.
 *
 * Run it with `node bench/export.ts [--quick] [--large]`; it needs curl, jq, base64 and
 * zstd.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import {
  atLeast,
  atMost,
  below,
  say,
  sayGate,
  sayNumber,
  type Target,
} from './world/report.ts';
import { median, openScratchWarehouse } from './world/scratch-world.ts';

const isQuick = process.argv.includes('--quick');
const isLarge = process.argv.includes('--large');
/** Whether to measure only the command, from its start to its exit. */
const isCommand = process.argv.includes('command');
const SIZES_MB = isQuick ? [200] : [500, 1000];
const MEGABYTES = Math.max(...SIZES_MB);
const LARGE_MEGABYTES = 10_000;
const ROUNDS = isQuick ? 3 : 5;

interface Export {
  readonly verdict: string;
  readonly bytes: number;
  readonly seconds: number;
  readonly delayP99Ms: number;
  readonly peakMb: number;
}

interface Case {
  readonly name: string;
  readonly form: 'csv' | 'messages';
  readonly compression: 'none' | 'zstd';
  /** A shell command with the URL and an output file. */
  readonly tool: (url: string, out: string) => string;
  /** Minimum ratio of the speeds. */
  readonly target: Target;
}

const CASES: readonly Case[] = [
  {
    name: 'raw CSV, stored plain, against `curl -o`',
    form: 'csv',
    compression: 'none',
    tool: (url, out) => `curl -s -o ${out} ${url}`,
    target: atLeast(0.25, ', aim 0.5'),
  },
  {
    name: 'messages, stored plain, against `curl | jq -rj .result.data | base64 -d`',
    form: 'messages',
    compression: 'none',
    tool: (url, out) =>
      `curl -s ${url} | jq -rj .result.data | base64 -d > ${out}`,
    target: atLeast(2, ', aim 4'),
  },
  {
    name: 'raw CSV, zstd, against `curl | zstd -T2`',
    form: 'csv',
    compression: 'zstd',
    tool: (url, out) => `curl -s ${url} | zstd -q -T2 -f -o ${out}`,
    target: atLeast(0.4, ', aim 0.8'),
  },
  {
    name: 'raw CSV, zstd, against DuckDB → Parquet',
    form: 'csv',
    compression: 'zstd',
    tool: (url, out) =>
      `curl -s ${url} | ${process.execPath} ${fileURLToPath(new URL('export/duckdb.ts', import.meta.url))} ${out}`,
    target: atLeast(1),
  },
];

function script(name: string, args: readonly string[] = []): ChildProcess {
  const path = fileURLToPath(new URL(name, import.meta.url));
  // Runs as with `npm start`, and with a warm cache.
  return spawn(process.execPath, ['--max-semi-space-size=4', path, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      ...process.env,
      MALLOC_ARENA_MAX: '2',
      NODE_COMPILE_CACHE: join(folder, 'compiled'),
    },
  });
}

await using stack = new AsyncDisposableStack();
const { folder, connectionString, warehouse } =
  await openScratchWarehouse(stack);
const server = script('export/server.ts');
stack.defer(async () => {
  server.stdin?.end();
  await once(server, 'exit');
});
if (server.stdout === null) throw new Error('no output');
const address = createInterface({ input: server.stdout })[
  Symbol.asyncIterator
]();
const { value: url } = await address.next();

async function exported(
  form: Case['form'],
  compression: Case['compression'],
  megabytes: number,
): Promise<Export> {
  await warehouse.pool.query(
    'truncate mirror.publications, mirror.coverage, mirror.segments, mirror.exports cascade',
  );
  const objects = join(folder, 'objects');
  const worker = script('export/worker.ts', [
    String(url),
    `/${form}/${megabytes}`,
    connectionString,
    objects,
    compression,
  ]);
  let output = '';
  worker.stdout?.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  await once(worker, 'close');
  await rm(objects, { recursive: true, force: true });
  return JSON.parse(output) as Export;
}

async function tool(command: string): Promise<number> {
  const startMs = performance.now();
  const [code] = (await once(
    spawn('sh', ['-c', command], { stdio: 'inherit' }),
    'exit',
  )) as [number];
  if (code !== 0) throw new Error(`${command} failed`);
  return (performance.now() - startMs) / 1000;
}

const PARTY = 'ab'.repeat(32);
const ROOT = fileURLToPath(new URL('..', import.meta.url));

interface Timed {
  readonly seconds: number;
  /**
   * User and system time of the process and its children, which is meaningful even on a
   * busy machine.
   */
  readonly cpuSeconds: number;
}

/** @throws Error if the command fails */
async function timed(
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Timed> {
  const child = spawn(
    'bash',
    ['-c', 'TIMEFORMAT="%R %U %S"; time "$@"', 'bash', ...command],
    {
      cwd: folder,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  const closed = once(child, 'close');
  const said = await child.stderr.setEncoding('utf8').toArray();
  await closed;
  const numbers = said.join('').trim().split('\n').at(-1) ?? '';
  const [seconds = 0, user = 0, system = 0] = numbers.split(' ').map(Number);
  if (child.exitCode !== 0)
    throw new Error(`${command.join(' ')} failed: ${said.join('')}`);
  return { seconds, cpuSeconds: user + system };
}

/**
 * Measures the command from start to exit: it starts, reads the source's clock, reports
 * its progress, publishes, and ends. The export in a worker, which the cases above
 * measure, does none of this.
 */
async function benchCommand(): Promise<void> {
  const megabytes = SIZES_MB[0] ?? 500;
  const program = join(ROOT, 'bin/ledger-mirror.js');
  const env = {
    // The program's shebang line must find this Node.
    PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`,
    SOURCE_URL: String(url),
    SOURCE_EXPORT_PATH: `/csv/${megabytes}`,
    SOURCE_RATE: '1000',
    DATABASE_URL: connectionString,
    DATA_DIR: join(folder, 'command'),
    OBJECT_STORE_URL: `file://${join(folder, 'command', 'objects')}`,
    LOG_LEVEL: 'silent',
  };
  await timed([program, 'sync', 'all', '--quiet'], env);
  const out = join(folder, 'tool.out');
  const duckdb = fileURLToPath(new URL('export/duckdb.ts', import.meta.url));
  const shell = `curl -s '${String(url)}/csv/${megabytes}' | '${process.execPath}' '${duckdb}' '${out}'`;
  const rounds: { readonly ours: Timed; readonly theirs: Timed }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await warehouse.pool.query(
      'truncate mirror.publications, mirror.coverage, mirror.segments, mirror.exports cascade',
    );
    await rm(join(folder, 'command', 'objects', 'ledger'), {
      recursive: true,
      force: true,
    });
    const theirs = await timed(['sh', '-c', shell]);
    const ours = await timed(
      [program, 'export', '--party', PARTY, '--no-load', '--quiet'],
      env,
    );
    rounds.push({ ours, theirs });
  }
  const name = `the command, raw CSV of ${megabytes} MB, zstd, to its exit`;
  const ratio = median(
    rounds.map(({ ours, theirs }) => ours.seconds / theirs.seconds),
  );
  sayNumber(
    `${name} / curl and DuckDB → Parquet`,
    ratio,
    ratio.toFixed(2),
    atMost(1),
  );
  say(
    'the same by processor time',
    median(
      rounds.map(({ ours, theirs }) => ours.cpuSeconds / theirs.cpuSeconds),
    ).toFixed(2),
  );
  const rate = megabytes / median(rounds.map(({ ours }) => ours.seconds));
  sayNumber(
    'the command: MB/s; processor seconds',
    rate,
    `${rate.toFixed(0)}; ` +
      median(rounds.map(({ ours }) => ours.cpuSeconds)).toFixed(1),
    atLeast(150, ' MB/s'),
  );
}

for (const [
  { name: what, form, compression, tool: command, target },
  megabytes,
] of (isCommand ? [] : CASES).flatMap((one) =>
  SIZES_MB.map((size) => [one, size] as const),
)) {
  const name = `${what}, ${megabytes} MB`;
  const out = join(folder, 'tool.out');
  const runs: Export[] = [];
  const ratios: number[] = [];
  const toolRates: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const toolSeconds = await tool(
      command(`${String(url)}/${form}/${megabytes}`, out),
    );
    await rm(out, { force: true });
    const run = await exported(form, compression, megabytes);
    if (run.verdict !== 'complete')
      throw new Error(`the export ended ${run.verdict}`);
    runs.push(run);
    toolRates.push(megabytes / toolSeconds);
    ratios.push(toolSeconds / run.seconds);
  }
  sayNumber(
    `${name}: ratio`,
    median(ratios),
    median(ratios).toFixed(2),
    target,
  );
  const rate = median(runs.map((run) => run.bytes / 1e6 / run.seconds));
  say(
    `${name}: MB/s`,
    `${rate.toFixed(0)}, the tool ${median(toolRates).toFixed(0)}`,
  );
  const peakMb = median(runs.map((run) => run.peakMb));
  sayNumber(
    `${name}: peak memory`,
    peakMb,
    `${peakMb.toFixed(0)} MB`,
    atMost(250, ' MB'),
  );
  const delayMs = median(runs.map((run) => run.delayP99Ms));
  sayNumber(
    `${name}: event-loop delay p99`,
    delayMs,
    `${delayMs.toFixed(1)} ms`,
    below(50, ' ms'),
  );
}
await benchCommand();
const bareRatios: number[] = [];
for (let round = 0; round < (isCommand ? 0 : ROUNDS); round += 1) {
  const from = `${String(url)}/csv/${MEGABYTES}`;
  const out = join(folder, 'tool.out');
  const toolSeconds = await tool(`curl -s -o ${out} ${from}`);
  const bare = script('export/bare.ts', [from, out]);
  const [seconds] =
    bare.stdout === null ? [] : await bare.stdout.setEncoding('utf8').toArray();
  bareRatios.push(toolSeconds / Number(seconds));
  await rm(out, { force: true });
}
if (!isCommand)
  say(
    'raw CSV only received, summed twice and written, without checks, against `curl -o`: ratio',
    median(bareRatios).toFixed(2),
  );
if (isLarge) {
  const small = await exported('csv', 'zstd', MEGABYTES);
  const large = await exported('csv', 'zstd', LARGE_MEGABYTES);
  sayGate(
    `zstd: peak memory at ${LARGE_MEGABYTES} MB, beside ${MEGABYTES} MB`,
    `${large.peakMb.toFixed(0)}, ${small.peakMb.toFixed(0)} MB`,
    'within 10 %',
    large.peakMb <= 1.1 * small.peakMb,
  );
}
