/**
 * Posts a report to NOTIFY_URL: as JSON, signed as Standard Webhooks where NOTIFY_SECRET is set, or in the form
 * that Slack takes. The same report has the same id, however often it is sent.
 */
import { createHmac } from 'node:crypto';
import pRetry from 'p-retry';
import { RetryableError } from '../core/errors.ts';
import { hideSecretsIn } from '../core/secrets.ts';

const POST_TIMEOUT_MS = 10_000;
const RETRIES = 2;
const SECRET_PREFIX = /^whsec_/;

export interface PostOptions {
  readonly version: string;
  /** NOTIFY_SECRET: `whsec_` and base64. */
  readonly secret?: string | undefined;
  /** NOTIFY_FORMAT. */
  readonly format?: 'json' | 'slack' | undefined;
}

type Report = Readonly<Record<string, unknown>>;

/** @returns a function that throws RetryableError `NOTIFY_FAILED` where the receiver does not accept */
export function posterTo(url: URL, options: PostOptions): (report: Report) => Promise<void> {
  const { target, authorization } = withoutCredentials(url);
  return (report) => {
    const message = hideSecretsIn({ type: typeOf(report), ...report });
    const body = JSON.stringify(options.format === 'slack' ? { text: lineOf(message) } : message);
    return pRetry(() => post(target, { ...headersOf(report, body, options), ...authorization }, body), {
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
    `Cannot post the report to ${target.host}: status ${response.status}; check NOTIFY_URL`,
    { code: 'NOTIFY_FAILED', meta: { host: target.host, status: response.status } },
  );
}

/** `fetch` refuses a URL with a user: it goes where every other client puts it. */
function withoutCredentials(url: URL): { target: URL; authorization: Record<string, string> } {
  const target = new URL(url);
  target.username = '';
  target.password = '';
  if (url.username === '' && url.password === '') return { target, authorization: {} };
  const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return { target, authorization: { authorization: `Basic ${Buffer.from(pair).toString('base64')}` } };
}

function headersOf(report: Report, body: string, { version, secret }: PostOptions): Record<string, string> {
  const id = `run_${String(report['runId'])}`;
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

function typeOf({ verdict }: Report): string {
  return verdict === 'complete' ? 'run.finished' : 'run.failed';
}

/** For people, in a chat. */
function lineOf(report: Report): string {
  const { kind, subject, verdict, runId } = report;
  return `ledger-mirror: ${String(kind)} run (${String(subject)}) ended ${String(verdict)}; run ${String(runId)}`;
}
