#!/usr/bin/env python3
"""Finds a ledger in a published folder, and checks it up to the signed checkpoint's hash.
Usage: check_ledger.py FOLDER PARTY. Without ledger-mirror; the signature is checked apart."""
import base64, hashlib, json, os, sys

folder, party = sys.argv[1:3]

def read(path, start=0, length=-1):
    with open(os.path.join(folder, path), "rb") as file:
        file.seek(start)
        return file.read(length)

def leaf(content):
    return hashlib.sha256(b"\x00" + content).digest()

def root(hashes):  # RFC 9162, 2.1.1
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256(b"").digest()
    half = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + root(hashes[:half]) + root(hashes[half:])).digest()

def records(entry, levels):
    page = [json.loads(line) for line in read(f"pages/{entry[3]}", entry[4], entry[5]).splitlines()]
    for below in page:
        yield from [below] if levels == 1 else records(below, levels - 1)

origin, size, logged = read("checkpoint").decode().split("\n")[:3]
statements = [read(f"statements/{night:09}") for night in range(int(size))]
entries = [hashlib.sha256(statement).digest() for statement in statements]
assert root([leaf(entry) for entry in entries]) == base64.b64decode(logged), "the log is not what the checkpoint says"

statement = json.loads(statements[-1])
assert statement["mirror"] == origin, "the statement is of another mirror"
ledgers = statement["ledgers"]
found = list(records(ledgers["top"], ledgers["levels"]))
assert root([bytes.fromhex(entry[2]) for entry in found]).hex() == ledgers["root"], "the records are not what the statement says"
for name, asset, hash, file, start, length in found:
    if name == party:
        record = read(f"ledgers/{file}", start, length)
        assert leaf(record).hex() == hash, "the record is not what its page says"
        assert json.loads(record)["party"] == party, "the record is of another ledger"
        print(record.decode())
