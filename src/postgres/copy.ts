/**
 * The only way to run COPY: out of Postgres at the reader's pace, and into it at the
 * database's pace.
 */
import { once } from 'node:events';
import type { Pool } from 'pg';
import {
  type CopyStreamQuery,
  from as copyFrom,
  to as copyTo,
} from 'pg-copy-streams';
import { UnreachableError } from '../errors/errors.ts';
import { databaseError } from './database-error.ts';
import { openSession, type Session } from './session.ts';

/** How long the database may take to accept a chunk. */
const ACCEPT_TIMEOUT_MS = 120_000;

/** The COPY statement and the action that it is part of. */
export interface Copy {
  /** `copy … to stdout` or `copy … from stdin`. */
  readonly statement: string;
  /**
   * What the COPY does, for messages, in the infinitive: "read the coverage of ledgers".
   */
  readonly action: string;
  readonly signal: AbortSignal;
}

/**
 * Yields the output of `copy … to stdout`; a chunk may end in the middle of a row. If the
 * reader stops early, the session must be released as broken.
 * @throws RetryableError, UnreachableError or PermanentError with a code `DATABASE_…`
 */
export async function* copyOut(
  session: Session,
  copy: Copy,
): AsyncGenerator<Buffer> {
  const { statement, action, signal } = copy;
  try {
    const chunks = session.client.query(
      copyTo(statement),
    ) as AsyncIterable<Buffer>;
    for await (const chunk of chunks) {
      yield chunk;
      signal.throwIfAborted();
    }
  } catch (error) {
    signal.throwIfAborted();
    throw databaseError(action, error);
  }
}

/**
 * Yields the output of `copy … to stdout` in text format as batches of complete lines. It
 * uses its own connection.
 * @throws as `copyOut`
 */
export async function* copyLines(
  pool: Pool,
  copy: Copy,
): AsyncGenerator<readonly string[]> {
  copy.signal.throwIfAborted();
  const decoder = new TextDecoder();
  let partial = '';
  let isBroken = true;
  const session = await openSession(pool, copy.action);
  try {
    for await (const chunk of copyOut(session, copy)) {
      const lines = (partial + decoder.decode(chunk, { stream: true })).split(
        '\n',
      );
      partial = lines.pop() ?? '';
      yield lines;
    }
    isBroken = false;
  } finally {
    // A reader that stops early leaves the COPY unfinished.
    session.release(isBroken);
  }
}

/** Sends rows to `copy … from stdin`. */
export class CopyIn {
  readonly #copy: Copy;
  readonly #stream: CopyStreamQuery;
  #failure: Error | undefined;

  /** Begins the COPY. Nothing else may use the session before `finish` resolves. */
  constructor(session: Session, copy: Copy) {
    this.#copy = copy;
    this.#stream = session.client.query(copyFrom(copy.statement));
    // `once` listens for errors only while it waits.
    this.#stream.on('error', (error) => {
      this.#failure ??= error;
    });
  }

  /** Sends a chunk, and waits until there is room for the next one. */
  async write(chunk: Buffer): Promise<void> {
    this.#throwIfFailed();
    if (!this.#stream.write(chunk)) await this.#waitUntil('drain');
    this.#throwIfFailed();
  }

  /** Resolves when the database has accepted everything. */
  async finish(): Promise<void> {
    this.#throwIfFailed();
    this.#stream.end();
    await this.#waitUntil('finish');
  }

  /** After an error, the stream has lost its connection and accepts no more data. */
  #throwIfFailed(): void {
    if (this.#failure !== undefined) {
      throw databaseError(this.#copy.action, this.#failure);
    }
  }

  async #waitUntil(event: 'drain' | 'finish'): Promise<void> {
    const { action, signal } = this.#copy;
    const tooLong = AbortSignal.timeout(ACCEPT_TIMEOUT_MS);
    try {
      await once(this.#stream, event, {
        signal: AbortSignal.any([signal, tooLong]),
      });
    } catch (error) {
      signal.throwIfAborted();
      if (!tooLong.aborted) throw databaseError(action, error);
      throw new UnreachableError(
        `Cannot ${action}: the database accepted no rows for ` +
          `${ACCEPT_TIMEOUT_MS / 1000} s; look for locks and a full disk`,
        { code: 'DATABASE_STALLED', cause: error },
      );
    }
  }
}
