import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { PermanentError, RetryableError } from '../../../src/errors/errors.ts';
import { AnswerReader } from '../../../src/ledger/answer/answer-reader.ts';
import {
  chunksOf,
  collected,
  DATA_FORMS,
  listed,
  MESSAGES,
  onTheWire,
  RAW,
  type Wire,
} from './answer-forms.ts';
import { cutAt, HEADER_12 } from '../csv.ts';

const CSV = Buffer.from(
  `${HEADER_12}\n2023-05-01 10:00:00.5+00,1,"a ""quoted"" {brace}","Zoë\\,\n€ 𝄞",\\x,\n`,
);
const WIRES: Wire[] = [
  RAW,
  ...DATA_FORMS.flatMap((data) => [
    { ...MESSAGES, data },
    { ...MESSAGES, data, isPretty: true, between: ' \r\n\t' },
    { ...MESSAGES, data, between: '' },
  ]),
].flatMap((wire) => [
  wire,
  { ...wire, lead: '\ufeff' },
  { ...wire, lead: '\r\n ' },
]);

function read(...pieces: Buffer[]): AnswerReader {
  return new AnswerReader(chunksOf(pieces));
}

async function failureOf(
  ...pieces: (Buffer | string)[]
): Promise<RetryableError | PermanentError> {
  const error = await collected(
    read(...pieces.map((piece) => Buffer.from(piece))),
  ).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof RetryableError || error instanceof PermanentError)
    return error;
  throw new Error('no error of ours', { cause: error });
}

/** Whole characters, so that a plain form can carry each part. */
function characterParts(csv: string, places: readonly number[]): Buffer[] {
  const characters = Array.from(csv);
  const borders = [
    0,
    ...places.map((place) => place % (characters.length + 1)),
    characters.length,
  ];
  const sorted = borders.toSorted((a, b) => a - b);
  return sorted
    .slice(1)
    .map((border, index) =>
      Buffer.from(characters.slice(sorted[index], border).join('')),
    );
}

