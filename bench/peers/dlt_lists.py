"""Loads lists into Postgres with dlt's rest_api source, tuned (CSV loading): dlt_lists.py SOURCE DATABASE FOLDER"""
import os, sys
source_url, database, folder = sys.argv[1:4]
os.environ.update(RUNTIME__LOG_LEVEL="CRITICAL", RUNTIME__DLTHUB_TELEMETRY="false", DLT_DATA_DIR=folder)
import dlt
from dlt.sources.helpers.rest_client.paginators import JSONResponseCursorPaginator
from dlt.sources.rest_api import rest_api_source

info = "parties.pageInfo"
paginator = JSONResponseCursorPaginator(cursor_path=f"{info}.endCursor", cursor_param="pagination.after", has_more_path=f"{info}.hasNextPage")
source = rest_api_source({
    "client": {"base_url": source_url, "paginator": paginator},
    "resources": [{"name": "parties", "endpoint": {
        "path": "api/v2/parties", "data_selector": "parties.edges",
        "params": {"pagination.first": 1000, "pagination.newestFirst": "false"}}}],
})
pipeline = dlt.pipeline("peers", pipelines_dir=folder, destination=dlt.destinations.postgres(database), dataset_name="peers_dlt")
pipeline.run(source, loader_file_format="csv", write_disposition="replace")
with pipeline.sql_client() as client:
    print("rows", client.execute_sql("select count(distinct node__id) from parties")[0][0])
