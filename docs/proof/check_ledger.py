#!/usr/bin/env python3
"""Checks what a mirror has signed about a ledger, without ledger-mirror: with Python 3.8 or
later and its standard library.

    check_ledger.py PLACE PARTY [KEY]

PLACE is the address of a published folder, a folder, or the file of a proof. KEY is the
public key; without it, the signature is not checked. Prints the record of the ledger.
"""
import base64, hashlib, json, os, sys, urllib.error, urllib.request

if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
place, party = sys.argv[1:3]
key = sys.argv[3] if len(sys.argv) == 4 else None
files = {}


def require(holds, problem):
    if not holds:
        sys.exit("NOT PROVEN: " + problem)


def read(path):
    """Reads a whole file of the published folder, once."""
    if path not in files:
        try:
            if place.startswith(("http://", "https://")):
                with urllib.request.urlopen(place.rstrip("/") + "/" + path) as answer:
                    files[path] = answer.read()
            else:
                with open(os.path.join(place, path), "rb") as file:
                    files[path] = file.read()
        except (OSError, urllib.error.URLError) as error:
            sys.exit(f"cannot read {path} in {place}: {error}")
    return files[path]


# Merkle trees of RFC 9162, sections 2.1.1 and 2.1.3.2.
def sha256(content):
    return hashlib.sha256(content).digest()


def leaf(content):
    return sha256(b"\x00" + content)


def root(hashes):
    if len(hashes) < 2:
        return hashes[0] if hashes else sha256(b"")
    half = 1 << (len(hashes) - 1).bit_length() - 1
    return sha256(b"\x01" + root(hashes[:half]) + root(hashes[half:]))


def root_of_path(index, size, result, path):
    require(0 <= index < size, "the index is outside of the tree")
    index, last = index, size - 1
    for other in map(bytes.fromhex, path):
        require(last > 0, "a path is too long")
        if index % 2 == 1 or index == last:
            result = sha256(b"\x01" + other + result)
            while index % 2 == 0 and index != 0:
                index, last = index >> 1, last >> 1
        else:
            result = sha256(b"\x01" + result + other)
        index, last = index >> 1, last >> 1
    require(last == 0, "a path is too short")
    return result


# Ed25519 of RFC 8032, section 6. It is slow, but it only verifies, so it keeps no secret.
P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(one, two):
    a, b = (one[1] - one[0]) * (two[1] - two[0]) % P, (one[1] + one[0]) * (two[1] + two[0]) % P
    c, d = 2 * one[3] * two[3] * D % P, 2 * one[2] * two[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar, point):
    result = (0, 1, 1, 0)
    while scalar > 0:
        if scalar & 1:
            result = add(result, point)
        point, scalar = add(point, point), scalar >> 1
    return result


