/**
 * Fixes the source's clock for a run. All exports of a run close their ledgers at the
 * same instant, however often its jobs are delivered.
 */
import { z } from 'zod';
import type { SourceClock } from '../exports/planning/source-clock.ts';
import { instant } from '../ledger/json-fields.ts';
import type { ClockQuestion, JobDeps } from './job.ts';
import type { Run } from './store/run-store.ts';

/**
 * A block height, as a decimal string of up to 20 digits (the source counts in 64 bits).
 */
const blockHeight = z.codec(z.string().regex(/^\d{1,20}$/), z.bigint(), {
  decode: BigInt,
  encode: String,
});

const storedClock = z.object({
  seen: instant,
  closedTo: instant,
  from: z.enum(['source', 'guessed']),
  height: blockHeight.optional(),
  answeredAt: instant.optional(),
});

/**
 * Reads the source's clock once per run and stores it with the run, so that a resumed run
 * closes its ledgers at the same instant.
 */
export async function fixClock(
  run: Run,
  deps: JobDeps,
  question: ClockQuestion,
): Promise<SourceClock> {
  const stored = storedClock.safeParse(run.params['clock']);
  if (stored.success) return stored.data;
  const clock = await deps.stages.clock(question);
  await deps.runs.keep(run.runId, { clock: storedClock.encode(clock) });
  return clock;
}
