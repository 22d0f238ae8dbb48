/**
 * Writes CSV from standard input to Parquet as DuckDB does, with its own reader and
 * types: `node bench/export/duckdb.ts FILE`.
 */
import { DuckDBInstance } from '@duckdb/node-api';

const instance = await DuckDBInstance.create(':memory:');
const connection = await instance.connect();
const out = (process.argv[2] ?? 'out.parquet').replaceAll("'", "''");
// All columns are read as text, because DuckDB must not guess a type for amounts beyond
// 128 bits.
await connection.run(
  `copy (select * from read_csv('/dev/stdin', all_varchar = true, header = true, delim = ',')) to '${out}' (format parquet, compression zstd)`,
);
