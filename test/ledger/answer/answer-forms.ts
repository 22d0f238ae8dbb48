/** The forms in which a CSV may come over the wire, made from the CSV. */

export interface Wire {
  readonly form: 'csv' | 'messages';
  readonly data: 'base64' | 'url-safe' | 'unpadded' | 'lines' | 'plain';
  readonly isPretty: boolean;
  /** Between two messages, and after the last. */
  readonly between: string;
  /** Before everything. */
  readonly lead: string;
}

export const RAW: Wire = {
  form: 'csv',
  data: 'plain',
  isPretty: false,
  between: '',
  lead: '',
};
export const MESSAGES: Wire = {
  ...RAW,
  form: 'messages',
  data: 'base64',
  between: '\n',
};
export const DATA_FORMS: readonly Wire['data'][] = [
  'base64',
  'url-safe',
  'unpadded',
  'lines',
  'plain',
];

/**
 * @param parts the CSV in the pieces that become messages; plain ones must be whole
 *   characters
 */
export function onTheWire(parts: readonly Buffer[], wire: Wire): Buffer {
  if (wire.form === 'csv')
    return Buffer.concat([Buffer.from(wire.lead), ...parts]);
  const messages = parts.map((part, index) => {
    const result = {
      contentType: 'text/csv',
      data: dataText(part, wire.data),
      ...(index === 0
        ? {
            extensions: [
              { '@type': 'type.example/first', note: 'a "quoted" } brace' },
            ],
          }
        : {}),
    };
    return JSON.stringify({ result }, undefined, wire.isPretty ? 2 : undefined);
  });
  return Buffer.from(
    wire.lead + messages.map((message) => message + wire.between).join(''),
  );
}

function dataText(part: Buffer, data: Wire['data']): string {
  const base64 = part.toString('base64');
  const texts: Record<Wire['data'], string> = {
    base64,
    plain: part.toString('utf8'),
    'url-safe': part.toString('base64url'),
    unpadded: base64.replace(/=+$/, ''),
    lines: base64.replaceAll(/.{76}/g, '$&\n'),
  };
  return texts[data];
}

export async function* chunksOf(
  pieces: Iterable<Buffer>,
): AsyncGenerator<Buffer, void, undefined> {
  for (const piece of pieces) yield await Promise.resolve(piece);
}

export async function listed(chunks: AsyncIterable<Buffer>): Promise<Buffer[]> {
  const list: Buffer[] = [];
  for await (const chunk of chunks) list.push(chunk);
  return list;
}

export async function collected(
  chunks: AsyncIterable<Buffer>,
): Promise<Buffer> {
  return Buffer.concat(await listed(chunks));
}
