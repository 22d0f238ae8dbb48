/**
 * Who decides that a commit is the next version of a table: the store, where it writes a key once; otherwise the
 * database. There a version has one content, which is kept until it lies in the store: a builder that was frozen
 * beyond its lock, and the one that came after it, can only put the same bytes.
 */
import type { ObjectStore } from '../../objects/object-store.ts';
import type { LakeTable } from '../tables/columns.ts';
import { type LogListing, newestVersion } from '../delta/listing.ts';
import { type Commit, encodeCommit, putCommit, secondWriter } from '../delta/log.ts';
import type { LakeRepository } from '../store/lake-store.ts';
import { rootOf } from '../tables/tables.ts';

type Register = Pick<LakeRepository, 'decidedCommit' | 'decideCommit' | 'forgetContent'>;

export async function isDecidedByStore(objects: ObjectStore, signal: AbortSignal): Promise<boolean> {
  const { put, hasOneWinner } = await objects.capabilities(signal);
  return put === 'honoured' && hasOneWinner;
}

export class Committer {
  readonly #objects: ObjectStore;
  /** Undefined where the store decides. */
  readonly #register: Register | undefined;
  readonly #signal: AbortSignal;
  readonly #decided = new Map<LakeTable, number>();

  private constructor(objects: ObjectStore, register: Register | undefined, signal: AbortSignal) {
    this.#objects = objects;
    this.#register = register;
    this.#signal = signal;
  }

  /** By what the store was found to honour when it was tried out. */
  static async open(objects: ObjectStore, register: Register, signal: AbortSignal): Promise<Committer> {
    const isByStore = await isDecidedByStore(objects, signal);
    return new Committer(objects, isByStore ? undefined : register, signal);
  }

  get decidedBy(): 'store' | 'database' {
    return this.#register === undefined ? 'store' : 'database';
  }

  /** Before a table is read: puts what a dead builder had decided and not put. @returns the log with it */
  async settle(table: LakeTable, log: LogListing): Promise<LogListing> {
    const decided = await this.#register?.decidedCommit(this.#objects.url, table);
    if (decided === undefined) return log;
    const { version, content } = decided;
    this.#decided.set(table, version);
    // A log that ends elsewhere was restored or removed since: it is built on as it is.
    if (content === null || version !== newestVersion(log) + 1) return log;
    await this.#put(table, version, content);
    return { ...log, commits: [...log.commits, version] };
  }

  /** @throws PermanentError `LAKE_SECOND_WRITER` where the version is another writer's */
  async commit(table: LakeTable, version: number, commit: Commit): Promise<void> {
    const content = encodeCommit(commit);
    const after = this.#decided.get(table);
    const isOurs = await this.#register?.decideCommit(this.#objects.url, table, { version, content }, after);
    if (isOurs === false) throw secondWriter(rootOf(table), version);
    this.#decided.set(table, version);
    await this.#put(table, version, content);
  }

  async #put(table: LakeTable, version: number, content: Buffer): Promise<void> {
    await putCommit(this.#objects, rootOf(table), version, content, this.#signal);
    await this.#register?.forgetContent(this.#objects.url, table, version);
  }
}
