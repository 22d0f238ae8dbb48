import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import {
  floorSecond,
  readInstant,
  SECOND_MICROS,
} from '../../src/time/time.ts';
import { formatZone, VegaTimeReader } from '../../src/ledger/vega-time.ts';

function read(text: string): VegaTimeReader | undefined {
  const reader = new VegaTimeReader();
  return reader.read(text) ? reader : undefined;
}

function instantRead(reader: VegaTimeReader | undefined): bigint | undefined {
  return reader && BigInt(reader.second) * SECOND_MICROS;
}

describe('VegaTimeReader', () => {
  test('reads what Postgres writes, to the second', () => {
    const zones = ['+00', '+02', '-03:30', '+05:30', '+00:53:28', '-0800', 'Z'];
    fc.assert(
      fc.property(
        fc.date({
          min: new Date('1900-01-01'),
          max: new Date('2999-12-31'),
          noInvalidDate: true,
        }),
        fc.nat(999_999),
        fc.constantFrom(...zones),
        (date, micros, zone) => {
          const fraction = `.${String(micros).padStart(6, '0')}`.replace(
            /\.?0+$/,
            '',
          );
          const text =
            date.toISOString().slice(0, 19).replace('T', ' ') + fraction + zone;
          expect(instantRead(read(text))).toBe(floorSecond(readInstant(text)));
        },
      ),
    );
  });

  test('reads a second time from the same day alike', () => {
    const reader = new VegaTimeReader();
    expect(
      reader.read('2023-05-01 10:00:00.5+00') &&
        reader.read('2023-05-01 10:00:01+00'),
    ).toBe(true);
    expect(instantRead(reader)).toBe(readInstant('2023-05-01T10:00:01Z'));
  });

  test.each([
    '',
    '2023-05-01',
    '2023-02-29 10:00:00+00',
    '2023-13-01 10:00:00+00',
    '2023-05-01 24:00:00+00',
    '2023-05-01 10:60:00+00',
    '2023-05-01 10:00:00',
    '2023-05-01 10:00:00.+00',
    '2023-05-01 10:00:00.1234567890+00',
    '2023-05-01 10:00:00+00x',
    '2023-05-01 10:00:00+0',
    '2023-05-01 10:00:00+99',
    '2023-05-01x10:00:00+00',
    '{"error":{"code":13,"message"',
  ])('refuses %j', (text) => {
    expect(read(text)).toBeUndefined();
  });

  test('writes offsets as Postgres does', () => {
    expect([0, 7200, -12_600, 3208].map(formatZone)).toEqual([
      '+00',
      '+02',
      '-03:30',
      '+00:53:28',
    ]);
  });
});
