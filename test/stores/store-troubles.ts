/**
 * A store that refuses a part of what it is asked, behind the whole mirror: one right is
 * missing, credentials expire during a run, objects are archived, the store is busy. The
 * commands name the fault; no segment is distrusted, and no ledger is downloaded again.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type MirrorHome, openHome } from '../cli/mirror-home.ts';
import { type FreshDatabase, openFreshDatabase } from '../support/database.ts';
import { unloadSegments } from '../support/mirror-arrange.ts';
import type {
  Traffic,
  TrafficMeter,
} from '../support/measure/traffic-meter.ts';
import { startMeteredSandbox } from '../support/measure/metered-sandbox.ts';
import { trustedKeys } from '../support/mirror-state.ts';
import type { Sandbox } from '../support/sandbox.ts';
import {
  awsVariables,
  type RealStore,
  storeUrl,
} from '../support/stores/real-store.ts';
import {
  type Passing,
  type Refusal,
  StoreProxy,
} from '../support/stores/store-proxy.ts';

const HOUR_MS = 3_600_000;
const DENIED: Refusal = { status: 403, code: 'AccessDenied' };
const EXPIRED: Refusal = { status: 400, code: 'ExpiredToken' };
const BUSY: Refusal = { status: 503, code: 'SlowDown' };
const BROKEN: Refusal = { status: 500, code: 'InternalError' };
const ARCHIVED: Refusal = { status: 403, code: 'InvalidObjectState' };
/** How many calls pass before credentials expire: the night has begun by then. */
const CALLS_BEFORE_EXPIRY = 30;

/** How many calls a store refuses before it works again. */
const CALLS_BEFORE_WELL = 3;

/** The part of a server that these tests use, so that a double can stand in for one. */
export type TroubledServer = Pick<RealStore, 'endpoint' | 'bucket' | 'keys'>;

/** Decides which calls are refused; called once for each command. */
type Refuse = () => (call: Passing) => Refusal | undefined;

interface Trouble {
  readonly name: string;
  readonly refuse: Refuse;
  /** The commands that meet the trouble. Any other command works as always. */
  readonly failing: readonly Command[];
  /** What a failing command prints: whose fault it is, and what to do. */
  readonly message: RegExp;
}

const COMMANDS = {
  verify: ['verify'],
  query: ['query', 'select count(*) from ledger_entries'],
  export: ['export'],
  load: ['load'],
  nightly: ['nightly'],
  rebuild: ['load', '--all', '--take-over'],
} as const;
type Command = keyof typeof COMMANDS;
const ALL = Object.keys(COMMANDS) as Command[];

const isList = ({ method, path }: Passing): boolean =>
  method === 'GET' && /[?&]list-type=/.test(path);
const isGet = (call: Passing): boolean =>
  call.method === 'GET' && !isList(call) && !/[?&]uploads/.test(call.path);
const isPut = ({ method }: Passing): boolean => method === 'PUT';
const isHead = ({ method }: Passing): boolean => method === 'HEAD';
const isDelete = ({ method, path }: Passing): boolean =>
  method === 'DELETE' && !path.includes('uploadId=');
const isBelow =
  (folder: string) =>
  ({ path }: Passing): boolean =>
    decodeURIComponent(path).includes(`/${folder}/`);

/** Refuses every call that fits all conditions. */
function always(
  refusal: Refusal,
  ...conditions: readonly ((call: Passing) => boolean)[]
): Refuse {
  return () => (call) =>
    conditions.every((fits) => fits(call)) ? refusal : undefined;
}

function afterCalls(count: number, refusal: Refusal): Refuse {
  return () => {
    let calls = 0;
    return () => {
      calls += 1;
      return calls > count ? refusal : undefined;
    };
  };
}

function firstCalls(count: number, refusal: Refusal): Refuse {
  return () => {
    let calls = 0;
    return () => {
      calls += 1;
      return calls <= count ? refusal : undefined;
    };
  };
}

const RIGHTS =
  /403 AccessDenied; check the bucket, its region and the permissions/;
const CREDENTIALS =
  /400 ExpiredToken; check AWS_ACCESS_KEY_ID .*no longer valid/;
const ARCHIVE =
  /403 InvalidObjectState; a lifecycle rule moved the object to an archive; restore it/;

const TROUBLES: readonly Trouble[] = [
  {
    name: 'GetObject is denied',
    refuse: always(DENIED, isGet),
    failing: ALL,
    message: RIGHTS,
  },
  {
    name: 'GetObject is denied below ledger/',
    refuse: always(DENIED, isGet, isBelow('ledger')),
    failing: ['verify', 'export', 'load', 'nightly', 'rebuild'],
    message: RIGHTS,
  },
  {
    name: 'PutObject is denied',
    refuse: always(DENIED, isPut),
    failing: ['export', 'load', 'nightly', 'rebuild'],
    message: RIGHTS,
  },
  {
    name: 'ListBucket is denied',
    refuse: always(DENIED, isList),
    failing: ALL,
    message: RIGHTS,
  },
  {
    name: 'DeleteObject is denied',
    refuse: always(DENIED, isDelete),
    failing: ['export', 'load', 'nightly', 'rebuild'],
    message: RIGHTS,
  },
  {
    name: 'HeadObject is denied',
    refuse: always(DENIED, isHead),
    failing: [],
    message: RIGHTS,
  },
  {
    name: 'credentials expire during a run',
    refuse: afterCalls(CALLS_BEFORE_EXPIRY, EXPIRED),
    failing: ALL,
    message: CREDENTIALS,
  },
  {
    name: 'the store is busy for a while',
    refuse: firstCalls(CALLS_BEFORE_WELL, BUSY),
    failing: [],
    message: /503 SlowDown/,
  },
  {
    name: 'the store is broken for a while',
    refuse: firstCalls(CALLS_BEFORE_WELL, BROKEN),
    failing: [],
    message: /500 InternalError/,
  },
  {
    name: 'objects and manifests are archived',
    refuse: always(ARCHIVED, isGet, isBelow('ledger')),
    failing: ['verify', 'export', 'load', 'nightly', 'rebuild'],
    message: ARCHIVE,
  },
  {
    name: 'the lake is archived',
    refuse: always(ARCHIVED, isGet, isBelow('lake')),
    failing: ALL,
    message: ARCHIVE,
  },
];

