/** A run as clients are told of it: one terminal status, whether trying again helps, and where to look. */
import type { RunDocument } from '../http/ports.ts';

export const RUN_KINDS = ['sync', 'export', 'load', 'nightly', 'verify'] as const;
const UUID = { type: 'string', format: 'uuid' } as const;
const TEXT_OR_NULL = { type: ['string', 'null'] } as const;
const OPEN_OBJECT = { type: 'object', additionalProperties: true } as const;

export const RUN_SCHEMA = {
  type: 'object',
  properties: {
    id: UUID,
    runId: UUID,
    parentRunId: TEXT_OR_NULL,
    kind: { type: 'string', enum: RUN_KINDS },
    subject: { type: 'string' },
    state: { type: 'string', enum: ['queued', 'running', 'done', 'cancelled'] },
    status: { type: 'string', enum: ['queued', 'running', 'succeeded', 'failed', 'cancelled'] },
    verdict: { ...TEXT_OR_NULL, enum: ['complete', 'incomplete', 'suspicious', 'failed', null] },
    retryable: { type: 'boolean', description: 'Whether the same order may end better another time.' },
    error: {
      type: ['object', 'null'],
      properties: { code: { type: 'string' }, message: { type: 'string' } },
    },
    evidence: OPEN_OBJECT,
    queuedAt: { type: 'string' },
    startedAt: TEXT_OR_NULL,
    finishedAt: TEXT_OR_NULL,
    attempts: { type: 'integer' },
    links: OPEN_OBJECT,
  },
  required: [
    'id',
    'runId',
    'kind',
    'subject',
    'state',
    'status',
    'verdict',
    'retryable',
    'evidence',
    'queuedAt',
  ],
} as const;

export type RunStatus = 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';

export interface DescribedRun extends RunDocument {
  readonly id: string;
  readonly status: RunStatus;
  readonly retryable: boolean;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly links: Readonly<Record<string, string>>;
}

export function describeRun(run: RunDocument): DescribedRun {
  const { runId: id, state, verdict } = run;
  const self = `/mirror/runs/${id}`;
  return {
    ...run,
    id,
    status: state === 'done' ? (verdict === 'complete' ? 'succeeded' : 'failed') : state,
    retryable: isRetryable(run),
    error: errorOf(run),
    links: { self, events: `${self}/events`, logs: `${self}/logs` },
  };
}

export function isOver({ state }: Pick<RunDocument, 'state'>): boolean {
  return state === 'done' || state === 'cancelled';
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
