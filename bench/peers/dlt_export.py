"""Writes a CSV to Parquet as dlt does, read in batches by Arrow: dlt_export.py URL FOLDER"""
import os, sys, urllib.request
url, folder = sys.argv[1:3]
os.environ.update(RUNTIME__LOG_LEVEL="CRITICAL", RUNTIME__DLTHUB_TELEMETRY="false", DLT_DATA_DIR=folder)
import dlt, pyarrow.csv


@dlt.resource(name="entries")
def entries():
    options = pyarrow.csv.ReadOptions(block_size=2**24)
    with urllib.request.urlopen(url) as answer:
        yield from pyarrow.csv.open_csv(answer, read_options=options)


pipeline = dlt.pipeline("peers", pipelines_dir=folder, destination=dlt.destinations.filesystem(f"file://{folder}/dlt"), dataset_name="peers")
pipeline.run(entries(), loader_file_format="parquet", write_disposition="replace")
import duckdb
found = f"read_parquet('{folder}/dlt/peers/entries/*.parquet')"
print("rows", duckdb.sql(f"select count(*) from {found}").fetchone()[0])
print("balance", duckdb.sql(f"select any_value(typeof(account_from_balance)) from {found}").fetchone()[0])
