/**
 * The JSON Schema of a run, for OpenAPI and for the published schema file. Commands that
 * only read runs do not load it.
 */
import { z } from 'zod';
import { VERDICTS } from '../errors/verdict.ts';

export const RUN_KINDS = [
  'sync',
  'export',
  'load',
  'nightly',
  'verify',
] as const;
const STATES = ['queued', 'running', 'done', 'cancelled'] as const;
export type RunKind = (typeof RUN_KINDS)[number];
export type RunState = (typeof STATES)[number];
const UUID = z.string().meta({ format: 'uuid' });
const TEXT_OR_NULL = z.string().nullable();
const TIME_OR_NULL = TEXT_OR_NULL.meta({ format: 'date-time' });

export const RUN = z.object({
  id: UUID,
  runId: UUID,
  parentRunId: TEXT_OR_NULL,
  kind: z.enum(RUN_KINDS),
  subject: z.string(),
  sourceUrl: TEXT_OR_NULL.optional(),
  state: z.enum(STATES),
  status: z.enum(['queued', 'running', 'succeeded', 'failed', 'cancelled']),
  verdict: z.enum(VERDICTS).nullable(),
  retryable: z
    .boolean()
    .describe('Whether the same order may end better another time.'),
  rows: TEXT_OR_NULL.meta({
    pattern: String.raw`^\d+$`,
    description:
      'Ledger entries published (those among them that replace published ones are ' +
      '`replacedRows` of the evidence), rows of a list, or rows loaded: decimal ' +
      'text.',
  }),
  asOf: TIME_OR_NULL.describe('What it was about is complete up to here.'),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  evidence: z
    .looseObject({})
    .describe(
      'Rows, bytes, entries and segments are decimal text; other counts are numbers.',
    ),
  queuedAt: z.string().meta({ format: 'date-time' }),
  startedAt: TIME_OR_NULL,
  finishedAt: TIME_OR_NULL,
  attempts: z.int32().min(0),
  links: z.record(z.string(), z.string()),
});

export type DescribedRun = z.infer<typeof RUN>;

/** The public part of a row of `mirror.runs`; times are RFC 3339. */
export type RunDocument = Omit<
  DescribedRun,
  'id' | 'status' | 'retryable' | 'rows' | 'asOf' | 'error' | 'links'
>;
