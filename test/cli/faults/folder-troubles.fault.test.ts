/**
 * A folder of objects that refuses a part of what it is asked: rights are missing, the
 * mount is read-only, the disk is full. The commands name the fault; no segment is
 * distrusted, and no ledger is downloaded again.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type FreshDatabase,
  openFreshDatabase,
} from '../../support/database.ts';
import { unloadSegments } from '../../support/mirror-arrange.ts';
import type {
  Traffic,
  TrafficMeter,
} from '../../support/measure/traffic-meter.ts';
import { startMeteredSandbox } from '../../support/measure/metered-sandbox.ts';
import { trustedKeys } from '../../support/mirror-state.ts';
import type { Sandbox } from '../../support/sandbox.ts';
import { type Ended, type MirrorHome, openHome } from '../mirror-home.ts';

const BIN = resolve(import.meta.dirname, '../../../bin/ledger-mirror.js');
const HOUR_MS = 3_600_000;
const CLOSED = 0o000;
const OPEN = 0o755;
/** Rights bind any user but root, who becomes this one. */
const ORDINARY_UID = 65_534;
const isRoot = process.getuid?.() === 0;

const COMMANDS = {
  verify: 'verify',
  load: 'load',
  nightly: 'nightly',
  rebuild: 'load --all --take-over',
} as const;
type Command = keyof typeof COMMANDS;
const ALL = Object.keys(COMMANDS) as Command[];

interface Trouble {
  readonly name: string;
  /** Whether the commands run as a user that rights bind, or in a mount namespace. */
  readonly runsAs: 'user' | 'namespace';
  /** Shell lines before the command, in a mount namespace; $OBJECTS is the folder. */
  readonly mount?: string;
  /** Changes the folder; the function that it returns changes it back. */
  readonly breakFolder?: (objects: string) => () => void;
  readonly failing: readonly Command[];
  readonly message: RegExp;
}

const EACCES =
  /OBJECT_STORE_EACCES|EACCES; check the folder of OBJECT_STORE_URL and its permissions/;

const TROUBLES: readonly Trouble[] = [
  {
    name: "one ledger's folder may not be read",
    runsAs: 'user',
    breakFolder: (objects) => {
      const ledgers = join(objects, 'ledger');
      return close(join(ledgers, readdirSync(ledgers)[0] ?? ''));
    },
    failing: ALL,
    message: EACCES,
  },
  {
    name: 'no ledger may be read',
    runsAs: 'user',
    breakFolder: (objects) => close(join(objects, 'ledger')),
    failing: ALL,
    message: EACCES,
  },
  {
    name: 'the lake may not be read',
    runsAs: 'user',
    breakFolder: (objects) => close(join(objects, 'lake')),
    failing: ALL,
    message: EACCES,
  },
  {
    name: 'the mount is read-only',
    runsAs: 'namespace',
    mount:
      'mount --bind "$OBJECTS" "$OBJECTS"; mount -o remount,bind,ro "$OBJECTS"',
    failing: ['load', 'nightly', 'rebuild'],
    message: /EROFS; check the folder of OBJECT_STORE_URL and its permissions/,
  },
  {
    name: 'the disk is full',
    runsAs: 'namespace',
    // The copy and the file that fills the rest are gone with the namespace.
    mount:
      'mkdir -p full; mount -t tmpfs -o size=32m tmpfs full; cp -a "$OBJECTS/." full; ' +
      'mount --bind full "$OBJECTS"; cat /dev/zero > full/.rest || true',
    failing: ['load', 'nightly', 'rebuild'],
    message: /ENOSPC; it will be tried again; check the disk/,
  },
];

function close(folder: string): () => void {
  chmodSync(folder, CLOSED);
  return () => chmodSync(folder, OPEN);
}

/** Quotes a word for the shell. */
function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** How commands can be run here: not every machine lets its users mount. */
const WAYS = ['user', 'namespace'] as const;
const mountProblem = findMountProblem();

