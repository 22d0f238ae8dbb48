/**
 * Posts a notice to NOTIFY_URL: as JSON, signed as Standard Webhooks where NOTIFY_SECRET is set, or in the form
 * that Slack takes. The same notice has the same id, however often it is sent.
 */
import { createHmac } from 'node:crypto';
import pRetry from 'p-retry';
import { RetryableError } from '../../core/errors.ts';
import { hideSecretsIn } from '../../core/json-value.ts';

const POST_TIMEOUT_MS = 10_000;
const RETRIES = 2;
const SECRET_PREFIX = /^whsec_/;

/** What happened to a run, as receivers know it. */
export type NoticeType = 'run.started' | 'run.finished' | 'run.recovered' | 'run.failed' | 'run.cancelled';

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

export interface PostOptions {
  readonly version: string;
  /** NOTIFY_SECRET: `whsec_` and base64. */
  readonly secret?: string | undefined;
  /** NOTIFY_FORMAT. */
  readonly format?: 'json' | 'slack' | undefined;
}

/** @returns a function that throws RetryableError `NOTIFY_FAILED` where the receiver does not accept */
export function openPoster(url: URL, options: PostOptions): (notice: Notice) => Promise<void> {
  const { target, authorization } = splitCredentials(url);
  return ({ id, type, run }) => {
    const message = hideSecretsIn({ type, ...run });
    const body = JSON.stringify(options.format === 'slack' ? { text: formatLine(message) } : message);
    return pRetry(() => post(target, { ...makeHeaders(id, body, options), ...authorization }, body), {
      retries: RETRIES,
      randomize: true,
    });
  };
}

async function post(target: URL, headers: Record<string, string>, body: string): Promise<void> {
  const signal = AbortSignal.timeout(POST_TIMEOUT_MS);
  const response = await fetch(target, { method: 'POST', headers, body, redirect: 'error', signal });
  await response.body?.cancel();
  if (response.ok) return;
  throw new RetryableError(
    `Cannot post the notice to ${target.host}: status ${response.status}; check NOTIFY_URL`,
    { code: 'NOTIFY_FAILED', meta: { host: target.host, status: response.status } },
  );
}

/** `fetch` refuses a URL with a user: it goes where every other client puts it. */
function splitCredentials(url: URL): { target: URL; authorization: Record<string, string> } {
  const target = new URL(url);
  target.username = '';
  target.password = '';
  if (url.username === '' && url.password === '') return { target, authorization: {} };
  const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return { target, authorization: { authorization: `Basic ${Buffer.from(pair).toString('base64')}` } };
}

function makeHeaders(id: string, body: string, { version, secret }: PostOptions): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1_000));
  const headers = {
    'content-type': 'application/json',
    'user-agent': `ledger-mirror/${version}`,
    'webhook-id': id,
    'webhook-timestamp': timestamp,
  };
  if (secret === undefined) return headers;
  const key = Buffer.from(secret.replace(SECRET_PREFIX, ''), 'base64');
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
  return { ...headers, 'webhook-signature': `v1,${signature}` };
}

/** For people, in a chat. */
function formatLine({ type, kind, subject, verdict, runId }: Readonly<Record<string, unknown>>): string {
  const words: Readonly<Record<string, string>> = {
    'run.started': 'started',
    'run.finished': 'ended complete',
    'run.recovered': 'ended complete again',
    'run.cancelled': 'was cancelled',
  };
  const what = words[String(type)] ?? `ended ${String(verdict)}`;
  return `ledger-mirror: ${String(kind)} run (${String(subject)}) ${what}; run ${String(runId)}`;
}
