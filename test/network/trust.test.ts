/** What every client of this process uses by default: its authorities, and its patience with an address. */
import { spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { getDefaultAutoSelectFamilyAttemptTimeout } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getCACertificates } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { applyNetworkDefaults } from '../../src/network/trust.ts';
import { makeCertificates } from '../source/certificate.ts';

const TRUST = new URL('../../src/network/trust.ts', import.meta.url).href;

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

test.each([
  ['in the environment', true, ''],
  ['only in .env', false, 'set'],
])(
  'a process with NODE_EXTRA_CA_CERTS %s sets the authorities only if Node has not',
  (_, isInEnvironment, printed) => {
    const folder = mkdtempSync(join(tmpdir(), 'trust-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const caFile = join(folder, 'ca.pem');
    // A file as operators write it: a comment, and line ends of another system.
    const { authority } = makeCertificates();
    writeFileSync(caFile, `# ours\r\n${authority.replaceAll('\n', '\r\n')}`);
    const script = `
      import { syncBuiltinESMExports } from 'node:module';
      import tls from 'node:tls';
      tls.setDefaultCACertificates = () => console.log('set');
      syncBuiltinESMExports();
      const { applyNetworkDefaults } = await import('${TRUST}');
      applyNetworkDefaults({ NODE_EXTRA_CA_CERTS: process.argv[1] });`;
    const { stdout, stderr } = spawnSync(
      process.execPath,
      ['--input-type=module', '-e', script, caFile],
      {
        encoding: 'utf8',
        env: isInEnvironment ? { NODE_EXTRA_CA_CERTS: caFile } : {},
      },
    );
    expect({ stdout: stdout.trim(), stderr }).toEqual({
      stdout: printed,
      stderr: '',
    });
  },
);
