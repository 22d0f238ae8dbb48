/**
 * The settings of a source as the tests need them: the public service's names, and a rate
 * limit that is too high to notice.
 */
import type { Micros } from '../../src/time/time.ts';
import type { BanStore, Clock, RateState } from '../../src/source/ports.ts';
import { SYSTEM_CLOCK } from '../../src/source/rate-limit.ts';
import type {
  SourceConfig,
  SourceDeps,
} from '../../src/source/source-client.ts';

const RATE_LIFTED = 100_000;

export function sourceConfig(url: string | URL): SourceConfig {
  return {
    sourceUrl: new URL(url),
    sourceRate: RATE_LIFTED,
    sourceExportPath: '/api/v2/ledgerentry/export',
    sourceExportParamParty: 'partyId',
    sourceExportParamAsset: 'assetId',
    sourceExportParamFrom: 'dateRange.startTimestamp',
    sourceExportParamTo: 'dateRange.endTimestamp',
    sourceExportTime: 'ns',
    ambient: {},
  };
}

/** A rate limit for one process: requests are evenly spaced, without bursts. */
export function localRate(clock: Clock): RateState {
  let nextMs = 0;
  return {
    reserve(_budget, ratePerSecond) {
      const nowMs = clock.nowMs();
      const atMs = Math.max(nowMs, nextMs);
      nextMs = atMs + 1000 / ratePerSecond;
      return Promise.resolve({ waitMs: atMs - nowMs });
    },
  };
}

/** Remembers a ban for this process only. */
export function localBans(): BanStore {
  let until: Micros | undefined;
  return {
    get: () => Promise.resolve(until),
    set(next) {
      if (until === undefined || next > until) until = next;
      return Promise.resolve();
    },
  };
}

/** The state that workers share, kept in one process. */
export function localState(
  clock: Clock = SYSTEM_CLOCK,
): Pick<SourceDeps, 'rate' | 'bans'> {
  return { rate: localRate(clock), bans: localBans() };
}
