/**
 * A run as everybody is told of it: by `--json`, over HTTP and in the schema that ships (docs/run.schema.json). One
 * terminal status, whether trying again helps, what came of it up to when, and where to look. Rows, bytes, entries and
 * segments are decimal text wherever they stand; other counts are numbers.
 */
import type { Verdict } from '../core/verdict.ts';
import type { RunKind, RunState } from '../postgres/schema.ts';
import type { Run } from './store/run.ts';

export const RUN_KINDS: readonly RunKind[] = ['sync', 'export', 'load', 'nightly', 'verify'];

/** One row of `mirror.runs`; times are RFC 3339. */
export interface RunDocument {
  readonly runId: string;
  readonly parentRunId: string | null;
  readonly kind: string;
  readonly subject: string;
  /** That it asked; null where it asks none, absent where it was not looked up. */
  readonly sourceUrl?: string | null;
  readonly state: RunState;
  readonly verdict: Verdict | null;
  readonly evidence: Readonly<Record<string, unknown>>;
  readonly queuedAt: string;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly attempts: number;
}

export interface DescribedRun extends RunDocument {
  readonly id: string;
  readonly status: 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';
  readonly retryable: boolean;
  /** New ledger entries, rows of a list, rows loaded; decimal text. */
  readonly rows: string | null;
  /** What it was about is complete up to here. */
  readonly asOf: string | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly links: Readonly<Record<string, string>>;
}

const UUID = { type: 'string', format: 'uuid' } as const;
const TEXT_OR_NULL = { type: ['string', 'null'] } as const;
const TIME_OR_NULL = { ...TEXT_OR_NULL, format: 'date-time' } as const;

const RUN_PROPERTIES = {
  id: UUID,
  runId: UUID,
  parentRunId: TEXT_OR_NULL,
  kind: { type: 'string', enum: RUN_KINDS },
  subject: { type: 'string' },
  sourceUrl: TEXT_OR_NULL,
  state: { type: 'string', enum: ['queued', 'running', 'done', 'cancelled'] },
  status: { type: 'string', enum: ['queued', 'running', 'succeeded', 'failed', 'cancelled'] },
  verdict: { ...TEXT_OR_NULL, enum: ['complete', 'incomplete', 'suspicious', 'failed', null] },
  retryable: { type: 'boolean', description: 'Whether the same order may end better another time.' },
  rows: {
    ...TEXT_OR_NULL,
    pattern: '^\\d+$',
    description: 'New ledger entries, rows of a list, or rows loaded: decimal text.',
  },
  asOf: { ...TIME_OR_NULL, description: 'What it was about is complete up to here.' },
  error: {
    type: ['object', 'null'],
    properties: { code: { type: 'string' }, message: { type: 'string' } },
    required: ['code', 'message'],
  },
  evidence: {
    type: 'object',
    additionalProperties: true,
    description: 'Rows, bytes, entries and segments are decimal text; other counts are numbers.',
  },
  queuedAt: { type: 'string', format: 'date-time' },
  startedAt: TIME_OR_NULL,
  finishedAt: TIME_OR_NULL,
  attempts: { type: 'integer' },
  links: { type: 'object', additionalProperties: { type: 'string' } },
} as const;

/** JSON Schema of a run; OpenAPI's component of the same name. */
export const RUN_SCHEMA = {
  $id: 'Run',
  type: 'object',
  properties: RUN_PROPERTIES,
  required: Object.keys(RUN_PROPERTIES).filter((name) => name !== 'sourceUrl'),
} as const;

