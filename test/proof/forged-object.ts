/** An object that somebody changed with care: every sum of its manifest agrees with it. */
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { hashText, RowDigest } from '../../src/ledger/digest.ts';

/**
 * Changes the amount of one row of an object, and rewrites its manifest to match.
 * @param rowOf selects the row by the number of rows
 */
export async function forgeObject(
  object: string,
  rowOf: (rows: number) => number = (rows) => rows - 1,
): Promise<void> {
  const manifest = `${object}.manifest.json`;
  const csv = zstdDecompressSync(await readFile(object)).toString('utf8');
  const [header = '', ...rows] = csv.trimEnd().split('\n');
  const at = rowOf(rows.length);
  const forged = rows.with(at, (rows[at] ?? '').replace(/\d,/, '7,'));
  const plain = Buffer.from(`${[header, ...forged].join('\n')}\n`);
  const stored = zstdCompressSync(plain);
  const digest = new RowDigest();
  for (const row of forged) digest.add(hashText(row));
  const said = JSON.parse(await readFile(manifest, 'utf8')) as object;
  const sums = {
    sha256: sha256(plain),
    bytes: String(plain.length),
    digest: digest.hex(),
    objectSha256: sha256(stored),
    objectBytes: String(stored.length),
  };
  await writeFile(object, stored);
  await writeFile(manifest, JSON.stringify({ ...said, ...sums }));
}

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
