/**
 * Errors as the mirrored service words them: a google.rpc.Status, whose one detail says what happened.
 * What its gateway refuses by itself carries no detail and one Content-Type; what its handlers refuse
 * carries a detail and a second Content-Type, a slip of the original that its clients live with.
 */
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';

/** The code of gRPC, and the status of HTTP. */
const STATUSES = {
  invalidArgument: [3, 400],
  notFound: [5, 404],
  alreadyExists: [6, 409],
  permissionDenied: [7, 403],
  resourceExhausted: [8, 429],
  failedPrecondition: [9, 422],
  unimplemented: [12, 501],
  internal: [13, 500],
  unavailable: [14, 503],
  unauthenticated: [16, 401],
} as const;

export type StatusName = keyof typeof STATUSES;

/** The numbers and texts of the service's own error details. */
export const DETAIL = {
  /** The service's table of errors does not hold this one, so it has the number of those. */
  invalidPartyId: { code: 10_000, message: 'invalid party id' },
  missingPartyId: { code: 10_014, message: 'missing party id' },
  invalidPagination: { code: 10_028, message: 'invalid pagination' },
  invalidAssetId: { code: 10_038, message: 'invalid asset ID' },
  parties: { code: 50_001, message: 'failed to get parties' },
  export: { code: 260_002, message: 'failed to export ledger entries' },
} as const;

interface Detail {
  readonly code: number;
  readonly message: string;
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

/** An answer other than 200, thrown by a handler; with no details it is one of the gateway's. */
export class StatusError extends Error {
  override readonly name = 'StatusError';
  /** Under the name by which Fastify and its plugins know it. */
  readonly statusCode: number;
  readonly body: StatusBody;

  constructor(
    status: StatusName,
    message: string,
    details: StatusBody['details'] = [],
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
    const [code, statusCode] = STATUSES[status];
    this.statusCode = statusCode;
    this.body = { code, message, details };
  }

  /** What the service's handlers say: the kind as message, the reason as the one detail. */
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

/** Sends an error of a list operation, with the second Content-Type where the service has it. */
export function sendStatus(
  reply: FastifyReply,
  { statusCode, body }: StatusError,
): FastifyReply {
  reply.code(statusCode);
  if (body.details.length === 0) return sendJson(reply, body);
  const bytes = Buffer.from(JSON.stringify(body));
  reply.headers({
    'content-type': ['application/json', 'application/grpc'],
    'content-length': bytes.length,
  });
  // As a stream: of what is no stream Fastify reads the type, which it takes for one text.
  return reply.send(Readable.from([bytes]));
}

/** Sends JSON with no charset in its Content-Type, as the service does. `indent` in spaces. */
export function sendJson(
  reply: FastifyReply,
  body: unknown,
  indent?: number,
): FastifyReply {
  // As bytes: Fastify adds a charset to the type of a text.
  const bytes = Buffer.from(JSON.stringify(body, undefined, indent));
  return reply.header('content-type', 'application/json').send(bytes);
}
