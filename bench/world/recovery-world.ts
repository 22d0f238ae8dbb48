/**
 * A mirror for the benchmark of lost databases: a sandbox network behind a proxy that
 * counts requests, and real commands on any database of one embedded Postgres.
 */
import { Client } from 'pg';
import { type MirrorHome, openHome } from '../../test/cli/mirror-home.ts';
import {
  openMeter,
  type Traffic,
  type TrafficMeter,
} from '../../test/support/measure/traffic-meter.ts';
import { type Sandbox, startSandbox } from '../../test/support/sandbox.ts';
import { openScratch } from './scratch-world.ts';

const HOUR_MS = 3_600_000;
/** Little happens between two nights, so that data requested twice stands out. */
const BETWEEN_NIGHTS_MS = HOUR_MS / 6;
/** Ledgers have grown for months, so that an hour adds only a small part. */
const HISTORY_MS = 60 * 24 * HOUR_MS;
const COMMAND_TIMEOUT_MS = 1_800_000;

export interface World {
  readonly name: string;
  readonly parties: number;
  readonly entriesMean: number;
  readonly whaleEntries?: number;
  /** If true, only one ledger is mirrored: the largest. */
  readonly isWhaleAlone?: boolean;
}

/** A network, and a mirror of it whose commands run on any database of one server. */
export class Measured {
  readonly home: MirrorHome;
  readonly sandbox: Sandbox;
  readonly #meter: TrafficMeter;
  readonly #connectionString: string;

  private constructor(
    home: MirrorHome,
    sandbox: Sandbox,
    meter: TrafficMeter,
    connectionString: string,
  ) {
    this.home = home;
    this.sandbox = sandbox;
    this.#meter = meter;
    this.#connectionString = connectionString;
  }

  static async open(
    stack: AsyncDisposableStack,
    { parties, entriesMean, whaleEntries = 0, isWhaleAlone = false }: World,
  ): Promise<Measured> {
    const { connectionString } = await openScratch(stack);
    const sandbox = await startSandbox({
      parties,
      entriesMean,
      whaleEntries,
      historyMs: HISTORY_MS,
      checkpointIntervalMs: HOUR_MS,
      rateLimit: 'none',
    });
    stack.defer(() => sandbox.stop());
    const meter = stack.use(await openMeter(sandbox.url));
    const [whale] = sandbox.truth.parties();
    const settings = {
      SOURCE_URL: meter.url,
      LOG_LEVEL: 'warn',
      NIGHTLY_PARTIES: isWhaleAlone ? whale?.id : 'all',
    };
    const home = stack.use(
      await openHome(settings, 'ledger-mirror-bench-', COMMAND_TIMEOUT_MS),
    );
    return new Measured(home, sandbox, meter, connectionString);
  }

  get parties(): number {
    return [...this.sandbox.truth.parties()].length;
  }

  /**
   * Runs a command.
   * @returns the number of the command's requests to the source, and its duration
   */
  async run(
    args: readonly string[],
    database: string,
  ): Promise<Traffic & { readonly seconds: number }> {
    this.#meter.reset();
    const startMs = performance.now();
    const settings = { DATABASE_URL: this.#urlOf(database) };
    const { code, document, stderr } = await this.home.json(args, settings);
    if (code !== 0 || (document.verdict ?? 'complete') !== 'complete') {
      throw new Error(`${args.join(' ')} ended ${code}: ${stderr}`);
    }
    const seconds = (performance.now() - startMs) / 1_000;
    return { ...this.#meter.counted, seconds };
  }

  night(database: string): Promise<Traffic> {
    this.sandbox.advance(BETWEEN_NIGHTS_MS);
    return this.run(['nightly'], database);
  }

  rebuild(database: string): Promise<Traffic & { readonly seconds: number }> {
    return this.run(['load', '--all', '--take-over'], database);
  }

  create(database: string, template = 'template0'): Promise<unknown> {
    const statement = `create database ${database} template ${template}`;
    return this.query(statement, 'template1');
  }

  async query(
    text: string,
    database: string,
  ): Promise<Record<string, string>[]> {
    const client = new Client({ connectionString: this.#urlOf(database) });
    await client.connect();
    const { rows } = await client.query<Record<string, string>>(text);
    await client.end();
    return rows;
  }

  #urlOf(database: string): string {
    const url = new URL(this.#connectionString);
    url.pathname = `/${database}`;
    return url.href;
  }
}
