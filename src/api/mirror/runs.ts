/**
 * `/mirror/status` and `/mirror/runs`: the state of the mirror, and its runs. Each
 * idempotency key starts at most one run, and the same work never runs twice at the same
 * time.
 */
import { hash } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { PARTY_ID_BYTES_MAX } from '../../ledger/ids.ts';
import { VERDICTS } from '../../errors/verdict.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { enqueueRun } from '../../runs/enqueue.ts';
import { describeRun, isOver } from '../../runs/run-document.ts';
import { RUN_KINDS, type RunDocument } from '../../runs/run-schema.ts';
import type { NewRun } from '../../runs/store/run-store.ts';
import {
  followChanges,
  followEvents,
  goneSignal,
  limitOpen,
} from '../kit/events.ts';
import { readTypedInstants } from '../../time/typed-range.ts';
import { MIRROR_STATUS } from './status-schema.ts';
import type { MirrorDeps } from './ports.ts';
import {
  BY_ID,
  openRoutes,
  named,
  nameSchemas,
  TEXT_OR_NULL,
  UUID,
} from '../kit/routes.ts';
import { StatusError } from '../kit/status-error.ts';
import {
  summarizeStatus,
  type MirrorStatus,
} from '../../status/status-summary.ts';

/**
 * How long a status stays fresh. Counting a hundred thousand ledgers takes a few tenths
 * of a second, so all readers share the result.
 */
const STATUS_MAX_AGE_MS = 5_000;
/**
 * How long a stale status may be served while the next one is being read, so that pollers
 * such as the console do not have to wait.
 */
const STATUS_USABLE_MS = 10_000;
const LOG_LINES_MAX = 500;
const WAIT_SECONDS_MAX = 60;
const WAITERS_MAX = 64;
/** Matches the position of a line in a run's log. */
const PLACE = /^\d{1,18}$/;
const KEY = /^[\x21-\x7e]{1,200}$/;
/** The schema shared by the routes that follow a run. */
export const EVENT_STREAM = { params: BY_ID, produces: ['text/event-stream'] };
export const FOLLOWING = { everyMs: 250, isLast: isOver };

/** The body of `POST /mirror/runs`. */
const RUN_ORDER = z.strictObject({
  kind: z.enum(['nightly', 'sync', 'audit', 'load', 'verify']),
  list: z
    .enum(['parties', 'checkpoints', 'all'])
    .default('all')
    .describe('Of sync and audit.'),
  rebuild: z
    .boolean()
    .default(false)
    .describe('Of load: the manifest tables first.'),
  deep: z.boolean().default(false).describe('Of verify: every row.'),
  onConflict: z
    .enum(['attach', 'fail'])
    .default('attach')
    .describe('Where the same work is open: take its run, or answer 409.'),
});
type RunOrder = z.infer<typeof RUN_ORDER>;

const RUN = named('Run');
const LIST = {
  summary: 'Runs, newest first, with verdict and evidence',
  querystring: z.strictObject({
    kind: z.enum(RUN_KINDS).optional(),
    verdict: z.enum(VERDICTS).optional(),
    subject: z
      .string()
      .max(PARTY_ID_BYTES_MAX)
      .optional()
      .describe('The beginning of the subject, such as that of a party’s id.'),
    since: z
      .string()
      .min(1)
      .max(40)
      .optional()
      .describe(
        'Only runs that started then or later: an instant, a day, a month, ' +
          '`yesterday` or `-30d`, in UTC.',
      ),
    until: z
      .string()
      .min(1)
      .max(40)
      .optional()
      .describe('Only runs that started before; in the same forms.'),
    before: UUID.optional().describe(
      'Only runs queued before this one: the next page.',
    ),
    limit: z.int().min(1).max(500).default(50),
  }),
  response: { 200: z.object({ runs: z.array(RUN) }) },
};
const START = {
  summary: 'Start a run',
  description:
    'With an Idempotency-Key the same request starts one run, however often it is ' +
    'sent: 202 if it was queued now, 200 with the run that is there already.',
  body: named<RunOrder>('RunOrder'),
  response: { 200: RUN, 202: RUN },
};
const READ = {
  summary:
    'One run; with `wait`, once it has ended or so many seconds have passed',
  params: BY_ID,
  querystring: z.strictObject({
    wait: z.int().min(0).max(WAIT_SECONDS_MAX).default(0),
  }),
  response: { 200: RUN },
};
const LOGS = {
  summary: "A run's log lines, oldest first",
  params: BY_ID,
  querystring: z.strictObject({ after: z.string().regex(PLACE).default('0') }),
  response: {
    200: z.object({ lines: z.array(z.looseObject({})), next: TEXT_OR_NULL }),
  },
};

