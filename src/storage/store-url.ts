/**
 * Formats the URL of an object store for tables, messages and SQL statements. It is a
 * separate file, so that no module has to load a store's client just for the name.
 */
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** Returns the URL of a store without its settings. */
export function storeUrl(url: URL): string {
  return url.protocol === 's3:'
    ? `s3://${url.host}/${prefixOf(url)}`
    : pathToFileURL(resolve(fileURLToPath(url))).href;
}

/** Returns the prefix of every key in the bucket, without leading or trailing slashes. */
export function prefixOf({ pathname }: URL): string {
  return pathname.replaceAll(/^\/+|\/+$/g, '');
}
