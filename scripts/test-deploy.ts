/**
 * `npm run test:deploy`: checks the chart, the units, the rules and the dashboard, each
 * with the tool made for it. If a tool is not installed, the check says so, and how to
 * get it.
 */
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  checkAccount,
  checkAdditions,
  checkMigration,
  checkMonitors,
  checkNetworkPolicy,
  checkOpenShift,
  type Render,
} from './chart-checks.ts';
import { type LiveMirror, startLiveMirror } from './live-mirror.ts';
import { command, expect, NotRun, ROOT, runSteps, succeed } from './steps.ts';

const CHART = 'deploy/helm/ledger-mirror';
const VALUES = ['everything', 'least', 'operator'];
/**
 * The Kubernetes version to render manifests for: without a cluster Helm assumes a very
 * old one.
 */
const KUBERNETES = '1.34.0';
const HOW: Readonly<Record<string, string>> = {
  helm: 'go install helm.sh/helm/v3/cmd/helm@latest',
  'kubernetes-validate': 'pip install kubernetes-validate',
  promtool: "Debian's package prometheus",
  'systemd-analyze': "Debian's package systemd",
  actionlint: 'go install github.com/rhysd/actionlint/cmd/actionlint@latest',
};

async function need(tool: string): Promise<void> {
  const { code } = await command('sh', ['-c', `command -v ${tool}`]);
  if (code !== 0)
    throw new NotRun(`${tool} is not installed: ${HOW[tool] ?? ''}`);
}

const scratch = await mkdtemp(join(tmpdir(), 'ledger-mirror-deploy-'));
let mirror: LiveMirror | undefined;

function valuesOf(name: string): string[] {
  return ['--values', `${CHART}/ci/${name}-values.yaml`];
}

async function validateChart(): Promise<void> {
  for (const tool of ['helm', 'kubernetes-validate']) await need(tool);
  for (const name of VALUES) {
    for (const upgrade of [[], ['--is-upgrade']]) {
      const args = [
        'template',
        'mirror',
        CHART,
        ...valuesOf(name),
        '--kube-version',
        KUBERNETES,
        ...upgrade,
      ];
      const file = join(scratch, `${name}.yaml`);
      await writeFile(file, await succeed('helm', args));
      await succeed('kubernetes-validate', ['--strict', file]);
    }
  }
}

const renderChart: Render = async (values, release, ...options) => {
  await need('helm');
  const version = ['--kube-version', KUBERNETES];
  const args = [...valuesOf(values), ...version, ...options];
  return succeed('helm', ['template', release ?? 'mirror', CHART, ...args]);
};

/** Checks of the Helm chart for other people's clusters. */
const CHART_CHECKS: Readonly<
  Record<string, (render: Render) => Promise<void>>
> = {
  'runs under the default policy of OpenShift': checkOpenShift,
  'brings what an operator adds to every pod': checkAdditions,
  'migrates with the settings of the upgrade': checkMigration,
  'leaves the account `default` alone': checkAccount,
  'lets the ingress controller and Prometheus in': checkNetworkPolicy,
  'labels and places its monitors': checkMonitors,
};

/**
 * Checks that the chart refuses to install without its required values instead of
 * guessing them.
 */
async function refuseEmptyValues(): Promise<void> {
  await need('helm');
  const { code, output } = await command('helm', [
    'template',
    'mirror',
    CHART,
    '--kube-version',
    KUBERNETES,
  ]);
  expect(
    code !== 0 && output.includes('settings.SOURCE_URL: give the URL'),
    output,
  );
}

async function verifyUnits(): Promise<void> {
  await need('systemd-analyze');
  // systemd looks for the program that a unit starts, so let the units start this
  // checkout's.
  const folder = join(scratch, 'units');
  await mkdir(folder);
  for (const unit of ['worker', 'api']) {
    const name = `ledger-mirror-${unit}.service`;
    const text = await readFile(join(ROOT, 'deploy/systemd', name), 'utf8');
    await writeFile(
      join(folder, name),
      // Quoted, because the path of a checkout may contain a space.
      text.replace(
        '/usr/local/bin/ledger-mirror',
        `"${join(ROOT, 'bin/ledger-mirror.js')}"`,
      ),
    );
    const { code, output } = await command('systemd-analyze', [
      'verify',
      '--man=no',
      join(folder, name),
    ]);
    const ours = output.split('\n').filter((line) => line.includes(name));
    expect(code === 0 && ours.length === 0, output);
  }
}

