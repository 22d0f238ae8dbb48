/**
 * `doctor`, `notify`, `migrate`, `config`: show whether the mirror is set up correctly.
 */
import type { Config } from '../../config/environment.ts';
import { describeNextTimes } from '../../time/scheduled-times.ts';
import { describeOddParties } from '../../config/odd-parties.ts';
import { shownSettings } from '../../config/secrets.ts';
import { UsageError } from '../../errors/errors.ts';
import { createLog } from '../../logging/log.ts';
import { EXIT, type ExitCode, type Handler } from '../context.ts';
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

/** Sends a test notice to each receiver, and reports whether the receiver accepted it. */
export const notify: Handler = async (_, context) => {
  const { testNotices } = await import('../../app/test-notice.ts');
  const results = await testNotices(context.config);
  if (results.length === 0)
    throw new UsageError([
      'notify: NOTIFY_URL is not set, so no notice is sent to anybody; set it first',
    ]);
  const outcomes = new Set(results.map(({ outcome }) => outcome));
  let exitCode: ExitCode = EXIT.done;
  if (outcomes.has('unreachable')) exitCode = EXIT.tryAgain;
  if (outcomes.has('refused')) exitCode = EXIT.wrong;
  return {
    exitCode,
    document: { results },
    text: results
      .map(({ outcome, detail }) => `${outcome}: ${detail}\n`)
      .join(''),
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
