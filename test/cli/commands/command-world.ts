/** A small mirror after its first nightly run, for tests of the commands. */
import { afterAll } from 'vitest';
import { type Sandbox, startSandbox } from '../../support/sandbox.ts';
import { freshDatabase, type FreshDatabase } from '../../support/database.ts';
import { type MirrorHome, openHome } from '../mirror-home.ts';

export interface EmptyWorld {
  readonly database: FreshDatabase;
  readonly sandbox: Sandbox;
  readonly home: MirrorHome;
}

export interface CommandWorld extends EmptyWorld {
  /** That with the most entries. */
  readonly party: string;
}

/**
 * A mirror before its first nightly run, and its network. Call it at the top level of a
 * test file; all ends after it.
 * @param entriesMean how many entries a party has, on average
 */
export async function emptyWorld(
  parties: number,
  entriesMean: number,
): Promise<EmptyWorld> {
  const database = await freshDatabase();
  const sandbox = await startSandbox({
    parties,
    entriesMean,
    rateLimit: 'none',
  });
  afterAll(() => sandbox.stop());
  const home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
  });
  afterAll(() => home[Symbol.asyncDispose]());
  return { database, sandbox, home };
}

/** Call it at the top level of a test file; all ends after it. */
export async function commandWorld(): Promise<CommandWorld> {
  const world = await emptyWorld(12, 60);
  const { sandbox, home } = world;
  const ledgers = [...sandbox.truth.parties()].map(({ id }) => ({
    id,
    ...sandbox.truth.party(id),
  }));
  const party = ledgers.toSorted((a, b) => b.entries - a.entries)[0]?.id ?? '';
  const run = await home.run(['nightly']);
  if (run.code !== 0)
    throw new Error(
      `the nightly run that the tests read failed:\n${run.stdout}${run.stderr}`,
    );
  return { ...world, party };
}
