/** Sends a test notice to the configured receiver, from the terminal or the console. */
import type { Config } from '../config/environment.ts';
import {
  type PostOptions,
  sendTestNotice,
  type TestResult,
} from '../runs/notices.ts';
import { version } from '../version.ts';
import { openNotifyAddress } from './rotating-secrets.ts';

/**
 * Returns how notices are posted. The notices of runs and test notices use the same
 * options, so a test notice meets the same problems as a run's.
 */
export function postOptionsOf(config: Config): PostOptions {
  return {
    version: version(),
    format: config.notifyFormat,
    ambient: config.ambient,
    address: openNotifyAddress(config),
  };
}

/**
 * Sends one test notice to each configured receiver; today there is at most one.
 * @returns one result for each receiver; none if NOTIFY_URL is not set
 */
export async function testNotices(
  config: Config,
): Promise<readonly TestResult[]> {
  const { notifyUrl } = config;
  if (notifyUrl === undefined) return [];
  return [await sendTestNotice(notifyUrl, postOptionsOf(config))];
}
