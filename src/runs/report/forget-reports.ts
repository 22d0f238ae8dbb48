/** Reports are kept as long as finished runs are, by whole months: none that is kept follows one that goes. */
import type { ObjectStore } from '../../objects/object-store.ts';
import { REPORTS_PREFIX } from './report-form.ts';

const REPORT_KEY = /^runs\/\d{8}T\d{6}Z\.[0-9a-f-]{36}\.json$/;

export async function forgetReports(
  objects: ObjectStore,
  retentionMs: number,
  signal: AbortSignal,
): Promise<void> {
  const keptFrom = new Date(Date.now() - retentionMs).toISOString().slice(0, '2023-05'.length);
  const kept = REPORTS_PREFIX + keptFrom.replace('-', '');
  for await (const { key } of objects.list(REPORTS_PREFIX, signal)) {
    if (key >= kept) return;
    // Others may keep theirs there as well.
    if (REPORT_KEY.test(key)) await objects.remove(key, signal);
  }
}
