/** What must hold on every real S3 server: the contract, its failures, and the mirror's whole work. */
import { afterAll, beforeAll, describe } from 'vitest';
import type { StoreCapabilities } from '../../src/objects/object-store.ts';
import { describeObjectStore } from '../objects/store-contract.ts';
import type { RealStore } from '../support/real-store.ts';
import { describeMishaps, describeOutages, describeRefusals } from './store-faults.ts';
import { describeNights } from './store-nights.ts';
import { describeLake } from './store-lake.ts';
import { fillStore, openStoreOn, type StoreUnderTest } from './store-under-test.ts';

export function describeRealStore(
  name: string,
  capabilities: StoreCapabilities,
  start: () => Promise<RealStore>,
): void {
  describe(`on ${name}`, () => {
    let server: RealStore | undefined;
    const running: StoreUnderTest = () => {
      if (server === undefined) throw new Error(`${name} is not running`);
      return server;
    };
    beforeAll(async () => {
      server = await start();
    });
    afterAll(() => server?.[Symbol.asyncDispose]());
    describeObjectStore(
      name,
      capabilities,
      async () => openStoreOn(running()),
      (store, keys) => fillStore(running(), store, keys),
    );
    describeRefusals(running);
    describeMishaps(running);
    describeOutages(running);
    // Each write of a store that decides commits itself; where the database does, one in five: its servers are slow.
    describeLake(running, capabilities.put === 'honoured' ? 1 : 5);
    describeNights(running);
  });
}
