/**
 * Reads the proof log from a source that is itself a mirror and serves its log
 * below `/mirror/proof/`.
 */
import { errorCode } from '../errors/errors.ts';
import {
  LIST_RETRIES,
  ONE_ATTEMPT,
  type OpenAnswer,
  type SourceAccess,
  type SourceRequest,
} from './requester.ts';
import { readWhole } from './wire/body.ts';
import { LIST_LIMITS } from './wire/http.ts';

/**
 * Maximum size in bytes of the last statement and its proof, which usually take a few
 * kilobytes.
 */
const LATEST_BYTES_MAX = 2 ** 20;
const FILE_BYTES_MAX = 256 * 2 ** 20;

/** A byte range of a file; its end is exclusive. */
interface Part {
  readonly start: number;
  readonly end: number;
}

export interface ProofSource {
  /** The address without credentials, for messages. */
  readonly where: string;
  /**
   * Requests the last statement, without retries.
   * @param from the size of the log that is already known; 0 if no log is known
   * @throws the request's error; this is normal, because most sources do not serve
   *   statements
   */
  latest(from: number, signal: AbortSignal): Promise<string>;
  /**
   * Reads a file, or part of it.
   * @returns undefined if the file does not exist
   */
  read(
    path: string,
    part: Part | undefined,
    signal: AbortSignal,
  ): Promise<Buffer | undefined>;
}

export function openProofSource(access: SourceAccess): ProofSource {
  const { requester, baseUrl, limits } = access;
  const where = `${baseUrl}/mirror/proof/`;
  const requestOf = (url: string) =>
    ({
      route: 'proof',
      action: 'read the log of nights from',
      url: new URL(url),
      limits: limits?.list ?? LIST_LIMITS,
    }) as const;
  return {
    where,
    async latest(from, signal) {
      const url = `${where}latest?from=${from}`;
      const request = { ...requestOf(url), retries: ONE_ATTEMPT };
      const bytes = await requester.read(request, signal, ({ body }) =>
        readWhole(body, LATEST_BYTES_MAX),
      );
      return bytes.toString('utf8');
    },

    async read(path, part, signal) {
      const request: SourceRequest = {
        ...requestOf(where + path),
        range: part,
        retries: limits?.listRetries ?? LIST_RETRIES,
      };
      try {
        return await requester.read(request, signal, (answer) =>
          readPart(answer, part),
        );
      } catch (error) {
        if (errorCode(error) === 'SOURCE_ABSENT') return undefined;
        throw error;
      }
    },
  };
}

/**
 * Extracts the requested range, because a server without range support sends the whole
 * file.
 */
async function readPart(
  { status, body }: OpenAnswer,
  part: Part | undefined,
): Promise<Buffer> {
  const content = await readWhole(body, FILE_BYTES_MAX);
  const isPart = status === 206 || part === undefined;
  return isPart ? content : content.subarray(part.start, part.end);
}
