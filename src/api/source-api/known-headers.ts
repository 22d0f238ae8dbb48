/**
 * Headers that report how much of a ledger the mirror knows, in an answer or an error.
 * Times are RFC 3339.
 */
import type { FastifyReply } from 'fastify';
import type { LedgerReading } from '../../exports/reading/read-ledger.ts';
import { later } from '../../ledger/ranges.ts';
import { formatInstant, type Micros } from '../../time/time.ts';

/** The most ranges in a header, so that its line stays within the limits of proxies. */
const RANGES_MAX = 20;

/** The known part of a ledger; any of the fields may be missing. */
type Known = Partial<Pick<LedgerReading, 'knownFrom' | 'knownTo' | 'missing'>>;

/**
 * Adds `X-Mirror-Known-To`: everything requested is known from the beginning up to that
 * instant. If the beginning is not known, `X-Mirror-Known-From` is sent instead. If the
 * caller accepted a partial answer, `X-Mirror-Missing` lists the ranges that it lacks.
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
 * Adds the block time that a node would send, but never a time after the instant up to
 * which this ledger is proven. If the time of the lists were sent, a client would take
 * a ledger that was exported earlier than the lists for complete. No block height is
 * sent with it, because the mirror only knows the blocks of its lists.
 */
export function addProvenTime(
  reply: FastifyReply,
  { provenTo }: Pick<LedgerReading, 'provenTo'>,
): void {
  // A time of 0 would mean that no time is known, so the time is at least one
  // microsecond, even if nothing is proven.
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