def decode_point(encoded):
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P != 0:
        x = x * pow(2, (P - 1) // 4, P) % P
    require(y < P and (x * x - square) % P == 0 and not (x == 0 and sign), "a point is not on the curve")
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


def is_signed(public, message, signature):
    s = int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % Q
    base = decode_point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    left = multiply(s, base)
    right = add(decode_point(signature[:32]), multiply(k, decode_point(public)))
    same_x = (left[0] * right[2] - right[0] * left[2]) % P == 0
    return s < Q and same_x and (left[1] * right[2] - right[1] * left[2]) % P == 0


def open_key():
    """Returns the name, the public key and its hash, as C2SP signed-note defines them."""
    name, key_id, encoded = (key.strip().split("+", 2) + ["", ""])[:3]
    try:
        public = base64.b64decode(encoded)
    except ValueError:
        public = b""
    expected = sha256(f"{name}\n".encode() + public)[:4]
    require(len(public) == 33 and public[0] == 1 and expected.hex() == key_id, "KEY is not a public key of a log")
    return name, public, expected


def open_checkpoint(note):
    """Checks the signature (C2SP signed-note), and returns the lines of the checkpoint."""
    text, _, signatures = note.rpartition("\n\n")
    text += "\n"
    are_signatures = [line.startswith("\u2014 ") for line in signatures.splitlines()]
    require(all(are_signatures), "the checkpoint has a line that is not a signature")
    if key is not None:
        name, public, expected = open_key()
        ours = [line.split(" ")[2] for line in signatures.splitlines() if line.startswith(f"\u2014 {name} ")]
        decoded = [base64.b64decode(signature) for signature in ours]
        signed = [one[4:] for one in decoded if len(one) == 68 and one[:4] == expected]
        require(len(signed) > 0, "the checkpoint has no signature by KEY")
        require(is_signed(public[1:], text.encode(), signed[0]), "the signature is not by KEY")
    lines = text.split("\n")
    require(len(lines) > 3, "the checkpoint has not three lines")
    require(key is None or lines[0] == key.split("+")[0], "the checkpoint is of another log than KEY")
    return lines[0], int(lines[1]), base64.b64decode(lines[2])


def read_entries(size):
    """Reads the hashes of all statements (C2SP tlog-tiles)."""
    entries = []
    for index in range((size + 255) // 256):
        width = min(256, size - index * 256)
        digits = f"{index:03}" if index < 1000 else f"x{index // 1000:03}/{index % 1000:03}"
        content = read(f"tile/entries/{digits}" + (f".p/{width}" if width < 256 else ""))
        entries += [content[at + 2 : at + 34] for at in range(0, len(content), 34)]
    return entries


def read_records(entry, levels):
    _, _, hash, file, start, length = entry
    page = [json.loads(line) for line in read(f"pages/{file}")[start : start + length].splitlines()]
    require(root([bytes.fromhex(below[2]) for below in page]).hex() == hash, "a page is not what the page above says")
    for below in page:
        yield from [below] if levels == 1 else read_records(below, levels - 1)


def check_folder():
    origin, size, logged = open_checkpoint(read("checkpoint").decode())
    entries = read_entries(size)
    require(root([leaf(entry) for entry in entries]) == logged, "the log is not what the checkpoint says")
    content = read(f"statements/{size - 1:09}")
    require(sha256(content) == entries[-1], "the statement is not the one in the log")
    statement = json.loads(content)
    ledgers = statement["ledgers"]
    entries = list(read_records(ledgers["top"], ledgers["levels"])) if ledgers["top"] else []
    hashes = [bytes.fromhex(entry[2]) for entry in entries]
    require(root(hashes).hex() == ledgers["root"], "the records are not what the statement says")
    found = [entry for entry in entries if entry[0] == party]
    records = [read(f"ledgers/{file}")[start : start + length] for _, _, _, file, start, length in found]
    for entry, record in zip(found, records):
        require(leaf(record).hex() == entry[2], "the record is not what its page says")
    return origin, statement, records


def check_proof():
    with open(place, encoding="utf-8") as file:
        proof = json.load(file)
    origin, size, logged = open_checkpoint(proof["checkpoint"])
    content, record = proof["statement"].encode(), proof["record"].encode()
    statement = json.loads(content)
    in_log = root_of_path(statement["night"], size, leaf(sha256(content)), proof["statementPath"])
    require(in_log == logged, "the statement is not in the log of the checkpoint")
    ledgers = statement["ledgers"]
    held = root_of_path(proof["recordIndex"], ledgers["count"], leaf(record), proof["recordPath"])
    require(held.hex() == ledgers["root"], "the record is not in the statement")
    return origin, statement, [record]


try:
    origin, statement, records = check_proof() if os.path.isfile(place) else check_folder()
    require(statement["mirror"] == origin, "the statement belongs to another mirror")
    records = [record for record in records if json.loads(record)["party"] == party]
except (ValueError, KeyError, IndexError, TypeError) as error:
    sys.exit(f"NOT PROVEN: {place} is not what a mirror publishes: {error!r}")
require(len(records) > 0, f"night {statement['night']} has no record of {party}; give the whole id")
signed = "signed by KEY" if key is not None else "THE SIGNATURE WAS NOT CHECKED: give the KEY"
summary = f"{origin}, night {statement['night']}, {statement['heldAt']}, {statement['verdict']}: {signed}"
print(summary, file=sys.stderr)
for record in records:
    print(record.decode())
