/**
 * A source with the defaults of the configuration, limits short enough for tests, and a
 * clock that need not run.
 */
import { onTestFinished } from 'vitest';
import { CostTally } from '../../src/source/cost-meter.ts';
import {
  EXPORT_LIMITS,
  LIST_LIMITS,
  type HttpGet,
  type HttpLimits,
} from '../../src/source/wire/http.ts';
import { RateLimiter } from '../../src/source/rate-limit.ts';
import { SourceRequester } from '../../src/source/requester.ts';
import type {
  Clock,
  RequestReport,
  WaitReport,
} from '../../src/source/ports.ts';
import {
  openSource,
  type Source,
  type SourceConfig,
  type SourceDeps,
} from '../../src/source/source-client.ts';
import { RotatingSecret } from '../../src/network/rotating-secret.ts';
import { hexId, NEVER_ABORTED } from '../support/samples.ts';
import { localState, sourceConfig } from '../support/source-config.ts';

export const PARTY = hexId('ab');
export const ASSET = hexId('cd');
export const NEVER = NEVER_ABORTED;

/** Far beyond what a busy machine needs. A test shortens the one it is about. */
export const PATIENT: HttpLimits = {
  headersMs: 60_000,
  idleMs: 60_000,
  callMs: 70_000,
  drip: { bytesPerSecondMin: 0, windowMs: 1_000 },
};

/** Sleeps at once and remembers for how long; its time is what was slept. */
export class InstantClock implements Clock {
  readonly slept: number[] = [];
  #nowMs = 0;

  nowMs(): number {
    return this.#nowMs;
  }

  sleep(delayMs: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.slept.push(delayMs);
    this.#nowMs += delayMs;
    return Promise.resolve();
  }
}

export interface TestSource extends Source {
  readonly clock: InstantClock;
  readonly requests: RequestReport[];
  readonly waits: WaitReport[];
  /** Of all that was asked. */
  readonly tally: CostTally;
}

/** Closed with the test. */
export function testSource(
  sourceUrl: URL,
  config: Partial<SourceConfig> = {},
  deps: Partial<SourceDeps> = {},
): TestSource {
  const clock = new InstantClock();
  const requests: RequestReport[] = [];
  const waits: WaitReport[] = [];
  const tally = new CostTally();
  const source = openSource(
    {
      ...sourceConfig(sourceUrl),
      ...config,
    },
    {
      ...localState(clock),
      clock,
      rate: { reserve: () => Promise.resolve({ waitMs: 0 }) },
      observer: {
        onRequest: (report) => {
          requests.push(report);
          tally.onRequest(report);
        },
        onWait: (report) => {
          waits.push(report);
          tally.onWait(report);
        },
      },
      ...deps,
      limits: { list: LIST_LIMITS, export: EXPORT_LIMITS, ...deps.limits },
    },
  );
  onTestFinished(() => source.close());
  return { ...source, clock, requests, waits, tally };
}

/** A requester whose requests `get` answers, at no rate limit that is felt. */
export function testRequester(
  get: HttpGet,
  clock = new InstantClock(),
): SourceRequester {
  const observer = { onRequest: () => undefined, onWait: () => undefined };
  const rate = new RateLimiter(1_000, {
    ...localState(clock),
    clock,
    observer,
  });
  const credentials = new RotatingSecret<object>(
    {},
    { name: 'the credentials', read: undefined },
  );
  return new SourceRequester({
    get,
    credentials,
    rate,
    clock,
    observer,
    log: undefined,
  });
}

/** The error that a promise must end with. */
export async function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    (value) => {
      throw new Error(`no failure, but ${String(value)}`);
    },
    (error: unknown) => error,
  );
}

export async function textOf(chunks: AsyncIterable<Buffer>): Promise<string> {
  const parts: Buffer[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts).toString();
}
