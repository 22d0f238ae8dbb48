"""Reads a table of the lake with one engine: engine.py NAME PATH [VERSION] prints its rows as JSON.

engine.py hold PATH opens the table with delta-rs, says so, and reads it when it gets a line.
engine.py readme NAME runs the line of NAME in $README with $LAKE in place of the path.
engine.py compact|vacuum PATH changes the table with delta-rs.
"""
import glob, json, os, sys
from decimal import Decimal

S3 = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")} if "AWS_ENDPOINT_URL" in os.environ else {}


def text(value):
    return None if value is None else str(int(value)) if isinstance(value, Decimal) else str(value)


def shown(rows):
    """(quantity, effect, microseconds, month) in order."""
    return sorted([text(q), text(e), str(t), m] for q, e, t, m in rows)


def delta(path, version=None):
    from deltalake import DeltaTable
    return DeltaTable(path, version=version, storage_options=S3 or None)


def of_arrow(table):
    import pyarrow as pa
    table = table.select(["quantity", "effect", "vega_time", "month"])
    micros = table["vega_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    columns = [table[name].to_pylist() for name in ("quantity", "effect")]
    return zip(columns[0], columns[1], micros, table["month"].to_pylist())


def deltalake(path, version):
    return of_arrow(delta(path, version).to_pyarrow_table())


def connect():
    import duckdb, duckdb_extension_delta
    c = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    modules = [duckdb_extension_delta]
    if S3:
        import duckdb_extension_httpfs
        modules.insert(0, duckdb_extension_httpfs)
    for module in modules:
        for file in glob.glob(os.path.dirname(module.__file__) + "/extensions/*/*.duckdb_extension"):
            c.execute(f"load '{file}'")
    c.execute("set timezone = 'UTC'")
    if S3:
        endpoint = S3["AWS_ENDPOINT_URL"].removeprefix("http://")
        c.execute(f"""create secret (type s3, key_id '{S3["AWS_ACCESS_KEY_ID"]}', secret '{S3["AWS_SECRET_ACCESS_KEY"]}',
          endpoint '{endpoint}', use_ssl false, url_style 'path', region 'us-east-1')""")
    return c


def duckdb(path, version):
    at = "" if version is None else f", version = {version}"
    return connect().execute(f"select quantity, effect, epoch_us(vega_time), month from delta_scan('{path}'{at})").fetchall()


def polars(path, version):
    import polars as pl
    return of_arrow(pl.scan_delta(path, version=version, storage_options=S3 or None).collect().to_arrow())


def chdb(path, version):
    # It reads files below the working folder only.
    os.chdir("/")
    import chdb as ch
    at = "" if version is None else f" settings delta_lake_snapshot_version = {version}"
    source = f"deltaLakeLocal('{path}')"
    if S3:
        url = f"{S3['AWS_ENDPOINT_URL']}/{path.removeprefix('s3://')}/"
        source = f"deltaLake('{url}', '{S3['AWS_ACCESS_KEY_ID']}', '{S3['AWS_SECRET_ACCESS_KEY']}')"
    sql = f"select toString(quantity), toString(effect), toUnixTimestamp64Micro(vega_time), month from {source}"
    return json.loads(str(ch.query(sql + at, "JSONCompact")))["data"]


def daft(path, version):
    import daft as d
    from daft.io import IOConfig, S3Config
    s3 = S3Config(endpoint_url=S3["AWS_ENDPOINT_URL"], region_name=S3["AWS_REGION"], key_id=S3["AWS_ACCESS_KEY_ID"],
      access_key=S3["AWS_SECRET_ACCESS_KEY"], use_ssl=False) if S3 else None
    return of_arrow(d.read_deltalake(path, version=version, io_config=IOConfig(s3=s3) if s3 else None).to_arrow())


def session():
    from pyspark.sql import SparkSession
    builder = (SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
      .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
      .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
      .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"))
    # Not by delta-spark's own helper, which asks for a version that is not there.
    packages = ["io.delta:delta-spark_4.2_2.13:4.4.0"]
    if S3:
        # Without the bundle of every AWS service, which is 686 MB.
        packages += ["org.apache.hadoop:hadoop-aws:3.5.0"] + [f"software.amazon.awssdk:{name}:2.35.4" for name in ("s3", "s3-transfer-manager", "sts")]
        s3a = {"endpoint": S3["AWS_ENDPOINT_URL"], "endpoint.region": S3["AWS_REGION"], "path.style.access": "true",
          "access.key": S3["AWS_ACCESS_KEY_ID"], "secret.key": S3["AWS_SECRET_ACCESS_KEY"], "connection.ssl.enabled": "false"}
        for name, value in s3a.items():
            builder = builder.config(f"spark.hadoop.fs.s3a.{name}", value)
        builder = builder.config("spark.jars.excludes", "software.amazon.awssdk:bundle")
    spark = builder.config("spark.jars.packages", ",".join(packages)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def spark(path, version):
    read = session().read.format("delta")
    read = read if version is None else read.option("versionAsOf", version)
    read.load(path.replace("s3://", "s3a://")).createOrReplaceTempView("t")
    return [tuple(r) for r in session().sql("select quantity, effect, unix_micros(vega_time), month from t").collect()]


def readme(name):
    lines = [line.strip() for line in open(os.environ["README"])]
    line = next(line for line in lines if line.startswith(f"{name}:"))[len(name) + 1:].strip()
    line = line.replace("data/objects/lake", os.environ["LAKE"].replace("s3://", "s3a://" if name == "spark" else "s3://"))
    if name == "duckdb":
        return [[text(v) for v in row] for row in connect().execute(line).fetchall()]
    if name == "python":
        import deltalake
        return len(eval(line.replace('")', '", storage_options=S3 or None)', 1), {"deltalake": deltalake, "S3": S3}))
    return sorted([row["month"], row["count"]] for row in eval(line, {"spark": session()}).collect())


command, path, *rest = sys.argv[1:]
if command == "hold":
    held = delta(path)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(shown(of_arrow(held.to_pyarrow_table()))))
elif command == "readme":
    print(json.dumps(readme(path)))
elif command == "compact":
    print(json.dumps(delta(path).optimize.compact()["numFilesRemoved"]))
elif command == "vacuum":
    print(json.dumps(len(delta(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False))))
else:
    version = int(rest[0]) if rest else None
    print(json.dumps(shown(globals()[command](path, version))))
# Threads of the engines that still run must not end the process with an error.
sys.stdout.flush()
os._exit(0)
