/** `sandbox`: serves a made-up network until it is told to stop. */
import { once } from 'node:events';
import { DAY_MICROS, floorSecond, nowMicros } from '../../core/time.ts';
import { startSandbox } from '../../sandbox/server.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';

export interface SandboxCommandOptions {
  readonly port: number;
  readonly parties: number;
  readonly entries: number;
  readonly seed: string;
  readonly booksPort?: number;
}

const HISTORY_DAYS = 7;

export async function sandbox(
  options: SandboxCommandOptions,
  context: CommandContext,
): Promise<CommandResult> {
  await using network = await startSandbox({
    seed: options.seed,
    port: options.port,
    parties: options.parties,
    entriesMean: Math.ceil(options.entries / options.parties),
    historyMs: HISTORY_DAYS * 86_400_000,
    genesis: floorSecond(nowMicros()) - BigInt(HISTORY_DAYS) * DAY_MICROS,
    // It lives: blocks are made as time goes by.
    clock: nowMicros,
    ...(options.booksPort === undefined ? {} : { booksPort: options.booksPort }),
  });
  const document = { url: network.url, booksUrl: network.booksUrl ?? null, seed: options.seed };
  context.stdout.write(
    context.isJson
      ? `${JSON.stringify(document)}\n`
      : `A sandbox network is served at ${network.url}${network.booksUrl === undefined ? '' : `, its books at ${network.booksUrl}`}.\n` +
          `Try: SOURCE_URL=${network.url} npx ledger-mirror nightly\nCtrl-C stops it.\n`,
  );
  if (!context.signal.aborted) await once(context.signal, 'abort');
  return { exitCode: EXIT.done };
}
