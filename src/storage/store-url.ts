/**
 * Names an object store, as tables, messages and statements show it. It has a file of its
 * own, so that nothing loads a store's client to learn its name.
 */
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** Returns the URL of a store without its settings. */
export function storeUrl(url: URL): string {
  return url.protocol === 's3:'
    ? `s3://${url.host}/${prefixOf(url)}`
    : pathToFileURL(resolve(fileURLToPath(url))).href;
}

/** Returns what precedes every key in the bucket, without slashes at its ends. */
export function prefixOf({ pathname }: URL): string {
  return pathname.replaceAll(/^\/+|\/+$/g, '');
}
