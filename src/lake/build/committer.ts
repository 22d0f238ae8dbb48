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

export async function whoDecides(objects: ObjectStore, signal: AbortSignal): Promise<'store' | 'database'> {
  const { put, hasOneWinner } = await objects.capabilities(signal);
  return put === 'honoured' && hasOneWinner ? 'store' : 'database';
}

interface Deps {
  readonly objects: ObjectStore;
  readonly repository: LakeRepository;
  readonly signal: AbortSignal;
}

export class Committer {
  readonly decidedBy: 'store' | 'database';
  readonly #deps: Deps;
  /** Undefined where the store decides. */
  readonly #register: LakeRepository | undefined;
  readonly #decided = new Map<LakeTable, number>();

  /** @param decidedBy what the store was found to honour when it was tried out */
  constructor(deps: Deps, decidedBy: 'store' | 'database') {
    this.decidedBy = decidedBy;
    this.#deps = deps;
    this.#register = decidedBy === 'database' ? deps.repository : undefined;
  }

  /** Before a table is read: puts what a dead builder had decided and not put. @returns the log with it */
  async settle(table: LakeTable, log: LogListing): Promise<LogListing> {
    const decided = await this.#register?.decidedCommit(this.#deps.objects.url, table);
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
    const { url } = this.#deps.objects;
    const content = encodeCommit(commit);
    const after = this.#decided.get(table);
    const isOurs = await this.#register?.decideCommit(url, table, { version, content }, after);
    if (isOurs === false) throw secondWriter(rootOf(table), version);
    this.#decided.set(table, version);
    await this.#put(table, version, content);
  }

  async #put(table: LakeTable, version: number, content: Buffer): Promise<void> {
    const { objects, signal } = this.#deps;
    await putCommit(objects, rootOf(table), version, content, signal);
    await this.#register?.forgetContent(objects.url, table, version);
  }
}
