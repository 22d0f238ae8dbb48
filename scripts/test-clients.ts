/**
 * `npm run test:clients`: checks a live mirror with other people's clients. It lints the
 * interface document and generates a TypeScript and a Python client from it. Each client
 * orders a run, waits for the run and reads its result. The script also reads the views
 * with psql and with Python clients for BI.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LiveMirror, startLiveMirror } from './live-mirror.ts';
import { command, expect, NotRun, ROOT, runSteps, succeed } from './steps.ts';
import { openVenv } from './venv.ts';

const HOW: Readonly<Record<string, string>> = {
  redocly: 'npm install --global @redocly/cli',
  psql: 'apt-get install postgresql-client',
  'openapi-typescript': 'npm install --global openapi-typescript',
  'openapi-python-client': 'pip install openapi-python-client',
};
const PYTHON = process.env['PYTHON'] ?? 'python3';

const TYPESCRIPT = `
import type { components, paths } from './schema.d.ts';
type Run = components['schemas']['Run'];
type Order = paths['/mirror/runs']['post']['requestBody']['content']['application/json'];
const order: Order = { kind: 'verify', list: 'all', rebuild: false, deep: false, onConflict: 'attach' };
const base = process.env['MIRROR'];
const headers = { 'content-type': 'application/json' };
const started = (await (await fetch(base + '/mirror/runs', { method: 'POST', headers, body: JSON.stringify(order) })).json()) as Run;
const ended = (await (await fetch(base + '/mirror/runs/' + started.id + '?wait=60')).json()) as Run;
console.log(ended.status, ended.verdict, ended.retryable);
`;

const PYTHON_CLIENT = `
import os, sys
sys.path.insert(0, os.environ["CLIENT"])
from ledger_mirror_client import Client
from ledger_mirror_client.api.mirror import get_mirror_runs, get_mirror_runs_by_id, get_mirror_status, post_mirror_runs
from ledger_mirror_client.models import RunOrder, RunOrderKind
client = Client(base_url=os.environ["MIRROR"], raise_on_unexpected_status=True, timeout=90)
started = post_mirror_runs.sync(client=client, body=RunOrder(kind=RunOrderKind.VERIFY))
ended = get_mirror_runs_by_id.sync(client=client, id=started.id, wait=60)
assert ended.id in [run.id for run in get_mirror_runs.sync(client=client).runs]
assert get_mirror_status.sync(client=client).complete is True
print(ended.status, ended.verdict, ended.retryable)
`;

const BI_PACKAGES = [
  'pandas==3.1.1',
  'sqlalchemy==2.1.9',
  'psycopg2-binary==2.9.13',
  'pyarrow==26.0.1',
  'connectorx==0.4.6',
  'adbc-driver-postgresql==1.13.0',
];
/**
 * Reads every amount and the text column next to it. connectorx keeps ten decimals of 28
 * digits, so it refuses amounts of more than 18 digits, with one of two messages. It must
 * never change an amount.
 */
const BI_CLIENTS = `
import os
from decimal import Decimal
url = os.environ["MIRROR_DATABASE"]

def pandas_rows(sql):
    import pandas, sqlalchemy
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg2:"))
    return pandas.read_sql(sql, engine, coerce_float=False).to_dict("records")

def connectorx_rows(sql):
    import connectorx
    try:
        return connectorx.read_sql(url, sql, return_type="arrow").to_pylist()
    except RuntimeError as error:
        assert "exceeds maximum" in str(error) or "decimal scale is not equal" in str(error), error
        text = sql.replace("as number", "::text as number")
        return connectorx.read_sql(url, text, return_type="arrow").to_pylist()

def adbc_rows(sql):
    import adbc_driver_postgresql.dbapi as adbc
    with adbc.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table().to_pylist()

def exact(value):
    if value is None or value != value: return None
    assert not isinstance(value, float), value
    return int(Decimal(value))

truth = {}
for read in (pandas_rows, connectorx_rows, adbc_rows):
    for view, column in (("bi_entries", "quantity"), ("bi_entries", "account_to_balance"), ("latest_balances", "balance")):
        rows = read(f"select {column} as number, {column}_text as twin from mirror.{view} order by {column}_text")
        pairs = [(exact(row["number"]), exact(row["twin"])) for row in rows]
        assert rows and all(one == other for one, other in pairs), (read.__name__, view, column)
        assert truth.setdefault((view, column), [twin for _, twin in pairs]) == [twin for _, twin in pairs], read.__name__
assert max(value for values in truth.values() for value in values if value is not None) > 2**63
`;

