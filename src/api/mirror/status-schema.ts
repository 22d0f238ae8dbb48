/**
 * The schema of `/mirror/status`, for the server and for OpenAPI. Times are RFC 3339,
 * counts are decimal strings.
 */
import { z } from 'zod';
import { VERDICTS } from '../../errors/verdict.ts';
import { TEXT_OR_NULL } from '../kit/routes.ts';

const LIST = z.enum(['parties', 'checkpoints']);

const STREAM = z.object({
  name: z.enum([...LIST.options, 'ledger']),
  verdict: z
    .enum(VERDICTS)
    .nullable()
    .describe('Verdict of the last run that ended; null if none has.'),
  checkedAt: TEXT_OR_NULL,
  asOfBlock: TEXT_OR_NULL.describe(
    'The source’s block that the stream is proven up to; decimal text.',
  ),
  asOfTime: TEXT_OR_NULL.describe(
    'The whole stream is proven up to then; null if a part of it is not.',
  ),
  rows: z
    .string()
    .describe('Distinct rows of a list, entries of the ledger; decimal text.'),
});

const DOUBT = z.object({
  code: z.string(),
  message: z.string(),
  since: z.string(),
});

const GAP = z.object({
  belowKey: z.string(),
  aboveKey: z.string(),
  foundAt: z.string(),
  isConfirmed: z
    .boolean()
    .describe('An audit has found that the source does not serve the rows.'),
});

const LIST_FACTS = z
  .object({
    list: LIST,
    doubts: z.array(DOUBT),
    gaps: z.array(GAP),
    lastAuditAt: TEXT_OR_NULL.describe(
      'Null before the first complete reading.',
    ),
  })
  .describe('What is known against a list.');

const WORK = z
  .object({
    workers: z.int32().describe('Long-lived processes that work jobs.'),
    nextSlot: TEXT_OR_NULL.describe(
      'When the next nightly run starts; null if no worker is running that would ' +
        'start it.',
    ),
    missedSlot: TEXT_OR_NULL.describe(
      'A nightly run that never began; a worker makes it up.',
    ),
    schedule: TEXT_OR_NULL.describe('In force; null if no worker is running.'),
    otherSchedules: z
      .array(z.string())
      .describe('Of workers that were given others: not in force.'),
  })
  .describe('Workers and schedule.');

const NIGHTS = z
  .object({
    nextAt: TEXT_OR_NULL.describe(
      'When the next nightly run starts; null if no worker is running that would ' +
        'start it.',
    ),
    nextAuditAt: TEXT_OR_NULL.describe('The same of the audits of the lists.'),
    missedAt: TEXT_OR_NULL.describe(
      'The time of a nightly run that never began; a worker makes it up.',
    ),
    last: z
      .object({
        runId: z.string(),
        verdict: z.enum(VERDICTS),
        startedAt: TEXT_OR_NULL,
        finishedAt: z.string(),
      })
      .nullable()
      .describe('The last nightly run that ended.'),
    lastCompleteAt: TEXT_OR_NULL.describe(
      'When a nightly run last ended complete.',
    ),
    running: z
      .object({
        runId: z.string(),
        startedAt: TEXT_OR_NULL,
        awaitedSource: z
          .object({ since: z.string(), reason: z.string() })
          .nullable(),
      })
      .nullable()
      .describe('The nightly run that is queued, or that a process works on.'),
  })
  .describe(
    'Nightly runs: the next, the missed, the last and the running one.',
  );

const LEDGER = z
  .object({
    segments: z.string(),
    bytes: z.string(),
    parties: z.string(),
    notLoaded: z.string(),
    quarantined: z.string(),
  })
  .describe('Decimal texts.');

const LAST_VERIFY = z
  .object({ verdict: z.enum(VERDICTS), at: z.string(), runId: z.string() })
  .nullable()
  .describe('The last verification that was ordered.');

/**
 * The facts of the mirror (src/status/mirror-facts.ts), and the conclusions drawn from
 * them.
 */
export const MIRROR_STATUS = z.object({
  sourceUrl: TEXT_OR_NULL,
  epoch: z.int32(),
  streams: z.array(STREAM),
  ledger: LEDGER,
  coverage: z.looseObject({}).describe('Which ledgers are covered.'),
  knownGaps: z.string(),
  lists: z.array(LIST_FACTS),
  work: WORK,
  nights: NIGHTS,
  openRuns: z.string(),
  awaitedSource: z
    .object({ since: z.string(), reason: z.string() })
    .nullable()
    .describe('The nightly run waits for the source: since when, and why.'),
  openNightlyRun: TEXT_OR_NULL.describe(
    'Id of the nightly run that is queued, or that a process works on.',
  ),
  lastVerify: LAST_VERIFY,
  proof: z
    .object({ publicKey: z.string(), nights: z.int32() })
    .nullable()
    .describe(
      'The log of nights: the key with which anybody checks it, and how many there are.',
    ),
  ledgerDoubts: z
    .array(
      z.object({ code: z.string(), message: z.string(), since: z.string() }),
    )
    .describe('Reasons to doubt ledgers that are not overcome.'),
  lakeCommitsDecidedBy: z
    .enum(['store', 'database'])
    .describe(
      '`database` if the object store would accept two writers’ versions of one commit.',
    ),
  whole: z
    .boolean()
    .describe(
      'Both lists, and the ledger of every listed party, are proven complete.',
    ),
  complete: z
    .boolean()
    .describe('The same for the configured parties, and no more is claimed.'),
  reasons: z
    .array(z.string())
    .describe('Codes of what keeps it from being complete; empty if it is.'),
  hasNetwork: z
    .boolean()
    .describe(
      '`network`, a party without a ledger, is one of the listed parties.',
    ),
  sentence: z.string(),
  attention: z.array(z.looseObject({})),
});
