/** A command in miniature: uses the embedded Postgres of a folder until SIGTERM. */
import type { ServerLog } from '../../src/embedded/keeper.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';

const [dataDir = '', durability = 'fast'] = process.argv.slice(2);
const line = (fields: unknown, message: string): void => {
  process.stdout.write(`${message} ${JSON.stringify(fields)}\n`);
};

try {
  const server = await startEmbeddedPostgres({
    dataDir,
    durable: durability === 'durable',
    log: { info: line, warn: line } as ServerLog,
  });
  const alive = setInterval(() => undefined, 60_000);
  process.once('SIGTERM', () => {
    clearInterval(alive);
    void server[Symbol.asyncDispose]();
  });
  process.stdout.write(`url ${server.connectionString}\n`);
} catch (error) {
  process.stdout.write(
    `failed ${(error as { code?: string }).code ?? ''} ${String(error)}\n`,
  );
  process.exitCode = 1;
}
