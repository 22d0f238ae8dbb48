/** `sandbox`: serves a made-up network until it is told to stop. */
import { once } from 'node:events';
import { join } from 'node:path';
import { UsageError } from '../../../core/errors.ts';
import {
  DAY_MICROS,
  floorSecond,
  formatInstant,
  nowMicros,
  parseInstant,
  type Micros,
} from '../../../core/time.ts';
import { keptGenesis } from './kept-genesis.ts';
import type { ReleaseName } from '../../../sandbox/release-names.ts';
import { startSandbox } from '../../../sandbox/http/server.ts';
import { commandOn } from '../../typed.ts';
import { EXIT, type CommandContext, type CommandResult } from '../../context.ts';

export interface SandboxCommandOptions {
  readonly host: string;
  readonly port: number;
  readonly parties: number;
  readonly entries: number;
  readonly seed: string;
  readonly release: ReleaseName;
  readonly genesis?: string;
}

const HISTORY_DAYS = 7;

/** Where none is given: a midnight a week before the first start, the same network from then on. */
async function genesisOf(given: string | undefined, dataDir: string): Promise<Micros> {
  const midnight = nowMicros() - (nowMicros() % DAY_MICROS);
  if (given === undefined)
    return keptGenesis(join(dataDir, 'sandbox.json'), midnight - BigInt(HISTORY_DAYS) * DAY_MICROS);
  const parsed = parseInstant(given);
  if (parsed !== undefined && parsed < nowMicros()) return floorSecond(parsed);
  throw new UsageError([
    `--genesis: ${JSON.stringify(given.slice(0, 80))} is not accepted; give a past time, such as 2026-01-31T00:00:00Z`,
  ]);
}

export async function sandbox(
  options: SandboxCommandOptions,
  context: CommandContext,
): Promise<CommandResult> {
  const genesis = await genesisOf(options.genesis, context.config.dataDir);
  await using network = await startSandbox({
    seed: options.seed,
    release: options.release,
    host: options.host,
    port: options.port,
    parties: options.parties,
    entriesMean: Math.ceil(options.entries / options.parties),
    historyMs: HISTORY_DAYS * 86_400_000,
    genesis,
    // It lives: blocks are made as time goes by.
    clock: nowMicros,
  });
  const document = {
    url: network.url,
    seed: options.seed,
    release: options.release,
    genesis: formatInstant(genesis),
  };
  context.stdout.write(
    context.isJson
      ? `${JSON.stringify(document)}\n`
      : `A sandbox network of release ${options.release} is served at ${network.url}.\n` +
          `Try, in the folder ${process.cwd()}: SOURCE_URL=${network.url} ${commandOn(context.config.dataDir)} nightly\nCtrl-C stops it.\n`,
  );
  if (!context.signal.aborted) await once(context.signal, 'abort');
  return { exitCode: EXIT.done };
}
