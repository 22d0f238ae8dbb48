/** Every answer of the hostile source, exported in this process against a real warehouse and store. */
import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { SETTINGS } from '../../src/config/settings.ts';
import { PermanentError, RetryableError } from '../../src/core/errors.ts';
import { nowMicros } from '../../src/core/time.ts';
import { exportParty } from '../../src/export/export-party.ts';
import { sourceClock } from '../../src/export/plan/source-clock.ts';
import { ENTRY_COLUMNS, RowCanonicalizer } from '../../src/ledger/canonical.ts';
import { readHeader } from '../../src/ledger/header.ts';
import { RowFields } from '../../src/ledger/row-fields.ts';
import { compressionOf } from '../../src/ledger/object-keys.ts';
import { plainStream } from '../../src/ledger/plain-stream.ts';
import { RowSplitter } from '../../src/ledger/row-splitter.ts';
import { openSource, type Source, type SourceConfig } from '../../src/source/source-client.ts';
import { freshDatabase } from '../support/database.ts';
import { signal, World } from './export-world.ts';
import type { LedgerRow } from './hostile/book.ts';
import type { HostileCase, Verdict } from './hostile/case.ts';
import { CASES } from './hostile/cases.ts';
import { judgeOutcome } from './hostile/judge.ts';
import { type HostileSource, startHostileSource } from './hostile/start.ts';
import { sourceConfig } from '../support/source-config.ts';

const database = await freshDatabase({ isMigrated: true });
/** As many as a job of the queue has. */
const TRIES_MAX = 4;
const PATIENCE = {
  headersMs: 2_000,
  idleMs: 1_000,
  callMs: 20_000,
  drip: { bytesPerSecondMin: 1024, windowMs: 1_500 },
};

/** The settings' own names. */
function configured({ settings = {} }: HostileCase): Partial<SourceConfig> {
  const { delimiter, timeColumn, partyColumn, assetColumn, idForm, timeForm } = settings;
  const named = [
    ['vega_time', timeColumn],
    ['account_from_party_id', partyColumn],
    ['asset_id', assetColumn],
  ].filter((pair): pair is [string, string] => pair[1] !== undefined);
  const columns = SETTINGS.exportColumns.parse(named.map((pair) => pair.join('=')).join(','));
  return {
    exportColumns: named.length === 0 ? undefined : columns,
    exportDelimiter: delimiter,
    exportTimeFormat: timeForm === undefined ? undefined : SETTINGS.exportTimeFormat.parse(timeForm),
    exportIdFormat: idForm === undefined ? undefined : SETTINGS.exportIdFormat.parse(idForm),
  };
}

function open(url: string, one: HostileCase): Source {
  return openSource(
    {
      ...sourceConfig(url),
      ...configured(one),
    },
    {
      limits: {
        export: PATIENCE,
        exportRetries: { attemptsMax: 2, elapsedMaxMs: 2_000, unreachableMaxMs: 500, onlyCheap: true },
      },
    },
  );
}

interface Night {
  readonly verdict: Verdict;
  readonly said: string;
}

/** One run, tried as often as the queue would. */
async function night(
  world: World,
  source: Source,
  one: HostileCase,
  host: HostileSource,
  isAgain: boolean,
): Promise<Night> {
  const page = await source.lists.page({ list: 'parties', newestFirst: true, size: 2 }, signal);
  const clock = sourceClock(page.blockTime, nowMicros(), page.answeredAt);
  const runId = randomUUID();
  let said = '';
  for (let attempt = 1; attempt <= TRIES_MAX; attempt += 1) {
    try {
      const outcome = await exportParty(
        {
          partyId: host.partyOf(one.name),
          runId,
          closedTo: clock.closedTo,
          seenTime: clock.seen,
          isClockGuessed: clock.from === 'guessed',
          again: isAgain,
        },
        world.deps({
          source: source.ledger,
          pauseMs: () => 0,
          ...(one.assets === undefined ? {} : { assets: one.assets }),
        }),
        signal,
      );
      return { verdict: outcome.verdict, said: JSON.stringify(outcome.evidence) };
    } catch (error) {
      if (!(error instanceof PermanentError) && !(error instanceof RetryableError)) throw error;
      said = `${error.code}: ${error.message}`;
      if (error instanceof PermanentError) break;
    }
  }
  return { verdict: 'failed', said };
}

/** As loading reads them. */
async function published(world: World): Promise<LedgerRow[]> {
  const { rows: segments } = await world.pool.query<{ object_key: string; party_id: string }>(
    `select object_key, party_id from mirror.segments where status = 'current'`,
  );
  const rows: LedgerRow[] = [];
  for (const { object_key: key, party_id: party } of segments) {
    let reader: RowCanonicalizer | undefined;
    let hasEffect = false;
    const fields = new RowFields();
    const splitter = new RowSplitter((buffer, start, end) => {
      if (reader === undefined) {
        const layout = readHeader(buffer.subarray(start, end));
        hasEffect = layout.index.effect !== undefined;
        reader = new RowCanonicalizer(layout);
        return;
      }
      fields.scan(buffer, start, end);
      const { values, effect } = reader.read(fields, buffer, start, end);
      const named = Object.fromEntries(ENTRY_COLUMNS.map((name, index) => [name, values[index] ?? '']));
      rows.push({ party_id: party, ...named, effect: hasEffect ? effect : null });
    });
    for await (const chunk of plainStream(await world.objects.read(key, signal), compressionOf(key)))
      splitter.push(chunk as Buffer);
  }
  return rows;
}

describe('the hostile source', () => {
  test.each(CASES.filter(({ isHeavy }) => !isHeavy))(
    '$name: the outcome is right, run after run',
    async (one) => {
      await using world = await World.open(database);
      const host = await startHostileSource({ cases: [one] });
      await using source = open(host.url, one);
      try {
        const wrong: string[] = [];
        for (const phase of [one, ...one.followedBy]) {
          if (phase !== one) host.advance(one.name);
          const before = host.requests.length;
          const { verdict, said } = await night(world, source, one, host, phase.isAgain === true);
          const found = judgeOutcome(
            {
              verdict,
              published: await published(world),
              // Postgres knows no negative zero.
              books: host
                .books(one.name)
                .map((row) => (row['effect'] === '-0' ? { ...row, effect: '0' } : row)),
              mayStay: host.mayStay(one.name),
              mustHold: host.mustHold(one.name),
              requests: host.requests.length - before,
            },
            { ...phase.expected, maxRequests: phase.expected.maxRequests * TRIES_MAX },
          );
          wrong.push(...found.map((line) => `${line} (${said.slice(0, 300)})`));
        }
        expect(wrong).toEqual([]);
      } finally {
        await host.close();
      }
    },
    90_000,
  );
});