const scratch = await mkdtemp(join(tmpdir(), 'ledger-mirror-clients-'));
const document = join(scratch, 'openapi.json');

async function need(tool: string): Promise<void> {
  const { code } = await command('sh', ['-c', `command -v ${tool}`]);
  if (code !== 0)
    throw new NotRun(`${tool} is not installed: ${HOW[tool] ?? ''}`);
}

/** Returns the first code block of a guide in this language. */
async function blockOf(guide: string, language: string): Promise<string> {
  const page = await readFile(join(ROOT, 'docs/guides', guide), 'utf8');
  return (
    new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'ms').exec(page)?.[1] ?? ''
  );
}

let mirror: LiveMirror | undefined;

async function live(): Promise<string> {
  if (mirror === undefined) {
    mirror = await startLiveMirror(scratch);
    const answer = await fetch(`${mirror.url}/openapi.json`);
    await writeFile(document, await answer.text());
  }
  return mirror.url;
}

try {
  await runSteps([
    {
      name: 'redocly lint: no error, no warning',
      run: async () => {
        await need('redocly');
        await live();
        const output = await succeed('redocly', [
          'lint',
          document,
          '--format=json',
        ]);
        expect(
          /"warnings":\s*0/.test(output) && /"errors":\s*0/.test(output),
          output,
        );
      },
    },
    {
      name: 'a TypeScript client, made from the document, compiles and orders a run',
      run: async () => {
        await need('openapi-typescript');
        const MIRROR = await live();
        await succeed('openapi-typescript', [
          document,
          '--output',
          join(scratch, 'schema.d.ts'),
        ]);
        const file = join(scratch, 'client.ts');
        await writeFile(file, TYPESCRIPT);
        const flags = [
          '--noEmit',
          '--strict',
          '--target',
          'es2024',
          '--module',
          'nodenext',
        ];
        const types = [
          '--types',
          'node',
          '--typeRoots',
          join(ROOT, 'node_modules/@types'),
        ];
        await writeFile(join(scratch, 'package.json'), '{"type":"module"}');
        await succeed(join(ROOT, 'node_modules/.bin/tsc'), [
          ...flags,
          ...types,
          '--allowImportingTsExtensions',
          '--ignoreConfig',
          file,
        ]);
        const said = await succeed(process.execPath, [file], {
          env: { MIRROR },
        });
        expect(said.trim() === 'succeeded complete false', said);
      },
    },
    {
      name: 'a Python client, made from the document, orders a run, waits, and reads it back',
      run: async () => {
        await need('openapi-python-client');
        const MIRROR = await live();
        const CLIENT = join(scratch, 'python');
        await writeFile(
          join(scratch, 'config.yaml'),
          'package_name_override: ledger_mirror_client\n',
        );
        await succeed('openapi-python-client', [
          'generate',
          '--path',
          document,
          '--output-path',
          CLIENT,
          '--config',
          join(scratch, 'config.yaml'),
          '--meta',
          'setup',
        ]);
        const said = await succeed(PYTHON, ['-c', PYTHON_CLIENT], {
          env: { MIRROR, CLIENT },
        });
        expect(said.trim() === 'succeeded complete False', said);
      },
    },
    {
      name: 'psql: the lines of sql-clients.md as they stand, and those of check-us.md find nothing wrong',
      run: async () => {
        await need('psql');
        await live();
        const lines = await blockOf('sql-clients.md', 'sh');
        const psql = lines.slice(lines.indexOf('PGPASSWORD=')).trim();
        const said = await succeed('bash', ['-euc', psql], { cwd: scratch });
        expect(/^ +[1-9]\d*$/m.test(said), said);
        const [grant = '', check = ''] = await Promise.all(
          ['sql-clients.md', 'check-us.md'].map((page) => blockOf(page, 'sql')),
        );
        await succeed('psql', [mirror?.databaseUrl ?? '', '--command', grant]);
        const found = await succeed('psql', [
          mirror?.databaseUrl ?? '',
          '--tuples-only',
          '--command',
          check,
        ]);
        expect(found.trim() === '', found);
      },
    },
    {
      name: 'pandas, connectorx and ADBC read the views to the last digit',
      run: async () => {
        const venv = await openVenv('bi', BI_PACKAGES);
        if ('missing' in venv)
          throw new NotRun(`BI clients cannot be installed: ${venv.missing}`);
        await live();
        const env = { MIRROR_DATABASE: mirror?.databaseUrl };
        await succeed(join(venv.bin, 'python'), ['-c', BI_CLIENTS], { env });
      },
    },
  ]);
} finally {
  await mirror?.[Symbol.asyncDispose]();
  await rm(scratch, { recursive: true, force: true });
}
