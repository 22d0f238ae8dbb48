/**
 * Reads a request's head, and times in the four spellings that the export's parameters
 * can have.
 */

export interface Names {
  readonly path: string;
  readonly party: string;
  readonly asset: string;
  readonly from: string;
  readonly to: string;
  readonly time: 'ns' | 'ms' | 's' | 'rfc3339';
}

/** The public service's. */
export const DEFAULT_NAMES: Names = {
  path: '/api/v2/ledgerentry/export',
  party: 'partyId',
  asset: 'assetId',
  from: 'dateRange.startTimestamp',
  to: 'dateRange.endTimestamp',
  time: 'ns',
};

export interface Head {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: Readonly<Record<string, string>>;
}

/** `undefined`: the head has not come whole. */
export function readHead(received: string): Head | undefined {
  const end = received.indexOf('\r\n\r\n');
  if (end === -1) return undefined;
  const [first = '', ...lines] = received.slice(0, end).split('\r\n');
  const url = new URL(first.split(' ')[1] ?? '/', 'http://hostile');
  const headers = lines.map((line) => [
    line.slice(0, line.indexOf(':')).toLowerCase(),
    line.slice(line.indexOf(':') + 1).trim(),
  ]);
  return {
    path: url.pathname,
    query: url.searchParams,
    headers: Object.fromEntries(headers) as Record<string, string>,
  };
}

/** Microseconds; `undefined`: not sent. */
export function readTime(
  text: string | null,
  form: Names['time'],
): bigint | undefined {
  if (text === null) return undefined;
  switch (form) {
    case 'ns':
      return BigInt(text) / 1000n;
    case 'ms':
      return BigInt(text) * 1000n;
    case 's':
      return BigInt(text) * 1_000_000n;
    case 'rfc3339': {
      const fraction = /\.(\d{1,6})/.exec(text)?.[1] ?? '';
      const seconds = BigInt(Math.floor(Date.parse(text) / 1000));
      return seconds * 1_000_000n + BigInt(fraction.padEnd(6, '0'));
    }
    default:
      throw new Error(`Cannot read a time: ${String(form)} is no spelling`);
  }
}
