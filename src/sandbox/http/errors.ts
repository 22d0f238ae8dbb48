/**
 * The service's errors: a status, a body of three fields, and which of the two shapes the body has.
 */

/** gRPC's names, numbers and the HTTP status the gateway makes of them. */
const STATUS = {
  InvalidArgument: { grpc: 3, http: 400, message: 'InvalidArgument error' },
  NotFound: { grpc: 5, http: 404, message: 'NotFound error' },
  PermissionDenied: { grpc: 7, http: 403, message: 'PermissionDenied error' },
  ResourceExhausted: { grpc: 8, http: 429, message: 'ResourceExhausted error' },
  Unimplemented: { grpc: 12, http: 501, message: 'Method Not Allowed' },
  Internal: { grpc: 13, http: 500, message: 'Internal error' },
} as const;

export type StatusName = keyof typeof STATUS;

export interface ErrorDetail {
  /** The service's own number of the error. */
  code: number;
  message: string;
  inner: string;
}

/**
 * A failure that the service answers. Errors of the gateway (`origin`) never reached a handler, so they
 * carry none of a handler's headers and, on the export, no envelope.
 */
export class ServiceError extends Error {
  readonly status: number;
  readonly body: string;
  /** The same with the spaces that the export's own JSON writer puts in. */
  readonly spacedBody: string;
  readonly origin: 'handler' | 'gateway';

  constructor(
    name: StatusName,
    detail: ErrorDetail | undefined,
    message: string = STATUS[name].message,
    origin: 'handler' | 'gateway' = 'handler',
  ) {
    super(detail === undefined ? message : `${message}: ${detail.message}: ${detail.inner}`);
    this.name = 'ServiceError';
    this.status = STATUS[name].http;
    const members = errorMembers(STATUS[name].grpc, message, detail);
    this.body = `{${members.join(',')}}`;
    this.spacedBody = `{${members.join(', ')}}`;
    this.origin = origin;
  }
}

/** An error of the gateway itself: a parameter it cannot read, an unknown path, a wrong method. */
export function gatewayError(name: StatusName, message?: string): ServiceError {
  return new ServiceError(name, undefined, message, 'gateway');
}

function errorMembers(code: number, message: string, detail: ErrorDetail | undefined): string[] {
  const details =
    detail === undefined ? [] : [{ '@type': 'type.googleapis.com/vega.ErrorDetail', ...detail }];
  return [`"code":${code}`, `"message":${JSON.stringify(message)}`, `"details":${JSON.stringify(details)}`];
}

/** What an export says when its query fails, before the first byte or behind the last one. */
export function exportFailure(inner: string): ServiceError {
  return new ServiceError('Internal', { code: 260002, message: 'failed to export ledger entries', inner });
}
