/**
 * Headers that say what of a ledger the mirror knows, beside an answer or an error. Times
 * are RFC 3339.
 */
import type { FastifyReply } from 'fastify';
import type { LedgerReading } from '../../exports/reading/read-ledger.ts';
import { later } from '../../ledger/ranges.ts';
import { formatInstant, type Micros } from '../../time/time.ts';

/** A line of a header must not become longer than proxies take. */
const RANGES_MAX = 20;

/** What is known; each part may be missing. */
type Known = Partial<Pick<LedgerReading, 'knownFrom' | 'knownTo' | 'missing'>>;

/**
 * Adds `X-Mirror-Known-To`: all that was asked for is known from its beginning up to
 * there. If its beginning is not known, `X-Mirror-Known-From` is there instead. If the
 * caller took what there is, `X-Mirror-Missing` lists what is left out.
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
 * Adds the block time that a node would name, as far as this ledger is proven. A client
 * that goes by the time of the lists would otherwise take a ledger that was exported
 * before them for a whole one. No height stands beside it: a mirror knows the blocks of
 * its lists only.
 */
export function addProvenTime(
  reply: FastifyReply,
  { provenTo }: Pick<LedgerReading, 'provenTo'>,
): void {
  // A time of 0 means that none is told: what is not proven at all is of 1970, too.
  const micros = later(provenTo, 1n);
  reply.header('x-block-timestamp', String(micros * 1_000n));
}

/** Adds what the error of a ledger that is not wholly known says of it. */
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
