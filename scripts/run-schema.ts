/**
 * The JSON Schema of the document that a command prints with `--json` if it starts a run,
 * whatever its exit code.
 */
import { z } from 'zod';
import { RUN } from '../src/runs/run-schema.ts';

const Run = RUN.meta({ id: 'Run' });
const Runs = z
  .object({
    verdict: z.string(),
    evidence: z.looseObject({}),
    runs: z.array(Run),
  })
  .meta({ id: 'Runs', title: 'Two lists are two runs' });
const Failure = z
  .strictObject({ error: z.object({ code: z.string(), message: z.string() }) })
  .meta({ id: 'Failure', title: 'Nothing ran' });

export const RUN_OUTPUT_SCHEMA = z.toJSONSchema(
  z.union([Run, Runs, Failure]).meta({
    title: 'What a run says of itself: ledger-mirror --json, and the read API',
  }),
  { io: 'input' },
);
