/**
 * Describes a run as `--json`, the API and notices show it, following the published
 * schema (docs/run.schema.json): one terminal status, whether a retry may help, the
 * result with the time up to which it is complete, and links. Rows, bytes, entries and
 * segments are always decimal strings; other counts are numbers.
 */
import type { DescribedRun, RunDocument } from './run-schema.ts';

/** Returns the public description of a run, without its parameters, job and heartbeat. */
export function describeRun(run: RunDocument): DescribedRun {
  const { runId, parentRunId, kind, subject, sourceUrl, state, verdict } = run;
  const { queuedAt, startedAt, finishedAt, attempts } = run;
  const about = {
    runId,
    parentRunId,
    kind,
    subject,
    sourceUrl,
    state,
    verdict,
  };
  const times = { queuedAt, startedAt, finishedAt, attempts };
  const self = `/mirror/runs/${runId}`;
  const evidence = writeCountsAsText(run.evidence) as DescribedRun['evidence'];
  const error = errorIn(run.evidence);
  // A nightly run is complete up to the point its exports reached.
  const told: Readonly<Record<string, unknown>> =
    kind === 'nightly'
      ? { ...(evidence['exports'] as object | undefined) }
      : evidence;
  const outcome = verdict === 'complete' ? 'succeeded' : 'failed';
  return {
    ...about,
    ...times,
    evidence,
    id: runId,
    status: state === 'done' ? outcome : state,
    retryable: isRetryable(run),
    rows: asText(told[kind === 'nightly' ? 'newRows' : 'rows']),
    asOf: asText(told[kind === 'sync' ? 'asOfTime' : 'closedTo']),
    error: error && { code: error.code, message: error.message },
    links: { self, events: `${self}/events`, logs: `${self}/logs` },
  };
}

export function isOver({ state }: Pick<RunDocument, 'state'>): boolean {
  return state === 'done' || state === 'cancelled';
}

function asText(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

const UNBOUNDED =
  /(?:^|[a-z](?=[A-Z]))(?:[Rr]ows|[Bb]ytes|[Ee]ntries|[Ss]egments)(?![a-z]|Per)|^effectsContradicted$/;

/**
 * Writes counts as strings if they may be too large for a JavaScript number, even when
 * they are small.
 */
function writeCountsAsText(value: unknown, key = ''): unknown {
  if (typeof value === 'number')
    return UNBOUNDED.test(key) && Number.isInteger(value)
      ? String(value)
      : value;
  if (Array.isArray(value))
    return value.map((inner) => writeCountsAsText(inner, key));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name,
      writeCountsAsText(inner, name),
    ]),
  );
}

/**
 * Whether the same request may succeed later. It may after an incomplete run or an
 * unavailable service, but a contradiction will not go away by itself.
 */
function isRetryable({ state, verdict, evidence }: RunDocument): boolean {
  if (state !== 'done') return state === 'cancelled';
  return verdict === 'incomplete' || errorIn(evidence)?.isUnreachable === true;
}

/** Returns the error that ended a run. */
export function errorIn({ error }: RunDocument['evidence']): {
  code: string;
  message: string;
  isUnreachable: boolean;
  isSourceAway: boolean;
} | null {
  if (typeof error !== 'object' || error === null || !('code' in error))
    return null;
  const {
    code,
    message = '',
    unreachable,
    sourceAway,
  }: Readonly<Record<string, unknown>> = { ...error };
  return {
    code: String(code),
    message: String(message),
    isUnreachable: unreachable === true,
    isSourceAway: sourceAway === true,
  };
}
