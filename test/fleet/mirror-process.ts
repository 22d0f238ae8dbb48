/**
 * A whole mirror in this process that can be killed: its connections to the database end
 * in the midst of what they do, and another takes its place.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { type App, openApp } from '../../src/app/app.ts';
import { readConfig } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';
import { openFreshDatabase } from '../support/database.ts';
import { farSchedule } from '../support/far-schedule.ts';
import { silenceRuns } from '../support/mirror-arrange.ts';

/**
 * The product waits for seconds until the next node may have come further; this fleet
 * changes with its requests, and not with time.
 */
const ASK_AGAIN_MS = 1;

/** Longer than a worker waits before it takes up a run that nobody renews. */
const SILENT_SECONDS = 60;

export class MirrorProcess implements AsyncDisposable {
  readonly #env: Readonly<Record<string, string>>;
  readonly #dir: string;
  readonly #stack: AsyncDisposableStack;
  readonly pool: Pool;
  #app: App | undefined;
  #stop = new AbortController();
  #isKilled = false;
  #onDead: () => void = () => undefined;

  private constructor(
    env: Readonly<Record<string, string>>,
    dir: string,
    pool: Pool,
    stack: AsyncDisposableStack,
  ) {
    this.#env = env;
    this.#dir = dir;
    this.pool = pool;
    this.#stack = stack;
  }

  static async open(sourceUrl: string): Promise<MirrorProcess> {
    await using stack = new AsyncDisposableStack();
    const database = stack.use(await openFreshDatabase());
    const dir = await mkdtemp(join(tmpdir(), 'ledger-mirror fleet '));
    stack.defer(() => rm(dir, { recursive: true, force: true }));
    // No server is killed here.
    const name = new URL(database.url).pathname.slice(1);
    await database.pool.query(
      `alter database ${name} set synchronous_commit = off`,
    );
    const env = {
      DATABASE_URL: database.url,
      DATA_DIR: dir,
      SOURCE_URL: sourceUrl,
      SOURCE_RATE: '100000',
      SOURCE_EXPORT_CONCURRENCY: '4',
      SCHEDULE: farSchedule(),
    };
    const mirror = new MirrorProcess(env, dir, database.pool, stack.move());
    await mirror.#start();
    return mirror;
  }

  get app(): App {
    if (this.#app === undefined) throw new Error('The mirror is not running');
    return this.#app;
  }

  /**
   * Kills the process; `recover` puts another in its place.
   * @param onDead called once the process is gone: until then it may be answered
   */
  kill(onDead: () => void): void {
    this.#isKilled = true;
    this.#onDead = onDead;
  }

  async recover(): Promise<void> {
    if (!this.#isKilled) return;
    this.#isKilled = false;
    this.#stop.abort();
    await this.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and application_name like 'ledger-mirror%'`,
    );
    await this.#close();
    this.#onDead();
    await silenceRuns(this.pool, SILENT_SECONDS);
    await this.#start();
  }

  async hasEnded(runId: string): Promise<boolean> {
    const { rowCount } = await this.pool.query(
      `select from mirror.runs where run_id = $1 and state in ('done', 'cancelled')`,
      [runId],
    );
    return rowCount === 1;
  }

  async #start(): Promise<void> {
    const config = readConfig({ env: this.#env, cwd: this.#dir });
    this.#stop = new AbortController();
    const log = createLog(
      process.env['TEST_LOG'] === undefined ? 'silent' : 'debug',
    );
    this.#app = await openApp({
      config,
      log,
      signal: this.#stop.signal,
      askAgainMs: ASK_AGAIN_MS,
    });
    await this.#app.jobWorker.startAndRegister();
  }

  /** A process whose connections are gone cannot say goodbye to its database. */
  async #close(): Promise<void> {
    const app = this.#app;
    this.#app = undefined;
    try {
      await app?.[Symbol.asyncDispose]();
    } catch {
      // Its connections are gone.
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#close();
    await this.#stack.disposeAsync();
  }
}
