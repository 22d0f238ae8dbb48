/**
 * Tells NOTIFY_URL of runs that begin and end, and of one that ends well after one that did not: of those that
 * NOTIFY_ON names, by their kind or by what happened. At least once each, in their order; what cannot be told is
 * given up a day after the run ended. A notice is JSON, signed as Standard Webhooks where NOTIFY_SECRET is set, or has
 * the form that Slack takes.
 */
import { createHmac } from 'node:crypto';
import pRetry from 'p-retry';
import { errorLine, RetryableError } from '../errors/errors.ts';
import { withoutSecrets } from '../json/json-value.ts';
import type { Log } from '../logging/log.ts';
import type { Database } from '../postgres/database.ts';
import { isOver, describeRun } from './run-document.ts';
import type { Run, RunStore } from './store/run-store.ts';
import { readUntoldRuns, type UntoldRun } from './store/run-facts.ts';

const AT_ONCE_MAX = 50;
const POST_TIMEOUT_MS = 10_000;
const RETRIES = 2;
const SECRET_PREFIX = /^whsec_/;

/** What happened to a run, as receivers know it; and in a chat, for people. */
const WORDS = {
  'run.started': 'started',
  'run.finished': 'ended complete',
  'run.recovered': 'ended complete again',
  'run.failed': undefined,
  'run.cancelled': 'was cancelled',
} as const;
type NoticeType = keyof typeof WORDS;

export interface Notice {
  /** The same however often it is sent. */
  readonly id: string;
  readonly type: NoticeType;
  /** Its document, as everybody is told of it. */
  readonly run: Readonly<Record<string, unknown>>;
}

/** Whom to tell, and of what. */
export interface Notices {
  readonly post: (notice: Notice) => Promise<void>;
  /** Of NOTIFY_ON: kinds of runs, and what happens to them. */
  readonly wanted: readonly string[];
}

type NoticeDeps = Readonly<{
  db: Database;
  runs: RunStore;
  log: Log;
  notices?: Notices | undefined;
}>;

/** Sends what has not been sent yet; what cannot be sent now is tried again at the next call. */
export async function sendNotices({ db, runs, log, notices }: NoticeDeps): Promise<void> {
  if (notices === undefined) return;
  const tell = async (
    run: Run,
    id: string,
    type: NoticeType,
    told: 'started' | 'ended',
  ): Promise<void> => {
    const isWanted = (word: string) =>
      word === 'all' || word === run.kind || `run.${word}` === type;
    if (notices.wanted.some(isWanted))
      await notices.post({ id, type, run: describeRun(run) });
    await runs.keep(run.runId, { told });
  };
  for (const untold of await readUntoldRuns(db, AT_ONCE_MAX)) {
    const { runId } = untold;
    const run = await runs.get(runId);
    if (run === undefined) continue;
    try {
      const begun: Run = {
        ...run,
        state: 'running',
        verdict: null,
        finishedAt: null,
        evidence: {},
      };
      if (!untold.isStartTold)
        await tell(begun, `run_${runId}_started`, 'run.started', 'started');
      if (isOver(run)) await tell(run, `run_${runId}`, classifyEnd(run, untold), 'ended');
    } catch (error) {
      log.warn(
        { runId, reason: errorLine(error) },
        'A notice could not be posted to NOTIFY_URL',
      );
      return;
    }
  }
}

function classifyEnd({ state, verdict }: Run, { verdictBefore }: UntoldRun): NoticeType {
  if (state === 'cancelled') return 'run.cancelled';
  if (verdict !== 'complete') return 'run.failed';
  return verdictBefore === null || verdictBefore === 'complete'
    ? 'run.finished'
    : 'run.recovered';
}

export interface PostOptions {
  readonly version: string;
  /** NOTIFY_SECRET: `whsec_` and base64. */
  readonly secret?: string | undefined;
  /** NOTIFY_FORMAT. */
  readonly format?: 'json' | 'slack' | undefined;
  readonly onFailure?: () => void;
}

/** @returns a function that throws RetryableError `NOTIFY_FAILED` where the receiver does not accept */
export function openPoster(url: URL, options: PostOptions): Notices['post'] {
  const target = new URL(url);
  // `fetch` refuses a URL with a user: it goes where every other client puts it.
  target.username = '';
  target.password = '';
  const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  const basic = Buffer.from(pair).toString('base64');
  const authorization = pair !== ':' && { authorization: `Basic ${basic}` };
  const post = async (headers: Record<string, string>, body: string): Promise<void> => {
    const signal = AbortSignal.timeout(POST_TIMEOUT_MS);
    const response = await fetch(target, {
      method: 'POST',
      headers,
      body,
      redirect: 'error',
      signal,
    });
    await response.body?.cancel();
    if (response.ok) return;
    const meta = { host: target.host, status: response.status };
    const message = `Cannot post the notice to ${meta.host}: status ${meta.status}; check NOTIFY_URL`;
    throw new RetryableError(message, { code: 'NOTIFY_FAILED', meta });
  };
  return async ({ id, type, run }) => {
    const message = withoutSecrets({ type, ...run });
    const body = JSON.stringify(
      options.format === 'slack' ? { text: formatLine(type, message) } : message,
    );
    const send = () =>
      post({ ...makeHeaders(id, body, options), ...authorization }, body);
    try {
      await pRetry(send, { retries: RETRIES, randomize: true });
    } catch (error) {
      options.onFailure?.();
      throw error;
    }
  };
}

function makeHeaders(
  id: string,
  body: string,
  { version, secret }: PostOptions,
): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1_000));
  const headers = {
    'content-type': 'application/json',
    'user-agent': `ledger-mirror/${version}`,
    'webhook-id': id,
    'webhook-timestamp': timestamp,
  };
  if (secret === undefined) return headers;
  const key = Buffer.from(secret.replace(SECRET_PREFIX, ''), 'base64');
  const signature = createHmac('sha256', key)
    .update(`${id}.${timestamp}.${body}`)
    .digest('base64');
  return { ...headers, 'webhook-signature': `v1,${signature}` };
}

function formatLine(type: NoticeType, run: Readonly<Record<string, unknown>>): string {
  const [kind, subject, verdict, runId] = ['kind', 'subject', 'verdict', 'runId'].map(
    (name) => String(run[name]),
  );
  return `ledger-mirror: ${kind} run (${subject}) ${WORDS[type] ?? `ended ${verdict}`}; run ${runId}`;
}
