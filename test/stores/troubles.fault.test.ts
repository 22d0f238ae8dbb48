/** The troubles of a store before the mirror, with a double of S3 in place of a server. */
import { afterAll, beforeAll } from 'vitest';
import { CREDENTIALS, S3Double } from '../support/stores/s3-double.ts';
import { describeTroubles } from './store-troubles.ts';

let store: S3Double;
beforeAll(async () => {
  store = await S3Double.start();
});
afterAll(() => store[Symbol.asyncDispose]());

describeTroubles(
  () => ({
    endpoint: store.endpoint,
    bucket: 'bucket',
    keys: CREDENTIALS,
  }),
  { includesLong: true },
);
