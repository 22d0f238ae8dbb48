/**
 * A run as everybody is told of it: by `--json`, over HTTP and in the schema that ships (docs/run.schema.json). One
 * terminal status, whether trying again helps, what came of it up to when, and where to look. Rows, bytes, entries and
 * segments are decimal text wherever they stand; other counts are numbers.
 */
import type { DescribedRun, RunDocument } from './run-schema.ts';
import type { Run } from './store/run-store.ts';

export function describeRun(run: RunDocument): DescribedRun {
  const { runId: id, state, verdict } = run;
  const self = `/mirror/runs/${id}`;
  const evidence = writeCountsAsText(run.evidence) as DescribedRun['evidence'];
  const error = errorIn(run.evidence);
  return {
    ...run,
    evidence,
    id,
    status: state === 'done' ? (verdict === 'complete' ? 'succeeded' : 'failed') : state,
    retryable: isRetryable(run),
    rows: asText(selectEvidence(run, evidence)[run.kind === 'nightly' ? 'newRows' : 'rows']),
    asOf: asText(selectEvidence(run, evidence)[run.kind === 'sync' ? 'asOfTime' : 'closedTo']),
    error: error && { code: error.code, message: error.message },
    links: { self, events: `${self}/events`, logs: `${self}/logs` },
  };
}

export function toDocument(run: Run): RunDocument {
  const { scheduleKey: _key, params: _params, heartbeatAt: _at, ...rest } = run;
  const { cancelRequested: _isTold, jobId: _jobId, ...document } = rest;
  return document;
}

/** What `--json` and a notice say of a run; the read API says the same. */
export function runDocument(run: Run): Readonly<Record<string, unknown>> {
  return { ...describeRun(toDocument(run)) };
}

export function isOver({ state }: Pick<RunDocument, 'state'>): boolean {
  return state === 'done' || state === 'cancelled';
}

/** A nightly run is as far as its exports. */
function selectEvidence({ kind }: RunDocument, evidence: DescribedRun['evidence']): DescribedRun['evidence'] {
  const exports = evidence['exports'];
  if (kind !== 'nightly') return evidence;
  return typeof exports === 'object' && exports !== null ? (exports as DescribedRun['evidence']) : {};
}

function asText(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

const UNBOUNDED =
  /(?:^|[a-z](?=[A-Z]))(?:[Rr]ows|[Bb]ytes|[Ee]ntries|[Ss]egments)(?![a-z]|Per)|^effectsContradicted$/;

/** What may outgrow a JavaScript number is text, also where it is small. */
function writeCountsAsText(value: unknown, key = ''): unknown {
  if (typeof value === 'number')
    return UNBOUNDED.test(key) && Number.isInteger(value) ? String(value) : value;
  if (Array.isArray(value)) return value.map((inner) => writeCountsAsText(inner, key));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [name, writeCountsAsText(inner, name)]),
  );
}

/** What was incomplete, or met a service that was away, may be complete later; a contradiction will not go by itself. */
function isRetryable({ state, verdict, evidence }: RunDocument): boolean {
  if (state !== 'done') return state === 'cancelled';
  return verdict === 'incomplete' || errorIn(evidence)?.isUnreachable === true;
}

/** The error that ended a run. */
export function errorIn(
  evidence: RunDocument['evidence'],
): { readonly code: string; readonly message: string; readonly isUnreachable: boolean } | null {
  const error = evidence['error'] as Readonly<Record<string, unknown>> | null | undefined;
  if (typeof error !== 'object' || error === null || !('code' in error)) return null;
  const { code, message = '', unreachable } = error;
  return { code: String(code), message: String(message), isUnreachable: unreachable === true };
}
