/**
 * Checks what the Helm chart renders for other people's clusters: OpenShift's default
 * policy; an operator's labels, environment, volumes and certificates; and a network
 * policy that admits the ingress controller and the monitors. Each check reads the
 * manifests that Helm wrote.
 */
import { expect } from './steps.ts';

/**
 * Renders the chart.
 * @param values the name of a file in the chart's `ci/`
 * @param options further arguments for `helm template`, beginning with the release's
 *   name
 */
export type Render = (
  values: string,
  ...options: readonly string[]
) => Promise<string>;

interface Manifest {
  readonly kind: string;
  readonly name: string;
  readonly text: string;
}

const IDS = /\b(?:runAsUser|runAsGroup|fsGroup):/;
const OPENSHIFT_API = ['--api-versions', 'security.openshift.io/v1'];

/**
 * Checks that pods set no user and group ids on OpenShift, because its default policy
 * (restricted-v2) refuses such pods.
 */
export async function checkOpenShift(render: Render): Promise<void> {
  const elsewhere = podsOf(await render('least', 'mirror'));
  for (const { text } of elsewhere)
    holds(text, 'runAsUser: 1000', 'fsGroup: 1000');
  const rendered = [
    await render('least', 'mirror', ...OPENSHIFT_API),
    await render('operator', 'mirror'),
    await render('least', 'mirror', '--set', 'openshift=true'),
  ];
  for (const pod of rendered.flatMap(podsOf)) {
    expect(!IDS.test(pod.text), `${pod.name} chooses an id itself`);
    holds(
      pod.text,
      'runAsNonRoot: true',
      'readOnlyRootFilesystem: true',
      'allowPrivilegeEscalation: false',
      'drop: [ALL]',
      'type: RuntimeDefault',
      '{ name: HOME, value: /tmp }',
    );
  }
  const forced = await render(
    'least',
    'mirror',
    ...OPENSHIFT_API,
    '--set',
    'openshift=false',
  );
  for (const { text } of podsOf(forced)) holds(text, 'runAsUser: 1000');
}

/**
 * Checks that an operator's additions reach every pod, including the migration job of an
 * upgrade.
 */
export async function checkAdditions(render: Render): Promise<void> {
  const manifests = readManifests(
    await render('operator', 'mirror', '--is-upgrade'),
  );
  const pods = manifests.filter(isPod);
  expect(pods.length === 3, `${pods.length} kinds of pods`);
  for (const { text } of pods)
    holds(
      text,
      'azure.workload.identity/use: "true"',
      'sidecar.istio.io/inject: "false"',
      'enableServiceLinks: false',
      'serviceAccountName: ledger',
      'value: http://proxy.example.com:3128',
      'name: more',
      'claimName: shared',
      'mountPath: /shared',
      'value: /run/ledger-mirror-ca/ca-bundle.crt',
      'mountPath: /run/ledger-mirror-ca',
      'configMap: { name: trusted-ca }',
    );
  for (const { text } of manifests) holds(text, 'cost-center: ledger');
  const accounts = manifests.filter(({ kind }) => kind === 'ServiceAccount');
  expect(accounts.length === 0, 'an account was made that is there already');
}

/**
 * Checks that the migration job has a ConfigMap of its own with the new settings. It runs
 * before an upgrade, when the release's ConfigMap still has the old ones.
 */
export async function checkMigration(render: Render): Promise<void> {
  const manifests = readManifests(
    await render('everything', 'mirror', '--is-upgrade'),
  );
  const settings = (name: string): string =>
    find(manifests, 'ConfigMap', name).text.split('\ndata:')[1] ?? '';
  expect(
    settings('mirror-migrate') === settings('mirror') &&
      settings('mirror').includes('SOURCE_RATE'),
    'the migration has other settings than the release',
  );
  holds(
    find(manifests, 'ConfigMap', 'mirror-migrate').text,
    'helm.sh/hook: pre-upgrade',
  );
  holds(
    find(manifests, 'Job', 'mirror-migrate').text,
    'name: mirror-migrate }',
  );
}

/**
 * Checks the service account, because every namespace already has one named `default`.
 */
export async function checkAccount(render: Render): Promise<void> {
  const manifests = readManifests(await render('least', 'default'));
  find(manifests, 'ServiceAccount', 'default-ledger-mirror');
  for (const { text } of manifests.filter(isPod))
    holds(text, 'serviceAccountName: default-ledger-mirror');
}

/**
 * Checks that the network policy admits the ingress controller and Prometheus from their
 * namespaces, if they are used.
 */
export async function checkNetworkPolicy(render: Render): Promise<void> {
  const policyOf = async (
    values: string,
    ...options: string[]
  ): Promise<string> => {
    const manifests = readManifests(await render(values, 'mirror', ...options));
    return find(manifests, 'NetworkPolicy', 'mirror').text;
  };
  holds(
    await policyOf('everything'),
    'team: data',
    '- ingress-nginx',
    '- monitoring',
  );
  holds(
    await policyOf('operator'),
    '- traefik',
    '- observability',
    'policy-group.network.openshift.io/ingress',
    'network.openshift.io/policy-group: monitoring',
  );
  const closed = await policyOf('least', '--set', 'networkPolicy.enabled=true');
  expect(
    !closed.includes('namespaceSelector'),
    'a namespace is let in that nobody named',
  );
}

/**
 * Checks the monitors, because kube-prometheus selects them by label, and often from
 * another namespace.
 */
export async function checkMonitors(render: Render): Promise<void> {
  const manifests = readManifests(
    await render('operator', 'mirror', '--namespace', 'ledger'),
  );
  const monitors = ['PodMonitor', 'ServiceMonitor'].flatMap((kind) =>
    manifests.filter((one) => one.kind === kind),
  );
  expect(monitors.length === 2, `${monitors.length} monitors`);
  for (const { text } of monitors)
    holds(
      text,
      'namespace: observability',
      'release: kube-prometheus-stack',
      'matchNames: [ledger]',
    );
  holds(
    find(manifests, 'PrometheusRule', 'mirror').text,
    'release: kube-prometheus-stack',
  );
}

function podsOf(rendered: string): readonly Manifest[] {
  const pods = readManifests(rendered).filter(isPod);
  expect(pods.length > 0, 'no pod was rendered');
  return pods;
}

function isPod({ kind }: Manifest): boolean {
  return kind === 'Deployment' || kind === 'Job';
}

function readManifests(rendered: string): readonly Manifest[] {
  return rendered.split(/^---$/m).flatMap((text) => {
    const kind = /^kind: (\S+)$/m.exec(text)?.[1];
    const name = /^metadata:\n {2}name: (\S+)$/m.exec(text)?.[1];
    return kind === undefined || name === undefined
      ? []
      : [{ kind, name, text }];
  });
}

function find(
  manifests: readonly Manifest[],
  kind: string,
  name: string,
): Manifest {
  const found = manifests.find((one) => one.kind === kind && one.name === name);
  if (found === undefined) throw new Error(`there is no ${kind} ${name}`);
  return found;
}

function holds(text: string, ...parts: readonly string[]): void {
  for (const part of parts)
    expect(text.includes(part), `"${part}" is missing in\n${text}`);
}
