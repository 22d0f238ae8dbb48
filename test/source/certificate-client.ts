/** A client of the source that shows the certificate in two files, which tests replace. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { openSourceCredentials } from '../../src/app/rotating-secrets.ts';
import { readConfig } from '../../src/config/environment.ts';
import type { Page } from '../../src/lists/ports.ts';
import type { TestCertificates } from './certificate.ts';
import { NEVER, testSource } from './test-source.ts';

const PAGE = { list: 'parties', newestFirst: true, size: 10 } as const;

export interface CertificateClient {
  readonly credentials: ReturnType<typeof openSourceCredentials>;
  readonly certPath: string;
  readonly keyPath: string;
  /** Replaces what both files hold. */
  readonly write: (certificates: TestCertificates) => void;
  /** Requests a page of the list of parties. */
  readonly ask: () => Promise<Page>;
}

/**
 * @param port where the source listens on 127.0.0.1
 * @param authority the PEM text of the authority that the client trusts
 * @param first what the files hold at the start
 */
export function openCertificateClient(
  port: number,
  authority: string,
  first: TestCertificates,
): CertificateClient {
  const dir = mkdtempSync(join(tmpdir(), 'lm-client-certificate-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const caPath = join(dir, 'ca.crt');
  const certPath = join(dir, 'tls.crt');
  const keyPath = join(dir, 'tls.key');
  const write = ({ cert, key }: TestCertificates): void => {
    writeFileSync(certPath, cert);
    writeFileSync(keyPath, key);
  };
  writeFileSync(caPath, authority);
  write(first);
  const config = readConfig({
    env: {
      SOURCE_CLIENT_CERT_FILE: certPath,
      SOURCE_CLIENT_KEY_FILE: keyPath,
    },
    cwd: dir,
  });
  const credentials = openSourceCredentials(config);
  const source = testSource(
    new URL(`https://127.0.0.1:${port}`),
    { ambient: { NODE_EXTRA_CA_CERTS: caPath } },
    { credentials },
  );
  return {
    credentials,
    certPath,
    keyPath,
    write,
    ask: () => source.lists.page(PAGE, NEVER),
  };
}