describe.each(
  WAYS.filter((way) => way === 'user' || mountProblem === undefined),
)('a folder that refuses a part, in commands that run in a %s', (runsAs) => {
  let stack: AsyncDisposableStack;
  let sandbox: Sandbox;
  let meter: TrafficMeter;
  let database: FreshDatabase;
  let home: MirrorHome;
  let ordinary: Traffic;

  beforeAll(async () => {
    stack = new AsyncDisposableStack();
    ({ sandbox, meter } = await startMeteredSandbox(stack));
    database = stack.use(await openFreshDatabase());
    home = stack.use(
      await openHome({
        SOURCE_URL: meter.url,
        DATABASE_URL: database.url,
        LOG_LEVEL: 'warn',
      }),
    );
    if (runsAs === 'user' && isRoot)
      execFileSync('chown', ['-R', String(ORDINARY_UID), home.dir]);
    await night();
    await night();
    meter.reset();
    await night();
    ordinary = { ...meter.counted };
  });
  afterAll(() => stack.disposeAsync());

  function run(
    command: string,
    mount?: string,
    databaseUrl = database.url,
  ): Promise<Ended> {
    const line = `${quote(process.execPath)} ${quote(BIN)} ${command}`;
    const settings = { DATABASE_URL: databaseUrl, OBJECTS: home.objectsDir };
    if (runsAs === 'namespace') {
      const script = `${mount ?? 'true'}; exec ${line}`;
      return home.type(`unshare -rm sh -ec ${quote(script)}`, settings);
    }
    const asUser = isRoot
      ? `setpriv --reuid=${ORDINARY_UID} --clear-groups `
      : '';
    return home.type(`${asUser}${line}`, settings);
  }

  async function night(): Promise<void> {
    sandbox.advance(HOUR_MS);
    const { code, stdout, stderr } = await run('nightly');
    expect([code, code === 0 ? '' : stdout, stderr]).toEqual([0, '', '']);
  }

  test.each(TROUBLES.filter((trouble) => trouble.runsAs === runsAs))(
    '$name: commands name it, and nothing is distrusted or downloaded again',
    async ({ mount, breakFolder, failing, message }) => {
      const before = await trustedKeys(database.pool);
      sandbox.advance(HOUR_MS);
      meter.reset();
      const outcomes: Partial<Record<Command, string>> = {};
      for (const command of ALL) {
        await using empty = await openFreshDatabase();
        if (command === 'load') await unloadSegments(database.pool);
        const mend = breakFolder?.(home.objectsDir);
        const { code, stdout, stderr } = await run(
          COMMANDS[command],
          mount,
          command === 'rebuild' ? empty.url : undefined,
        );
        mend?.();
        const printed = `${stdout}${stderr}`;
        const told = message.test(printed) ? 'fails and says why' : printed;
        outcomes[command] = code === 0 ? 'works' : told;
        expect(await trustedKeys(database.pool)).toEqual(
          expect.arrayContaining(before),
        );
      }
      // The rebuild may have taken the store over.
      const back = await run('load --take-over');
      expect([back.code, back.stderr]).toEqual([0, '']);
      await night();
      expect(await trustedKeys(database.pool)).toEqual(
        expect.arrayContaining(before),
      );
      // Two nights' news, of which each was requested twice at most.
      expect(meter.counted.exportBytes).toBeLessThan(4 * ordinary.exportBytes);
      const verified = await run('verify --deep');
      expect([verified.code, verified.stderr]).toEqual([0, '']);
      expect(outcomes).toEqual(
        Object.fromEntries(
          ALL.map((command) => [
            command,
            failing.includes(command) ? 'fails and says why' : 'works',
          ]),
        ),
      );
    },
  );
});

/** Why this machine lets nobody mount in a namespace; undefined if it does. */
function findMountProblem(): string | undefined {
  const mounting = 'mount -t tmpfs tmpfs /mnt';
  const tried = spawnSync('unshare', ['-rm', 'sh', '-c', mounting], {
    encoding: 'utf8',
  });
  if (tried.status === 0) return undefined;
  const problem = tried.error?.message ?? tried.stderr.trim();
  process.stderr.write(
    `Read-only mounts and full disks are not tested here: ${problem}\n`,
  );
  return problem;
}
