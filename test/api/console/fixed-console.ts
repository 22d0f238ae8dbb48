/**
 * A console over facts that a test sets and changes, for states that a real mirror seldom
 * shows.
 */
import type { LiveFacts } from '../../../src/api/console/store/work-statements.ts';
import { listen } from '../../../src/api/server/server.ts';
import type { ConsoleParts } from '../../../src/api/console/ports.ts';
import type { PlainRow } from '../../../src/postgres/api-rows.ts';
import type { MirrorFacts } from '../../../src/status/mirror-facts.ts';
import type { NightlyPreview } from '../../../src/runs/nightly/nightly-preview.ts';
import type { RunDocument } from '../../../src/runs/run-schema.ts';
import {
  type Answers,
  EMPTY_FACTS,
  apiWithoutDatabase,
  jobsOf,
  NO_CONSOLE,
} from '../mirror.ts';
import type { ProgressLine } from '../../../src/runs/progress.ts';

export const PARTY = 'ab'.repeat(32);
const NOW = '2026-03-01T06:00:00.000000Z';

export interface Facts {
  live: LiveFacts & { readonly quarantined: readonly PlainRow[] };
  status: MirrorFacts;
  runs: readonly RunDocument[];
  settings: ConsoleParts['settings'];
}

/**
 * Beside the facts: what the database answers, and how far runs and exports in flight
 * have come.
 */
export interface FixedParts extends Partial<ConsoleParts> {
  readonly answers?: Answers;
  /** The tokens of the mirror; without them, everybody may start runs. */
  readonly token?: string;
  readonly readToken?: string;
  readonly progress?: (key: string) => Promise<readonly ProgressLine[]>;
}

/** What a mirror that knows nothing can say of its first night. */
export const FIRST_NIGHT: NightlyPreview = {
  isFirst: true,
  requests: 0,
  seconds: 0,
  ratePerSecond: 10,
  lists: { requests: 0, requestsForNew: 0, each: [] },
  audits: { segments: '0', bytes: '0' },
  exports: { due: 0, asked: 0, deferred: 0, notDue: 0, quarantined: 0 },
};

export interface FixedConsole extends AsyncDisposable {
  readonly url: string;
  /** Change them: the console shows it. */
  readonly facts: Facts;
  /** Stops answering; `resume` answers again, at the same address. */
  interrupt(): Promise<void>;
  resume(): Promise<void>;
}

export function quiet(): Facts['live'] {
  return {
    now: NOW,
    workers: 1,
    openRuns: [],
    inFlight: [],
    quarantined: [],
    nightly: null,
    revision: '0',
  };
}

/** What is different of a run that is under way. */
export const UNDER_WAY = {
  state: 'running',
  verdict: null,
  finishedAt: null,
} as const;

/** A run that is over, apart from the changes. */
export function run(
  changes: Partial<Facts['runs'][number]>,
): Facts['runs'][number] {
  return {
    runId: '01a1fc0b-e1b9-71c1-ace8-91e8d46a6831',
    parentRunId: null,
    kind: 'sync',
    subject: 'parties',
    state: 'done',
    verdict: 'complete',
    evidence: {},
    queuedAt: '2026-03-01T02:00:00Z',
    startedAt: '2026-03-01T02:00:00Z',
    finishedAt: '2026-03-01T02:01:00Z',
    attempts: 1,
    ...changes,
  };
}

export function wholeFacts(): MirrorFacts {
  return {
    ...EMPTY_FACTS,
    sourceUrl: 'https://ledger.example.com/',
    nights: { ...EMPTY_FACTS.nights, nextAt: '2026-03-02T02:00:00.000Z' },
    streams: EMPTY_FACTS.streams.map((stream) => ({
      ...stream,
      verdict: 'complete',
      checkedAt: '2026-03-01T02:11:00Z',
      asOfTime: '2026-03-01T02:00:00Z',
      rows: '1234567',
    })),
  };
}

export async function openFixedConsole(
  facts: Facts,
  everyMs: number,
  {
    answers,
    token,
    readToken,
    progress = async () => [],
    ...parts
  }: FixedParts = {},
): Promise<FixedConsole> {
  const moving: ConsoleParts = {
    ...NO_CONSOLE,
    everyMs,
    get settings() {
      return facts.settings;
    },
    preview: async () => FIRST_NIGHT,
    ...parts,
  };
  const start = async (port: number): ReturnType<typeof listen> => {
    const server = await apiWithoutDatabase({
      console: moving,
      token,
      readToken,
      jobs: jobsOf({
        progress: { read: progress },
        source: { id: 'source', url: 'https://ledger.example.com/' },
      }),
      answers: {
        'read what is going on': () => [{ found: facts.live }],
        'list what was quarantined': ([rowsMax]: [number]) =>
          facts.live.quarantined.slice(0, rowsMax),
        ...answers,
      },
      status: {
        facts: async () => facts.status,
        runs: async () => facts.runs,
        logs: async () => ({ lines: [], next: undefined }),
        run: async (id) => facts.runs.find((one) => one.runId === id),
      },
    });
    return listen(server, { host: '127.0.0.1', port, token });
  };
  let server = await start(0);
  const { url } = server;
  return {
    url,
    facts,
    interrupt: async () => {
      await server[Symbol.asyncDispose]();
    },
    resume: async () => {
      server = await start(Number(new URL(url).port));
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}
