/**
 * Sends notices to NOTIFY_URL when a run starts, waits because the source is unavailable,
 * ends, or succeeds after the last one of its kind did not. NOTIFY_ON selects them by
 * kind of run or by event.
 *
 * Each notice is delivered or abandoned on its own, so a receiver that rejects one still
 * gets the next. Delivery is at least once. A notice that the receiver can never accept
 * is abandoned immediately; any other, a day after its run ended. The body is JSON,
 * signed as specified by Standard Webhooks if NOTIFY_SECRET is set, or one line in
 * Slack's format.
 */
import { createHmac, randomUUID } from 'node:crypto';
import pRetry from 'p-retry';
import { errorLine, PermanentError, RetryableError } from '../errors/errors.ts';
import { withoutSecrets } from '../json/json-value.ts';
import type { Log } from '../logging/log.ts';
import type { Ambient } from '../network/proxy-rules.ts';
import { ProxyError } from '../network/tunnel.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import { openHttpClient } from '../network/http-client.ts';
import type { Database } from '../postgres/database.ts';
import { isOver, describeRun } from './run-document.ts';
import type { Run, RunStore } from './store/run-store.ts';
import { readUntoldRuns, type UntoldRun } from './store/run-facts.ts';
import { readAbsence } from './store/source-absence.ts';

const RUNS_PER_CALL_MAX = 50;
/**
 * After this many consecutive failures the receiver counts as unreachable, and the
 * remaining notices wait for the next call.
 */
const FAILURES_IN_A_ROW_MAX = 5;
const POST_TIMEOUT_MS = 10_000;
const RETRIES = 2;
const SECRET_PREFIX = /^whsec_/;

/**
 * Status codes that mean the receiver will never accept this request. Others, such as 401
 * or 404, go away once the receiver or NOTIFY_URL is fixed.
 */
const NEVER_ACCEPTED: ReadonlySet<number> = new Set([
  400, 406, 411, 413, 414, 415, 422, 431,
]);

/** Event types as sent to receivers, and the words for them in a chat message. */
const WORDS = {
  'run.started': 'started',
  'run.waiting': 'waits for the source',
  'run.finished': 'ended complete',
  'run.recovered': 'ended complete again',
  'run.failed': undefined,
  'run.cancelled': 'was cancelled',
} as const;
type NoticeType = keyof typeof WORDS;

export interface Notice {
  /**
   * Identical in every delivery of this notice, so that receivers can drop duplicates.
   */
  readonly id: string;
  readonly type: NoticeType;
  /** The run's document, as in the API and `--json`. */
  readonly run: Readonly<Record<string, unknown>>;
}

/** Where notices are sent, and which ones to send. */
export interface Notices {
  /** @throws PermanentError if the receiver can never accept the notice */
  readonly post: (notice: Notice) => Promise<void>;
  /** From NOTIFY_ON: kinds of runs, and types of events. */
  readonly wanted: readonly string[];
}

interface NoticeDeps {
  readonly db: Database;
  readonly runs: RunStore;
  readonly log: Log;
  readonly notices?: Notices | undefined;
}

/**
 * Sends the notices that have not been sent yet. Those that cannot be sent now are left
 * to a later call.
 */
export async function sendNotices({
  db,
  runs,
  log,
  notices,
}: NoticeDeps): Promise<void> {
  if (notices === undefined) return;

  let failures = 0;
  for (const untold of await readUntoldRuns(db, RUNS_PER_CALL_MAX)) {
    const run = await runs.get(untold.runId);
    if (run === undefined) continue;

    for (const { notice, marks } of listNotices(run, untold)) {
      const isWanted = isWantedNotice(notice, run, notices.wanted);
      const isSettled = !isWanted || (await deliver(notice, run, notices, log));
      if (isSettled) await runs.keep(run.runId, marks);
      if (isWanted) failures = isSettled ? 0 : failures + 1;
      if (!isSettled)
        await runs.keep(run.runId, {
          notifiedLastAt: new Date().toISOString(),
        });
    }
    if (failures >= FAILURES_IN_A_ROW_MAX) return;
  }
}

interface PendingNotice {
  readonly notice: Notice;
  /** Recorded with the run once the notice is delivered or abandoned. */
  readonly marks:
    | { readonly told: 'started' | 'ended' }
    | { readonly toldWait: string };
}

