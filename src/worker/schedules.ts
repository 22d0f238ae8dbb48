/** The schedules of nightly runs and audits: kept in the queue's store, put back when that has lost them. */
import { JOBS, type JobDeps } from '../runs/job.ts';
import { makeUpMissedAudits, makeUpMissedRun } from '../runs/nightly/make-up-missed.ts';
import type { Schedule } from '../runs/nightly/schedule.ts';
import type { Queues } from '../queue/queues.ts';

export interface Schedules {
  readonly nightly: Schedule;
  readonly audit: Schedule;
}

interface ScheduleDeps {
  readonly queues: Pick<Queues, 'keepSchedule'>;
  readonly jobs: JobDeps;
  readonly schedules: Schedules;
}

/** To be called every half minute: a flushed store has its schedules back within a minute. */
export async function keepSchedules({ queues, jobs, schedules }: ScheduleDeps): Promise<void> {
  const source = jobs.source === undefined ? {} : { source: jobs.source.id };
  const wanted = [
    { id: 'nightly', job: JOBS.nightly, when: schedules.nightly, data: { scheduled: true, ...source } },
    ...(['parties', 'checkpoints'] as const).map((list) => ({
      id: `audit-${list}`,
      job: JOBS.sync,
      when: schedules.audit,
      data: { audit: list, ...source },
    })),
  ];
  for (const { id, job, when, data } of wanted) {
    const isMade = await queues.keepSchedule(job.queue, id, when, { name: job.name, data });
    if (isMade) jobs.log.info({ schedule: id, ...when }, 'Schedule set');
  }
}

/** What was due while nobody was there, or has failed. */
export async function makeUp({ jobs, schedules }: Omit<ScheduleDeps, 'queues'>): Promise<void> {
  await makeUpMissedRun(schedules.nightly, jobs, Date.now());
  await makeUpMissedAudits(schedules.audit, jobs, Date.now());
}
