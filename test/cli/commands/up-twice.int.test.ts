/**
 * Two `up` that start at the same moment on the same data: they share it, or the second
 * says why it cannot; either way the mirror is one, and each ledger is requested once.
 */
import { describe, expect, test } from 'vitest';
import { openFreshDatabase } from '../../support/database.ts';
import type { Child } from '../../support/process.ts';
import { type Sandbox, startSandbox } from '../../support/sandbox.ts';
import { waitFor } from '../../support/wait-for.ts';
import { type MirrorHome, openHome, type Settings } from '../mirror-home.ts';

const PARTIES = 12;
const SERVING = /"url":"http:\/\/[^"]*:(\d+)"[^\n]*"msg":"Serving"/;

function startSmallSandbox(): Promise<Sandbox> {
  return startSandbox({
    parties: PARTIES,
    entriesMean: 60,
    rateLimit: 'none',
  });
}

/** A network, a database, and a folder in which commands mirror the one into the other. */
async function openWorld(): Promise<
  AsyncDisposable & { readonly sandbox: Sandbox; readonly home: MirrorHome }
> {
  await using stack = new AsyncDisposableStack();
  const sandbox = stack.use(await startSmallSandbox());
  const database = stack.use(await openFreshDatabase());
  const home = stack.use(
    await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: database.url,
      API_PORT: '0',
    }),
  );
  const owned = stack.move();
  return {
    sandbox,
    home,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function waitUntilWorking(children: readonly Child[]): Promise<void> {
  await waitFor(
    () => {
      for (const child of children) {
        if (!child.isRunning) throw new Error(`up ended:\n${child.stderr}`);
      }
      return children.every(
        ({ stderr }) => stderr.includes('"Working"') && SERVING.test(stderr),
      );
    },
    { what: 'both to work and serve' },
  );
}

/** What came of a night that the given processes worked, and of their end. */
interface Outcome {
  readonly night: unknown;
  readonly exportsOfAParty: number;
  readonly exits: readonly (number | null)[];
  readonly verified: unknown;
}

/** Works a night with the given processes, ends them, and verifies what is left. */
async function workNight(
  { requests, truth }: Sandbox,
  home: MirrorHome,
  children: readonly Child[],
  settings: Settings = {},
): Promise<Outcome> {
  const night = await home.json(['nightly'], settings);
  const exportsOfAParty = requests.of('export') / [...truth.parties()].length;
  const exits: (number | null)[] = [];
  for (const child of children) {
    const { code } = await child.end('SIGTERM');
    exits.push(code);
  }
  const verified = await home.json(['verify', '--deep'], settings);
  return {
    night: night.document.verdict,
    exportsOfAParty,
    exits,
    verified: verified.document.verdict,
  };
}

const ONE_MIRROR: Outcome = {
  night: 'complete',
  exportsOfAParty: 1,
  exits: [0, 0],
  verified: 'complete',
};

describe('two up that start at the same moment', () => {
  test('share one data folder and its embedded Postgres', async () => {
    await using sandbox = await startSmallSandbox();
    await using home = await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: undefined,
      API_PORT: '0',
    });
    const children = [home.start(['up']), home.start(['up'])];
    await waitUntilWorking(children);
    expect(await workNight(sandbox, home, children)).toEqual(ONE_MIRROR);
  });

  test('share one database and one store, from two data folders', async () => {
    await using world = await openWorld();
    const { sandbox, home } = world;
    const shared = { OBJECT_STORE_URL: `file://${home.dir}/shared` };
    const children = ['one', 'other'].map((name) =>
      home.start(['up'], { ...shared, DATA_DIR: `${home.dir}/${name}` }),
    );
    await waitUntilWorking(children);
    const settings = { ...shared, DATA_DIR: `${home.dir}/one` };
    expect(await workNight(sandbox, home, children, settings)).toEqual(
      ONE_MIRROR,
    );
  });

  test('on one database but with a store of its own, the second says what is wrong and asks the source for nothing', async () => {
    await using world = await openWorld();
    const { sandbox, home } = world;
    const night = await home.json(['nightly']);
    expect(night.code).toBe(0);
    const asked = sandbox.requests.of('export');
    const elsewhere = await home.run(['nightly'], {
      DATA_DIR: `${home.dir}/other`,
    });
    expect([elsewhere.code, elsewhere.stderr]).toEqual([
      1,
      expect.stringMatching(
        /lacks what this mirror has published.*OBJECT_STORE_URL/s,
      ),
    ]);
    expect(sandbox.requests.of('export')).toBe(asked);
  });

  test('on one port, the second says that it is in use, and the first goes on', async () => {
    await using world = await openWorld();
    const { sandbox, home } = world;
    const first = home.start(['up']);
    await waitUntilWorking([first]);
    const [, port = ''] = SERVING.exec(first.stderr) ?? [];
    const second = await home.run(['up'], { API_PORT: port });
    expect([second.code, second.stderr]).toEqual([
      1,
      expect.stringMatching(/EADDRINUSE|in use/),
    ]);
    expect(await workNight(sandbox, home, [first])).toEqual({
      ...ONE_MIRROR,
      exits: [0],
    });
  });
});
