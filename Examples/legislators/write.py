#!/usr/bin/env python3
"""Writes transactions of the edit history into a device's database, as any application would: with the SQLite library at
hand, which knows nothing of Salvor. Each transaction becomes one request.

usage: write.py DATABASE FIRST [LAST]     numbers of transactions, as in data/changes.jsonl.gz
"""
import gzip
import json
import os
import sqlite3
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# A number in one row and text in another: kept as JSON text (schema.json5).
JSON = {
    "legislator": {"id_cspan", "id_house_history", "id_icpsr", "id_votesmart"},
    "social_media": {"facebook_graph", "twitter_id"},
    "office": {"suite", "zip"},
}
with open(os.path.join(HERE, "data/summary.json"), encoding="utf-8") as file:
    TABLES = {name: (table["key"], sorted(table["columns"])) for name, table in json.load(file)["tables"].items()}


def stored(table, column, value):
    return json.dumps(value) if value is not None and column in JSON.get(table, ()) else value


def write(database, change):
    """The data's own rules: an insert replaces, an update or delete of a missing row does nothing."""
    table, (key, columns) = change["table"], TABLES[change["table"]]
    values = {c: stored(table, c, v) for c, v in (change.get("cols") or {}).items()}
    matches = " AND ".join(f'"{c}" = ?' for c in key)
    if change["op"] == "ins":
        names = ", ".join(f'"{c}"' for c in columns)
        sets = ", ".join(f'"{c}" = excluded."{c}"' for c in columns)
        keys = ", ".join(f'"{c}"' for c in key)
        database.execute(
            f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(columns))}) '
            f"ON CONFLICT ({keys}) DO UPDATE SET {sets}",
            [values.get(c) for c in columns],
        )
    elif change["op"] == "upd":
        sets = ", ".join(f'"{c}" = ?' for c in values)
        database.execute(f'UPDATE "{table}" SET {sets} WHERE {matches}', [*values.values(), *change["key"]])
    else:
        database.execute(f'DELETE FROM "{table}" WHERE {matches}', change["key"])


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    first, last = int(sys.argv[2]), int(sys.argv[-1])
    if not os.path.exists(sys.argv[1]):
        sys.exit(f"There is no {sys.argv[1]}: run salvor sync first, which makes it.")
    database = sqlite3.connect(sys.argv[1], isolation_level=None)
    is_open, count = False, 0
    with gzip.open(os.path.join(HERE, "data/changes.jsonl.gz"), "rt", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            if item["tx"] > last:
                break
            if item["tx"] < first:
                continue
            if "op" in item:
                write(database, item)
                continue
            if is_open:
                database.execute("DELETE FROM salvor_request")
                database.execute("COMMIT")
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO salvor_request(tag) VALUES (?)", [f"tx {item['tx']} {item['client']}"])
            is_open, count = True, count + 1
    if is_open:
        database.execute("DELETE FROM salvor_request")
        database.execute("COMMIT")
    print(f"{count} transactions written")


main()
