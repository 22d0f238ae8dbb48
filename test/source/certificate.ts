/**
 * An authority and a certificate for 127.0.0.1, made on the spot: no private key in the
 * repository, no openssl needed.
 */
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';

const OID = {
  ecdsaSha256: '2a8648ce3d040302',
  commonName: '550403',
  basicConstraints: '551d13',
  altName: '551d11',
};
const DAY_MS = 86_400_000;

export interface TestCertificates {
  /** PEM texts. */
  readonly authority: string;
  readonly cert: string;
  readonly key: string;
}

export interface CertificateOptions {
  /** The common name of the authority; its key is a new one in any case. */
  readonly authorityName?: string;
  /** How long the certificates are still valid; negative for expired ones. */
  readonly validMs?: number;
}

export function makeCertificates({
  authorityName = 'test authority',
  validMs = DAY_MS,
}: CertificateOptions = {}): TestCertificates {
  const ca = keyPair();
  const server = keyPair();
  const isAuthority = extension(
    OID.basicConstraints,
    sequence(der(0x01, Buffer.from([0xff]))),
  );
  const isLocalhost = extension(
    OID.altName,
    sequence(der(0x87, Buffer.from([127, 0, 0, 1]))),
  );
  return {
    authority: certificate({
      subject: authorityName,
      issuer: authorityName,
      key: ca.publicKey,
      extended: isAuthority,
      signer: ca.privateKey,
      serial: 1,
      validMs: DAY_MS,
    }),
    cert: certificate({
      subject: '127.0.0.1',
      issuer: authorityName,
      key: server.publicKey,
      extended: isLocalhost,
      signer: ca.privateKey,
      serial: 2,
      validMs,
    }),
    key: server.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  };
}

function keyPair(): { publicKey: KeyObject; privateKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' });
}

interface CertificateParts {
  readonly subject: string;
  readonly issuer: string;
  readonly key: KeyObject;
  readonly extended: Buffer;
  readonly signer: KeyObject;
  readonly serial: number;
  readonly validMs: number;
}

/** X.509 version 3. */
function certificate({
  subject,
  issuer,
  key,
  extended,
  signer,
  serial,
  validMs,
}: CertificateParts): string {
  const algorithm = sequence(oid(OID.ecdsaSha256));
  const validity = sequence(
    utcTime(Date.now() - 2 * DAY_MS),
    utcTime(Date.now() + validMs),
  );
  const signed = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.from([serial])),
    algorithm,
    name(issuer),
    validity,
    name(subject),
    key.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(extended)),
  );
  const whole = sequence(
    signed,
    algorithm,
    bits(sign('sha256', signed, signer)),
  );
  return `-----BEGIN CERTIFICATE-----\n${whole.toString('base64').replaceAll(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`;
}

function extension(id: string, value: Buffer): Buffer {
  return sequence(oid(id), der(0x04, value));
}

function name(commonName: string): Buffer {
  return sequence(
    der(
      0x31,
      sequence(oid(OID.commonName), der(0x0c, Buffer.from(commonName))),
    ),
  );
}

function utcTime(atMs: number): Buffer {
  return der(
    0x17,
    Buffer.from(
      `${new Date(atMs).toISOString().replaceAll(/[-:T]/g, '').slice(2, 14)}Z`,
    ),
  );
}

function oid(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, 'hex'));
}

function bits(content: Buffer): Buffer {
  return der(0x03, Buffer.concat([Buffer.from([0]), content]));
}

function sequence(...parts: Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts));
}

function der(tag: number, content: Buffer): Buffer {
  const { length } = content;
  return Buffer.concat([Buffer.from([tag, ...derLength(length)]), content]);
}

/** The length in DER: one octet below 128, otherwise a count of octets before them. */
function derLength(length: number): readonly number[] {
  if (length < 0x80) return [length];
  if (length < 0x100) return [0x81, length];
  return [0x82, length >> 8, length & 0xff];
}
