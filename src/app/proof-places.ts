/**
 * Opens a mirror's log of nightly runs, wherever it is: in this mirror's own store, in
 * another store, in a published folder, or at the address of a mirror or web server.
 */
import { existsSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Config } from '../config/environment.ts';
import { objectStoreUrl } from '../config/value-forms.ts';
import {
  errorCode,
  PermanentError,
  RetryableError,
  UnreachableError,
  UsageError,
} from '../errors/errors.ts';
import type { ComparedSide } from '../proof/compare.ts';
import { PROOF_PREFIX, storedFiles } from '../proof/log.ts';
import {
  CHECKPOINT_PATH,
  type ProofFiles,
  readLastStatement,
} from '../proof/proof-files.ts';
import { statementInProof } from '../proof/ledger-proof.ts';
import { decodeStatement, type Statement } from '../proof/statement.ts';
import { openStore, openStoreAt } from './data-dir.ts';

const ANSWER_MAX_MS = 30_000;
const ANSWER_BYTES_MAX = 256 * 2 ** 20;
/**
 * The paths under an address where a log may be found: served by a mirror, published on
 * its own, or published with its folder. An address that ends in `proof` is the log
 * itself.
 */
const WEB_FOLDERS = ['mirror/proof/', '', 'proof/'];

/** Opens the log in this mirror's own store; the stack closes it. */
export async function openOwnProofFiles(
  context: { readonly config: Config; readonly signal: AbortSignal },
  stack: AsyncDisposableStack,
): Promise<ProofFiles> {
  const objects = stack.use(await openStore(context));
  return storedFiles(objects, context.signal);
}

/**
 * Opens one side of a comparison.
 * @param place an address, a store, a folder, or a file with a statement
 * @throws UsageError if there is neither a log nor a statement at that location
 */
export async function openComparedSide(
  place: string,
  context: { readonly config: Config; readonly signal: AbortSignal },
  stack: AsyncDisposableStack,
): Promise<ComparedSide> {
  const path = resolve(place);
  const isFile =
    !isAddress(place) && existsSync(path) && statSync(path).isFile();
  if (isFile) {
    const statement = statementOf(await readFile(path, 'utf8'), place);
    return { name: place, statement, files: undefined };
  }
  const files = await openProofFiles(place, context, stack);
  const last = await readLastStatement(files);
  if (last === undefined) throw noLog(place);
  return { name: place, statement: last.statement, files };
}

async function openProofFiles(
  place: string,
  context: { readonly config: Config; readonly signal: AbortSignal },
  stack: AsyncDisposableStack,
): Promise<ProofFiles> {
  if (/^https?:\/\//.test(place)) return findWebFiles(place, context.signal);
  const url = isAddress(place)
    ? objectStoreUrl.parse(place)
    : pathToFileURL(folderOf(place));
  if (url === undefined) {
    throw new UsageError([
      `${place}: is not a mirror; give the address of one, ` +
        `${objectStoreUrl.accepted}, a folder, or a statement`,
    ]);
  }
  const objects = stack.use(await openStoreAt(url, context));
  // The folder `proof` may have been copied under a different name.
  const isPublished =
    !isAddress(place) && existsSync(join(resolve(place), CHECKPOINT_PATH));
  const prefix = isPublished ? '' : PROOF_PREFIX;
  return storedFiles(objects, context.signal, prefix);
}

/**
 * Returns the folder of the store. If `place` is a DATA_DIR, that is its subfolder
 * `objects`.
 */
function folderOf(place: string): string {
  const path = resolve(place);
  const inDataDir = join(path, 'objects');
  const isDataDir = existsSync(join(inDataDir, PROOF_PREFIX, CHECKPOINT_PATH));
  return isDataDir ? inDataDir : path;
}

/**
 * Reads the statement from a file that contains either a statement or a proof, which
 * includes one.
 */
function statementOf(text: string, place: string): Statement {
  return decodeStatement(statementInProof(text) ?? text, place);
}

async function findWebFiles(
  place: string,
  signal: AbortSignal,
): Promise<ProofFiles> {
  const base = place.endsWith('/') ? place : `${place}/`;
  const isLog = base.endsWith('/proof/');
  const folders = isLog ? ['', ...WEB_FOLDERS] : WEB_FOLDERS;
  for (const folder of new Set(folders)) {
    const files = webFiles(base + folder, signal);
    const checkpoint = await files.read(CHECKPOINT_PATH);
    if (checkpoint !== undefined) return withCheckpoint(files, checkpoint);
  }
  throw noLog(place);
}

/**
 * Returns the same files, but with the known checkpoint instead of requesting it again.
 */
function withCheckpoint(files: ProofFiles, checkpoint: Buffer): ProofFiles {
  return {
    where: files.where,
    read: async (path, range) =>
      path === CHECKPOINT_PATH ? checkpoint : files.read(path, range),
  };
}

/**
 * Reads the files of a log over HTTP.
 * @param base ends with a slash
 */
function webFiles(base: string, signal: AbortSignal): ProofFiles {
  return {
    where: base,
    async read(path, range) {
      const url = new URL(path, base);
      const bounded = AbortSignal.any([
        signal,
        AbortSignal.timeout(ANSWER_MAX_MS),
      ]);
      const headers =
        range === undefined
          ? undefined
          : { range: `bytes=${range.start}-${range.end - 1}` };
      try {
        const answer = await fetch(url, {
          signal: bounded,
          headers: headers ?? {},
        });
        if (answer.status === 404) {
          await answer.body?.cancel();
          return undefined;
        }
        if (!answer.ok) throw refusedBy(url, answer.status);
        const content = await readWithin(answer, url);
        // A server that does not support ranges sends the whole file.
        const isPart = answer.status === 206 || range === undefined;
        return isPart ? content : content.subarray(range.start, range.end);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof PermanentError || error instanceof RetryableError)
          throw error;
        const code = errorCode(error instanceof Error ? error.cause : error);
        throw new UnreachableError(
          `Cannot reach ${url.host}: ${code}; check the address and the network`,
          { code: 'PROOF_UNREACHABLE', cause: error },
        );
      }
    },
  };
}

async function readWithin(answer: Response, url: URL): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body ?? []) {
    bytes += chunk.length;
    if (bytes > ANSWER_BYTES_MAX) {
      throw new PermanentError(
        `Cannot read ${url.href}: it is larger than ${ANSWER_BYTES_MAX} bytes; check the address`,
        { code: 'PROOF_LOG_DAMAGED' },
      );
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function refusedBy(url: URL, status: number): PermanentError {
  return new PermanentError(
    `Cannot read ${url.origin}${url.pathname}: ${url.host} answered ${status}; check the address and the rights`,
    { code: 'PROOF_REFUSED', meta: { status } },
  );
}

function isAddress(place: string): boolean {
  return /^[a-z][a-z0-9+.-]+:\/\//i.test(place);
}

function noLog(place: string): UsageError {
  return new UsageError([
    `${place}: has no log of nights; it appears below proof/ when the first nightly run ends`,
  ]);
}
