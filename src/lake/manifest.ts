/**
 * What the lake consists of. Each build publishes a manifest under the next version; the highest one is
 * the lake. So readers see a whole lake at every moment, in a store where nothing is overwritten.
 */
import { z } from 'zod';
import { PermanentError } from '../core/errors.ts';
import { SUMMARY_TABLES } from './summaries.ts';
import type { ObjectStore } from '../objects/object-store.ts';

export const LAKE_PREFIX = 'lake/';
const MANIFESTS = `${LAKE_PREFIX}manifests/`;
const VERSION_DIGITS = 12;
const MANIFEST_KEY = /^lake\/manifests\/(\d{12})\.json$/;
const MANIFEST_BYTES_MAX = 64 * 2 ** 20;

const count = z.codec(z.string().regex(/^\d{1,19}$/), z.bigint(), { decode: BigInt, encode: String });
const hex64 = z.string().regex(/^[0-9a-f]{64}$/);

const file = z.object({ key: z.string().startsWith(LAKE_PREFIX), rows: count, bytes: count, sha256: hex64 });
/** Of one month's entries; `form` says what they hold. */
const summaries = z.object({
  form: z.number().int(),
  files: z.array(file.extend({ table: z.enum(SUMMARY_TABLES) })),
});
const partition = z.object({
  table: z.enum(['ledger_entries', 'parties', 'checkpoints']),
  month: z.optional(z.string().regex(/^\d{4}-\d{2}$/)),
  fingerprint: z.string(),
  rows: count,
  valuesDigest: z.optional(hex64),
  files: z.array(file),
  summaries: z.optional(summaries),
});
const schema = z.object({
  version: z.number().int().positive(),
  builtAt: z.iso.datetime(),
  partitions: z.array(partition),
});

export type LakeFile = z.output<typeof file>;
export type MonthSummaries = z.output<typeof summaries>;
export type PublishedPartition = z.output<typeof partition>;
export type LakeManifest = z.output<typeof schema>;

/** Every file of the partition, its summaries among them. */
export function filesOfPartition({ files, summaries: summed }: PublishedPartition): readonly LakeFile[] {
  return summed === undefined ? files : [...files, ...summed.files];
}

export function lakeManifestKey(version: number): string {
  return `${MANIFESTS}${version.toString().padStart(VERSION_DIGITS, '0')}.json`;
}

export function encodeLakeManifest(manifest: LakeManifest): Buffer {
  return Buffer.from(`${JSON.stringify(z.encode(schema, manifest), undefined, 2)}\n`);
}

/**
 * The lake as it is now; undefined where none was built yet.
 * @throws PermanentError `LAKE_MANIFEST_INVALID`
 */
export async function currentLake(
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<LakeManifest | undefined> {
  let newest: { key: string; bytes: bigint } | undefined;
  for await (const listed of objects.list(MANIFESTS, signal)) {
    if (MANIFEST_KEY.test(listed.key)) newest = listed;
  }
  if (newest === undefined) return undefined;
  if (newest.bytes > BigInt(MANIFEST_BYTES_MAX)) throw invalid(newest.key, 'it is too large');
  const content = Buffer.concat(await (await objects.read(newest.key, signal)).toArray());
  const parsed = schema.safeParse(parseJson(content));
  if (!parsed.success) throw invalid(newest.key, z.prettifyError(parsed.error).split('\n', 1)[0] ?? '');
  return parsed.data;
}

function invalid(key: string, state: string): PermanentError {
  return new PermanentError(
    `Cannot read the lake's manifest ${key}: ${state}; remove it and load again, the lake is built anew`,
    { code: 'LAKE_MANIFEST_INVALID', meta: { key } },
  );
}

function parseJson(content: Buffer): unknown {
  try {
    return JSON.parse(content.toString('utf8'));
  } catch {
    return undefined;
  }
}
