/**
 * A double of the S3 protocol, not an S3 server: it keeps objects in memory, implements
 * as much of the interface as the mirror uses, and is strict where real servers are
 * strict (signatures, checksums, conditions).
 */
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type {
  ConditionSupport,
  ObjectStore,
} from '../../../src/storage/object-store.ts';
import { openS3Store } from '../../../src/storage/s3/s3-store.ts';
import { checkSignature, type Credentials } from './s3-signature.ts';

export const CREDENTIALS: Credentials = {
  accessKeyId: 'double',
  secretAccessKey: 'not-a-secret',
};

/** Opens a store in the double at `endpoint`. */
export function openDoubleStore(
  endpoint: string,
  spoolDir: string,
): ObjectStore {
  const url = new URL('s3://bucket/mirror?region=eu-test-1');
  url.searchParams.set('endpoint', endpoint);
  const { accessKeyId, secretAccessKey } = CREDENTIALS;
  const ambient = {
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  };
  return openS3Store({ url, spoolDir, ambient });
}
const PAGE_UPLOADS = 2;
const PART_BYTES_MIN = 5 * 2 ** 20;

interface Stored {
  readonly content: Buffer;
  readonly metadata: Readonly<Record<string, string>>;
  readonly modified: Date;
}

interface Upload {
  readonly key: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly initiated: Date;
  readonly parts: Map<
    number,
    { content: Buffer; etag: string; checksum: string | undefined }
  >;
}

interface Call {
  readonly method: string;
  readonly key: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/**
 * Decides what goes wrong before or after a call is carried out. An S3 error code
 * replaces the answer. If `200` precedes the code, the error has the status 200, as may
 * happen in the last call for a large file. `lose` breaks the connection, `cut` breaks it
 * in the middle of an answer, `cut 1024` after 1,024 bytes of the answer, and `hang`
 * stops answering.
 */
export type S3Fault = (
  call: Call,
  stage: 'before' | 'after',
) => string | undefined;

class Refused extends Error {
  readonly status: number;
  constructor(status: number, code: string) {
    super(code);
    this.status = status;
  }
}

const STATUSES: Readonly<Record<string, number>> = {
  SlowDown: 503,
  AccessDenied: 403,
  ExpiredToken: 400,
  InvalidObjectState: 403,
  PermanentRedirect: 301,
  NotImplemented: 501,
};

function fail(code: string | undefined, request: IncomingMessage): void {
  if (code === undefined) return;
  if (code === 'lose') request.socket.destroy();
  if (code.startsWith('200 ')) throw new Refused(200, code.slice(4));
  throw new Refused(STATUSES[code] ?? 500, code);
}

export class S3Double implements AsyncDisposable {
  readonly objects = new Map<string, Stored>();
  readonly uploads = new Map<string, Upload>();
  readonly calls: string[] = [];
  /** The prefixes of all listings that were requested. */
  readonly listed: string[] = [];
  fault: S3Fault | undefined;
  /** The credentials that the double accepts. */
  credentials = CREDENTIALS;
  /** The number of keys on a page of a listing; S3 has 1,000. */
  pageKeys = 100;
  /** How the double treats If-None-Match. There are real stores of all three kinds. */
  conditions: ConditionSupport = 'honoured';
  /**
   * Whether the double supports x-amz-checksum-sha256. AWS does; Ceph 16 and Swift 2.30
   * do not.
   */
  knowsChecksums = true;
  readonly #server = createServer(
    (request, response) => void this.#serve(request, response),
  );