const EVENTS = {
  summary: 'A run as it goes on, as server-sent events',
  ...EVENT_STREAM,
};
const CANCEL = {
  summary:
    'Cancel a run: 202 if it ends at its next safe point, 200 if it has ended',
  params: BY_ID,
  response: { 200: RUN, 202: RUN },
};
const STATUS = {
  summary: 'Is the mirror whole, and as of when',
  response: { 200: named('Status') },
};

/**
 * The idempotency key of a request: the same name refers to the same run. `hash` is
 * computed from the content of the request.
 */
type OrderKey = Readonly<Record<'name' | 'hash', string>>;

/**
 * Starts a run, or finds the run that the request refers to.
 * @throws StatusError 409, 422 or 503
 */
async function startRun(
  order: RunOrder,
  key: OrderKey | undefined,
  { jobs, isAttended }: MirrorDeps,
) {
  const startOne = async (wanted: NewRun, ownKey: OrderKey | undefined) => {
    const isExclusive = order.onConflict === 'fail';
    const { run, found } = await jobs.runs.order(wanted, {
      key: ownKey,
      isExclusive,
    });
    const { runId } = run;
    if (found === 'other') {
      const state = 'it was used for another order; use a new one';
      throw new StatusError('failedPrecondition', `Idempotency-Key: ${state}`);
    }
    if (found === 'open' && isExclusive)
      throw new StatusError(
        'alreadyExists',
        `run ${runId} is already doing the same`,
      );
    // Also queue a run that has no job: its first request was interrupted before the job
    // was queued.
    if (found === 'none' || run.jobId === null) await enqueueRun(run, jobs);
    return { runId, isNew: found === 'none' };
  };
  const asksSource =
    order.kind === 'nightly' || order.kind === 'sync' || order.kind === 'audit';
  const url = jobs.source?.url;
  if (asksSource && url === undefined)
    throw unavailable(
      'this process has no SOURCE_URL, so it cannot order work that ' +
        'queries the source',
    );
  if (!(await isAttended(asksSource ? url : undefined)))
    throw unavailable('no running worker can take it; start one and try again');
  const [first, second] = runsOf(order);
  const started = await startOne(first, key);
  if (second === undefined) return started;
  // A request for both lists becomes two runs, so the second run gets its own key.
  const { isNew } = await startOne(
    second,
    key && { ...key, name: `${key.name} 1` },
  );
  return { ...started, isNew: started.isNew || isNew };
}

function unavailable(state: string): StatusError {
  return new StatusError('unavailable', state);
}

function runsOf({
  kind,
  list,
  rebuild,
  deep,
}: RunOrder): readonly [NewRun, NewRun?] {
  if (kind === 'nightly') return [{ kind, subject: 'ordered' }];
  if (kind === 'load')
    return [{ kind, subject: 'warehouse and lake', params: { rebuild } }];
  if (kind === 'verify')
    return [
      { kind, subject: deep ? 'deep' : 'sums', params: { isOrdered: true } },
    ];
  const sync = {
    kind: 'sync',
    params: { full: kind === 'audit', acceptNewNetwork: false },
  } as const;
  if (list !== 'all') return [{ ...sync, subject: list }];
  return [
    { ...sync, subject: 'parties' },
    { ...sync, subject: 'checkpoints' },
  ];
}

/**
 * Reads the idempotency key. It includes a hash of the request, so that reusing a key for
 * a different request is reported as an error.
 */
