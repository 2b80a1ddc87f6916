#!/usr/bin/env python3
"""An application on its own SQLite database, which Salvor keeps in step with a server.

    field.py salvor.json5 add ID NAME     writes a row, and synchronizes
    field.py salvor.json5 list            the rows
    field.py salvor.json5 sync            synchronizes, and shows what came
    field.py salvor.json5 watch SECONDS   shows rows as they come
    field.py salvor.json5 errors          what the server refused; `retry` and `discard` deal with it
    field.py salvor.json5 recover         what a recovery would do, and what was done; then it is done where one is required
"""

import re
import sqlite3
import sys
import time
from pathlib import Path

from salvor import Client, Event, SalvorError, SyncReport


def database(configuration: str) -> sqlite3.Connection:
    """The application's own connection: it waits where Salvor applies something large."""
    text = Path(configuration).read_text(encoding="utf-8")
    section = text[re.search(r"\bclient\s*:", text).start():]
    path = re.search(r"path:\s*\"([^\"]+)\"", section).group(1)
    connection = sqlite3.connect(Path(configuration).parent / path, timeout=30)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def show(report: SyncReport) -> None:
    print(f"{report.outcome}: {report.uploaded} sent, {report.upserts} came, {report.deletes} went, {report.refused} refused")
    if report.recovery:
        print(f"recovered: {report.recovery.reason}, {report.recovery.kept} requests kept, {report.recovery.discarded} archived")


def told(event: Event) -> None:
    for change in event.changes:
        keys = "the whole table" if change.keys is None else ", ".join(str(key[0]) for key in change.keys)
        print(f"changed {change.table}: {keys}", flush=True)


def main(configuration: str, command: str, *arguments: str) -> int:
    with Client(configuration) as client:
        rows = database(configuration)
        try:
            if command == "add":
                with rows:
                    rows.execute("INSERT INTO site (id, name) VALUES (?, ?)", arguments)
                show(client.synchronize())
            elif command == "list":
                for id, name in rows.execute("SELECT id, name FROM site ORDER BY id"):
                    print(id, name)
            elif command == "sync":
                client.subscribe(told)
                show(client.synchronize())
            elif command == "watch":
                client.subscribe(told)
                client.watch()
                time.sleep(float(arguments[0]))
            elif command == "errors":
                for entry in client.errors():
                    print(f"{entry.id} {entry.state} {entry.operation} {entry.table} {entry.key[0]}: {entry.message}")
            elif command == "retry":
                client.retry(all=True)
                show(client.synchronize())
            elif command == "discard":
                print(len(client.delete(all=True)["requests"]), "taken back")
            elif command == "recover":
                for done in client.recoveries():
                    print(f"done: {done.reason} by {done.strategy}")
                status, plan = client.status(), client.recovery_plan()
                print(f"plan: {plan.reason or 'nothing to recover from'}, {plan.kept} requests kept")
                if status.recovery_state == "required":
                    show(client.recover(token=status.recovery_token))
            else:
                print(__doc__, file=sys.stderr)
                return 2
        finally:
            rows.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except SalvorError as error:
        print(f"{error.message}\n{error.way_on}", file=sys.stderr)
        sys.exit(1)
