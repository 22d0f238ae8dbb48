/** The name of an object store, as its tables, messages and statements have it; apart, so that it loads no store. */
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export function storeUrl(url: URL): string {
  return url.protocol === 's3:'
    ? `s3://${url.host}/${prefixOf(url)}`
    : pathToFileURL(resolve(fileURLToPath(url))).href;
}

/** What stands before every key in the bucket. */
export function prefixOf({ pathname }: URL): string {
  return pathname.replaceAll(/^\/+|\/+$/g, '');
}
