/**
 * Verifies AWS Signature Version 4 without the product's code, as a server does; for the
 * S3 double.
 */
import { createHash, createHmac } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

export interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

const AUTHORIZATION =
  /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/;

/**
 * @returns the S3 error code, or undefined if the signature and the hash of the body
 *   are right
 */
export function checkSignature(
  request: IncomingMessage,
  body: Buffer,
  credentials: Credentials,
): string | undefined {
  const match = AUTHORIZATION.exec(request.headers.authorization ?? '');
  if (match === null) return 'AccessDenied';
  const [, accessKeyId, day = '', region = '', signedHeaders = '', signature] =
    match;
  if (accessKeyId !== credentials.accessKeyId) return 'InvalidAccessKeyId';
  const payload = String(request.headers['x-amz-content-sha256'] ?? '');
  if (payload !== 'UNSIGNED-PAYLOAD' && payload !== sha256(body))
    return 'XAmzContentSHA256Mismatch';
  const url = new URL(request.url ?? '/', 'http://double');
  const query = [...url.searchParams]
    .map(([name, value]) => `${encode(name)}=${encode(value)}`)
    .toSorted()
    .join('&');
  const headers = signedHeaders
    .split(';')
    .map((name) => `${name}:${String(request.headers[name] ?? '').trim()}\n`)
    .join('');
  const canonical = [
    request.method,
    url.pathname,
    query,
    headers,
    signedHeaders,
    payload,
  ].join('\n');
  const scope = `${day}/${region}/s3/aws4_request`;
  const date = String(request.headers['x-amz-date']);
  const toSign = [
    'AWS4-HMAC-SHA256',
    date,
    scope,
    sha256(Buffer.from(canonical)),
  ].join('\n');
  const key = [day, region, 's3', 'aws4_request'].reduce<string | Buffer>(
    (secret, part) => createHmac('sha256', secret).update(part).digest(),
    `AWS4${credentials.secretAccessKey}`,
  );
  const expected = createHmac('sha256', key).update(toSign).digest('hex');
  return expected === signature ? undefined : 'SignatureDoesNotMatch';
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function encode(text: string): string {
  return encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
