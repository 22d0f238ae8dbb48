/**
 * One line of live progress: a bar where `total` is known. Counts are text so that none loses digits. Other versions
 * may have written what lies in the resume state.
 */
import { z } from 'zod';

const line = z.object({
  label: z.string(),
  done: z.string(),
  total: z.string().optional(),
  unit: z.enum(['rows', 'bytes', 'parties', 'segments', 'files']),
  note: z.string().optional(),
  /** One piece of what another line counts: it ends without a word of its own. */
  isPart: z.boolean().optional(),
});

export type ProgressLine = Readonly<z.output<typeof line>>;
export const storedLines = z.array(line);
