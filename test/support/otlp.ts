/**
 * Reads counters from OTLP in protobuf. Only the wire format is used, so this code is
 * independent of the library that wrote the data. Field numbers are those of
 * OpenTelemetry's metrics.proto.
 */

/**
 * Returns the counter's values, keyed by the values of its labels in the order of their
 * names.
 */
export function readCounter(
  body: Buffer,
  name: string,
): ReadonlyMap<string, number> {
  const metrics = fieldsOf(body, 1)
    .flatMap((resource) => fieldsOf(resource, 2))
    .flatMap((scope) => fieldsOf(scope, 2));
  const metric = metrics.find((each) => textOf(each, 1) === name);
  const points = fieldsOf(metric ?? Buffer.alloc(0), 7).flatMap((sum) =>
    fieldsOf(sum, 1),
  );
  return new Map(
    points.map((point) => {
      const labels = fieldsOf(point, 7).map((pair) => {
        const [value] = fieldsOf(pair, 2);
        const text = value === undefined ? '' : textOf(value, 1);
        return [textOf(pair, 1), text] as const;
      });
      const sorted = labels.toSorted(([a], [b]) => (a < b ? -1 : 1));
      const [value] = fieldsOf(point, 4);
      const key = sorted.map(([, text]) => text).join(' ');
      return [key, value?.readDoubleLE() ?? Number.NaN];
    }),
  );
}

/** Returns the first field with that number, as text; empty if there is none. */
function textOf(message: Buffer, number: number): string {
  return fieldsOf(message, number)[0]?.toString() ?? '';
}

/**
 * Returns the bytes of each field with that number: a message, a text, or eight bytes.
 */
function fieldsOf(message: Buffer, wanted: number): Buffer[] {
  const found: Buffer[] = [];
  for (let at = 0; at < message.length;) {
    const tag = readNumber(message, at);
    const number = tag.value >> 3;
    const wire = tag.value & 7;
    const start = wire === 2 ? readNumber(message, tag.end) : undefined;
    const from = start?.end ?? tag.end;
    const end =
      wire === 0
        ? readNumber(message, from).end
        : from + (start?.value ?? (wire === 1 ? 8 : 4));
    if (number === wanted) found.push(message.subarray(from, end));
    at = end;
  }
  return found;
}

function readNumber(
  bytes: Buffer,
  from: number,
): { readonly value: number; readonly end: number } {
  let value = 0;
  let scale = 1;
  let at = from;
  for (; (bytes[at] ?? 0) >= 128; at += 1) {
    value += ((bytes[at] ?? 0) - 128) * scale;
    scale *= 128;
  }
  return { value: value + (bytes[at] ?? 0) * scale, end: at + 1 };
}
