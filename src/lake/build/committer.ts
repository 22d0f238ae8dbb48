/**
 * Who decides that a commit is the next version of a table: the store, where it writes a key once; otherwise the
 * database. There a version has one content, which is kept until it lies in the store: a builder that was frozen
 * beyond its lock, and the one that came after it, can only put the same bytes.
 */
import type { ObjectStore } from '../../objects/object-store.ts';
import type { LakeTable } from '../tables/columns.ts';
import { type LogListing, newestVersion } from '../delta/listing.ts';
import { type Commit, encodeCommit, putCommit, secondWriter } from '../delta/log.ts';
import type { CommitRegister } from '../ports.ts';
import { rootOf } from '../tables/tables.ts';

export interface Committer {
  readonly decidedBy: 'store' | 'database';
  /** Before a table is read: puts what a dead builder had decided and not put. @returns the log with it */
  settle(table: LakeTable, log: LogListing): Promise<LogListing>;
  /** @throws PermanentError `LAKE_SECOND_WRITER` where the version is another writer's */
  commit(table: LakeTable, version: number, commit: Commit): Promise<void>;
}

/** By what the store was found to honour when it was tried out. */
export async function openCommitter(
  objects: ObjectStore,
  register: CommitRegister,
  signal: AbortSignal,
): Promise<Committer> {
  if (await isDecidedByStore(objects, signal)) {
    return {
      decidedBy: 'store',
      settle: (_table, log) => Promise.resolve(log),
      commit: (table, version, commit) =>
        putCommit(objects, rootOf(table), version, encodeCommit(commit), signal),
    };
  }
  return new RegisteredCommits(objects, register, signal);
}

export async function isDecidedByStore(objects: ObjectStore, signal: AbortSignal): Promise<boolean> {
  const { put, hasOneWinner } = await objects.capabilities(signal);
  return put === 'honoured' && hasOneWinner;
}

class RegisteredCommits implements Committer {
  readonly decidedBy = 'database';
  readonly #objects: ObjectStore;
  readonly #register: CommitRegister;
  readonly #signal: AbortSignal;
  readonly #decided = new Map<LakeTable, number>();

  constructor(objects: ObjectStore, register: CommitRegister, signal: AbortSignal) {
    this.#objects = objects;
    this.#register = register;
    this.#signal = signal;
  }

  async settle(table: LakeTable, log: LogListing): Promise<LogListing> {
    const decided = await this.#register.decidedCommit(this.#objects.url, table);
    if (decided === undefined) return log;
    const { version, content } = decided;
    this.#decided.set(table, version);
    // A log that ends elsewhere was restored or removed since: it is built on as it is.
    if (content === undefined || version !== newestVersion(log) + 1) return log;
    await this.#put(table, version, content);
    return { ...log, commits: [...log.commits, version] };
  }

  async commit(table: LakeTable, version: number, commit: Commit): Promise<void> {
    const { url } = this.#objects;
    const content = encodeCommit(commit);
    const after = this.#decided.get(table);
    if (!(await this.#register.decideCommit(url, table, { version, content }, after)))
      throw secondWriter(rootOf(table), version);
    this.#decided.set(table, version);
    await this.#put(table, version, content);
  }

  async #put(table: LakeTable, version: number, content: Buffer): Promise<void> {
    await putCommit(this.#objects, rootOf(table), version, content, this.#signal);
    await this.#register.forgetContent(this.#objects.url, table, version);
  }
}
