/** `doctor`, `migrate`, `config`: show whether the mirror is set up correctly. */
import type { Config } from '../../config/environment.ts';
import { describeNextTimes } from '../../time/scheduled-times.ts';
import { describeOddParties } from '../../config/odd-parties.ts';
import { shownSettings } from '../../config/secrets.ts';
import { createLog } from '../../logging/log.ts';
import { EXIT, type Handler } from '../context.ts';
import { formatTable } from '../output/format.ts';

const MARK = {
  ok: 'ok     ',
  warning: 'warning',
  wrong: 'WRONG  ',
  skipped: 'skipped',
} as const;

/** Checks the configuration and everything it points to. */
export const doctor: Handler = async (_, context) => {
  const { runChecks: examine } = await import('../../app/doctor.ts');
  // Log only errors: the findings already report everything that would be logged as a
  // warning.
  const findings = await examine({ ...context, log: createLog('error') });
  const isWrong = findings.some((finding) => finding.state === 'wrong');
  const text = findings
    .map(({ what, state, detail }) => `${MARK[state]}  ${what}: ${detail}\n`)
    .join('');
  return {
    exitCode: isWrong ? EXIT.wrong : EXIT.done,
    document: { findings },
    text,
  };
};

/** Migrates the warehouse's schema, as every command does when it starts. */
export const migrate: Handler = async (_, context) => {
  const { openApp } = await import('../../app/app.ts');
  await using app = await openApp(context);
  const { migrated } = app;
  const text =
    migrated.length === 0
      ? 'The database is up to date.\n'
      : `Migrated: ${migrated.join(', ')}\n`;
  return { document: { migrated }, text };
};

/** Describes in words when each cron pattern fires next. */
function nextTimes({
  schedule,
  auditSchedule,
  scheduleTz: tz,
}: Config): string {
  const nowMs = Date.now();
  const nightly = describeNextTimes({ pattern: schedule, tz }, nowMs);
  const audits = describeNextTimes({ pattern: auditSchedule, tz }, nowMs);
  return `\nNext nightly runs: ${nightly}\nNext audits: ${audits}\n`;
}

/**
 * Shows every effective setting and where its value comes from, without contacting any
 * service.
 */
export const config: Handler = async (_, context) => {
  const { nightlyParties } = context.config;
  const odd =
    nightlyParties.kind === 'list'
      ? describeOddParties(nightlyParties.ids)
      : undefined;
  if (odd !== undefined) context.notices.warn(odd);
  const settings = shownSettings(context.config);
  const rows = settings.map(({ name, value, origin }) => [name, value, origin]);
  return {
    document: settings.map(({ name, value, isSecret, origin }) => ({
      name,
      value,
      isSecret,
      origin,
    })),
    text:
      formatTable(['setting', 'value', 'from'], rows) +
      nextTimes(context.config),
  };
};
