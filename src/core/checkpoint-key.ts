/** The key of a checkpoint: `/` separates, so that inside a hash it is escaped. */
export function checkpointKey(atBlock: string, hash: string, blockHash: string): string {
  return `${atBlock}/${escapeSlash(hash)}/${escapeSlash(blockHash)}`;
}

function escapeSlash(text: string): string {
  return /[%/]/.test(text) ? text.replaceAll('%', '%25').replaceAll('/', '%2F') : text;
}

export function heightOf(key: string): bigint {
  return BigInt(key.slice(0, key.indexOf('/')));
}
