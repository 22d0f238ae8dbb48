"""Writes CSV from standard input to Parquet as DuckDB does, with its own types: duckdb_export.py FOLDER"""
import sys
import duckdb
out = f"{sys.argv[1]}/duckdb.parquet"
duckdb.sql(f"copy (select * from read_csv('/dev/stdin')) to '{out}' (format parquet, compression zstd)")
print("rows", duckdb.sql(f"select count(*) from '{out}'").fetchone()[0])
print("balance", duckdb.sql(f"select any_value(typeof(account_from_balance)) from '{out}'").fetchone()[0])
