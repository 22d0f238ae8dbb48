/** What every store of resume state must do: the suite that all adapters are held to. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, test } from 'vitest';
import {
  type ResumeState,
  VALUE_CHARS_MAX,
} from '../../src/state/resume-state.ts';
import { waitFor } from '../support/wait-for.ts';

const MINUTE_MS = 60_000;

/**
 * @param open a new client of the same store; clients with other prefixes must not see
 *   each other
 */
export function resumeStateContract(
  name: string,
  open: (prefix: string) => ResumeState,
): void {
  describe(`resume state in ${name}`, () => {
    const state = open('one');
    const sameState = open('one');
    const otherState = open('two');
    afterAll(() =>
      Promise.all([state, sameState, otherState].map((each) => each.close())),
    );

    test('a value comes back from every process until it is replaced', async () => {
      const value = {
        plan: ['2023-05-10T00:00:00Z', null],
        rows: 12,
        text: `"ü\n'—`,
      };
      await state.set('unit', value, MINUTE_MS);
      expect(await sameState.get('unit')).toEqual(value);
      await sameState.set('unit', [], MINUTE_MS);
      expect(await state.get('unit')).toEqual([]);
    });

    test('null, false and 0 are values', async () => {
      for (const value of [null, false, 0, '']) {
        await state.set('small', value, MINUTE_MS);
        expect(await state.get('small')).toBe(value);
      }
    });

    test('two mirrors do not see each other', async () => {
      await state.set('mine', 1, MINUTE_MS);
      await state.reserve('budget', 0.01);
      expect(await otherState.get('mine')).toBeUndefined();
      expect(await otherState.reserve('budget', 0.01)).toEqual({ waitMs: 0 });
    });

    test('a value expires after its time', async () => {
      await state.set('short', 1, 60);
      await waitFor(async () => (await state.get('short')) === undefined, {
        what: 'expiry',
      });
      await state.set('short', 2, MINUTE_MS);
      expect(await state.get('short')).toBe(2);
    });

    test('a value that is no JSON or too large is refused before it is sent', async () => {
      await expect(state.set('k', undefined, MINUTE_MS)).rejects.toMatchObject({
        code: 'STATE_VALUE',
      });
      await expect(
        state.set('k', 'v'.repeat(VALUE_CHARS_MAX), MINUTE_MS),
      ).rejects.toMatchObject({
        code: 'STATE_VALUE',
      });
    });

    test('reservations from many processes are an interval apart, after a small burst', async () => {
      const ratePerSecond = 20;
      const count = 60;
      const startedMs = performance.now();
      const waitsMs: number[] = [];
      const sendTimesMs = await Promise.all(
        Array.from({ length: count }, async (_, index) => {
          const { waitMs } = await (
            index % 2 === 0 ? state : sameState
          ).reserve('shared', ratePerSecond);
          waitsMs.push(waitMs);
          return performance.now() + waitMs;
        }),
      );
      const spanMs = Math.max(...sendTimesMs) - startedMs;
      const intervalMs = 1000 / ratePerSecond;
      // All but the first wait their turn; the burst lets a quarter of a second's worth
      // go ahead.
      expect(spanMs).toBeGreaterThan(
        (count - 1) * intervalMs - 250 - intervalMs,
      );
      expect(Math.max(...waitsMs)).toBeLessThanOrEqual(count * intervalMs);
      const immediate = sendTimesMs.filter(
        (timeMs) => timeMs - startedMs < intervalMs / 2,
      ).length;
      expect(immediate).toBeLessThanOrEqual(ratePerSecond);
      const inFirstSecond = sendTimesMs.filter(
        (timeMs) => timeMs - startedMs < 1000,
      ).length;
      expect(inFirstSecond).toBeLessThanOrEqual(ratePerSecond * 1.25 + 2);
    });

    test('time that passed without requests is not saved up', async () => {
      for (let index = 0; index < 3; index += 1)
        await state.reserve('idle', 100);
      await sleep(1_000); // The subject is the passing of time itself.
      const startedMs = performance.now();
      const waits = await Promise.all(
        Array.from({ length: 100 }, () => state.reserve('idle', 100)),
      );
      const tookMs = performance.now() - startedMs;
      // A quarter of a second's worth may go ahead, and what fell due while they were
      // asked for.
      const immediate = waits.filter(({ waitMs }) => waitMs === 0).length;
      expect(immediate).toBeLessThanOrEqual((250 + tookMs) / 10 + 2);
      expect(Math.max(...waits.map(({ waitMs }) => waitMs))).toBeGreaterThan(
        1_000 - 250 - tookMs - 20,
      );
    });
  });
}
