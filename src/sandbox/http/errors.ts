/**
 * The service's responses, and its errors, which have a status and a body with three
 * fields.
 */

/** Response headers. A name with several values becomes several header lines. */
export type Headers = Readonly<Record<string, string | string[]>>;

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /**
   * A string is sent with its length. Chunks are sent as they are produced, without a
   * length.
   */
  readonly body: string | Iterable<Buffer>;
}

/** gRPC's names and numbers, and the HTTP statuses that the gateway maps them to. */
const STATUS = {
  InvalidArgument: { grpc: 3, http: 400, message: 'InvalidArgument error' },
  NotFound: { grpc: 5, http: 404, message: 'NotFound error' },
  PermissionDenied: { grpc: 7, http: 403, message: 'PermissionDenied error' },
  ResourceExhausted: { grpc: 8, http: 429, message: 'ResourceExhausted error' },
  Unimplemented: { grpc: 12, http: 501, message: 'Method Not Allowed' },
  Internal: { grpc: 13, http: 500, message: 'Internal error' },
} as const;

export type StatusName = keyof typeof STATUS;

/** A failure, as the service reports it. */
export class ServiceError extends Error {
  readonly status: number;
  readonly body: string;

  /** @param detail the service's own description; `code` is its number for the error */
  constructor(
    name: StatusName,
    detail?: Readonly<Record<'message' | 'inner', string> & { code: number }>,
    message: string = STATUS[name].message,
  ) {
    super(message);
    this.status = STATUS[name].http;
    const details = detail && [
      { '@type': 'type.googleapis.com/vega.ErrorDetail', ...detail },
    ];
    this.body = JSON.stringify({
      code: STATUS[name].grpc,
      message,
      details: details ?? [],
    });
  }
}

/**
 * An error from the gateway itself: a malformed parameter, an unknown path, or a wrong
 * method. The request never reached a handler, so the error has none of a handler's
 * headers and, on the export route, no envelope.
 */
export class GatewayError extends ServiceError {
  constructor(name: StatusName, message?: string) {
    super(name, undefined, message);
  }
}
