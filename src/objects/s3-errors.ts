/** What an error of S3 or of the way to it means. Decided by status, name and errno. */
import { S3ServiceException } from '@aws-sdk/client-s3';
import { errorCode, PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';

const UNREACHABLE = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH']);
const CREDENTIALS = new Set(['CredentialsProviderError', 'TokenProviderError']);

export function statusOf(error: unknown): number | undefined {
  return error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;
}

/** The key (or the upload, the bucket) is not there. */
export function isMissing(error: unknown): boolean {
  return statusOf(error) === 404 && !(error instanceof Error && error.name === 'NoSuchBucket');
}

/** The condition did not hold: something lies under the key. */
export function isTaken(error: unknown): boolean {
  return statusOf(error) === 412;
}

/** The store does not know conditional writes. */
export function isConditionUnknown(error: unknown): boolean {
  return statusOf(error) === 501;
}

/** @param what was done, and to which key: "publish ledger/…" */
export function s3Error(what: string, url: string, error: unknown): Error {
  if (error instanceof PermanentError || error instanceof RetryableError) return error;
  if (error instanceof Error && error.name === 'AbortError') return error;
  const name = error instanceof Error ? error.name : 'UNKNOWN';
  const status = statusOf(error);
  const code = errorCode(error);
  const message = `Cannot ${what} in ${url}`;
  const details = { cause: error, meta: { status, name } };
  if (CREDENTIALS.has(name)) {
    return new PermanentError(
      `${message}: no AWS credentials were found; set AWS_ACCESS_KEY_ID or a profile`,
      {
        ...details,
        code: 'OBJECT_STORE_CREDENTIALS',
      },
    );
  }
  if (UNREACHABLE.has(code)) {
    return new UnreachableError(`${message}: no connection (${code}); check the endpoint`, {
      ...details,
      code: 'OBJECT_STORE_UNREACHABLE',
    });
  }
  // 409 is a conditional write that met another one; without a status the connection broke.
  if (status === undefined || status === 409 || status === 429 || status >= 500) {
    return new RetryableError(`${message}: ${status ?? code} ${name}; it is tried again`, {
      ...details,
      code: 'OBJECT_STORE_BUSY',
    });
  }
  return new PermanentError(`${message}: ${status} ${name}; check the bucket, the region and the rights`, {
    ...details,
    code: 'OBJECT_STORE_REFUSED',
  });
}
