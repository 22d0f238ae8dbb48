/** What goes out on the wire, and the forms in which a source may send a CSV file. */

/** Text or bytes to send, or milliseconds to wait. Text goes out as UTF-8. */
export type Part = string | Buffer | number;

export interface Reply {
  /** `none`: no head, the body is all that goes out. */
  readonly protocol: 'HTTP/1.0' | 'HTTP/1.1' | 'none';
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  /**
   * `close`: nothing but the end of the connection ends the body; a number: this
   * Content-Length, true or not.
   */
  readonly framing: 'chunked' | 'length' | 'close' | number;
  readonly body: Iterable<Part>;
  readonly trailers: readonly (readonly [string, string])[];
  /** `cut`: the connection ends before the body does; `reset`: it breaks. */
  readonly ending: 'whole' | 'cut' | 'reset';
  /** Sent before the status line, as it is. */
  readonly prelude: string;
}

const CSV_TYPE = ['Content-Type', 'text/csv'] as const;
const JSON_TYPE = ['Content-Type', 'application/json'] as const;

export function reply(
  body: string | Iterable<Part>,
  rest: Partial<Reply> = {},
): Reply {
  return {
    protocol: 'HTTP/1.1',
    status: 200,
    headers: [CSV_TYPE],
    framing: 'chunked',
    body: typeof body === 'string' ? [body] : body,
    trailers: [],
    ending: 'whole',
    prelude: '',
    ...rest,
  };
}

export function json(
  value: unknown,
  status = 200,
  headers: Reply['headers'] = [],
): Reply {
  return reply(JSON.stringify(value), {
    status,
    headers: [JSON_TYPE, ...headers],
    framing: 'length',
  });
}

/** The error body of the interface document. */
export function errorBody(code: number, text: string): object {
  return {
    code,
    message: text,
    details: [{ '@type': 'type.example/Detail', inner: text }],
  };
}

export function refusal(
  status: number,
  text: string,
  headers: Reply['headers'] = [],
): Reply {
  return json(errorBody(13, text), status, headers);
}

/** Pieces of a text, each of so many characters. */
export function cut(text: string, characters: number): string[] {
  return Array.from({ length: Math.ceil(text.length / characters) }, (_, at) =>
    text.slice(at * characters, (at + 1) * characters),
  );
}

/** Pieces of whole lines. */
export function cutLines(text: string, lines: number): string[] {
  const all = text.split(/(?<=\n)/);
  return Array.from({ length: Math.ceil(all.length / lines) }, (_, at) =>
    all.slice(at * lines, (at + 1) * lines).join(''),
  );
}

export type DataForm = 'base64' | 'plain';

export function message(
  data: string,
  form: DataForm,
  rest: object = {},
): object {
  const encoded =
    form === 'base64' ? Buffer.from(data).toString('base64') : data;
  return { result: { contentType: 'text/csv', data: encoded, ...rest } };
}

/** A stream of messages, one a line; the first one carries the extensions. */
export function messages(
  pieces: readonly string[],
  form: DataForm,
  separator = '\n',
): Reply {
  const texts = pieces.map((piece, at) =>
    JSON.stringify(
      message(
        piece,
        form,
        at === 0 ? { extensions: [{ '@type': 'type.example/Export' }] } : {},
      ),
    ),
  );
  return reply(
    texts.map((text) => text + separator),
    { headers: [JSON_TYPE] },
  );
}

export { CSV_TYPE, JSON_TYPE };
