/**
 * Explains statements as they were sent to Postgres: their plans, and how much they read.
 */
import { Client, type Pool } from 'pg';

export interface Explained {
  /** The first words of the statement. */
  readonly text: string;
  /** Blocks of 8 kB, whether they were in memory or not. */
  readonly buffers: number;
  /** Tables that were read from end to end. */
  readonly scanned: readonly string[];
}

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Actual Loops': number;
  readonly 'Shared Hit Blocks': number;
  readonly 'Shared Read Blocks': number;
  readonly Plans?: readonly PlanNode[];
}

/** Runs `work`, and then explains each statement that it sent by running it again. */
export async function explainStatements(
  pool: Pool,
  work: () => Promise<unknown>,
): Promise<readonly Explained[]> {
  const asked: { text: string; values: unknown[] }[] = [];
  const { prototype } = Client;
  // eslint-disable-next-line typescript/unbound-method
  const query = prototype.query as (...given: unknown[]) => unknown;
  prototype.query = function noted(this: object, ...given: unknown[]): unknown {
    const [first, second] = given;
    const { text, values } =
      typeof first === 'string'
        ? { text: first, values: second }
        : (first as never);
    if (/^\s*(?:with|select)\b/i.test(text))
      asked.push({ text, values: Array.isArray(values) ? values : [] });
    return query.apply(this, given);
  } as never;
  try {
    await work();
  } finally {
    prototype.query = query as never;
  }
  const explained: Explained[] = [];
  for (const { text, values } of asked) {
    const { rows } = await pool.query<{
      'QUERY PLAN': readonly [{ Plan: PlanNode }];
    }>(`explain (analyze, buffers, format json) ${text}`, values);
    const [found] = rows[0]?.['QUERY PLAN'] ?? [];
    if (found === undefined) throw new Error(`no plan of ${text}`);
    explained.push({
      text: text.trim().replaceAll(/\s+/g, ' ').slice(0, 70),
      buffers:
        found.Plan['Shared Hit Blocks'] + found.Plan['Shared Read Blocks'],
      scanned: scannedBy(found.Plan),
    });
  }
  return explained;
}

function scannedBy(node: PlanNode): readonly string[] {
  const isScan = node['Node Type'] === 'Seq Scan' && node['Actual Loops'] > 0;
  return [
    ...(isScan ? [node['Relation Name'] ?? ''] : []),
    ...(node.Plans ?? []).flatMap((inner) => scannedBy(inner)),
  ];
}
