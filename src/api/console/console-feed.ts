/** What moves in the console: one snapshot for all who look, sent to each whenever it changed. */
import type { FastifyInstance } from 'fastify';
import type { ConsoleParts, Upkeep } from './console-data.ts';
import { type LiveFacts, readLive } from './store/work-statements.ts';
import type { FollowEvents } from '../http/events.ts';
import { openRoutes } from '../http/routes.ts';
import type { MirrorStatus } from '../mirror/glance.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import type { Rows } from '../../postgres/rows.ts';
import type { JobDeps } from '../../runs/job.ts';
import { exportKey } from '../../runs/progress.ts';

const EVERY_MS = 500;
const DISK_PARTS_MIN = 20n;
/** Heartbeats are invisible to a page: a snapshot this often tells it that the line is alive. */
const SILENT_MS_MAX = 5_000;

interface FeedDeps {
  readonly rows: Rows;
  readonly console: ConsoleParts;
  readonly jobs: Pick<JobDeps, 'progress'>;
}

/**
 * Adds `/console/events`.
 * @param everyMs between two looks at the database; tests look more often
 */
export function addConsoleFeed(
  server: FastifyInstance,
  { rows, console: parts, jobs: { progress } }: FeedDeps,
  status: () => Promise<MirrorStatus>,
  follow: FollowEvents,
  everyMs = EVERY_MS,
): void {
  const snapshot = sharedLoad(async () => {
    const [facts, known, upkeep] = await Promise.all([readLive(rows), status(), parts.upkeep()]);
    const { openRuns, inFlight, ...others } = facts;
    const attention = [...known.attention, ...idleAttention(facts), ...diskAttention(upkeep)];
    const live = openRuns.map(async (run) => ({
      ...run,
      progress: run.state === 'running' ? await progress.read(run.runId) : [],
    }));
    const exports = inFlight.map(async (ledger) => ({
      ...ledger,
      progress: await progress.read(exportKey(ledger.partyId)),
    }));
    return {
      ...others,
      status: { ...known, attention },
      nextNightlyRun: parts.nextNightlyRun(),
      upkeep,
      live: await Promise.all(live),
      inFlight: await Promise.all(exports),
    };
  }, everyMs / 2);
  const textOf = (found: object): string => JSON.stringify({ ...found, now: undefined });
  const following = { everyMs, textOf, silentMsMax: SILENT_MS_MAX };
  openRoutes(server)('GET /console/events', {}, (_request, reply) => follow(reply, snapshot, following));
}

/** Before an export finds no room for its spool. */
function diskAttention({ diskFreeBytes, diskBytes }: Upkeep): MirrorStatus['attention'] {
  if (diskFreeBytes === null || diskBytes === null) return [];
  if (BigInt(diskFreeBytes) * DISK_PARTS_MIN >= BigInt(diskBytes)) return [];
  return [
    {
      what: 'the disk of DATA_DIR is nearly full',
      why: `less than one part in ${DISK_PARTS_MIN} of it is free`,
      todo: 'Make room, or move DATA_DIR to a larger disk: exports are written there before they are published.',
    },
  ];
}

/** Work that waits for nobody is what a person must know of first; a queue that is only long is not. */
function idleAttention({ workers, openRuns }: LiveFacts): MirrorStatus['attention'] {
  const waiting = openRuns.filter((run) => run.state === 'queued' && run.parentRunId === null).length;
  if (workers > 0 || waiting === 0) return [];
  return [
    {
      what: `${waiting} ${waiting === 1 ? 'run waits' : 'runs wait'} and no worker is running`,
      why: 'work is queued, and no process takes it',
      todo: 'Start `ledger-mirror worker` (or `ledger-mirror up`) with the same settings.',
    },
  ];
}
