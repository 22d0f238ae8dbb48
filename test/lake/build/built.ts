/** Lakes that tests build of made-up segments, and what lies in their logs. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buildLake, type LakeDeps } from '../../../src/lake/build/build.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { entry, type SegmentRows } from '../entries-double.ts';
import { hexId, NEVER_ABORTED } from '../../support/samples.ts';
import { lakeWorld, type LakeWorld } from '../lake-world.ts';

export const signal = NEVER_ABORTED;
export const A = hexId('aa');
export const B = hexId('bb');
export const ENTRIES = 'lake/ledger_entries';

export function segment(
  segmentId: number,
  count = 1,
  isOpen = false,
): SegmentRows {
  const rows = Array.from({ length: count }, () =>
    entry({ party_id: A, account_from_party_id: A, account_to_party_id: B }),
  );
  return { segmentId: BigInt(segmentId), isOpen, rows };
}

export async function built(
  ...segments: readonly SegmentRows[]
): Promise<LakeWorld> {
  const world = await lakeWorld();
  world.warehouse.segments = segments;
  await buildLake(world.deps, signal);
  return world;
}

export async function parquetOf(
  { folder }: LakeWorld,
  table = ENTRIES,
): Promise<readonly string[]> {
  const names = await readdir(join(folder, table), { recursive: true });
  return names
    .filter((name) => name.endsWith('.parquet') && !name.includes('_delta_log'))
    .toSorted();
}

interface LoggedAction {
  readonly add?: {
    readonly path: string;
    readonly dataChange: boolean;
    readonly stats: string;
  };
  readonly remove?: { readonly path: string; readonly dataChange: boolean };
  readonly txn?: { readonly appId: string; readonly version: number };
  readonly metaData?: {
    readonly schemaString: string;
    readonly configuration: Record<string, string>;
  };
}

export async function logged(
  { folder }: LakeWorld,
  version: number,
): Promise<readonly LoggedAction[]> {
  const path = join(
    folder,
    ENTRIES,
    '_delta_log',
    `${String(version).padStart(20, '0')}.json`,
  );
  const lines = (await readFile(path, 'utf8')).trim().split('\n');
  return lines.map((line) => JSON.parse(line) as LoggedAction);
}

export const codes = async (
  deps: LakeDeps,
  deep = false,
): Promise<readonly string[]> =>
  (await verifyLake(deps, { deep }, signal)).problems.map(({ code }) => code);
