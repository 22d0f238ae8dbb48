/**
 * Response headers that report how much of a ledger the mirror knows. Times are RFC 3339.
 */
import type { FastifyReply } from 'fastify';
import type { LedgerReading } from '../../exports/reading/read-ledger.ts';
import { later } from '../../ledger/ranges.ts';
import { formatInstant, type Micros } from '../../time/time.ts';

/**
 * Maximum number of ranges in a header, which keeps it within the size limits of proxies.
 */
const RANGES_MAX = 20;

/** The known part of a ledger; any of the fields may be missing. */
type Known = Partial<Pick<LedgerReading, 'knownFrom' | 'knownTo' | 'missing'>>;

/**
 * Adds `X-Mirror-Known-To`, the instant up to which everything requested is known from
 * the beginning. If the beginning is not known, `X-Mirror-Known-From` is sent instead. If
 * the caller accepted a partial response, `X-Mirror-Missing` lists the missing ranges.
 */
export function addKnownHeaders(
  reply: FastifyReply,
  { knownFrom, knownTo, missing = [] }: Known,
): void {
  if (knownTo !== undefined)
    reply.header('x-mirror-known-to', formatInstant(knownTo));
  if (knownFrom !== undefined)
    reply.header('x-mirror-known-from', formatInstant(knownFrom));
  if (missing.length === 0) return;
  const ranges = missing.slice(0, RANGES_MAX).map(({ from, to }) => {
    const end = to === undefined ? '..' : formatInstant(to);
    return `${formatInstant(from)}/${end}`;
  });
  reply.header('x-mirror-missing', [...new Set(ranges)].join(', '));
}

/**
 * Adds the block time that a node would send, capped at the instant up to which this
 * ledger is proven. With the block time of the lists instead, clients would wrongly
 * consider a ledger complete up to that time, even if it was exported before the lists
 * were read. No block height is sent, because the mirror only knows the blocks of its
 * lists.
 */
export function addProvenTime(
  reply: FastifyReply,
  { provenTo }: Pick<LedgerReading, 'provenTo'>,
): void {
  // A time of 0 would mean "unknown", so send at least one microsecond, even if nothing
  // is proven.
  const micros = later(provenTo, 1n);
  reply.header('x-block-timestamp', String(micros * 1_000n));
}

/** Adds headers to an error about a ledger that is only partly known. */
export function addKnownOfError(
  reply: FastifyReply,
  meta: Readonly<Record<string, unknown>>,
): void {
  const { knownFrom, knownTo } = meta;
  addKnownHeaders(reply, {
    knownFrom: instantOf(knownFrom),
    knownTo: instantOf(knownTo),
  });
}

function instantOf(value: unknown): Micros | undefined {
  return typeof value === 'bigint' ? value : undefined;
}
