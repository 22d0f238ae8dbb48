/**
 * CSV on standard input as DuckDB writes it to Parquet, by its own reader and types:
 * `node bench/export/duckdb.ts FILE`.
 */
import { DuckDBInstance } from '@duckdb/node-api';

const instance = await DuckDBInstance.create(':memory:');
const connection = await instance.connect();
const out = (process.argv[2] ?? 'out.parquet').replaceAll("'", "''");
// As text: the sums of amounts beyond 128 bits are not to be guessed.
await connection.run(
  `copy (select * from read_csv('/dev/stdin', all_varchar = true, header = true, delim = ',')) to '${out}' (format parquet, compression zstd)`,
);
