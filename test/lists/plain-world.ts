/**
 * Syncs against the plain source, over HTTP and without waiting, judged by its oracle.
 */
import { errorCode } from '../../src/errors/errors.ts';
import type { Verdict } from '../../src/errors/verdict.ts';
import type {
  ListName,
  ListSource,
  ResumePointStore,
} from '../../src/lists/ports.ts';
import { openSource, type Source } from '../../src/source/source-client.ts';
import { judgeList, type Judgement } from './plain-source/oracle.ts';
import type { PlainSource } from './plain-source/start.ts';
import { localState, sourceConfig } from '../support/source-config.ts';
import type { SyncWorld } from './sync-world.ts';

/** Time passes by itself wherever the client waits. */
const HASTY_CLOCK = (() => {
  let aheadMs = 0;
  return {
    nowMs: (): number => performance.now() + aheadMs,
    sleep: async (delayMs: number): Promise<void> => {
      aheadMs += delayMs;
    },
  };
})();

export function openPlainSource(url: string): Source {
  return openSource(sourceConfig(url), {
    ...localState(HASTY_CLOCK),
    clock: HASTY_CLOCK,
  });
}

export interface PlainRun {
  readonly verdict: Verdict;
  readonly evidence: Readonly<Record<string, unknown>>;
  readonly judgement: Judgement;
  readonly requests: number;
}

export interface PlainRequest {
  readonly list: ListName;
  readonly pageSize: number;
  readonly isAudit?: boolean;
  readonly resumePoints?: ResumePointStore;
  readonly acceptNewNetwork?: boolean;
  readonly acceptShrunk?: boolean;
}

const CEILING = { rows: 5_000, requests: 1_500 };

/**
 * One sync; what the source says in errors is a verdict too, as the frame of a run makes
 * it.
 */
export async function syncPlain(
  world: SyncWorld,
  plain: PlainSource,
  lists: ListSource,
  { resumePoints, ...request }: PlainRequest,
): Promise<PlainRun> {
  const { list } = request;
  const atStart = plain.snapshot(list);
  const before = plain.requests.length;
  const deps = {
    ceiling: CEILING,
    ...(resumePoints === undefined ? {} : { resumePoints }),
  };
  const ended = await world
    .sync(lists, request, { deps })
    .catch((error: unknown) => ({
      verdict: 'failed' as const,
      evidence: {
        error: errorCode(error),
        message: error instanceof Error ? error.message : String(error),
      },
    }));
  const held = distinct(await world.held(list));
  const canonical = (key: string): string =>
    /^[0-9a-f]{64}$/i.test(key) ? key.toLowerCase() : key;
  const truth = (
    snapshot: ReturnType<PlainSource['snapshot']>,
  ): typeof snapshot => ({
    rows: snapshot.rows.map(({ key, age }) => ({ key: canonical(key), age })),
    ever: new Set([...snapshot.ever].map(canonical)),
  });
  return {
    ...ended,
    judgement: judgeList({
      held,
      atStart: truth(atStart),
      atEnd: truth(plain.snapshot(list)),
    }),
    requests: plain.requests
      .slice(before)
      .filter((asked) => asked.list === list).length,
  };
}

function distinct(keys: readonly string[]): string[] {
  return [...new Set(keys)];
}
