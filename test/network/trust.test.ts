/** What every client of this process uses by default: its authorities, and its patience with an address. */
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { getDefaultAutoSelectFamilyAttemptTimeout } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getCACertificates } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { applyNetworkDefaults } from '../../src/network/trust.ts';
import { makeCertificates } from '../source/certificate.ts';

test('applyNetworkDefaults trusts NODE_EXTRA_CA_CERTS and leaves an address time to answer', () => {
  const { authority } = makeCertificates();
  const folder = mkdtempSync(join(tmpdir(), 'trust-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const caFile = join(folder, 'ca.pem');
  writeFileSync(caFile, authority);

  expect(applyNetworkDefaults({ NODE_EXTRA_CA_CERTS: caFile })).toBeUndefined();
  const { raw } = new X509Certificate(authority);
  const trusted = getCACertificates('default').map(
    (pem) => new X509Certificate(pem).raw,
  );

  expect(trusted.some((der) => der.equals(raw))).toBe(true);
  expect(getDefaultAutoSelectFamilyAttemptTimeout()).toBeGreaterThanOrEqual(
    2_000,
  );
  expect(applyNetworkDefaults({ NODE_EXTRA_CA_CERTS: '/nonexistent' })).toMatch(
    'NODE_EXTRA_CA_CERTS',
  );
});