/** A store that is busy for longer than a call waits: each command waits a minute or more. */
const BUSY_FOR_LONG: Trouble = {
  name: 'the store is busy for longer than a call waits',
  refuse: always(BUSY),
  failing: ALL,
  message: /503 SlowDown/,
};

export interface TroublesOptions {
  /** Whether the trouble that lasts for minutes is tried, too. */
  readonly includesLong?: boolean;
}

export function describeTroubles(
  running: () => TroubledServer,
  { includesLong = false }: TroublesOptions = {},
): void {
  describe('a store that refuses a part', () => {
    let stack: AsyncDisposableStack;
    let sandbox: Sandbox;
    let meter: TrafficMeter;
    let proxy: StoreProxy;
    let database: FreshDatabase;
    let home: MirrorHome;
    let ordinary: Traffic;
    /** The party with the most entries. */
    let party: string;

    beforeAll(async () => {
      stack = new AsyncDisposableStack();
      ({ sandbox, meter } = await startMeteredSandbox(stack));
      const server = running();
      proxy = stack.use(await StoreProxy.before(server.endpoint));
      database = stack.use(await openFreshDatabase());
      const { endpoint } = proxy;
      const { bucket } = server;
      home = stack.use(
        await openHome({
          SOURCE_URL: meter.url,
          DATABASE_URL: database.url,
          OBJECT_STORE_URL: storeUrl({ endpoint, bucket }, randomUUID()).href,
          LOG_LEVEL: 'error',
          ...awsVariables(server.keys),
        }),
      );
      [party = ''] = [...sandbox.truth.parties()]
        .map(({ id }) => id)
        .toSorted(
          (one, other) =>
            sandbox.truth.party(other).entries -
            sandbox.truth.party(one).entries,
        );
      await night();
      await night();
      meter.reset();
      await night();
      ordinary = { ...meter.counted };
    });
    afterAll(() => stack.disposeAsync());

    async function night(): Promise<void> {
      sandbox.advance(HOUR_MS);
      const { code, document, stderr } = await home.json(['nightly']);
      expect([code, document.verdict, stderr]).toEqual([0, 'complete', '']);
    }

    /** Runs a command. @returns 'works', 'fails and says why', or what it printed */
    async function outcomeOf(
      command: Command,
      message: RegExp,
    ): Promise<string> {
      await using empty = await openFreshDatabase();
      const args = COMMANDS[command];
      const { code, stdout, stderr } = await home.run(
        command === 'export' ? [...args, '--party', party] : args,
        command === 'rebuild' ? { DATABASE_URL: empty.url } : {},
      );
      if (code === 0) return 'works';
      const printed = `${stdout}${stderr}`;
      return message.test(printed) ? 'fails and says why' : printed;
    }

    const expectedOf = ({ failing }: Trouble): Record<string, string> =>
      Object.fromEntries(
        ALL.map((command) => [
          command,
          failing.includes(command) ? 'fails and says why' : 'works',
        ]),
      );

    /** Works a night after the trouble, and checks that nothing was lost by it. */
    async function expectNothingLost(before: string[]): Promise<void> {
      // The rebuild may have taken the store over.
      const back = await home.run(['load', '--take-over']);
      expect([back.code, back.stderr]).toEqual([0, '']);
      await night();
      expect(await trustedKeys(database.pool)).toEqual(
        expect.arrayContaining(before),
      );
      // Two nights' news, of which each was requested twice at most.
      expect(meter.counted.exportBytes).toBeLessThan(4 * ordinary.exportBytes);
      const verified = await home.json(['verify', '--deep']);
      expect([verified.code, verified.document.verdict]).toEqual([
        0,
        'complete',
      ]);
    }

    test.each(TROUBLES)(
      '$name: commands name it, and nothing is distrusted or downloaded again',
      async (trouble) => {
        const before = await trustedKeys(database.pool);
        sandbox.advance(HOUR_MS);
        meter.reset();
        const outcomes: Partial<Record<Command, string>> = {};
        for (const command of ALL) {
          if (command === 'load') await unloadSegments(database.pool);
          proxy.judge = trouble.refuse();
          outcomes[command] = await outcomeOf(command, trouble.message);
          proxy.judge = () => undefined;
          expect(await trustedKeys(database.pool)).toEqual(
            expect.arrayContaining(before),
          );
        }
        await expectNothingLost(before);
        expect(outcomes).toEqual(expectedOf(trouble));
      },
    );

    // Side by side, because each waits for minutes.
    test.runIf(includesLong)(
      `${BUSY_FOR_LONG.name}: commands name it, and nothing is lost`,
      async () => {
        const before = await trustedKeys(database.pool);
        sandbox.advance(HOUR_MS);
        meter.reset();
        await unloadSegments(database.pool);
        proxy.judge = BUSY_FOR_LONG.refuse();
        const outcomes = await Promise.all(
          ALL.map(async (command) => [
            command,
            await outcomeOf(command, BUSY_FOR_LONG.message),
          ]),
        );
        proxy.judge = () => undefined;
        await expectNothingLost(before);
        expect(Object.fromEntries(outcomes)).toEqual(expectedOf(BUSY_FOR_LONG));
      },
    );
  });
}
