/**
 * Errors in the source's format, a google.rpc.Status. An error of the source's gateway
 * has no detail and one Content-Type. An error of its handlers has one detail, which
 * describes what happened, and a second Content-Type: a bug in the source that its
 * clients rely on.
 */
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';

export type StatusName =
  | 'invalidArgument'
  | 'notFound'
  | 'alreadyExists'
  | 'outOfRange'
  | 'permissionDenied'
  | 'resourceExhausted'
  | 'failedPrecondition'
  | 'unimplemented'
  | 'internal'
  | 'unavailable'
  | 'unauthenticated';

interface StatusCodes {
  readonly grpc: number;
  readonly http: number;
}

const STATUSES: Readonly<Record<StatusName, StatusCodes>> = {
  invalidArgument: { grpc: 3, http: 400 },
  notFound: { grpc: 5, http: 404 },
  alreadyExists: { grpc: 6, http: 409 },
  permissionDenied: { grpc: 7, http: 403 },
  resourceExhausted: { grpc: 8, http: 429 },
  failedPrecondition: { grpc: 9, http: 422 },
  outOfRange: { grpc: 11, http: 416 },
  unimplemented: { grpc: 12, http: 501 },
  internal: { grpc: 13, http: 500 },
  unavailable: { grpc: 14, http: 503 },
  unauthenticated: { grpc: 16, http: 401 },
};

/**
 * How long a client should wait before it retries a request that was refused because
 * the mirror is busy or not ready.
 */
export const RETRY_AFTER_SECONDS = 5;

/** The codes and messages of the source's own error details. */
export const DETAIL = {
  /** The source has no specific code for this error; all such errors share 10000. */
  invalidPartyId: { code: 10_000, message: 'invalid party id' },
  missingPartyId: { code: 10_014, message: 'missing party id' },
  invalidPagination: { code: 10_028, message: 'invalid pagination' },
  invalidAssetId: { code: 10_038, message: 'invalid asset ID' },
  parties: { code: 50_001, message: 'failed to get parties' },
  checkpoints: { code: 290_001, message: 'failed to get checkpoints' },
  export: { code: 260_002, message: 'failed to export ledger entries' },
} as const;

/** The detail of an error from the source's handlers. */
interface Detail {
  readonly code: number;
  /** The kind of error, such as `invalid party id`. */
  readonly message: string;
  /** Details of this particular error; absent if there are none. */
  readonly inner?: string;
}

/** OpenAPI's component `Error`. */
export const STATUS_BODY = z
  .object({
    code: z.int32(),
    message: z.string(),
    details: z.array(z.looseObject({ '@type': z.string().optional() })),
  })
  .describe('google.rpc.Status');
export type StatusBody = z.infer<typeof STATUS_BODY>;

/**
 * A response with an error status, thrown by a handler. Without details, it has the form
 * of an error from the source's gateway.
 */
export class StatusError extends Error {
  override readonly name = 'StatusError';
  /** The HTTP status, under the name that Fastify and its plugins expect. */
  readonly statusCode: number;
  readonly body: StatusBody;

  constructor(
    status: StatusName,
    message: string,
    details: StatusBody['details'] = [],
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
    const { grpc, http } = STATUSES[status];
    this.statusCode = http;
    this.body = { code: grpc, message, details };
  }

  /**
   * Creates an error like those of the source's handlers: the message names the kind of
   * error, and the only detail gives the reason.
   */
  static ofHandler(
    status: StatusName,
    { code, message, inner = '' }: Detail,
    cause?: unknown,
  ): StatusError {
    const typed = {
      '@type': 'type.googleapis.com/vega.ErrorDetail',
      code,
      message,
      inner,
    };
    const kind = `${status.charAt(0).toUpperCase()}${status.slice(1)}`;
    return new StatusError(status, `${kind} error`, [typed], cause);
  }
}

/**
 * Sends an error from a list route, with the second Content-Type if the source would send
 * it.
 * @param indent the indentation of the JSON, in spaces
 */
export function sendStatus(
  reply: FastifyReply,
  { statusCode, body }: StatusError,
  indent?: number,
): FastifyReply {
  reply.code(statusCode);
  if (body.details.length === 0) return sendJson(reply, body, indent);
  const bytes = Buffer.from(JSON.stringify(body, undefined, indent));
  reply.headers({
    'content-type': ['application/json', 'application/grpc'],
    'content-length': bytes.length,
  });
  // Send the body as a stream, because for any other body Fastify parses the
  // Content-Type, which must then be a single string.
  return reply.send(Readable.from([bytes]));
}

/**
 * Sends JSON without a charset in its Content-Type, as the source does.
 * @param indent the indentation of the JSON, in spaces
 */
export function sendJson(
  reply: FastifyReply,
  body: unknown,
  indent?: number,
): FastifyReply {
  return sendJsonText(reply, JSON.stringify(body, undefined, indent));
}

/** Like `sendJson`, for JSON that has already been serialized. */
export function sendJsonText(reply: FastifyReply, json: string): FastifyReply {
  // Send the body as bytes, because Fastify adds a charset to the Content-Type of a
  // string.
  const bytes = Buffer.from(json);
  return reply.header('content-type', 'application/json').send(bytes);
}
