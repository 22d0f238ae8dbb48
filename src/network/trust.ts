/** Sets which CAs this process trusts and how it connects, for all clients alike. */
import { readFileSync } from 'node:fs';
import { setDefaultAutoSelectFamilyAttemptTimeout } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { UsageError } from '../errors/errors.ts';
import type { Ambient } from './proxy-rules.ts';

/**
 * How long one address of a host is tried before the next one. With Node's default of 250
 * ms, a host is never reached if it takes longer to respond and its other address family
 * is dead.
 */
const ADDRESS_ATTEMPT_MS = 2_500;

const PLAIN_CERTIFICATE =
  /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g;

/**
 * Sets the defaults of Node's clients (the source, S3, Postgres, Redis, notices, traces).
 * Node itself reads NODE_EXTRA_CA_CERTS at startup, from the environment only and not
 * from `.env`.
 * @returns why the file of NODE_EXTRA_CA_CERTS is not used, or undefined. This is not an
 *   error yet, because the command may not need any of its CAs
 */
export function applyNetworkDefaults(ambient: Ambient): string | undefined {
  setDefaultAutoSelectFamilyAttemptTimeout(ADDRESS_ATTEMPT_MS);
  try {
    const extra = readExtra(ambient);
    // Node trusts them already if the variable was in its own environment. To set them
    // again takes 10 ms or more, because Node parses all authorities anew.
    if (extra !== undefined && !isTrusted(extra))
      setDefaultCACertificates(withDefaults(extra));
    return undefined;
  } catch (error) {
    return unusable(error).message;
  }
}

/**
 * Returns all trusted CAs in PEM, or undefined if NODE_EXTRA_CA_CERTS adds none.
 * @throws UsageError if its file cannot be read or has no certificate
 */
export function readAuthorities(ambient: Ambient): string[] | undefined {
  const extra = readExtra(ambient);
  return extra === undefined ? undefined : withDefaults(extra);
}

/** Returns the content of the file of NODE_EXTRA_CA_CERTS; undefined if it is not set. */
function readExtra(ambient: Ambient): string | undefined {
  const path = ambient['NODE_EXTRA_CA_CERTS'] ?? '';
  if (path === '') return undefined;
  let pem: string;
  try {
    pem = readFileSync(path, 'utf8');
  } catch (error) {
    throw unusable(error);
  }
  if (!pem.includes('-----BEGIN'))
    throw unusable(new Error('it holds no certificate'));
  return pem;
}

function withDefaults(pem: string): string[] {
  return [...new Set([...getCACertificates('default'), pem])];
}

/**
 * Whether every certificate in the text is among the defaults. A text that contains
 * anything but plain certificates counts as not trusted.
 */
function isTrusted(pem: string): boolean {
  const trusted = new Set(getCACertificates('default').map(withoutBlanks));
  const found = pem.match(PLAIN_CERTIFICATE) ?? [];
  return (
    found.length === pem.split('-----BEGIN').length - 1 &&
    found.every((certificate) => trusted.has(withoutBlanks(certificate)))
  );
}

/** Line ends differ between files. */
function withoutBlanks(pem: string): string {
  return pem.replaceAll(/\s/g, '');
}

function unusable(error: unknown): UsageError {
  if (error instanceof UsageError) return error;
  const state = error instanceof Error ? error.message : String(error);
  return new UsageError([
    `NODE_EXTRA_CA_CERTS: cannot be used (${state}); give a readable PEM file`,
  ]);
}
