/** What a nightly run that began now would ask the source, and how long that should take. Nothing is asked. */
import type { Config } from '../../config/environment.ts';
import { readNightlyScope } from './nightly-exports.ts';
import type { JobDeps } from '../job.ts';

/** Requests for the newest page and one that joins it, of each of the two lists, and one request for `network`. */
const LIST_REQUESTS = 5;

export interface NightlyPreview {
  /** Nothing is known yet: the first sync asks for every page, and how many there are nobody knows. */
  readonly isFirst: boolean;
  readonly lists: { readonly requests: number };
  readonly exports: {
    readonly due: number;
    readonly asked: number;
    readonly deferred: number;
    readonly notDue: number;
    readonly quarantined: number;
  };
  readonly requests: number;
  readonly seconds: number;
  readonly ratePerSecond: number;
}

/** The lists cost a request or two each where little is new; every due party costs one export. */
export async function describeNightly(
  jobs: Pick<JobDeps, 'plans' | 'nightlyParties' | 'nightlyExportsMax'>,
  { sourceRate }: Pick<Config, 'sourceRate'>,
): Promise<NightlyPreview> {
  const { scope, estimate } = await readNightlyScope(jobs);
  const { asked, deferred, notDue } = await jobs.plans.preview(scope, jobs.nightlyExportsMax);
  const { isFirst, quarantined, secondsPerExport } = estimate;
  const requests = asked + LIST_REQUESTS;
  return {
    isFirst,
    lists: { requests: LIST_REQUESTS },
    exports: { due: asked + deferred, asked, deferred, notDue, quarantined },
    requests,
    seconds: Math.ceil(Math.max(requests / sourceRate, asked * (secondsPerExport ?? 0))),
    ratePerSecond: sourceRate,
  };
}
