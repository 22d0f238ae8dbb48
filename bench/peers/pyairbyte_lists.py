"""Loads lists into Postgres with PyAirbyte and a declarative source: pyairbyte_lists.py SOURCE DATABASE FOLDER"""
import contextlib, os, sys
source_url, database, folder = sys.argv[1:4]
os.environ.update(DO_NOT_TRACK="1", AIRBYTE_OFFLINE_MODE="1", AIRBYTE_LOGGING_ROOT=folder, AIRBYTE_PROJECT_DIR=folder, HOME=folder)
os.chdir(folder)
from urllib.parse import urlsplit
from uuid import uuid4
import airbyte as ab
from airbyte.caches import PostgresCache

info = "response['parties']['pageInfo']"
manifest = {
    "version": "6.0.0",
    "type": "DeclarativeSource",
    "check": {"type": "CheckStream", "stream_names": ["parties"]},
    "streams": [{
        "type": "DeclarativeStream",
        "name": "parties",
        "primary_key": ["id"],
        "retriever": {
            "type": "SimpleRetriever",
            "requester": {
                "type": "HttpRequester",
                "url_base": source_url.rstrip("/"),
                "path": "/api/v2/parties",
                "http_method": "GET",
                "request_parameters": {"pagination.first": "1000", "pagination.newestFirst": "false"},
            },
            "record_selector": {
                "type": "RecordSelector",
                "extractor": {"type": "DpathExtractor", "field_path": ["parties", "edges", "*", "node"]},
            },
            "paginator": {
                "type": "DefaultPaginator",
                "page_token_option": {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "pagination.after"},
                "pagination_strategy": {
                    "type": "CursorPagination",
                    "cursor_value": "{{ " + info + "['endCursor'] }}",
                    "stop_condition": "{{ not " + info + "['hasNextPage'] }}",
                },
            },
        },
        "schema_loader": {
            "type": "InlineSchemaLoader",
            "schema": {"type": "object", "properties": {"id": {"type": "string"}}},
        },
    }],
    "spec": {"type": "Spec", "connection_specification": {"type": "object", "properties": {}}},
}
at = urlsplit(database)
# A table that is there already is merged with, so each run has a schema of its own.
schema = f"pyairbyte_{uuid4().hex}"
cache = PostgresCache(
    host=at.hostname, port=at.port, username=at.username, password=at.password or "",
    database=at.path.lstrip("/"), schema_name=schema,
)
source = ab.get_source("source-parties", config={}, source_manifest=manifest)
source.select_all_streams()
with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
    source.read(cache=cache, force_full_refresh=True)
rows = cache.run_sql_query(f"select count(distinct id) as rows from {schema}.parties")
print("rows", list(rows)[0]["rows"])
