/**
 * The manifest next to every exported object. It describes the object and its range, so
 * that a lost database can be rebuilt from the objects alone. It is human-readable:
 * indented JSON, with instants as RFC 3339 and counts as decimal strings.
 */
import { hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import {
  decimal,
  hex64,
  id,
  instant,
  parseJson,
  partyId,
} from './json-fields.ts';
import { tailSum } from './tail-sum.ts';

/**
 * Maximum size of a manifest in bytes. A few hundred bytes are usual, and the limit is
 * far above the largest manifest that this program writes. It prevents a large object
 * under a manifest's key from filling the reader's memory.
 */
export const MANIFEST_BYTES_MAX = 4 * 2 ** 20;

/** The findings about the source's release at the time an object was published. */
const releaseShown = z.object({
  /**
   * 'right': a request may have both a start and an end. 'broken': the release filters
   * such requests wrongly. 'unproven': no response has shown which is true. Absent: no
   * response has been compared.
   */
  bounds: z.enum(['right', 'broken', 'unproven']).optional(),
  /** Which sides of a movement the release exports. */
  sides: z.enum(['from', 'both']).optional(),
  /**
   * Identifies the header line on which these findings are based. A different header
   * means a different release.
   */
  header: z.string().optional(),
  /** The evidence for the conclusion, in words. */
  evidence: z.string().optional(),
  decidedAt: instant.optional(),
});
export type ReleaseShown = Readonly<z.output<typeof releaseShown>>;

/**
 * A part of an object that can be decompressed without the rest: a zstd frame, a gzip
 * member, or bytes of plain CSV. It holds whole rows; the first frame begins with the
 * header line.
 */
const frame = z.object({
  /** Where the frame begins in the stored object, in bytes. */
  offset: decimal,
  /** The size of the frame as stored, in bytes. */
  bytes: decimal,
  /** The second of the frame's earliest entry. */
  earliest: instant,
  /** The second of the frame's latest entry. */
  latest: instant,
});
export type Frame = Readonly<z.output<typeof frame>>;

/**
 * Returns the SHA-256 of an object's frames. The database records it, so that `verify`
 * notices if a manifest was changed to hide a part of its object from readers.
 */
export function framesSha256(frames: readonly Frame[]): string {
  const parts = frames.map(({ offset, bytes, earliest, latest }) =>
    [offset, bytes, earliest, latest].join(),
  );
  return hash('sha256', parts.join('\n'), 'hex');
}

export const manifestSchema = z.object({
  version: z.literal(1),
  objectKey: z.string(),
  /** The id of the database that published the object. */
  warehouseId: z.uuid(),
  /**
   * Increases with every publication of a warehouse. If it is higher than the
   * database's number, the object is newer than the database.
   */
  seq: decimal,
  /** The URL of the source, without credentials. */
  source: z.string(),
  partyId,
  /** The asset of the range; null stands for all assets. */
  assetId: id.nullable(),
  from: instant,
  /** The end of the range, exclusive. */
  to: instant,
  /**
   * true: the range extended to the present and may still grow. false: the range is
   * final.
   */
  open: z.boolean(),
  /**
   * Which sides of a movement the source's release exports; 'from' lacks the entries
   * that the party received.
   */
  sides: z.enum(['from', 'both']),
  /** The column names in the CSV's header line, in that order. */
  columns: z.array(z.string()),
  rows: decimal,
  /** Size of the plain CSV, in bytes. */
  bytes: decimal,
  /** SHA-256 of the plain CSV. */
  sha256: hex64,
  compression: z.enum(['zstd', 'gzip', 'none']),
  /** Size of the stored object, in bytes. */
  objectBytes: decimal,
  /** SHA-256 of the stored object. */
  objectSha256: hex64,
  /**
   * The object's frames in order, for readers that need only part of its range. Absent
   * if the object has only one, and in manifests of earlier versions.
   */
  frames: z.array(frame).readonly().optional(),
  /** The additive digest of all rows (docs/export.md). */
  digest: hex64,
  /**
   * The encoding of the rows that were summed. Digests with different row forms cannot
   * be compared.
   */
  rowForm: z.string(),
  /**
   * The number of rows in the response that were outside the party, the asset or the
   * range, and were therefore left out of the object.
   */
  leftOut: z.object({ party: decimal, asset: decimal, range: decimal }),
  runId: z.uuid(),
  publishedAt: instant,
  /**
   * When the whole range was last requested from the source. Absent if that was when
   * the object was published. Only merged objects are published later than their rows
   * were requested.
   */
  checkedAt: instant.optional(),
  /**
   * The sum of the range's last rows. A rebuild writes it into the range's coverage:
   * without it, the next export has nothing to compare the source's response with, and
   * downloads all of an idle ledger. Absent if the range is open or does not end where
   * the response ended, and in manifests of earlier versions.
   */
  tail: tailSum.optional(),
  /**
   * How many times the source's chain had restarted when the range was exported. A
   * rebuild writes it into the coverage, because audits choose only ranges of the
   * current epoch. Absent if no checkpoint was known.
   */
  epoch: z.int().nonnegative().optional(),
  /**
   * The findings about the source's release. When an empty database is rebuilt, it
   * starts with the newest manifest's findings instead of an empty source profile.
   * Absent in manifests of earlier versions.
   */
  release: releaseShown.optional(),
});

export type Manifest = z.output<typeof manifestSchema>;

/** Returns the bytes to publish. */
export function encodeManifest(manifest: Manifest): Buffer {
  return Buffer.from(
    `${JSON.stringify(manifestJson(manifest), undefined, 2)}\n`,
  );
}

/** Returns the manifest as plain JSON, as a jsonb column stores it. */
export function manifestJson(
  manifest: Manifest,
): z.input<typeof manifestSchema> {
  return z.encode(manifestSchema, manifest);
}

/**
 * Decodes and checks a manifest.
 * @param content the bytes of a manifest or its parsed JSON
 * @param where names the manifest in messages
 * @throws PermanentError `MANIFEST_INVALID`
 */
export function decodeManifest(content: unknown, where: string): Manifest {
  const parsed = manifestSchema.safeParse(
    Buffer.isBuffer(content) ? parseJson(content.toString('utf8')) : content,
  );
  if (parsed.success) return parsed.data;
  const problems = z
    .prettifyError(parsed.error)
    .split('\n')
    .slice(0, 5)
    .join('; ');
  throw invalid(where, problems, parsed.error);
}

/**
 * Reads a manifest from the store. All manifests are read through this function,
 * because it stops after `MANIFEST_BYTES_MAX`: anyone with write access to the bucket
 * can put an object of any size under a manifest's key.
 * @param key the manifest's key
 * @throws PermanentError `OBJECT_MISSING` or `MANIFEST_INVALID`
 */
export async function readManifest(
  objects: { read(key: string, signal: AbortSignal): Promise<Readable> },
  key: string,
  signal: AbortSignal,
): Promise<Manifest> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  // Leaving the loop early destroys the stream and stops the transfer.
  for await (const chunk of await objects.read(key, signal)) {
    bytes += (chunk as Buffer).length;
    if (bytes > MANIFEST_BYTES_MAX)
      throw invalid(key, `it is larger than ${MANIFEST_BYTES_MAX} bytes`);
    chunks.push(chunk as Buffer);
  }
  return decodeManifest(Buffer.concat(chunks, bytes), key);
}

function invalid(
  where: string,
  state: string,
  cause?: unknown,
): PermanentError {
  return new PermanentError(`Cannot read the manifest ${where}: ${state}`, {
    code: 'MANIFEST_INVALID',
    meta: { where },
    ...(cause === undefined ? {} : { cause }),
  });
}
