"""Runs a tap of the Singer SDK without a target, and writes its messages to a file: singer_lists.py SOURCE FOLDER"""
import contextlib, json, logging, os, sys
source_url, folder = sys.argv[1:3]
logging.disable(logging.CRITICAL)
from singer_sdk import Tap, typing as th
from singer_sdk.pagination import BaseAPIPaginator
from singer_sdk.streams import RESTStream


class Cursors(BaseAPIPaginator):
    def get_next(self, response):
        info = response.json()["parties"]["pageInfo"]
        return info["endCursor"] if info["hasNextPage"] else None


class Parties(RESTStream):
    name, path, url_base, primary_keys = "parties", "/api/v2/parties", source_url.rstrip("/"), ["id"]
    records_jsonpath = "$.parties.edges[*].node"
    schema = th.PropertiesList(th.Property("id", th.StringType)).to_dict()

    def get_new_paginator(self):
        return Cursors(None)

    def get_url_params(self, context, next_page_token):
        after = {} if next_page_token is None else {"pagination.after": next_page_token}
        return {"pagination.first": 1000, "pagination.newestFirst": "false", **after}


class PartiesTap(Tap):
    name = "tap-parties"

    def discover_streams(self):
        return [Parties(self)]


out = os.path.join(folder, "singer.jsonl")
try:
    with open(out, "w") as file, contextlib.redirect_stdout(file):
        PartiesTap(config={}).sync_all()
finally:
    with open(out) as file:
        ids = {line.split('"id":"')[1][:64] if '"id":"' in line else json.loads(line)["record"]["id"] for line in file if '"RECORD"' in line}
    print("rows", len(ids))
