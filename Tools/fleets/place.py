"""A folder with a server and its devices: processes, and databases as any program opens them."""

import json
import os
import signal
import sqlite3
import subprocess
import time
import urllib.request


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Device:
    def __init__(self, place, name, strategy, heal, individual, principal):
        self.place, self.name, self.principal = place, name, principal
        self.strategy, self.heal, self.individual = strategy, heal, individual
        self.watching = None
        self.has_chosen = False
        self.copy = None
        place.write(f"{name}.schema.json5", place.schema.text())
        place.write(
            f"{name}.json5",
            json.dumps(
                {
                    "schema": f"{name}.schema.json5",
                    "client": {
                        "storage": {"module": "sqlite", "path": f"{name}.db"},
                        "transport": {"module": "http", "url": place.url},
                        "credentials": {"principal": principal},
                        "recovery": {"strategy": strategy, "heal": heal},
                        "errorArchive": {"individualDeletion": individual},
                    },
                }
            ),
        )

    @property
    def database(self):
        return self.place.path(self.name + ".db")


class Place:
    """A folder, its server and its devices; every command and what it answered, in a log."""

    def __init__(self, folder, salvor, schema, port, features):
        self.folder, self.salvor, self.schema = folder, salvor, schema
        self.url = f"http://127.0.0.1:{port}"
        self.server = None
        self.findings = []
        self.log_file = open(self.path("log"), "w")
        self.write("schema.json5", schema.text())
        server = {
            "storage": {"module": "sqlite", "path": "server.db"},
            "authentication": {"module": "none"},
            "listen": {"module": "http", "address": "127.0.0.1", "port": port},
        }
        if "snapshots" in features:
            server["snapshots"] = {"minRows": 3}
        if "short-memory" in features:
            server["retention"] = {"tombstones": "1s"}
        if "strategies" in features:
            server["recovery"] = {"selfServiceRemoteDeletion": True}
        self.write("server.json5", json.dumps({"schema": "schema.json5", "server": server}))

    def path(self, name):
        return os.path.join(self.folder, name)

    @property
    def database(self):
        return self.path("server.db")

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def log(self, *words):
        print(*words, file=self.log_file, flush=True)

    def find(self, text):
        self.log("FINDING", text)
        self.findings.append(text)

    # Processes

    def begin(self, *words, on="server"):
        command = [self.salvor, *words, "--config", self.path(on + ".json5"), "--json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder, text=True)

    def run(self, *words, on="server", kill_after=None):
        """The command's code (None: it was killed), its answer and what it said besides."""
        return self.ended(self.begin(*words, on=on), *words, on=on, kill_after=kill_after)

    def ended(self, child, *words, on, kill_after=None):
        try:
            out, said = child.communicate(timeout=kill_after or 600)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            if not kill_after:
                self.find(f"{words} on {on} did not end within ten minutes")
            self.log("$", words, on, "killed")
            return None, {}, ""
        self.log("$", words, on, child.returncode, out.strip(), said.strip()[-600:])
        try:
            answer = json.loads(out)
        except ValueError:
            answer = {}
        if child.returncode < 0 or "crashed" in said:
            self.find(f"{words} on {on} crashed: {child.returncode} {said[-600:]}")
        return child.returncode, answer, said

    def expect(self, result, what, codes):
        code, answer, said = result
        text = json.dumps(answer.get("error") or {}) + said
        if code is None:
            return
        wrong = (
            "storage-corrupt",
            "inconsistent-download",
            "malformed",
            "UNIQUE constraint",
            "FOREIGN KEY",
            "no such ",
        )
        if code not in codes or (code and "need it first" not in text and any(word in text for word in wrong)):
            self.find(f"{what}: exit {code} {text[:600]}")

    def start(self):
        """False: it refuses its configuration."""
        if self.server:
            return True
        with open(self.path("serve.log"), "a") as log:
            self.server = subprocess.Popen(
                [self.salvor, "serve", "--config", self.path("server.json5")], stdout=log, stderr=log, cwd=self.folder
            )
        while self.server.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/readyz", timeout=5)
                return True
            except OSError:
                time.sleep(0.03)
        code, self.server = self.server.returncode, None
        if code != 2:
            self.find(f"serve ended with {code}: {self.read('serve.log')[-600:]}")
        return False

    def stop(self, how=signal.SIGTERM):
        if not self.server:
            return
        self.server.send_signal(how)
        code, self.server = self.server.wait(), None
        if how == signal.SIGTERM and code != 0:
            self.find(f"serve ended with {code} after SIGTERM: {self.read('serve.log')[-600:]}")

    # Databases, as any program opens them

    def rows(self, database, sql, values=()):
        connection = sqlite3.connect(database, timeout=60)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def transact(self, database, statements, keys="ON", taken=None, tables=()):
        """None, or why the database refused it. `taken` gets the keys that go from `tables`."""
        connection = sqlite3.connect(database, timeout=60, isolation_level=None)

        def keys_of_rows():
            return {row[0] for name in tables for row in connection.execute(f"SELECT id FROM {quoted(name)}")}

        try:
            connection.execute(f"PRAGMA foreign_keys = {keys}")
            connection.execute("BEGIN IMMEDIATE")
            before = keys_of_rows()
            for sql, values in statements:
                connection.execute(sql, values)
            gone = before - keys_of_rows()
            connection.execute("COMMIT")
            if taken is not None:
                taken.update(gone)
            refusal = None
        except sqlite3.Error as error:
            refusal = str(error)
        finally:
            connection.close()
        shown = [(sql, [len(v) if isinstance(v, bytes) else v for v in values]) for sql, values in statements]
        self.log("sql", os.path.basename(database), shown, refusal or "")
        return refusal

    def put_in_place(self, copy, database):
        """Another program's copy into a database that may be open."""
        source, target = sqlite3.connect(copy), sqlite3.connect(database, timeout=60)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()
        self.log("in place", os.path.basename(copy), os.path.basename(database))

    def columns(self, database, name):
        return [row[1] for row in self.rows(database, f"PRAGMA table_info({quoted(name)})")]

    def found(self, database, key):
        """The table's name in this file, and each of its columns there by the name that the schema began with."""
        table = self.schema.tables[key]
        for name in reversed(table.names):
            there = self.columns(database, name)
            if there:
                known = {}
                for column, names in table.columns.items():
                    for old in reversed(names):
                        if old in there:
                            known[column] = old
                            break
                for column in ("id", "line", "region", "up", "boss", "IsDeleted"):
                    if column in there:
                        known[column] = column
                return name, known
        return None, {}

    def ids(self, database, key):
        name, _ = self.found(database, key)
        return [row[0] for row in self.rows(database, f"SELECT id FROM {quoted(name)}")] if name else []