describe('an answer that is cut anywhere', () => {
  test.each(
    WIRES.map(
      (wire) =>
        [`${wire.form} ${wire.data} ${JSON.stringify(wire)}`, wire] as const,
    ),
  )('gives the same CSV at every cut: %s', async (_, wire) => {
    const bytes = onTheWire(
      wire.data === 'plain'
        ? characterParts(CSV.toString(), [7, 300])
        : cutAt(CSV, [10, 301]),
      wire,
    );
    for (let place = 0; place <= bytes.length; place += 1) {
      const reader = read(bytes.subarray(0, place), bytes.subarray(place));
      expect((await collected(reader)).equals(CSV), `cut at ${place}`).toBe(
        true,
      );
      expect(reader.form).toBe(wire.form);
    }
    const single = read(
      ...Array.from(bytes, (_byte, index) => bytes.subarray(index, index + 1)),
    );
    expect((await collected(single)).equals(CSV)).toBe(true);
  });

  test('gives the same CSV for any rows, messages and cuts', async () => {
    const field = fc
      .string({ unit: 'grapheme', maxLength: 12 })
      .map((text) => `"${text.replaceAll('"', '""')}"`);
    const row = fc.array(fc.oneof(field, fc.bigInt().map(String)), {
      minLength: 2,
      maxLength: 4,
    });
    const csvText = fc
      .array(row, { maxLength: 8 })
      .map((rows) => [HEADER_12, ...rows.map(String)].join('\n') + '\n');
    const places = fc.array(fc.nat(), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(
        csvText,
        fc.constantFrom(...WIRES),
        places,
        places,
        async (text, wire, parts, cuts) => {
          const csv = Buffer.from(text);
          const wired = onTheWire(
            wire.data === 'plain'
              ? characterParts(text, parts)
              : cutAt(csv, parts),
            wire,
          );
          const got = await collected(read(...cutAt(wired, cuts)));
          expect(got.toString()).toBe(csv.toString());
        },
      ),
      { numRuns: 300 },
    );
  });

  test('passes on a raw CSV without a copy', async () => {
    const first = Buffer.from('a,b\n1,2\n');
    const second = Buffer.from('3,4\n');
    const got = await listed(read(first, second));
    expect(got[0]?.buffer).toBe(first.buffer);
    expect(got[1]).toBe(second);
  });

  test('is decoded fully for large data, whatever else the first message says', async () => {
    const csv = Buffer.concat([
      Buffer.from('a,b\n'),
      Buffer.from('12,34567\n'.repeat(300_000)),
    ]);
    const bytes = onTheWire(cutAt(csv, [1_048_577, 2_000_001]), MESSAGES);
    const reader = read(
      ...cutAt(
        bytes,
        Array.from({ length: 40 }, (_, index) => index * 99_991),
      ),
    );
    expect((await collected(reader)).equals(csv)).toBe(true);
  });

  test('may be a header alone or a message without data', async () => {
    expect((await collected(read(Buffer.from('a,b\n')))).toString()).toBe(
      'a,b\n',
    );
    const silent = Buffer.from(
      '{"result":{"contentType":"text/csv"}}{"result":{"data":"YSxiCg=="}}',
    );
    expect((await collected(read(silent))).toString()).toBe('a,b\n');
    expect((await collected(read())).length).toBe(0);
  });

  test('keeps the encoding of its first payload, so a later one that looks like base64 stays plain', async () => {
    const messages = ['vega', '_time,b\n', 'abcd', ',1\n'].map((data) =>
      JSON.stringify({ result: { data } }),
    );
    expect(
      (await collected(read(Buffer.from(messages.join('\n'))))).toString(),
    ).toBe('vega_time,b\nabcd,1\n');
  });

  test('does not take header names of base64 letters for base64', async () => {
    for (const name of ['time', 'vega', 'quantity', 'v']) {
      const messages = [name, ',b\n1,2\n'].map((data) =>
        JSON.stringify({ result: { data } }),
      );
      expect(
        (await collected(read(Buffer.from(messages.join(''))))).toString(),
      ).toBe(`${name},b\n1,2\n`);
    }
  });

  test('decodes long plain data full of escapes', async () => {
    const parts = [
      'a,b\n\\',
      `\\"${'1,"x"\n'.repeat(2000)}`,
      `${'y'.repeat(9000)}\t${'z'.repeat(9000)}`,
      '\\\\',
    ];
    const bytes = onTheWire(
      parts.map((part) => Buffer.from(part)),
      { ...MESSAGES, data: 'plain' },
    );
    for (const step of [1, 7, 4096, bytes.length]) {
      const places = Array.from(
        { length: Math.ceil(bytes.length / step) },
        (_, index) => index * step,
      );
      expect((await collected(read(...cutAt(bytes, places)))).toString()).toBe(
        parts.join(''),
      );
    }
  });
});

