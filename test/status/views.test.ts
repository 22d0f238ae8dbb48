/**
 * Every view of the mirror shows the same decision. Each input of the decision is changed
 * in turn, and each view is looked at.
 */
import { describe, expect, test } from 'vitest';
import type { MirrorFacts } from '../../src/status/mirror-facts.ts';
import type { Reason } from '../../src/status/reasons.ts';
import { summarizeStatus } from '../../src/status/status-summary.ts';
import {
  apiWithoutDatabase,
  EMPTY_FACTS,
  EMPTY_STATUS,
} from '../api/mirror.ts';

type Facts = typeof COMPLETE_FACTS;

const COMPLETE_FACTS = {
  ...EMPTY_FACTS,
  streams: EMPTY_FACTS.streams.map((stream) => ({
    ...stream,
    verdict: 'complete' as const,
  })),
};

function withCoverage(changed: Partial<MirrorFacts['coverage']>): MirrorFacts {
  return {
    ...COMPLETE_FACTS,
    coverage: { ...COMPLETE_FACTS.coverage, ...changed },
  };
}

function withVerdict(name: string, verdict: 'incomplete' | null): MirrorFacts {
  const streams = COMPLETE_FACTS.streams.map((stream) =>
    stream.name === name ? { ...stream, verdict } : stream,
  );
  return { ...COMPLETE_FACTS, streams };
}

const INPUTS: readonly (readonly [
  string,
  Reason | null,
  MirrorFacts | Facts,
])[] = [
  ['nothing', null, COMPLETE_FACTS],
  ['no run', 'NOTHING_MIRRORED', EMPTY_FACTS],
  [
    'the verdict of the parties',
    'STREAM_NOT_PROVEN',
    withVerdict('parties', 'incomplete'),
  ],
  [
    'the verdict of the checkpoints',
    'STREAM_NOT_PROVEN',
    withVerdict('checkpoints', null),
  ],
  [
    'the verdict of the ledgers',
    'STREAM_NOT_PROVEN',
    withVerdict('ledger', 'incomplete'),
  ],
  ['the epoch', 'LIST_NOT_READ', withCoverage({ unreadLists: ['parties'] })],
  ['a doubt', 'IN_DOUBT', withCoverage({ openDoubts: 1 })],
  ['a gap', 'GAP_KNOWN', withCoverage({ knownGaps: 1 })],
  [
    'a mistyped party',
    'PARTIES_NOT_LISTED',
    withCoverage({ unlisted: 1, unlistedParties: ['mistyped'] }),
  ],
  ['what is wanted', 'LEDGERS_NOT_COVERED', withCoverage({ wanted: 1 })],
  ['a quarantine', 'LEDGERS_QUARANTINED', withCoverage({ quarantined: 1 })],
  ['what is loaded', 'SEGMENTS_NOT_LOADED', withCoverage({ notLoaded: 1 })],
  [
    'a verification',
    'VERIFICATION_FAILED',
    withCoverage({ hasFailedVerify: true }),
  ],
];

describe.each(INPUTS)('with %s changed', (_what, reason, facts) => {
  const isComplete = reason === null;

  test('the status names the reason, in codes and in words', () => {
    const { complete, whole, reasons, sentence } = summarizeStatus(facts);
    expect([complete, whole]).toEqual([isComplete, isComplete]);
    expect(reasons).toEqual(isComplete ? [] : [reason]);
    expect(sentence.startsWith('The mirror is complete')).toBe(isComplete);
  });

  test('the API, its headers and the metrics show it', async () => {
    const api = await apiWithoutDatabase({
      status: { ...EMPTY_STATUS, facts: async () => facts },
    });
    const read = (url: string) =>
      api.inject({ url, headers: { host: 'localhost' } });

    expect((await read('/mirror/status')).json()).toMatchObject({
      complete: isComplete,
      reasons: isComplete ? [] : [reason],
    });
    for (const path of ['parties', 'checkpoints', 'ledgerentry/export']) {
      const { headers } = await read(`/api/v2/${path}`);
      expect([path, headers['x-mirror-complete']]).toEqual([
        path,
        String(isComplete),
      ]);
    }
    const { body } = await read('/metrics');
    expect(body).toContain(`\nledger_mirror_complete ${Number(isComplete)}\n`);
    expect(body).toContain(`\nledger_mirror_whole ${Number(isComplete)}\n`);
  });
});

test('segments that a run is loading keep nothing from being complete', () => {
  const facts = withCoverage({ notLoaded: 1, isLoading: true });
  expect(summarizeStatus(facts).complete).toBe(true);
});

test('the status says since when a nightly run waits for the source, and why', () => {
  const { attention } = summarizeStatus({
    ...COMPLETE_FACTS,
    awaitedSource: {
      since: '2026-11-21T02:00:10+00:00',
      reason: 'the source answers 502',
    },
  });
  expect(attention).toMatchObject([
    {
      what: 'the nightly run waits for the source since 2026-11-21 02:00 UTC',
      why: 'the source answers 502',
    },
  ]);
});