function listNotices(run: Run, untold: UntoldRun): readonly PendingNotice[] {
  const { runId } = run;
  const pending: PendingNotice[] = [];
  const begun: Run = {
    ...run,
    state: 'running',
    verdict: null,
    finishedAt: null,
    evidence: {},
  };

  if (!untold.isStartTold) {
    const id = `run_${runId}_started`;
    const notice: Notice = { id, type: 'run.started', run: describeRun(begun) };
    pending.push({ notice, marks: { told: 'started' } });
  }

  const absence = readAbsence(run);
  if (untold.isWaitUntold && absence !== undefined && !isOver(run)) {
    const { since } = absence;
    const id = `run_${runId}_waiting_${Date.parse(since)}`;
    const waiting: Run = { ...begun, evidence: { sourceAway: absence } };
    const notice: Notice = {
      id,
      type: 'run.waiting',
      run: describeRun(waiting),
    };
    pending.push({ notice, marks: { toldWait: since } });
  }

  if (isOver(run)) {
    const type = classifyEnd(run, untold);
    const notice: Notice = { id: `run_${runId}`, type, run: describeRun(run) };
    pending.push({ notice, marks: { told: 'ended' } });
  }
  return pending;
}

function isWantedNotice(
  { type }: Notice,
  { kind }: Run,
  wanted: readonly string[],
): boolean {
  return wanted.some(
    (word) => word === 'all' || word === kind || `run.${word}` === type,
  );
}

/**
 * Sends one notice.
 * @returns whether it is settled, that is, delivered or abandoned
 */
async function deliver(
  notice: Notice,
  { runId }: Run,
  { post }: Notices,
  log: Log,
): Promise<boolean> {
  const { type } = notice;

  try {
    await post(notice);
    return true;
  } catch (error) {
    const reason = errorLine(error);
    if (error instanceof PermanentError) {
      log.warn(
        { runId, type, reason },
        'A notice was refused permanently and is given up',
      );
      return true;
    }

    log.warn(
      { runId, type, reason },
      'A notice could not be posted to NOTIFY_URL',
    );
    return false;
  }
}

function classifyEnd(
  { state, verdict }: Run,
  { verdictBefore }: UntoldRun,
): NoticeType {
  if (state === 'cancelled') return 'run.cancelled';
  if (verdict !== 'complete') return 'run.failed';
  return verdictBefore === null || verdictBefore === 'complete'
    ? 'run.finished'
    : 'run.recovered';
}

/** The values of NOTIFY_URL and NOTIFY_SECRET. */
export interface NotifyAddress {
  readonly href: string;
  /** The key that signs notices: `whsec_` and base64. */
  readonly secret: string | undefined;
}

/**
 * Status codes that a receiver returns once the address or its credentials are no longer
 * valid.
 */
const ADDRESS_REFUSED: ReadonlySet<number> = new Set([401, 403, 404, 410]);
/** Status codes that a receiver returns if it does not accept the signature. */
const SIGNATURE_REFUSED: ReadonlySet<number> = new Set([400, 401, 403]);

export interface PostOptions {
  readonly version: string;
  /** The value of NOTIFY_SECRET, used if there is no `address`. */
  readonly secret?: string | undefined;
  /** The value of NOTIFY_FORMAT. */
  readonly format?: 'json' | 'slack' | undefined;
  readonly onFailure?: () => void;
  /**
   * The receiver's address and the key, if they can change; they are read again when the
   * receiver rejects them. Many receivers use part of the address as the secret.
   */
  readonly address?: RotatingSecret<NotifyAddress> | undefined;
  /** How long the receiver may take to respond. Default: 10 s. */
  readonly timeoutMs?: number;
  /** Proxies and CAs, from the environment or `.env`. */
  readonly ambient?: Ambient;
}

/** What became of a test notice. */
export interface TestResult {
  /** The receiver's host; the rest of the address may be a secret. */
  readonly host: string;
  readonly outcome: 'accepted' | 'refused' | 'unreachable';
  /** The status of the receiver's response; null if there was none. */
  readonly status: number | null;
  /** The result in a sentence, with what to do about it. */
  readonly detail: string;
}

/**
 * Sends one test notice, once and whatever NOTIFY_ON selects, and reports what the
 * receiver did with it. It goes to the same address as real notices, through the same
 * proxy, in the same format, and with the same signature.
 */
export async function sendTestNotice(
  url: URL,
  options: PostOptions,
): Promise<TestResult> {
  const { host } = url;
  const id = `test_${randomUUID()}`;
  const words = 'this is a test notice; nothing has happened';
  const body = JSON.stringify(
    options.format === 'slack'
      ? { text: `ledger-mirror: ${words}` }
      : {
          type: 'notice.test',
          id,
          sentAt: new Date().toISOString(),
          message: words,
        },
  );
  try {
    const status = await openSender(url, options)(id, body);
    const detail = `${host} accepted the test notice ${id} (status ${status})`;
    return { host, outcome: 'accepted', status, detail };
  } catch (error) {
    const isOurs =
      error instanceof RetryableError || error instanceof PermanentError;
    const status = isOurs ? error.meta['status'] : undefined;
    return {
      host,
      outcome: typeof status === 'number' ? 'refused' : 'unreachable',
      status: typeof status === 'number' ? status : null,
      detail: errorLine(error),
    };
  }
}