function keyOf(
  name: string | readonly string[] | undefined,
  { kind, list, rebuild, deep }: RunOrder,
): OrderKey | undefined {
  if (name === undefined) return undefined;
  if (typeof name === 'string' && KEY.test(name))
    return {
      name,
      hash: hash('sha256', JSON.stringify([kind, list, rebuild, deep])),
    };
  const accepted = 'give 1 to 200 printable characters without blanks';
  throw new StatusError('invalidArgument', `Idempotency-Key: ${accepted}`);
}

/** @throws StatusError 400 if a time cannot be read, or if the range is empty */
function readTimes(since: string | undefined, until: string | undefined) {
  const { start, end, problems } = readTypedInstants(
    { start: since, end: until },
    { start: 'since', end: 'until' },
  );
  if (problems.length > 0)
    // Parameters have no dashes before their names, as options have.
    throw new StatusError('invalidArgument', problems.join('; '));
  return { since: start, until: end };
}

/**
 * Returns a function that reads the status. All routes that show parts of it share the
 * result for a few seconds.
 */
export function shareStatus({
  status,
}: MirrorDeps): () => Promise<MirrorStatus> {
  return sharedLoad(
    async () => summarizeStatus(await status.facts()),
    STATUS_MAX_AGE_MS,
    STATUS_USABLE_MS,
  );
}

/** Adds the routes. */
export function addRuns(
  server: FastifyInstance,
  deps: MirrorDeps,
  status: () => Promise<MirrorStatus>,
): void {
  const { jobs, status: store } = deps;
  nameSchemas(server, { RunOrder: RUN_ORDER, Status: MIRROR_STATUS });
  const add = openRoutes(server, 'mirror');
  const mayWait = limitOpen(WAITERS_MAX);
  const find = async (id: string): Promise<RunDocument> => {
    const run = await store.run(id);
    if (run === undefined)
      throw new StatusError('notFound', 'no run has this id');
    return run;
  };
  add('GET /mirror/status', STATUS, () => status());
  add(
    'GET /mirror/runs',
    LIST,
    async ({ query: { subject: subjectPrefix, since, until, ...filter } }) => {
      const times = readTimes(since, until);
      const found = await store.runs({ ...filter, subjectPrefix, ...times });
      return { runs: found.map(describeRun) };
    },
  );
  add('POST /mirror/runs', START, async ({ headers, body }, reply) => {
    const { runId, isNew } = await startRun(
      body,
      keyOf(headers['idempotency-key'], body),
      deps,
    );
    const run = await find(runId);
    reply.code(isNew ? 202 : 200).header('location', `/mirror/runs/${runId}`);
    if (!isOver(run)) reply.header('retry-after', '5');
    return reply.send(describeRun(run));
  });
  add(
    'GET /mirror/runs/:id',
    READ,
    async ({ params: { id }, query: { wait } }, reply) => {
      let run = await find(id);
      if (wait === 0 || isOver(run)) return describeRun(run);
      if (!mayWait(reply)) {
        const state = `${WAITERS_MAX} requests wait already`;
        throw new StatusError(
          'resourceExhausted',
          `${state}; ask without wait`,
        );
      }
      const signal = AbortSignal.any([
        goneSignal(reply),
        AbortSignal.timeout(wait * 1_000),
      ]);
      for await (const now of followChanges(() => find(id), FOLLOWING, signal))
        run = now;
      return describeRun(run);
    },
  );
  add('GET /mirror/runs/:id/events', EVENTS, ({ params: { id } }, reply) => {
    const read = async () => ({
      ...describeRun(await find(id)),
      progress: await jobs.progress.read(id),
    });
    return followEvents(reply, read, FOLLOWING);
  });
  add('GET /mirror/runs/:id/logs', LOGS, async ({ params, query }) => {
    const { lines, next = null } = await store.logs(
      params.id,
      LOG_LINES_MAX,
      query.after,
    );
    return { lines, next };
  });
  add('DELETE /mirror/runs/:id', CANCEL, async ({ params: { id } }, reply) => {
    await find(id);
    await jobs.runs.requestCancel(id);
    const run = await find(id);
    return reply.code(isOver(run) ? 200 : 202).send(describeRun(run));
  });
}
