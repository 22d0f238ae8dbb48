/** `sandbox`: serves a synthetic network until it is stopped. */
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errorCode, UsageError } from '../../errors/errors.ts';
import { makeFolders } from '../../files/folders.ts';
import {
  DAY_MICROS,
  formatInstant,
  nowMicros,
  type Micros,
} from '../../time/time.ts';
import { startSandbox } from '../../sandbox/http/server.ts';
import type { Settings } from '../../sandbox/options.ts';
import type { Handler } from '../context.ts';
import { commandOn } from '../command-name.ts';

type Options = Pick<
  Settings,
  'host' | 'port' | 'seed' | 'release' | 'parties'
> & {
  readonly entries: number;
};

const HISTORY_DAYS = 7;

export const sandbox: Handler<Options> = async (
  options,
  { config, isJson, stdout, signal },
) => {
  const { entries, seed, release, host, port, parties } = options;
  // The network begins at midnight, a week before it is first started. Later starts keep
  // the same beginning.
  const now = nowMicros();
  const fresh = now - (now % DAY_MICROS) - BigInt(HISTORY_DAYS) * DAY_MICROS;
  const genesis = await keptGenesis(
    join(config.dataDir, 'sandbox.json'),
    fresh,
  );
  const entriesMean = Math.ceil(entries / parties);
  const historyMs = HISTORY_DAYS * 86_400_000;
  // The real clock keeps the network alive: it produces blocks as time passes.
  const lives = { genesis, entriesMean, historyMs, clock: nowMicros };
  await using network = await startSandbox({
    seed,
    release,
    host,
    port,
    parties,
    ...lives,
  }).catch((error: unknown) => {
    throw portProblem(error, host, port) ?? error;
  });
  const { url } = network;
  stdout.write(
    isJson
      ? `${JSON.stringify({ url, seed, release, genesis: formatInstant(genesis) })}\n`
      : `A sandbox network of release ${release} is served at ${url}.\n` +
          `Try, in the folder ${process.cwd()}: SOURCE_URL=${url} ` +
          `${commandOn(config.dataDir)} nightly\nCtrl-C stops it.\n`,
  );
  if (!signal.aborted) await once(signal, 'abort');
  return {};
};

/** Returns advice for a port that is unavailable; undefined for other errors. */
function portProblem(
  error: unknown,
  host: string,
  port: number,
): UsageError | undefined {
  const code = errorCode(error);
  if (code !== 'EADDRINUSE' && code !== 'EACCES') return undefined;
  const why =
    code === 'EADDRINUSE' ? 'is in use by another process' : 'is not allowed';
  return new UsageError([
    `--port: ${port} of ${host} ${why} (${code}); give another one, or 0 for any ` +
      'that is free',
  ]);
}

/**
 * Returns when a network began, so that every later start serves the same network, which
 * keeps growing as time passes.
 * @param fresh when the network begins if it is started for the first time, in µs since
 *   1970
 * @returns the instant in the file; if there is no valid one, `fresh`, which is then
 *   stored for later starts
 */
export async function keptGenesis(
  path: string,
  fresh: Micros,
): Promise<Micros> {
  const kept = await readFile(path, 'utf8').catch(() => '');
  // The beginning must be a whole second no later than 2286, because blocks are counted
  // from it.
  const [, stored] = /^\{"genesisMicros":"(\d{1,10}0{6})"\}$/.exec(kept) ?? [];
  if (stored !== undefined) return BigInt(stored);
  await makeFolders(dirname(path));
  await writeFile(path, JSON.stringify({ genesisMicros: String(fresh) }), {
    flush: true,
  });
  return fresh;
}
