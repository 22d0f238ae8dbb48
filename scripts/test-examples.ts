/**
 * `npm run test:examples`: runs the orchestrators' examples against a sandbox with the
 * real command. A script stands in for the command to produce results that are rare in
 * practice (exit code 75, another verdict).
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { command, expect, NotRun, ROOT, runSteps } from './steps.ts';
import { openVenv } from './venv.ts';

const EXAMPLES = join(ROOT, 'deploy/examples');
const ORCHESTRATORS = ['dagster==1.13.29', 'apache-airflow==3.3.2'];
/**
 * A script that prints a run's document and exits with the next code from a file, one per
 * call.
 */
const PLAYER = `#!/bin/sh
code=$(head -n 1 "$PLAYED"); sed -i 1d "$PLAYED"; echo called >> "$PLAYED.calls"
[ "$code" = 75 ] || printf '{"runId":"run-7","verdict":"%s","evidence":{}}\\n' "$([ "$code" = 0 ] && echo complete || echo incomplete)"
exit "$code"
`;
/** Exits with 0 if the asset was materialised; prints the text of each failure. */
const MATERIALIZE = `
import sys, dagster as dg
from dagster_mirror import ledger_mirror
result = dg.materialize([ledger_mirror], raise_on_error=False)
for event in result.all_events:
    if event.event_type_value in ("STEP_FAILURE", "STEP_UP_FOR_RETRY"): print(event.event_type_value, event.message, event.event_specific_data)
sys.exit(0 if result.success else 3)
`;

const scratch = await mkdtemp(join(tmpdir(), 'ledger mirror examples '));
const real = join(scratch, 'real');
const played = join(scratch, 'played');
for (const folder of [real, played]) await mkdir(folder);
await writeFile(
  join(real, 'ledger-mirror'),
  `#!/bin/sh\nexec '${process.execPath}' '${join(ROOT, 'bin/ledger-mirror.js')}' "$@"\n`,
);
await writeFile(join(played, 'ledger-mirror'), PLAYER);
for (const folder of [real, played])
  await chmod(join(folder, 'ledger-mirror'), 0o755);

let mirrors = 0;
const sandbox = spawn(
  process.execPath,
  [
    'bin/ledger-mirror.js',
    'sandbox',
    '--port',
    '0',
    '--parties',
    '3',
    '--entries',
    '30',
    '--json',
  ],
  {
    cwd: ROOT,
    env: { ...process.env, DATA_DIR: scratch },
    stdio: ['ignore', 'pipe', 'inherit'],
  },
);
let said = '';
sandbox.stdout.setEncoding('utf8').on('data', (text: string) => {
  said += text;
});
while (!said.includes('"genesis"') && sandbox.exitCode === null)
  await sleep(100);
const { url } = JSON.parse(said) as { url: string };

function environment(
  folder: string,
  more: Readonly<Record<string, string>> = {},
): Record<string, string> {
  mirrors += 1;
  return {
    PATH: `${folder}:${process.env['PATH'] ?? ''}`,
    LEDGER_MIRROR_HOME: scratch,
    LEDGER_MIRROR_WAIT_SECONDS: '0.1',
    SOURCE_URL: url,
    DATA_DIR: join(scratch, `data-${mirrors}`),
    PYTHONPATH: EXAMPLES,
    PYTHONDONTWRITEBYTECODE: '1',
    DAGSTER_DISABLE_TELEMETRY: 'yes',
    ...more,
  };
}

/** @returns the environment of such a script, and the number of its calls */
async function play(
  codes: readonly number[],
): Promise<{ env: Record<string, string>; calls: () => Promise<number> }> {
  mirrors += 1;
  const file = join(scratch, `codes-${mirrors}`);
  await writeFile(file, `${codes.join('\n')}\n`);
  const calls = async (): Promise<number> =>
    (await readFile(`${file}.calls`, 'utf8')).trim().split('\n').length;
  return { env: environment(played, { PLAYED: file }), calls };
}

/** @returns the Python interpreter that has the orchestrators installed */
async function openPython(): Promise<string> {
  const venv = await openVenv('orchestrators', ORCHESTRATORS);
  if ('missing' in venv)
    throw new NotRun(`the orchestrators cannot be installed: ${venv.missing}`);
  return join(venv.bin, 'python');
}

async function materialize(
  env: Record<string, string>,
): ReturnType<typeof command> {
  return command(await openPython(), ['-c', MATERIALIZE], { env });
}

const RUN_DAG = `
from airflow.utils.db import initdb
initdb()
from airflow_mirror import ledger_mirror
print("STATE", ledger_mirror().test().state)
`;

