/** Nights of exports against a sandbox network, and its repository to compare with. */
import { randomUUID } from 'node:crypto';
import { expect, onTestFinished } from 'vitest';
import { exportParty } from '../../src/exports/export-party.ts';
import type {
  ExportDeps,
  ExportOutcome,
  ExportRequest,
} from '../../src/exports/export-context.ts';
import { RowDigest } from '../../src/ledger/digest.ts';
import type { SandboxOptions } from '../support/sandbox.ts';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';
import { testSource } from '../source/test-source.ts';
import type { freshDatabase } from '../support/database.ts';
import { signal, World } from './export-world.ts';
import { clockAt } from './ledger-double.ts';
import { TestRowPool } from './faults/fault-case.ts';
import { currentSegments } from '../support/mirror-state.ts';

export interface Night {
  readonly sandbox: Sandbox;
  readonly world: World;
  run(
    partyId: string,
    assets?: readonly string[],
    range?: Partial<ExportRequest>,
  ): Promise<ExportOutcome>;
}

export async function openNights(
  database: Awaited<ReturnType<typeof freshDatabase>>,
  options: SandboxOptions,
  changes: Partial<ExportDeps> = {},
): Promise<Night> {
  const sandbox = await startSandbox({
    parties: 12,
    rateLimit: 'none',
    whaleEntries: 3000,
    ...options,
  });
  const world = await World.open(database);
  const rowPool = new TestRowPool();
  onTestFinished(async () => {
    await rowPool[Symbol.asyncDispose]();
    await sandbox.stop();
    await world[Symbol.asyncDispose]();
  });
  const { ledger } = testSource(new URL(sandbox.url));
  return {
    sandbox,
    world,
    run: (partyId, assets, range) => {
      const clock = clockAt(sandbox.truth.head().time);
      const request = { partyId, runId: randomUUID(), clock, ...range };
      return exportParty(
        request,
        {
          ...world.deps({ source: ledger, segmentBytesMax: 2 ** 20, rowPool }),
          ...changes,
          assets,
        },
        signal,
      );
    },
  };
}

/** The current segments' digests added up, party by party. */
export async function digests(world: World): Promise<Map<string, RowDigest>> {
  const sums = new Map<string, RowDigest>();
  for (const { partyId: party, digest, rows: count } of await currentSegments(
    world.pool,
  )) {
    const sum = sums.get(party) ?? new RowDigest();
    sum.merge(RowDigest.fromHex(digest, count));
    sums.set(party, sum);
  }
  return sums;
}

/** @param night with the parties to compare, or all */
export async function expectTruth(
  night: Night & { readonly parties?: readonly string[] },
): Promise<void> {
  const { sandbox, world } = night;
  const kept = await digests(world);
  for (const id of night.parties ??
    [...sandbox.truth.parties()].map((party) => party.id)) {
    const { entries, digest } = sandbox.truth.party(id);
    const mine = kept.get(id) ?? new RowDigest();
    expect([mine.rows, mine.hex()]).toEqual([entries, digest]);
  }
}
