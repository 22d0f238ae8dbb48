/**
 * The manifest beside every exported object: everything that is known of it, so that tables can be
 * rebuilt from the objects alone. Readable by people: pretty JSON, instants as RFC 3339, counts as text.
 */
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { decimal, hex64, id, instant, parseJson, partyId } from './json-fields.ts';

export const manifestSchema = z.object({
  version: z.literal(1),
  objectKey: z.string(),
  warehouseId: z.uuid(),
  /** Rises with every publication of a warehouse: an object above the database's own is newer than it. */
  seq: decimal,
  source: z.string(),
  partyId,
  /** null: every asset. */
  assetId: id.nullable(),
  from: instant,
  /** Exclusive. */
  to: instant,
  /** The present, that may still grow; false: proven that nothing more will appear in it. */
  open: z.boolean(),
  /** Which side of a movement the source's release exports: 'from' lacks what came in. */
  sides: z.enum(['from', 'both']),
  columns: z.array(z.string()),
  rows: decimal,
  /** Of the plain CSV. */
  bytes: decimal,
  sha256: hex64,
  compression: z.enum(['zstd', 'gzip', 'none']),
  /** Of the object as it is stored. */
  objectBytes: decimal,
  objectSha256: hex64,
  digest: hex64,
  rowForm: z.string(),
  /** Rows of the answer that did not belong: never silently. */
  leftOut: z.object({ party: decimal, asset: decimal, range: decimal }),
  runId: z.uuid(),
  publishedAt: instant,
});

export type Manifest = z.output<typeof manifestSchema>;

/** The bytes that are published. */
export function encodeManifest(manifest: Manifest): Buffer {
  return Buffer.from(
    `${JSON.stringify(z.encode(manifestSchema, manifest), undefined, 2)}\n`,
  );
}

/** The same as plain JSON, for a jsonb column. */
export function manifestJson(manifest: Manifest): z.input<typeof manifestSchema> {
  return z.encode(manifestSchema, manifest);
}

/**
 * @param where names the manifest in messages
 * @throws PermanentError `MANIFEST_INVALID`
 */
export function decodeManifest(content: unknown, where: string): Manifest {
  const parsed = manifestSchema.safeParse(
    Buffer.isBuffer(content) ? parseJson(content.toString('utf8')) : content,
  );
  if (parsed.success) return parsed.data;
  const problems = z.prettifyError(parsed.error).split('\n').slice(0, 5).join('; ');
  throw new PermanentError(`Cannot read the manifest ${where}: ${problems}`, {
    code: 'MANIFEST_INVALID',
    meta: { where },
    cause: parsed.error,
  });
}

/** @param key of the manifest. @throws PermanentError `OBJECT_MISSING` or `MANIFEST_INVALID` */
export async function readManifest(
  objects: { read(key: string, signal: AbortSignal): Promise<Readable> },
  key: string,
  signal: AbortSignal,
): Promise<Manifest> {
  return decodeManifest(await buffer(await objects.read(key, signal)), key);
}