/**
 * Runs the DAG with a home folder of its own, because Airflow keeps its runs in a
 * database there.
 */
async function runDag(env: Record<string, string>): ReturnType<typeof command> {
  const AIRFLOW_HOME = await mkdtemp(join(scratch, 'airflow-'));
  const settings = {
    AIRFLOW__CORE__LOAD_EXAMPLES: 'False',
    AIRFLOW__CORE__DAGS_FOLDER: EXAMPLES,
  };
  return command(await openPython(), ['-c', RUN_DAG], {
    env: { ...env, ...settings, AIRFLOW_HOME },
  });
}

const CRON = join(EXAMPLES, 'cron.sh');

try {
  await runSteps([
    {
      name: 'cron: a complete night says nothing and ends in 0',
      run: async () => {
        const { code, stdout, output } = await command('sh', [CRON], {
          env: environment(real),
        });
        expect(code === 0 && stdout === '', output);
      },
    },
    {
      name: 'cron: 75 is tried again, three times at most',
      run: async () => {
        const twice = await play([75, 75, 0]);
        const first = await command('sh', [CRON], { env: twice.env });
        expect(first.code === 0 && (await twice.calls()) === 3, first.output);
        const always = await play([75, 75, 75, 75, 0]);
        const second = await command('sh', [CRON], { env: always.env });
        expect(
          second.code === 75 && (await always.calls()) === 4,
          second.output,
        );
      },
    },
    {
      name: 'cron: another verdict is told with its document, and not tried again',
      run: async () => {
        const { env, calls } = await play([2, 0]);
        const { code, stdout } = await command('sh', [CRON], { env });
        expect(
          code === 2 &&
            stdout.includes('"runId":"run-7"') &&
            (await calls()) === 1,
          stdout,
        );
      },
    },
    {
      name: 'check us yourself: twenty lines of Python agree with a night, and find a byte that was changed',
      run: async () => {
        const env = environment(real, { EXPORT_COMPRESSION: 'gzip' });
        expect(
          (await command('sh', [CRON], { env })).code === 0,
          'no complete night',
        );
        const page = await readFile(
          join(ROOT, 'docs/guides/check-us.md'),
          'utf8',
        );
        const [, program = ''] =
          /```python check-objects\.py\n(.*?)```/s.exec(page) ?? [];
        const store = join(env['DATA_DIR'] ?? '', 'objects');
        const check = (): ReturnType<typeof command> =>
          command('python3', ['-c', program, store], { env });
        const { code, stdout, output } = await check();
        expect(code === 0 && /^[0-9a-f]{64} \d+$/m.test(stdout), output);
        const [object = ''] = (
          await readdir(store, { recursive: true })
        ).filter((name) => name.endsWith('.gz'));
        const bytes = await readFile(join(store, object));
        bytes.writeUInt8(bytes.readUInt8(20) ^ 1, 20);
        await writeFile(join(store, object), bytes);
        const changed = await check();
        expect(
          changed.code === 1 && changed.output.includes('stored bytes differ'),
          changed.output,
        );
      },
    },
    {
      name: 'Dagster: a complete night materialises',
      run: async () => {
        const { code, output } = await materialize(environment(real));
        expect(code === 0, output);
      },
    },
    {
      name: 'Dagster: 75 is retried',
      run: async () => {
        const { env, calls } = await play([75, 0]);
        const { code, output } = await materialize(env);
        expect(code === 0 && (await calls()) === 2, output);
      },
    },
    {
      name: "Dagster: another verdict fails at once, with the run's id",
      run: async () => {
        const { env, calls } = await play([2, 0]);
        const { code, stdout, output } = await materialize(env);
        expect(
          code === 3 &&
            stdout.includes('run-7 ended incomplete') &&
            (await calls()) === 1,
          output,
        );
      },
    },
    {
      name: 'Airflow: 75 is retried, and the night succeeds',
      run: async () => {
        const { env, calls } = await play([75, 0]);
        const { stdout, output } = await runDag(env);
        expect(
          stdout.includes('STATE success') && (await calls()) === 2,
          output,
        );
      },
    },
    {
      name: "Airflow: another verdict fails at once, with the run's id",
      run: async () => {
        const { env, calls } = await play([2, 0]);
        const { stdout, output } = await runDag(env);
        expect(
          stdout.includes('STATE failed') && (await calls()) === 1,
          output,
        );
        expect(output.includes('run run-7 ended incomplete'), output);
      },
    },
  ]);
} finally {
  sandbox.kill('SIGTERM');
  if (sandbox.exitCode === null) await once(sandbox, 'exit');
  await rm(scratch, { recursive: true, force: true });
}
