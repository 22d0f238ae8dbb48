/** What the read API tells of the mirror, and needs from the rest of it. Times are RFC 3339. */
import { z } from 'zod';
import type { ShownSetting } from '../../config/secrets.ts';
import type { Log } from '../../logging/log.ts';
import { VERDICTS } from '../../errors/verdict.ts';
import type { Rows } from '../../postgres/rows.ts';
import type { JobDeps } from '../../runs/job.ts';
import type { NightlyPreview } from '../../runs/nightly/nightly-preview.ts';
import type { RunReader } from '../../runs/store/run-reader.ts';
import type { FactsReader } from '../../status/mirror-facts.ts';
import type { MetricsRegistry, Probe } from '../../observability/metrics.ts';
import type { LakeQueries } from '../console/lake-queries.ts';
import { TEXT_OR_NULL } from '../kit/routes.ts';

const LIST = z.enum(['parties', 'checkpoints']);

const STREAM = z.object({
  name: z.enum([...LIST.options, 'ledger']),
  verdict: z
    .enum(VERDICTS)
    .nullable()
    .describe('Of the last run that ended; null where none has.'),
  checkedAt: TEXT_OR_NULL,
  asOfBlock: TEXT_OR_NULL.describe(
    'The source’s block that the stream is proven up to; decimal text.',
  ),
  asOfTime: TEXT_OR_NULL.describe(
    'All of it is proven up to then; null where a part of it is not.',
  ),
  rows: z
    .string()
    .describe('Distinct rows of a list, entries of the ledger; decimal text.'),
});

const LIST_FACTS = z
  .object({
    list: LIST,
    doubts: z.array(
      z.object({ code: z.string(), message: z.string(), since: z.string() }),
    ),
    gaps: z.array(
      z.object({
        belowKey: z.string(),
        aboveKey: z.string(),
        foundAt: z.string(),
        isConfirmed: z
          .boolean()
          .describe('An audit has found that the source does not serve the rows.'),
      }),
    ),
    lastAuditAt: TEXT_OR_NULL.describe('Null before the first complete reading.'),
  })
  .describe('What is known against a list.');

const WORK = z
  .object({
    workers: z.int32().describe('Long-lived processes that work jobs.'),
    nextSlot: TEXT_OR_NULL.describe('Null where nobody is there to begin it.'),
    missedSlot: TEXT_OR_NULL.describe(
      'A nightly run that never began; a worker makes it up.',
    ),
  })
  .describe('How the work stands.');

/** Everything the console's first glance needs. */
const MIRROR_FACTS = z.object({
  sourceUrl: TEXT_OR_NULL,
  epoch: z.int32(),
  streams: z.array(STREAM),
  ledger: z
    .object({
      segments: z.string(),
      bytes: z.string(),
      parties: z.string(),
      notLoaded: z.string(),
      quarantined: z.string(),
    })
    .describe('Decimal texts.'),
  coverage: z.looseObject({}).describe('Which ledgers are covered.'),
  knownGaps: z.string(),
  lists: z.array(LIST_FACTS),
  work: WORK,
  openRuns: z.string(),
  openNightlyRun: TEXT_OR_NULL.describe(
    'The id of the nightly run that is queued or under way.',
  ),
  lastVerify: z
    .object({ verdict: z.enum(VERDICTS), at: z.string(), runId: z.string() })
    .nullable()
    .describe('Of the last verification that somebody ordered.'),
  lakeCommitsDecidedBy: z
    .enum(['store', 'database'])
    .describe(
      'The database where the object store would let two writers put one commit.',
    ),
});

/** The same, with what is concluded from it. */
export const MIRROR_STATUS = MIRROR_FACTS.extend({
  whole: z
    .boolean()
    .describe('Both lists, and the ledger of every listed party, are proven complete.'),
  complete: z
    .boolean()
    .describe('The same for the configured parties, and no more is claimed.'),
  hasNetwork: z
    .boolean()
    .describe('`network`, a party without a ledger, is one of the listed parties.'),
  sentence: z.string(),
  attention: z.array(z.looseObject({})),
});

/** What the read API and the console read of the mirror. */
export interface StatusStore extends FactsReader, RunReader {}

/** What the console needs beside what the read API has anyway. */
export interface ConsoleParts {
  readonly lake: LakeQueries;
  readonly settings: readonly ShownSetting[];
  /** The next time the schedule fires; null where nothing is scheduled. */
  nextNightlyRun(): string | null;
  /** What a nightly run that began now would ask the source. */
  preview(): Promise<NightlyPreview>;
  upkeep(): Promise<Upkeep>;
  /** Between two looks at what goes on, while somebody watches: half a second, where no test looks more often. */
  readonly everyMs?: number;
}

/** What an operator looks after beside the runs. */
export interface Upkeep {
  /** Jobs that wait in the queues; null where they cannot be asked. */
  readonly jobsWaiting: number | null;
  /** Of the one that waits the longest, in seconds. */
  readonly oldestSeconds: number;
  /** When the lists are next read again from their oldest row; null where nothing is scheduled. */
  readonly nextAudit: string | null;
  /** Where DATA_DIR lies; decimal text, null where it cannot be told. */
  readonly diskFreeBytes: string | null;
  readonly diskBytes: string | null;
}

export interface ApiDeps {
  /** Of the lists, the console and the sessions. */
  readonly rows: Rows;
  readonly jobs: JobDeps;
  /** Whether a process that works jobs is there, of this source where it is named. */
  readonly isAttended: (sourceUrl: string | undefined) => Promise<boolean>;
  readonly status: StatusStore;
  readonly console: ConsoleParts;
  readonly probes: readonly Probe[];
  readonly metrics: MetricsRegistry;
  readonly log: Log;
}
