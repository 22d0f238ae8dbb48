/** A mirror of a small sandbox network that serves, and runs what a test asks for. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type App, openApp } from '../../../src/app/app.ts';
import { startApi } from '../../../src/app/serving/serve.ts';
import { readConfig } from '../../../src/config/environment.ts';
import type { VerdictWithEvidence } from '../../../src/errors/verdict.ts';
import { createLog } from '../../../src/logging/log.ts';
import { openFreshDatabase } from '../../support/database.ts';
import { type Sandbox, startSandbox } from '../../support/sandbox.ts';

const signal = new AbortController().signal;
export const call = { signal, onProgress: (): void => undefined };

export interface SmallMirror extends AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly app: App;
  readonly url: string;
  /** Those with entries; the one with the most is the first. */
  readonly parties: readonly string[];
  /** @returns the run, and how it ended */
  exportLedger(
    partyId: string,
    assetId?: string,
  ): Promise<VerdictWithEvidence & { readonly runId: string }>;
}

export async function startSmallMirror(
  settings: Readonly<Record<string, string>> = {},
): Promise<SmallMirror> {
  const opened = new AsyncDisposableStack();
  const sandbox = await startSandbox({
    parties: 6,
    historyMs: 6 * 3_600_000,
    rateLimit: 'none',
    whaleEntries: 2_000,
  });
  opened.defer(() => sandbox.stop());
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-small-'));
  opened.defer(() => rm(folder, { recursive: true, force: true }));
  const database = opened.use(await openFreshDatabase());
  const env = {
    SOURCE_URL: sandbox.url,
    SOURCE_RATE: '10000',
    DATABASE_URL: database.url,
    DATA_DIR: folder,
    API_PORT: '0',
    ...settings,
  };
  const config = readConfig({ env, cwd: folder });
  const app = opened.use(
    await openApp({ config, log: createLog('silent'), signal }),
  );
  const { url } = opened.use(await startApi(app));
  const entriesOf = (id: string) => sandbox.truth.party(id).entries;
  const parties = [...sandbox.truth.parties()]
    .map(({ id }) => id)
    .filter((id) => entriesOf(id) > 1)
    .toSorted((one, other) => entriesOf(other) - entriesOf(one));
  return {
    sandbox,
    app,
    url,
    parties,
    async exportLedger(partyId, assetId) {
      const { runs, stages } = app.jobs;
      const { runId } = await runs.create({ kind: 'export', subject: partyId });
      const clock = await stages.clock({ signal });
      const request = { runId, partyId, assetId, clock };
      return { runId, ...(await stages.export(request, call)) };
    },
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}
