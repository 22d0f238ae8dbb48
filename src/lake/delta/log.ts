/** The log of one Delta table: what it says at a version, and the content of the next commit. */
import { randomUUID } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { PermanentError } from '../../errors/errors.ts';
import { version as ownVersion } from '../../version.ts';
import { type Action, parseAction, replay, type TableState } from './actions.ts';
import { readCheckpoint } from './checkpoint.ts';
import type { LakeAccess } from '../local/duckdb.ts';
import { brokenLog, commitKey, fileKey, logAmong } from './listing.ts';

const READER_VERSION_MAX = 1;
const WRITER_VERSION_MAX = 2;
/** Commits that are asked for at once. */
const COMMITS_AT_ONCE = 8;

/**
 * The table at a version, the newest one by default; undefined where there is no table. A checkpoint that
 * cannot be read is passed over.
 * @throws PermanentError `LAKE_LOG_BROKEN`, `LAKE_TABLE_RAISED`, `LAKE_TABLE_OLDER`, `LAKE_VERSION_GONE`
 */
export async function readTable(
  access: LakeAccess,
  root: string,
  version?: number,
): Promise<TableState | undefined> {
  const log = logAmong(root, access.listed);
  const newest = log.at(-1)?.version;
  if (newest === undefined) return undefined;
  const last = version ?? newest;
  if (last > newest)
    throw notTold(
      root,
      'LAKE_TABLE_OLDER',
      last,
      `ends with ${newest}; load brings the table up to date`,
    );
  const actions: (readonly Action[])[] = [];
  let checkpoint = -1;
  const checkpoints = log.filter(
    ({ kind, version: number }) => kind === 'checkpoint' && number <= last,
  );
  for (const { key, version: number } of checkpoints.toReversed()) {
    const held = await readCheckpoint(access, key);
    if (held === undefined) continue;
    actions.push(held);
    checkpoint = number;
    break;
  }
  const commits = new Set(
    log.flatMap((object) => (object.kind === 'commit' ? object.version : [])),
  );
  for (let first = checkpoint + 1; first <= last; first += COMMITS_AT_ONCE) {
    const count = Math.min(COMMITS_AT_ONCE, last - first + 1);
    const numbers = Array.from({ length: count }, (_, at) => first + at);
    const missing = numbers.find((number) => !commits.has(number));
    if (missing !== undefined && version === undefined)
      throw brokenLog(root, missing, 'it is missing, later ones are there');
    if (missing !== undefined) {
      const state = `is no longer kept; choose a newer one, 'ledger-mirror lake' shows them`;
      throw notTold(root, 'LAKE_VERSION_GONE', last, state);
    }
    actions.push(
      ...(await Promise.all(numbers.map((number) => readCommit(access, root, number)))),
    );
  }
  const state = replay(actions.flat(), { version: last, checkpoint });
  if (state === undefined) throw brokenLog(root, last, 'it has no protocol or no schema');
  refuseRaised(root, state);
  return state;
}

async function readCommit(
  { objects, signal }: LakeAccess,
  root: string,
  version: number,
) {
  const content = await text(await objects.read(commitKey(root, version), signal));
  try {
    return content
      .split('\n')
      .flatMap((line) => (line.trim() === '' ? [] : [parseAction(line)]));
  } catch (error) {
    const reason =
      error instanceof z.ZodError
        ? z.prettifyError(error).split('\n', 1)[0]
        : 'it is cut off';
    throw brokenLog(root, version, reason ?? '', error);
  }
}

export function encodeCommit(operation: string, actions: readonly Action[]): Buffer {
  const info = {
    timestamp: Date.now(),
    operation,
    operationParameters: {},
    engineInfo: `ledger-mirror/${ownVersion()}`,
    isBlindAppend: false,
    txnId: randomUUID(),
  };
  const lines = [{ commitInfo: info }, ...actions].map(
    (action) => `${JSON.stringify(action)}\n`,
  );
  return Buffer.from(lines.join(''));
}

/** @throws PermanentError `LAKE_TABLE_RAISED`, `LAKE_PATH_REFUSED` */
function refuseRaised(root: string, { protocol, live }: TableState): void {
  const { minReaderVersion, minWriterVersion } = protocol;
  const raised = (state: string, meta: object): PermanentError =>
    new PermanentError(
      `Cannot use the table ${root}: ${state}, and keep that feature off`,
      {
        code: 'LAKE_TABLE_RAISED',
        meta: { root, ...meta },
      },
    );
  if (minReaderVersion > READER_VERSION_MAX || minWriterVersion > WRITER_VERSION_MAX) {
    throw raised(
      `another writer raised it to reader version ${minReaderVersion} and writer version ${minWriterVersion}; ` +
        `known are ${READER_VERSION_MAX} and ${WRITER_VERSION_MAX}. Remove the table and load again`,
      protocol,
    );
  }
  for (const { path, deletionVector } of live.values()) {
    fileKey(root, path);
    if (deletionVector)
      throw raised(`${path} has a deletion vector; remove the table and load again`, {
        path,
      });
  }
}

/** The log does not tell the version that is asked for, as it begins later or ends sooner. */
function notTold(
  root: string,
  code: string,
  version: number,
  state: string,
): PermanentError {
  return new PermanentError(
    `Cannot read version ${version} of ${root}: its log ${state}`,
    {
      code,
      meta: { root, version },
    },
  );
}