describe('an error in the middle of an answer', () => {
  const status = (code: number, message: string) => ({
    code,
    message,
    details: [
      {
        '@type': 'type.example/vega.ErrorDetail',
        code: 260_002,
        message: 'failed',
        inner: 'boom',
      },
    ],
  });
  const good = JSON.stringify({
    result: { data: Buffer.from('a,b\n1,2\n').toString('base64') },
  });

  test.each([
    ['enveloped', JSON.stringify({ error: status(13, 'Internal error') })],
    ['bare', JSON.stringify(status(13, 'Internal error'))],
    [
      'pretty',
      JSON.stringify({ error: status(13, 'Internal error') }, undefined, 3),
    ],
  ])(
    'is retryable after rows, with its position and reason: %s',
    async (_, error) => {
      const failure = await failureOf(good, error);
      expect(failure).toBeInstanceOf(RetryableError);
      expect(failure).toMatchObject({
        code: 'SOURCE_ERROR_IN_STREAM',
        meta: {
          code: 13,
          message: 'Internal error',
          detailCode: 260_002,
          inner: 'failed: boom',
          byteOffset: good.length,
          csvBytes: 8,
        },
      });
    },
  );

  test('does not hold back the rows before it', async () => {
    const chunks: Buffer[] = [];
    const reader = read(
      Buffer.from(good),
      Buffer.from(JSON.stringify({ error: status(13, 'x') })),
    );
    await expect(
      (async () => {
        for await (const chunk of reader) chunks.push(chunk);
      })(),
    ).rejects.toMatchObject({ code: 'SOURCE_ERROR_IN_STREAM' });
    expect(Buffer.concat(chunks).toString()).toBe('a,b\n1,2\n');
  });

  test('without rows is permanent for a refused question, but not for a failure', async () => {
    const refused = await failureOf(
      '{"code":3, "message":"parsing field", "details":[]}',
    );
    expect(refused).toBeInstanceOf(PermanentError);
    expect(refused).toMatchObject({
      code: 'EXPORT_REFUSED',
      meta: { code: 3, byteOffset: 0 },
    });
    const failed = await failureOf(
      JSON.stringify({ error: status(13, 'Internal error') }),
    );
    expect(failed).toMatchObject({
      code: 'SOURCE_ERROR_IN_STREAM',
      meta: { byteOffset: 0 },
    });
  });
});

describe('an answer that is neither CSV nor messages', () => {
  test.each([
    [
      'an error page',
      '<html><head><title>502 Bad Gateway</title></head></html>',
    ],
    [
      'a plain sentence',
      'upstream connect error or disconnect/reset before headers\n',
    ],
    ['a list', '[1,2]'],
    ['JSON of something else', '{"parties":{"edges":[]}}'],
    ['no JSON', '{"result":{"data":"YQ==",}}'],
    ['words between messages', '{"result":{"data":"YSxiCg=="}} oops'],
    ['data that is no text', '{"result":{"data":7}}'],
    [
      'base64 that stops being base64',
      '{"result":{"data":"YSxiCg=="}}{"result":{"data":"YSx*Cg=="}}',
    ],
    [
      'base64 that ends inside a byte',
      '{"result":{"data":"YSxiCg=="}}{"result":{"data":"YSxiC"}}',
    ],
    ['half a character', '{"result":{"data":"a,b\\n\\ud83d"}}'],
    [
      'a message that is not UTF-8',
      Buffer.concat([
        Buffer.from('{"result":{"data":"a,'),
        Buffer.from([0xff]),
        Buffer.from('"}}'),
      ]),
    ],
  ])('%s is not understood, and may be another time', async (_, wire) => {
    const failure = await failureOf(wire);
    expect(failure).toBeInstanceOf(RetryableError);
    expect(failure.code).toBe('ANSWER_NOT_UNDERSTOOD');
  });

  test('is reported with a short sample that shows no credential', async () => {
    const failure = await failureOf(
      `<p>Authorization: Bearer-abcdef\u0007</p>${'x'.repeat(5000)}`,
    );
    expect(failure.message).not.toContain('abcdef');
    expect(failure.message.length).toBeLessThan(400);
  });

  test.each([
    '{"result":{"data":"YSx',
    '{"result":{"data":"YSxiCg=="}',
    '{"result":{"data":"a\\',
  ])('an end inside a message breaks the answer: %s', async (wire) => {
    expect(await failureOf(wire)).toMatchObject({ code: 'SOURCE_BROKE' });
  });

  test('is refused before a message beyond the limit is fully received', async () => {
    const endless = chunksOf([
      Buffer.from('{"result":{"data":"'),
      ...Array.from({ length: 40 }, () => Buffer.alloc(1000, 0x61)),
    ]);
    await expect(
      collected(new AnswerReader(endless, 10_000)),
    ).rejects.toMatchObject({
      code: 'MESSAGE_TOO_LARGE',
    });
  });

  test('is refused where its messages nest too deep', async () => {
    expect(await failureOf(`{"result":${'['.repeat(100)}`)).toMatchObject({
      code: 'ANSWER_NOT_UNDERSTOOD',
    });
  });
});
