/**
 * Counts the statements that this process sends to Postgres, through any pool or
 * connection.
 */
import { Client } from 'pg';

export interface StatementCounts {
  statements: number;
  transactions: number;
  /** The number of statements, by their first words. */
  readonly texts: Map<string, number>;
}

const BEGIN = /^\s*(?:begin|start transaction)/i;
const END = /^\s*(?:commit|rollback(?! to)|end)\b/i;

/**
 * Counts statements and transactions until the returned object is disposed of. A
 * statement outside a transaction counts as a transaction of its own.
 */
export function countStatements(): StatementCounts & Disposable {
  const counts = {
    statements: 0,
    transactions: 0,
    texts: new Map<string, number>(),
  };
  const inside = new WeakSet<object>();
  const { prototype } = Client;
  // eslint-disable-next-line typescript/unbound-method
  const query = prototype.query as (...given: unknown[]) => unknown;
  prototype.query = function counted(
    this: object,
    ...given: unknown[]
  ): unknown {
    const [first] = given;
    const text =
      typeof first === 'string'
        ? first
        : String((first as { text?: string } | undefined)?.text);
    counts.statements += 1;
    const name = text.trim().replaceAll(/\s+/g, ' ').slice(0, 70);
    counts.texts.set(name, (counts.texts.get(name) ?? 0) + 1);
    if (BEGIN.test(text)) inside.add(this);
    if (!inside.has(this) || BEGIN.test(text)) counts.transactions += 1;
    if (END.test(text)) inside.delete(this);
    return query.apply(this, given);
  } as never;
  return Object.assign(counts, {
    [Symbol.dispose]: () => {
      prototype.query = query as never;
    },
  });
}