/** What a command that runs something says with `--json`, whatever its exit code. */
export const RUN_OUTPUT_SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'What a run says of itself: ledger-mirror --json, and the read API',
  anyOf: [{ $ref: '#/$defs/Run' }, { $ref: '#/$defs/Runs' }, { $ref: '#/$defs/Failure' }],
  $defs: {
    Run: withoutId(RUN_SCHEMA),
    Runs: {
      title: 'Two lists are two runs',
      type: 'object',
      properties: {
        verdict: { type: 'string' },
        evidence: { type: 'object' },
        runs: { type: 'array', items: { $ref: '#/$defs/Run' } },
      },
      required: ['verdict', 'evidence', 'runs'],
    },
    Failure: {
      title: 'Nothing ran',
      type: 'object',
      properties: {
        error: {
          type: 'object',
          properties: { code: { type: 'string' }, message: { type: 'string' } },
          required: ['code', 'message'],
        },
      },
      required: ['error'],
      additionalProperties: false,
    },
  },
} as const;

function withoutId({ $id: _id, ...schema }: typeof RUN_SCHEMA): Readonly<Record<string, unknown>> {
  return schema;
}

export function describeRun(run: RunDocument): DescribedRun {
  const { runId: id, state, verdict } = run;
  const self = `/mirror/runs/${id}`;
  const evidence = oneForm(run.evidence) as DescribedRun['evidence'];
  return {
    ...run,
    evidence,
    id,
    status: state === 'done' ? (verdict === 'complete' ? 'succeeded' : 'failed') : state,
    retryable: isRetryable(run),
    rows: textOf(part(run, evidence)[run.kind === 'nightly' ? 'newRows' : 'rows']),
    asOf: textOf(part(run, evidence)[run.kind === 'sync' ? 'asOfTime' : 'closedTo']),
    error: errorOf(run),
    links: { self, events: `${self}/events`, logs: `${self}/logs` },
  };
}

/** Of a run as it is kept. */
export function toDocument(run: Run): RunDocument {
  const { runId, kind, subject, state, evidence, queuedAt, attempts } = run;
  return {
    runId,
    parentRunId: run.parentRunId ?? null,
    kind,
    subject,
    sourceUrl: run.sourceUrl ?? null,
    state,
    verdict: run.verdict ?? null,
    evidence,
    queuedAt,
    startedAt: run.startedAt ?? null,
    finishedAt: run.finishedAt ?? null,
    attempts,
  };
}

/** What `--json` and a notice say of a run; the read API says the same. */
export function runDocument(run: Run): Readonly<Record<string, unknown>> {
  return { ...describeRun(toDocument(run)) };
}

export function isOver({ state }: Pick<RunDocument, 'state'>): boolean {
  return state === 'done' || state === 'cancelled';
}

/** A nightly run is as far as its exports. */
function part({ kind }: RunDocument, evidence: DescribedRun['evidence']): DescribedRun['evidence'] {
  const exports = evidence['exports'];
  if (kind !== 'nightly') return evidence;
  return typeof exports === 'object' && exports !== null ? (exports as DescribedRun['evidence']) : {};
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

const UNBOUNDED =
  /(?:^|[a-z](?=[A-Z]))(?:[Rr]ows|[Bb]ytes|[Ee]ntries|[Ss]egments)(?![a-z]|Per)|^effectsContradicted$/;

/** What may outgrow a JavaScript number is text, also where it is small. */
function oneForm(value: unknown, key = ''): unknown {
  if (typeof value === 'number')
    return UNBOUNDED.test(key) && Number.isInteger(value) ? String(value) : value;
  if (Array.isArray(value)) return value.map((inner) => oneForm(inner, key));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, oneForm(inner, name)]));
}

/** What was incomplete, or met a service that was away, may be complete later; a contradiction will not go by itself. */
function isRetryable({ state, verdict, evidence }: RunDocument): boolean {
  if (state !== 'done') return state === 'cancelled';
  const error = evidence['error'];
  const isAway = typeof error === 'object' && error !== null && 'unreachable' in error;
  return verdict === 'incomplete' || isAway;
}

function errorOf({ evidence }: RunDocument): DescribedRun['error'] {
  const error = evidence['error'];
  if (typeof error !== 'object' || error === null || !('code' in error)) return null;
  const message = 'message' in error ? String(error.message) : '';
  return { code: String(error.code), message };
}
