/**
 * What this mirror remembers about its source's proof log, and its doubts about
 * differences from the source's statement.
 */
import type { Database } from '../../postgres/database.ts';
import { execute, findRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';

const ACTION = 'compare with the statement of the source';

export interface RememberedSource {
  /**
   * The source's address, without credentials. A different source has a different log.
   */
  readonly sourceUrl: string;
  readonly publicKey: string;
  /** The size of the longest log that the key has signed. */
  readonly size: number;
  /** The root hash of the log at that size; 64 hex digits. */
  readonly root: string;
}

/** A reason, found by the comparison, to doubt the stored data. */
export interface SourceDoubt {
  /** A doubt about a list makes the next sync reread the whole list. */
  readonly subject: 'ledgers' | 'parties' | 'checkpoints';
  /** The code, which starts with `PROOF_`; the codes of other doubts do not. */
  readonly code: string;
  /** The message for the operator. */
  readonly message: string;
  /** The parties concerned, if there are any. */
  readonly parties?: readonly string[];
}

export class SourceLogStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Reads the remembered log.
   * @returns undefined if no source has served a statement yet
   */
  async read(): Promise<RememberedSource | undefined> {
    const remembered = statement({
      sourceUrl: 'text!',
      publicKey: 'text!',
      size: 'int',
      root: 'text!',
    })`
      select source_url as "sourceUrl", public_key as "publicKey", size, root
      from mirror.source_log`;
    return findRow(this.#db, ACTION, remembered);
  }

  async remember(source: RememberedSource): Promise<void> {
    const { sourceUrl, publicKey, size, root } = source;
    const write = statement()`
      insert into mirror.source_log (source_url, public_key, size, root)
      values (${sourceUrl}, ${publicKey}, ${size}, ${root})
      on conflict (only_row) do update set source_url = excluded.source_url,
        public_key = excluded.public_key, size = excluded.size, root = excluded.root`;
    await execute(this.#db, ACTION, write);
  }

  /** Forgets a source that is no longer read. */
  async forget(): Promise<void> {
    await execute(this.#db, ACTION, statement()`delete from mirror.source_log`);
  }

  /** Replaces the comparison's open doubts with the given ones, and closes all others. */
  async replaceDoubts(
    doubts: readonly SourceDoubt[],
    runId: string,
  ): Promise<void> {
    const json = JSON.stringify(
      doubts.map(({ subject, code, ...seen }) => ({ subject, code, seen })),
    );
    const replace = statement()`
      with given as materialized (
        select subject, code, seen
        from jsonb_to_recordset(${json}::jsonb) as g(subject text, code text, seen jsonb)),
      settled as (
        update mirror.doubts d set closed_at = clock_timestamp(), closed_by_run = ${runId}
        where d.closed_at is null and d.code like 'PROOF\\_%'
          and not exists (select from given g where g.subject = d.subject and g.code = d.code))
      insert into mirror.doubts (subject, epoch, code, seen, run_id)
      select g.subject, n.epoch, g.code, g.seen, ${runId}
      from given g cross join (select max(epoch) as epoch from mirror.networks) n
      where n.epoch is not null
      on conflict (subject, epoch, code) where closed_at is null
        do update set seen = excluded.seen`;
    await execute(this.#db, ACTION, replace);
  }
}
