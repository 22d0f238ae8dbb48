/**
 * The log of one Delta table: reads the table at a version, and encodes the next commit.
 */
import { randomUUID } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { PermanentError } from '../../errors/errors.ts';
import { version as ownVersion } from '../../version.ts';
import {
  type Action,
  parseAction,
  replay,
  type TableState,
} from './actions.ts';
import { readCheckpoint } from './checkpoint.ts';
import type { LakeAccess } from '../local/duckdb.ts';
import {
  brokenLog,
  commitKey,
  fileKey,
  logAmong,
  type LogObject,
} from './listing.ts';

const READER_VERSION_MAX = 1;
const WRITER_VERSION_MAX = 2;
/** How many commits are read concurrently. */
const COMMITS_AT_ONCE = 8;

/**
 * Reads a table at one version. A checkpoint that cannot be read is skipped.
 * @param version the newest one by default
 * @returns undefined if the table does not exist
 * @throws PermanentError `LAKE_LOG_BROKEN`, `LAKE_TABLE_RAISED`, `LAKE_TABLE_OLDER`,
 *   `LAKE_VERSION_GONE`
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
  if (last > newest) {
    const state = `ends with ${newest}; run load, which brings the table up to date`;
    throw unknownVersion(root, 'LAKE_TABLE_OLDER', last, state);
  }
  const base = await readNewestCheckpoint(access, log, last);
  const first = base.version + 1;
  requireCommits(root, log, first, last, version !== undefined);
  const actions = [
    ...base.actions,
    ...(await readCommits(access, root, first, last)),
  ];
  const state = replay(actions, { version: last, checkpoint: base.version });
  if (state === undefined)
    throw brokenLog(root, last, 'it has no protocol or no schema');
  refuseRaised(root, state);
  return state;
}

/** The state on top of which commits are replayed. */
interface Base {
  /**
   * The version of the checkpoint; -1 if no checkpoint can be read, in which case all
   * commits are replayed.
   */
  readonly version: number;
  readonly actions: readonly Action[];
}

async function readNewestCheckpoint(
  access: LakeAccess,
  log: readonly LogObject[],
  last: number,
): Promise<Base> {
  const checkpoints = log.filter(
    ({ kind, version }) => kind === 'checkpoint' && version <= last,
  );
  for (const { key, version } of checkpoints.toReversed()) {
    const actions = await readCheckpoint(access, key);
    if (actions !== undefined) return { version, actions };
  }
  return { version: -1, actions: [] };
}

/**
 * Checks that the log has every commit that a replay needs.
 * @param isEarlier whether the caller wants an earlier version, whose commits may
 *   legitimately be gone
 */
function requireCommits(
  root: string,
  log: readonly LogObject[],
  first: number,
  last: number,
  isEarlier: boolean,
): void {
  const commits = new Set<number>();
  for (const { kind, version } of log)
    if (kind === 'commit') commits.add(version);
  for (let version = first; version <= last; version += 1) {
    if (commits.has(version)) continue;
    if (!isEarlier)
      throw brokenLog(root, version, 'it is missing although later ones exist');
    const state = `is no longer kept; choose a newer one, 'ledger-mirror lake' lists them`;
    throw unknownVersion(root, 'LAKE_VERSION_GONE', last, state);
  }
}

async function readCommits(
  access: LakeAccess,
  root: string,
  first: number,
  last: number,
): Promise<readonly Action[]> {
  const actions: Action[] = [];
  for (let start = first; start <= last; start += COMMITS_AT_ONCE) {
    const count = Math.min(COMMITS_AT_ONCE, last - start + 1);
    const versions = Array.from({ length: count }, (_, index) => start + index);
    const commits = versions.map((version) =>
      readCommit(access, root, version),
    );
    actions.push(...(await Promise.all(commits)).flat());
  }
  return actions;
}

async function readCommit(
  { objects, signal }: LakeAccess,
  root: string,
  version: number,
): Promise<readonly Action[]> {
  const content = await text(
    await objects.read(commitKey(root, version), signal),
  );
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

export function encodeCommit(
  operation: string,
  actions: readonly Action[],
): Buffer {
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

/**
 * Refuses a table that another writer has upgraded to a protocol version that we do not
 * support.
 * @throws PermanentError `LAKE_TABLE_RAISED`, `LAKE_PATH_REFUSED`
 */
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
  if (
    minReaderVersion > READER_VERSION_MAX ||
    minWriterVersion > WRITER_VERSION_MAX
  ) {
    throw raised(
      `another writer raised it to reader version ${minReaderVersion} and writer ` +
        `version ${minWriterVersion}; ` +
        `known are ${READER_VERSION_MAX} and ${WRITER_VERSION_MAX}. Remove the ` +
        'table and load again',
      protocol,
    );
  }
  for (const { path, deletionVector } of live.values()) {
    fileKey(root, path);
    if (deletionVector)
      throw raised(
        `${path} has a deletion vector; remove the table and load again`,
        {
          path,
        },
      );
  }
}

/**
 * Builds the error for a log that begins after the requested version, or ends before it.
 */
function unknownVersion(
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
