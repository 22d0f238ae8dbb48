/** What the service answers, and its errors: a status, a body of three fields, in one of two shapes. */

/** Several values of one name become several lines. */
export type Headers = readonly (readonly [string, string | readonly string[]])[];

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** A text goes with its length, pieces as they come. */
  readonly body: string | Iterable<Buffer>;
}

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

/** Its code is the service's own number of the error. */
export type ErrorDetail = Readonly<Record<'message' | 'inner', string> & { code: number }>;

/**
 * A failure that the service answers. Errors of the gateway (`origin`) never reached a handler, so they
 * carry none of a handler's headers and, on the export, no envelope.
 */
export class ServiceError extends Error {
  readonly status: number;
  readonly origin: 'handler' | 'gateway';
  readonly #members: readonly string[];

  constructor(
    name: StatusName,
    detail: ErrorDetail | undefined,
    message: string = STATUS[name].message,
    origin: 'handler' | 'gateway' = 'handler',
  ) {
    super(detail === undefined ? message : `${message}: ${detail.message}: ${detail.inner}`);
    this.name = 'ServiceError';
    this.status = STATUS[name].http;
    this.origin = origin;
    const details = detail && { '@type': 'type.googleapis.com/vega.ErrorDetail', ...detail };
    const members = { code: STATUS[name].grpc, message, details: details === undefined ? [] : [details] };
    this.#members = Object.entries(members).map(([key, value]) => `"${key}":${JSON.stringify(value)}`);
  }

  /** @param separator the export's own JSON writer puts spaces in */
  body(separator: ',' | ', ' = ','): string {
    return `{${this.#members.join(separator)}}`;
  }
}

/** An error of the gateway itself: a parameter it cannot read, an unknown path, a wrong method. */
export function gatewayError(name: StatusName, message?: string): ServiceError {
  return new ServiceError(name, undefined, message, 'gateway');
}
