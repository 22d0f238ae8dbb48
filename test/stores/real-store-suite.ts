/**
 * What must hold on every real S3 server: the contract, its failures, and the mirror's
 * whole work.
 */
import { afterAll, beforeAll, describe } from 'vitest';
import type { StoreCapabilities } from '../../src/storage/object-store.ts';
import { describeObjectStore } from '../storage/store-contract.ts';
import type { RealStore } from '../support/stores/real-store.ts';
import {
  describeMishaps,
  describeOutages,
  describeRefusals,
} from './store-faults.ts';
import { describeNights } from './store-nights.ts';
import { describeTroubles } from './store-troubles.ts';
import { describeLake } from './store-lake.ts';
import {
  fillStore,
  openStoreOn,
  type StoreUnderTest,
} from './store-under-test.ts';

/**
 * A build dies before each of its writes, and troubles are tried on every server: minutes.
 * Otherwise before some of them, and on one.
 */
const KILLS_BEFORE_EACH = process.env['STORES_KILL_EACH'] === 'yes';

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
    const writesBetweenKills = capabilities.put === 'honoured' ? 3 : 5;
    describeLake(running, KILLS_BEFORE_EACH ? 1 : writesBetweenKills);
    describeNights(running);
    // A proxy in front of the server answers the refusals, and each command is run against
    // each of them for minutes: one server is enough, unless everything is wanted.
    if (capabilities.put === 'honoured' || KILLS_BEFORE_EACH)
      describeTroubles(running);
  });
}