  /**
   * Starts a double.
   * @returns the double, on a free port of this machine, with the bucket `bucket`
   */
  static async start(): Promise<S3Double> {
    const double = new S3Double();
    double.#server.listen(0, '127.0.0.1');
    await once(double.#server, 'listening');
    return double;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Puts an object into the bucket without a request. */
  put(key: string, content: Buffer): void {
    this.objects.set(key, { content, metadata: {}, modified: new Date() });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #serve(
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    try {
      const body = await buffer(request);
      const url = new URL(request.url ?? '/', 'http://double');
      // With virtual-hosted addresses the host name contains the bucket, and the path is
      // the key.
      const isVirtual = request.headers.host?.startsWith('bucket.') === true;
      const [, bucket, ...parts] =
        `${isVirtual ? '/bucket' : ''}${url.pathname}`
          .split('/')
          .map(decodeURIComponent);
      const method = request.method ?? '';
      const call = {
        method,
        key: parts.join('/'),
        query: url.searchParams,
        headers: request.headers,
        body,
      };
      const operation = [...url.searchParams.keys()]
        .filter((name) => name !== 'x-id')
        .toSorted()
        .join('&');
      if (url.searchParams.has('list-type'))
        this.listed.push(url.searchParams.get('prefix') ?? '');
      this.calls.push(`${method}${operation === '' ? '' : ` ${operation}`}`);
      const denied = checkSignature(request, body, this.credentials);
      if (denied !== undefined) throw new Refused(403, denied);
      if (bucket !== 'bucket') throw new Refused(404, 'NoSuchBucket');
      fail(this.fault?.(call, 'before'), request);
      const answer = this.#dispatch(call);
      const code = this.fault?.(call, 'after');
      const [word, cutAt] = (code ?? '').split(' ');
      const isCut = word === 'cut';
      if (!isCut) fail(code, request);
      response.writeHead(answer.status ?? 200, {
        'x-amz-request-id': '1',
        ...answer.headers,
      });
      if (isCut) {
        response.write(
          answer.body?.slice(0, Number(cutAt ?? answer.body.length / 2)) ?? '',
          () => request.socket.destroy(),
        );
        return;
      }
      response.end(answer.body);
    } catch (error) {
      if (request.socket.destroyed) return;
      const status = error instanceof Refused ? error.status : 500;
      const code = error instanceof Error ? error.message : 'InternalError';
      if (code === 'hang') return;
      response.writeHead(status, {
        'content-type': 'application/xml',
        'x-amz-request-id': '1',
      });
      response.end(
        `<Error><Code>${code}</Code><Message>${code}</Message></Error>`,
      );
    }
  }

  #dispatch(call: Call): {
    status?: number;
    headers?: Record<string, string>;
    body?: string | Buffer;
  } {
    const { method, query, key } = call;
    if (method === 'GET' && query.has('list-type')) return this.#list(query);
    if (method === 'GET' && query.has('uploads'))
      return this.#listUploads(query);
    if (method === 'GET') return this.#get(call);
    if (method === 'POST' && query.has('uploads'))
      return this.#createUpload(call);
    if (method === 'PUT' && query.has('partNumber')) return this.#putPart(call);
    if (method === 'POST' && query.has('uploadId')) return this.#complete(call);
    if (method === 'DELETE' && query.has('uploadId')) {
      this.#upload(call);
      this.uploads.delete(query.get('uploadId') ?? '');
      return { status: 204 };
    }
    if (method === 'DELETE') {
      this.objects.delete(key);
      return { status: 204 };
    }
    if (method === 'PUT') return this.#put(call);
    throw new Refused(405, 'MethodNotAllowed');
  }

  #get({ key, headers }: Call): {
    status: number;
    headers: Record<string, string>;
    body: Buffer;
  } {
    const stored = this.objects.get(key);
    if (stored === undefined) throw new Refused(404, 'NoSuchKey');
    const { content, metadata, modified } = stored;
    const range = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '');
    const body =
      range === null
        ? content
        : content.subarray(Number(range[1]), Number(range[2]) + 1);
    const described = Object.fromEntries(
      Object.entries(metadata).map(([name, value]) => [
        `x-amz-meta-${name}`,
        value,
      ]),
    );
    const status = range === null ? 200 : 206;
    const length = String(body.length);
    return {
      status,
      headers: {
        'content-length': length,
        ...(range === null
          ? {}
          : {
              'content-range': `bytes ${range[1]}-${range[2]}/${content.length}`,
            }),
        'last-modified': modified.toUTCString(),
        etag: etagOf(content),
        ...described,
      },
      body,
    };
  }

  #put(call: Call): { headers: Record<string, string> } {
    checkBody(call);
    this.#checkCondition(call);
    const { key, body } = call;
    this.objects.set(key, {
      content: body,
      metadata: metadataOf(call),
      modified: new Date(),
    });
    return { headers: { etag: etagOf(body) } };
  }

  #createUpload(call: Call): { body: string } {
    const uploadId = randomUUID();
    const { key } = call;
    this.uploads.set(uploadId, {
      key,
      metadata: metadataOf(call),
      initiated: new Date(),
      parts: new Map(),
    });
    return {
      body: `<R><Bucket>bucket</Bucket><Key>${key}</Key><UploadId>${uploadId}</UploadId></R>`,
    };
  }

  #putPart(call: Call): { headers: Record<string, string> } {
    checkBody(call);
    const etag = etagOf(call.body);
    const checksum = this.knowsChecksums
      ? createHash('sha256').update(call.body).digest('base64')
      : undefined;
    this.#upload(call).parts.set(Number(call.query.get('partNumber')), {
      content: call.body,
      etag,
      checksum,
    });
    return {
      headers: {
        etag,
        ...(checksum === undefined
          ? {}
          : { 'x-amz-checksum-sha256': checksum }),
      },
    };
  }

  #complete(call: Call): { body: string } {
    const upload = this.#upload(call);
    this.#checkCondition(call);
    const named = [...call.body.toString().matchAll(/<Part>.*?<\/Part>/gs)].map(
      ([part]) => ({
        number: Number(/<PartNumber>(\d+)</.exec(part)?.[1]),
        etag: /<ETag>(?:&quot;|")?([^<&"]+)/.exec(part)?.[1],
        checksum: /<ChecksumSHA256>([^<]+)/.exec(part)?.[1],
      }),
    );
    // Swift validates the body against a schema that has no checksums.
    if (
      !this.knowsChecksums &&
      named.some(({ checksum }) => checksum !== undefined)
    )
      throw new Refused(400, 'MalformedXML');
    const contents = named.map(({ number, etag, checksum }, index) => {
      const part = upload.parts.get(number);
      if (
        part === undefined ||
        part.etag !== `"${etag}"` ||
        number !== index + 1 ||
        part.checksum !== checksum
      )
        throw new Refused(400, 'InvalidPart');
      if (index < named.length - 1 && part.content.length < PART_BYTES_MIN)
        throw new Refused(400, 'EntityTooSmall');
      return part.content;
    });
    if (contents.length === 0) throw new Refused(400, 'MalformedXML');
    this.objects.set(upload.key, {
      content: Buffer.concat(contents),
      metadata: upload.metadata,
      modified: new Date(),
    });
    this.uploads.delete(call.query.get('uploadId') ?? '');
    return {
      body: '<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>',
    };
  }

  #list(query: URLSearchParams): { body: string } {
    const from = query.get('continuation-token') ?? '';
    const prefix = query.get('prefix') ?? '';
    const keys = [...this.objects.keys()]
      .filter((key) => key.startsWith(prefix) && key > from)
      .toSorted();
    const page = keys.slice(0, this.pageKeys);
    const contents = page.map((key) => {
      const stored = this.objects.get(key);
      return `<Contents><Key>${key}</Key><Size>${stored?.content.length}</Size><LastModified>${stored?.modified.toISOString()}</LastModified></Contents>`;
    });
    const isCut = keys.length > page.length;
    const token = isCut
      ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>`
      : '';
    return {
      body: `<ListBucketResult><IsTruncated>${isCut}</IsTruncated>${token}${contents.join('')}</ListBucketResult>`,
    };
  }

  #listUploads(query: URLSearchParams): { body: string } {
    const marker = `${query.get('key-marker') ?? ''} ${query.get('upload-id-marker') ?? ''}`;
    const found = [...this.uploads]
      .filter(([, { key }]) => key.startsWith(query.get('prefix') ?? ''))
      .map(([id, upload]) => ({ id, ...upload, place: `${upload.key} ${id}` }))
      .filter(({ place }) => place > marker || marker === ' ')
      .toSorted((a, b) => (a.place < b.place ? -1 : 1));
    const page = found.slice(0, PAGE_UPLOADS);
    const last = page.at(-1);
    const next =
      found.length > page.length && last !== undefined
        ? `<IsTruncated>true</IsTruncated><NextKeyMarker>${last.key}</NextKeyMarker><NextUploadIdMarker>${last.id}</NextUploadIdMarker>`
        : '<IsTruncated>false</IsTruncated>';
    const listed = page.map(
      ({ id, key, initiated }) =>
        `<Upload><Key>${key}</Key><UploadId>${id}</UploadId><Initiated>${initiated.toISOString()}</Initiated></Upload>`,
    );
    return {
      body: `<ListMultipartUploadsResult>${next}${listed.join('')}</ListMultipartUploadsResult>`,
    };
  }

  #upload(call: Call): Upload {
    const upload = this.uploads.get(call.query.get('uploadId') ?? '');
    if (upload === undefined || upload.key !== call.key)
      throw new Refused(404, 'NoSuchUpload');
    return upload;
  }

  #checkCondition({ headers, key }: Call): void {
    if (headers['if-none-match'] === undefined) return;
    if (this.conditions === 'refused') throw new Refused(501, 'NotImplemented');
    if (this.conditions === 'honoured' && this.objects.has(key))
      throw new Refused(412, 'PreconditionFailed');
  }
}

function checkBody({ headers, body }: Call): void {
  const expected = headers['x-amz-checksum-sha256'];
  if (expected === undefined) throw new Refused(400, 'InvalidRequest');
  const actual = createHash('sha256').update(body).digest('base64');
  if (expected !== actual) throw new Refused(400, 'BadDigest');
}

function metadataOf({ headers }: Call): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => name.startsWith('x-amz-meta-'))
      .map(([name, value]) => [
        name.slice('x-amz-meta-'.length),
        String(value),
      ]),
  );
}

function etagOf(content: Buffer): string {
  return `"${createHash('md5').update(content).digest('hex')}"`;
}
