/**
 * Brings a sandbox network's lists into a warehouse without a sync: what a whole mirror
 * of it holds.
 */
import type { Pool } from 'pg';
import {
  addCheckpoints,
  addGeneration,
  addParties,
} from '../../support/mirror-arrange.ts';
import type { Sandbox } from '../../support/sandbox.ts';
import { formatInstant } from '../../../src/time/time.ts';

export async function fillLists(pool: Pool, sandbox: Sandbox): Promise<void> {
  const ids = [...sandbox.truth.parties()].map(({ id }) => id);
  await addParties(pool, [...ids, 'network'], 1);
  const rows = Map.groupBy(sandbox.truth.checkpoints(), (row) =>
    Object.values(row).join(' '),
  ).values();
  await addCheckpoints(
    pool,
    [...rows].map(([row, ...more]) => ({
      epoch: 1,
      at_block: row?.atBlock,
      hash: row?.hash,
      block_hash: row?.blockHash,
      copies: 1 + more.length,
    })),
  );
  const { headers } = await fetch(
    `${sandbox.url}/api/v2/parties?pagination.first=2`,
  );
  const [height, nanoseconds] = ['x-block-height', 'x-block-timestamp'].map(
    (name) => headers.get(name) ?? '',
  );
  const time = formatInstant(BigInt(nanoseconds ?? 0) / 1_000n);
  for (const list of ['parties', 'checkpoints'] as const)
    await addGeneration(pool, {
      list,
      height: height ?? '',
      time,
      isClaimed: true,
    });
}
