/**
 * Names an object store for tables, messages and SQL statements. This is a file of its
 * own, so that no module loads a store's client just to learn its name.
 */
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** Returns the URL of a store without its settings. */
export function storeUrl(url: URL): string {
  return url.protocol === 's3:'
    ? `s3://${url.host}/${prefixOf(url)}`
    : pathToFileURL(resolve(fileURLToPath(url))).href;
}

/** Returns the prefix of every key in the bucket, without slashes at its ends. */
export function prefixOf({ pathname }: URL): string {
  return pathname.replaceAll(/^\/+|\/+$/g, '');
}
