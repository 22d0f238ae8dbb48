/**
 * The whole application in this process, over a sandbox: real stores, real workers, the
 * real API.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type App, type AppOptions, openApp } from '../../src/app/app.ts';
import { startApi } from '../../src/app/serving/serve.ts';
import { readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';
import { openFreshDatabase } from '../support/database.ts';
import { farSchedule } from '../support/far-schedule.ts';

export interface RealApp extends AsyncDisposable {
  readonly app: App;
  readonly url: string;
}

export type Env = Readonly<Record<string, string>>;

/** @param env settings beside those of the stores; `REDIS_URL` puts the queues there */
export async function startRealApp(
  env: Env,
  {
    isWorking = true,
    ...options
  }: { isWorking?: boolean } & Pick<
    AppOptions,
    'sourceLimits' | 'askAgainMs'
  > = {},
): Promise<RealApp> {
  await using stack = new AsyncDisposableStack();
  const database = stack.use(await openFreshDatabase());
  const dir = await mkdtemp(join(tmpdir(), 'ledger-mirror app '));
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const defaults = {
    DATABASE_URL: database.url,
    DATA_DIR: dir,
    SOURCE_RATE: '100000',
    API_PORT: '0',
    SCHEDULE: farSchedule(),
  };
  const config = readConfig({ env: { ...defaults, ...env }, cwd: dir });
  const stop = new AbortController();
  stack.defer(() => stop.abort());
  const log = createLog(
    process.env['TEST_LOG'] === undefined ? 'silent' : 'debug',
  );
  const app = stack.use(
    await openApp({ ...options, config, log, signal: stop.signal }),
  );
  if (isWorking) await app.jobWorker.startAndRegister();
  const { url } = stack.use(await startApi(app));
  const owned = stack.move();
  return { app, url, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}