/**
 * @returns a function that throws RetryableError `NOTIFY_FAILED` if the receiver does not
 *   accept a notice now, and PermanentError `NOTIFY_REFUSED` if it never will
 */
export function openPoster(url: URL, options: PostOptions): Notices['post'] {
  const post = openSender(url, options);
  return async ({ id, type, run }) => {
    const message = withoutSecrets({ type, ...run });
    const body = JSON.stringify(
      options.format === 'slack'
        ? { text: formatLine(type, message) }
        : message,
    );
    const send = () => post(id, body);
    try {
      await pRetry(send, {
        retries: RETRIES,
        randomize: true,
        // Retrying a receiver that hangs would triple the delay for the other notices.
        shouldRetry: ({ error }) =>
          !(error instanceof PermanentError) &&
          !isTimeout(error.cause) &&
          !isRefusedByProxy(error.cause),
      });
    } catch (error) {
      options.onFailure?.();
      throw error;
    }
  };
}

/**
 * Returns a function that posts one body, once, and returns the receiver's status. It
 * fails as the function of `openPoster` does.
 */
function openSender(
  url: URL,
  options: PostOptions,
): (id: string, body: string) => Promise<number> {
  const { timeoutMs = POST_TIMEOUT_MS } = options;
  // Idle connections do not keep the process alive, so nothing has to close this.
  const client = openHttpClient(options.ambient ?? {});
  const { address } = options;
  const post = async (id: string, body: string): Promise<number> => {
    const sent = address?.current;
    const secret = sent === undefined ? options.secret : sent.secret;
    const { target, authorization } = readTarget(sent?.href ?? url.href);
    const signed = makeHeaders(id, body, { ...options, secret });
    const headers = { ...signed, ...authorization };
    const { host } = target;
    const signal = AbortSignal.timeout(timeoutMs);
    // Redirects are not followed, because a body signed for one receiver must not reach
    // another.
    const {
      statusCode: status,
      proxy,
      body: rest,
    } = await client
      .request(target, { method: 'POST', headers, body, signal })
      .catch((error: unknown) => {
        throw unanswered(host, timeoutMs, error);
      });
    await rest.dump();
    if (status >= 200 && status < 300) return status;

    const isSignatureRefused =
      secret !== undefined && SIGNATURE_REFUSED.has(status);
    const isRefused = isSignatureRefused || ADDRESS_REFUSED.has(status);
    if (isRefused && sent !== undefined && address?.renew(sent) === true)
      return post(id, body);
    // Only proxies return this status. Retrying with the same password might lock the
    // account.
    if (status === 407 && proxy !== undefined)
      throw unanswered(host, timeoutMs, new ProxyError(proxy, status));
    const meta = { host, status };
    const isRedirect = status >= 300 && status < 400;
    const message =
      `Cannot post the notice to ${host}: status ${status}` +
      `${isRedirect ? ', and redirects are not followed' : ''}; ` +
      (isRefused && address?.isFromFile === true
        ? address.advice
        : `check NOTIFY_URL${isSignatureRefused ? ' and NOTIFY_SECRET' : ''}`);
    if (NEVER_ACCEPTED.has(status))
      throw new PermanentError(message, { code: 'NOTIFY_REFUSED', meta });
    throw new RetryableError(message, { code: 'NOTIFY_FAILED', meta });
  };
  return post;
}

/** Splits an address. Its credentials are sent as Basic authorization, as is usual. */
function readTarget(href: string) {
  const target = new URL(href);
  const pair = `${decodeURIComponent(target.username)}:${decodeURIComponent(target.password)}`;
  target.username = '';
  target.password = '';
  const basic = Buffer.from(pair).toString('base64');
  const authorization: Record<string, string> =
    pair === ':' ? {} : { authorization: `Basic ${basic}` };
  return { target, authorization };
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError';
}

function unanswered(
  host: string,
  timeoutMs: number,
  cause: unknown,
): RetryableError {
  const state = isTimeout(cause)
    ? `no answer within ${timeoutMs / 1_000} s`
    : errorLine(cause);
  return new RetryableError(
    `Cannot post the notice to ${host}: ${state}; check NOTIFY_URL`,
    { code: 'NOTIFY_FAILED', meta: { host }, cause },
  );
}

function isRefusedByProxy(error: unknown): boolean {
  return (
    error instanceof ProxyError &&
    error.status !== undefined &&
    error.status < 500
  );
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

function formatLine(
  type: NoticeType,
  run: Readonly<Record<string, unknown>>,
): string {
  const [kind, subject, verdict, runId] = [
    'kind',
    'subject',
    'verdict',
    'runId',
  ].map((name) => String(run[name]));
  return (
    `ledger-mirror: ${kind} run (${subject}) ${WORDS[type] ?? `ended ${verdict}`}; ` +
    `run ${runId}`
  );
}
