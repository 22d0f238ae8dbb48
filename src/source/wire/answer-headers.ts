/**
 * Reads a response's headers: how long to wait, whether the budget is spent, and the
 * source's block height.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { AnswerHead } from '../../exports/ports.ts';
import type { Page } from '../../lists/ports.ts';
import { SECOND_MICROS } from '../../time/time.ts';

const SECONDS = /^\d{1,9}(?:\.\d+)?$/;
/**
 * Several caches may have appended their ages; the first one counts (RFC 9111). A
 * number that would overflow a cache's counter still counts as an age.
 */
const AGE = /^\d{1,20}(?=\s*(?:,|$))/;
const UINT64_MAX = 2n ** 64n - 1n;
/**
 * The longest wait that is accepted. A date more than a day ahead is the sender's
 * mistake.
 */
const WAIT_MAX_MS = 86_400_000;
/** How long to wait if the budget is spent and the response does not say until when. */
const RESET_MS = 1_000;

/**
 * Prefers `RateLimit-Retry-After`, which only bans have, over `Retry-After`. Both
 * contain seconds or an HTTP date.
 */
export function retryAfterMs(
  headers: IncomingHttpHeaders,
  nowMs: number,
): number | undefined {
  const text =
    single(headers['ratelimit-retry-after']) ?? single(headers['retry-after']);
  if (text === undefined) return undefined;
  if (SECONDS.test(text))
    return Math.min(Math.ceil(Number(text) * 1000), WAIT_MAX_MS);
  const at = Date.parse(text);
  return Number.isNaN(at)
    ? undefined
    : Math.min(Math.max(at - nowMs, 0), WAIT_MAX_MS);
}

/** Whether the response is a ban. Only bans have this header. */
export function isLimitedInTime(headers: IncomingHttpHeaders): boolean {
  return single(headers['ratelimit-retry-after']) !== undefined;
}

/**
 * Returns how long the source's own budget stays spent, in milliseconds.
 * @returns undefined unless the source reports that it is spent
 */
export function exhaustedForMs(
  headers: IncomingHttpHeaders,
): number | undefined {
  const remaining = single(headers['ratelimit-remaining']);
  const reset = single(headers['ratelimit-reset']);
  if (
    remaining === undefined ||
    !/^-?\d{1,9}$/.test(remaining) ||
    Number(remaining) > 0
  )
    return undefined;
  if (reset === undefined || !SECONDS.test(reset)) return RESET_MS;
  return Math.min(Math.ceil(Number(reset) * 1000), WAIT_MAX_MS);
}

/**
 * Returns when the response was generated and the node's block at that time. A cached
 * response has an `Age`.
 */
export function readAnswerHead(headers: IncomingHttpHeaders): AnswerHead {
  const { answeredAt, ...clock } = readSourceClock(headers);
  const seconds = AGE.exec(single(headers.age) ?? '')?.[0];
  const ageMicros =
    seconds === undefined ? undefined : BigInt(seconds) * SECOND_MICROS;
  const producedAt =
    answeredAt === undefined ? undefined : answeredAt - (ageMicros ?? 0n);
  return { ...clock, producedAt, ageMicros };
}

/**
 * Returns the source's last block, unless it is 0 or missing, and the time of the
 * response by the source's own clock.
 */
export function readSourceClock(
  headers: IncomingHttpHeaders,
): Pick<Page, 'blockHeight' | 'blockTime' | 'answeredAt' | 'isProven'> {
  const nanos = unsigned(headers['x-block-timestamp']);
  const ms = Date.parse(single(headers.date) ?? '');
  const isMirror = single(headers['x-mirror-known-to']) !== undefined;
  return {
    ...(isMirror ? { isProven: true } : {}),
    blockHeight: unsigned(headers['x-block-height']),
    blockTime: nanos === undefined ? undefined : nanos / 1000n,
    answeredAt: Number.isNaN(ms) ? undefined : BigInt(ms) * 1000n,
  };
}

function unsigned(header: string | string[] | undefined): bigint | undefined {
  const text = single(header);
  if (text === undefined || !/^\d{1,20}$/.test(text)) return undefined;
  const value = BigInt(text);
  return value === 0n || value > UINT64_MAX ? undefined : value;
}

function single(header: string | string[] | undefined): string | undefined {
  const value = Array.isArray(header) ? header[0] : header;
  return value === undefined || value.trim() === '' ? undefined : value.trim();
}