let scraped = '';

interface Dashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly targets: readonly { readonly expr: string }[];
  }[];
}

async function checkExpressions(): Promise<void> {
  expect(scraped !== '', 'nothing was scraped');
  const served = new Set(
    [...scraped.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(
      ([, name]) => name ?? '',
    ),
  );
  const dashboard = JSON.parse(
    await readFile(join(ROOT, 'deploy/monitoring/dashboard.json'), 'utf8'),
  ) as Dashboard;
  const rules = await readFile(
    join(ROOT, 'deploy/monitoring/alerts.yaml'),
    'utf8',
  );
  const texts = [
    ...dashboard.panels.flatMap(({ targets }) =>
      targets.map(({ expr }) => expr),
    ),
    rules,
  ];
  const named = texts.flatMap((text) =>
    [...text.matchAll(/\b(?:ledger_mirror|process)_\w+/g)].map(
      ([name]) => name,
    ),
  );
  const unknown = named.filter(
    (name) =>
      !served.has(name) &&
      !served.has(name.replace(/_(?:bucket|sum|count)$/, '')),
  );
  expect(
    named.length > 25 && unknown.length === 0,
    `not in a scrape: ${unknown.join(', ')}`,
  );
  await need('promtool');
  // Writes Grafana's expressions as rules, because promtool can parse those.
  const records = dashboard.panels.flatMap(({ targets }) =>
    targets.map(
      ({ expr }) =>
        `      - record: a:b\n        expr: ${JSON.stringify(expr)}\n`,
    ),
  );
  const file = join(scratch, 'dashboard.yaml');
  await writeFile(
    file,
    `groups:\n${records.map((rule, index) => `  - name: g${index}\n    rules:\n${rule}`).join('')}`,
  );
  await succeed('promtool', ['check', 'rules', file]);
}

try {
  await runSteps([
    {
      name: 'helm lint --strict',
      run: async () => {
        await need('helm');
        for (const name of VALUES)
          await succeed('helm', ['lint', '--strict', CHART, ...valuesOf(name)]);
      },
    },
    {
      name: 'helm template | kubernetes-validate --strict',
      run: validateChart,
    },
    {
      name: 'the chart refuses to be installed without a source',
      run: refuseEmptyValues,
    },
    ...Object.entries(CHART_CHECKS).map(([what, check]) => ({
      name: `the chart ${what}`,
      run: () => check(renderChart),
    })),
    { name: 'systemd-analyze verify', run: verifyUnits },
    {
      name: 'promtool check rules and test rules',
      run: async () => {
        await need('promtool');
        await cp(join(ROOT, 'deploy/monitoring'), join(scratch, 'rules'), {
          recursive: true,
        });
        await succeed('promtool', ['check', 'rules', 'alerts.yaml'], {
          cwd: join(scratch, 'rules'),
        });
        await succeed('promtool', ['test', 'rules', 'alerts.test.yaml'], {
          cwd: join(scratch, 'rules'),
        });
      },
    },
    {
      name: 'promtool check metrics, of a mirror after its first night',
      run: async () => {
        mirror = await startLiveMirror(scratch);
        scraped = mirror.scraped;
        await need('promtool');
        await succeed('promtool', ['check', 'metrics'], { stdin: scraped });
      },
    },
    {
      name: 'every metric of the dashboard and the rules is in that scrape',
      run: checkExpressions,
    },
    {
      name: 'actionlint',
      run: async () => {
        await need('actionlint');
        await succeed('actionlint', [
          '.github/workflows/ci.yml',
          '.github/workflows/docs.yml',
          '.github/workflows/macos.yml',
        ]);
      },
    },
  ]);
} finally {
  await mirror?.[Symbol.asyncDispose]();
  await rm(scratch, { recursive: true, force: true });
}
