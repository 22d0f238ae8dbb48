/**
 * What nightly runs ask for again by themselves, through the real commands and a plain
 * server.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openHome } from '../cli/mirror-home.ts';
import { openFreshDatabase } from '../support/database.ts';
import { startRealApp } from '../app/real-app.ts';
import { waitFor } from '../support/wait-for.ts';
import { DAY, makeLedger, type Entry, writeInstant } from './hostile/ledger.ts';
import { declare, honestAnswer, WHOLE } from './hostile/cases/case.ts';
import { startHostileSource } from './hostile/start.ts';
import {
  loadedQuantities,
  loadedRows,
  nightlyLedgers,
  publishedSegments,
} from '../support/mirror-state.ts';
import { ageCoverageChecks } from '../support/mirror-arrange.ts';

const truth = (now: bigint, party: string): Entry[] =>
  makeLedger(now, { seed: 'audit', party, fromHours: 240 });
/**
 * An entry of the first segment has another amount, long before the overlap check of the
 * next request.
 */
const changed = (now: bigint, party: string): Entry[] =>
  truth(now, party).map((entry, at) =>
    at === 1 ? { ...entry, quantity: '1' } : entry,
  );

describe('a lost object', () => {
  test('is found by verify, and asked for again by the next nightly run, by itself', async () => {
    const one = declare('lost', 'an object is lost', honestAnswer, WHOLE, {
      truth,
    });
    const host = await startHostileSource({ cases: [one] });
    await using database = await openFreshDatabase();
    await using home = await openHome({
      SOURCE_URL: host.url,
      DATABASE_URL: database.url,
    });
    try {
      expect((await home.run(['nightly'])).code).toBe(0);
      const closed = (await publishedSegments(database.pool)).find(
        ({ open }) => !open,
      );
      await rm(join(home.objectsDir, closed?.objectKey ?? 'none'));
      const verified = await home.json(['verify']);
      expect([verified.code, verified.document.verdict]).toEqual([2, 'failed']);
      const asked = host.requests.length;
      const night = await home.json(['nightly']);
      expect([night.code, night.document.verdict]).toEqual([0, 'complete']);
      expect(host.requests.length).toBe(asked + 1);
      expect((await home.run(['verify', '--deep'])).code).toBe(0);
      expect(await loadedRows(database.pool)).toBe(
        truth(host.now, host.partyOf('lost')).length,
      );
    } finally {
      await host.close();
    }
  });
});

describe('the rolling audit', () => {
  test('a nightly run asks for closed segments again, the first one too, and tells what differs', async () => {
    const one = {
      ...declare(
        'audit',
        'an entry changes after it was closed',
        honestAnswer,
        WHOLE,
        {
          truth,
        },
      ),
      followedBy: [
        { clock: 0, truth, answer: honestAnswer, expected: WHOLE },
        { clock: 0, truth: changed, answer: honestAnswer, expected: WHOLE },
      ],
    };
    const host = await startHostileSource({ cases: [one] });
    await using database = await openFreshDatabase();
    await using home = await openHome({
      SOURCE_URL: host.url,
      DATABASE_URL: database.url,
    });
    const party = host.partyOf('audit');
    const forgetChecks = (): Promise<void> =>
      ageCoverageChecks(database.pool, 2);
    const audited = async (): Promise<unknown> => {
      const [latest] = await nightlyLedgers(database.pool);
      return latest?.outcome?.['audited'] ?? null;
    };
    try {
      expect((await home.run(['nightly'])).code).toBe(0);
      await forgetChecks();
      const none = await home.json(['nightly'], { NIGHTLY_AUDIT_SHARE: '0%' });
      expect([none.code, await audited()]).toEqual([0, null]);

      const same = await home.json(['nightly'], {
        NIGHTLY_AUDIT_SHARE: '100%',
      });
      expect([same.code, await audited()]).toMatchObject([
        0,
        [{ found: 'the same' }],
      ]);
      expect(host.requests.at(-1)?.from).toBeUndefined();

      host.advance('audit');
      host.advance('audit');
      await forgetChecks();
      const differs = await home.json(['nightly'], {
        NIGHTLY_AUDIT_SHARE: '100%',
      });
      expect([differs.code, differs.document.verdict]).toEqual([
        2,
        'suspicious',
      ]);
      expect(differs.document.evidence?.['exports']).toMatchObject({
        doubted: [
          {
            partyId: party,
            outcome: {
              verdict: 'suspicious',
              audited: [
                {
                  from: '1970-01-01T00:00:00.000000Z',
                  found: 'not the rows that were published; replaced',
                },
              ],
            },
          },
        ],
      });
      const entries = changed(host.now, party).filter(
        ({ time }) => time < host.now - DAY,
      );
      const held = await loadedQuantities(database.pool);
      for (const { quantity } of entries) expect(held).toContain(quantity);
      expect(held).toHaveLength(changed(host.now, party).length);
    } finally {
      await host.close();
    }
  });
});

interface Order {
  readonly id: string;
  readonly state: string;
  readonly verdict: string | null;
}

describe('an order with `again`', () => {
  test('distrusts its range: rows that the source tells otherwise by now take the place of the known ones', async () => {
    const one = {
      ...declare(
        'ordered',
        'an entry changes after it was closed',
        honestAnswer,
        WHOLE,
        {
          truth,
        },
      ),
      followedBy: [
        { clock: 0, truth: changed, answer: honestAnswer, expected: WHOLE },
      ],
    };
    const host = await startHostileSource({ cases: [one] });
    try {
      await using mirror = await startRealApp({ SOURCE_URL: host.url });
      const partyId = host.partyOf('ordered');
      const ended = async (path: string, body: object): Promise<Order> => {
        const headers = {
          'content-type': 'application/json',
          'idempotency-key': crypto.randomUUID(),
        };
        const response = await fetch(`${mirror.url}${path}`, {
          method: 'POST',
          body: JSON.stringify(body),
          headers,
        });
        expect(response.status).toBe(202);
        const { id } = (await response.json()) as Order;
        return waitFor(
          async () => {
            const now = (await (
              await fetch(`${mirror.url}${path}/${id}`)
            ).json()) as Order;
            return now.state === 'done' ? now : undefined;
          },
          { what: `${path} to end` },
        );
      };
      const held = async (): Promise<string[]> => {
        await ended('/mirror/runs', { kind: 'load' });
        return (await loadedQuantities(mirror.app.warehouse.pool)).toSorted();
      };
      const quantities = (entries: readonly Entry[]): string[] =>
        entries.map(({ quantity }) => quantity).toSorted();
      await ended('/mirror/runs', { kind: 'sync', list: 'parties' });
      expect(await ended('/mirror/exports', { partyId })).toMatchObject({
        verdict: 'complete',
      });
      expect(await held()).toEqual(quantities(truth(host.now, partyId)));

      host.advance('ordered');
      await ended('/mirror/exports', { partyId });
      expect(await held()).toEqual(quantities(truth(host.now, partyId)));

      const to = writeInstant(host.now - 5n * DAY);
      expect(
        await ended('/mirror/exports', { partyId, to, again: true }),
      ).toMatchObject({
        verdict: 'complete',
      });
      expect(await held()).toEqual(quantities(changed(host.now, partyId)));
    } finally {
      await host.close();
    }
  });
});
