"""What happens in a fleet, and what must hold in the end."""

import copy
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess

from place import Device, quoted

REGIONS = ["EU", "US", "AS"]
IN_PLACE = ["recover-unsynced-changes", "recover-or-discard-unsynced-changes"]
STRATEGIES = IN_PLACE + ["copy-and-resubscribe", "discard-unsynced-changes", "recreate"]


class History:
    def __init__(self, seed, place, rng, features):
        self.place, self.rng, self.features = place, rng, features
        self.seed = seed
        self.devices = []
        self.count = 0
        # Where each row was made, and in which table; rows that may be nowhere; rows that a mark took along.
        self.made, self.excused, self.parents, self.marked, self.purged = {}, set(), {}, set(), {}
        self.backups = []
        self.may_stop = False

    def codes(self, *codes):
        """Where somebody has demanded a recovery, it may be one that a person has to release."""
        return codes + (5,) if self.may_stop else codes

    def expect(self, result, what, *codes):
        self.place.expect(result, what, self.codes(*codes))

    def everything(self, database):
        return {row for key in self.place.schema.tables for row in self.place.ids(database, key)}

    # What happens

    def write(self, database, who):
        rng, place = self.rng, self.place
        key = rng.choice(list(place.schema.tables))
        table = place.schema.tables[key]
        name, columns = place.found(database, key)
        if not name:
            return
        ids = place.ids(database, key)
        statements, made, gone = [], [], []
        what = rng.random()
        if what < 0.5 or not ids:
            for _ in range(rng.choice([1, 1, 1, 3])):
                self.count += 1
                row = {"id": f"{who}-{self.count}", "note": f"n{self.count}", "value": rng.randrange(5)}
                row["code"] = rng.choice([None, f"c{rng.randrange(6)}"])
                row["region"] = rng.choice(REGIONS)
                if rng.random() < 0.7:
                    row["photo"] = rng.randbytes(rng.choice([3, 100, 5000, 70_000, 200_000]))
                if table.parent and rng.random() < 0.8:
                    parents = place.ids(database, table.parent)
                    row["up"] = self.parents[row["id"]] = rng.choice(parents) if parents else None
                row = {columns[column]: value for column, value in row.items() if column in columns}
                names = ", ".join(map(quoted, row))
                marks = ", ".join("?" * len(row))
                statements.append((f"INSERT INTO {quoted(name)} ({names}) VALUES ({marks})", list(row.values())))
                made.append(row["id"])
        elif what < 0.85:
            column = rng.choice(["value", "value", "code", "region"])
            if column not in columns:
                return
            value = {"value": rng.randrange(100), "code": f"c{rng.randrange(6)}", "region": rng.choice(REGIONS)}[column]
            statements.append(
                (f"UPDATE {quoted(name)} SET {quoted(columns[column])} = ? WHERE id = ?", [value, rng.choice(ids)])
            )
        elif rng.random() < 0.1:
            gone = ids
            statements.append((f"DELETE FROM {quoted(name)}", []))
        else:
            gone = [rng.choice(ids)]
            if "IsDeleted" in columns and database != place.database and rng.random() < 0.5:
                statements.append(
                    (f"UPDATE {quoted(name)} SET IsDeleted = ? WHERE id = ?", [rng.choice([1, 1, 0]), gone[0]])
                )
                self.marked.update(gone)
            else:
                statements.append((f"DELETE FROM {quoted(name)} WHERE id = ?", gone))
        if rng.random() < 0.2 and database != place.database:
            statements = (
                [("INSERT INTO salvor_request (tag) VALUES ('g')", [])] + statements + [("DELETE FROM salvor_request", [])]
            )
        names = [place.found(database, key)[0] for key in place.schema.tables] if gone else []
        taken = set()
        refusal = place.transact(database, statements, taken=taken, tables=[name for name in names if name])
        if refusal is None:
            self.made.update({row: (who, key) for row in made})
            self.excused.update(gone)
            # With what the foreign keys took along, and what others had just written.
            self.excused.update(taken)
        elif "salvor" in refusal or "locked" in refusal:
            place.find(f"a write of {who} failed: {refusal} {statements[0][0]}")

    def evolve(self):
        place, rng = self.place, self.rng
        place.stop()
        saved = copy.deepcopy(place.schema)
        done = [place.schema.change(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
        place.schema.version += 1
        place.log("schema", place.schema.version, done)
        place.write("schema.json5", place.schema.text())
        if not place.start():
            place.log("refused", place.read("serve.log")[-1500:])
            place.schema = saved
            place.write("schema.json5", saved.text())
            if not place.start():
                place.find("the server does not start with the schema of before")

    def synchronize(self, device):
        kill = self.rng.uniform(0.01, 0.25) if "kills" in self.features and self.rng.random() < 0.3 else None
        self.expect(self.place.run("sync", on=device.name, kill_after=kill), f"sync of {device.name}", 0, 6)

    def subscribe(self, device):
        place, rng = self.place, self.rng
        name, _ = place.found(device.database, "a")
        name = name or place.schema.tables["a"].name
        region = rng.choice(REGIONS)
        if "settings" in self.features and rng.random() < 0.3:
            place.transact(
                device.database,
                [
                    (
                        "INSERT INTO salvor_setting (name, value) VALUES ('home', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                        [region],
                    )
                ],
            )
            words = ("subscribe", name, "region=setting:home")
        else:
            words = rng.choice(
                [("subscribe", name, f"region={region}"), ("subscribe", name), ("unsubscribe", name, "--all")]
            )
        device.has_chosen = True
        self.expect(place.run(*words, on=device.name), " ".join(words), 0, 2)

    def watch(self, device):
        if device.watching:
            device.watching.send_signal(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
            device.watching.wait()
            device.watching = None
            return
        with open(self.place.path(device.name + ".watch"), "a") as log:
            device.watching = subprocess.Popen(
                [self.place.salvor, "sync", "--watch", "--config", self.place.path(device.name + ".json5")],
                stdout=log,
                stderr=log,
                cwd=self.place.folder,
            )

    def restore(self):
        place, rng = self.place, self.rng
        if not self.backups or rng.random() < 0.5:
            file = place.path(f"backup-{self.count}-{len(self.backups)}.db")
            self.expect(place.run("server", "backup", file), "backup", 0)
            self.backups.append(file)
            return
        # Into the file that the server has open, as the shell's .restore does, or as the guide says it.
        backup, in_place = rng.choice(self.backups), rng.random() < 0.4
        if in_place:
            place.put_in_place(backup, place.database)
        else:
            place.stop(rng.choice([signal.SIGTERM, signal.SIGKILL]))
            self.expect(place.run("server", "restore", backup), "restore", 0)
        # What other programs wrote is on no device that gives it back.
        self.excused.update(row for row, (who, _) in self.made.items() if who == "program")
        if not in_place:
            place.start()

    def migrate(self, device):
        place = self.place
        code, _, _ = result = place.run("capture", "pause", on=device.name)
        self.expect(result, "pause", 0, 2)
        if code != 0:
            return
        if self.rng.random() < 0.7:
            self.write(device.database, device.name)
        self.expect(place.run("capture", "resume", on=device.name), "resume", 0)

    def rebuild(self, device):
        """As SQLite's documentation says it: a new table, the rows, the old one dropped, the new one renamed. Nobody pauses."""
        place = self.place
        name, _ = place.found(device.database, self.rng.choice(list(place.schema.tables)))
        if not name:
            return
        sql = place.rows(device.database, "SELECT sql FROM sqlite_schema WHERE name = ?", [name])[0][0]
        made = re.sub(r'CREATE TABLE\s+"?' + re.escape(name) + '"?', 'CREATE TABLE "rebuilt"', sql, count=1)
        place.transact(
            device.database,
            [
                (made, []),
                (f"INSERT INTO rebuilt SELECT * FROM {quoted(name)}", []),
                (f"DROP TABLE {quoted(name)}", []),
                (f"ALTER TABLE rebuilt RENAME TO {quoted(name)}", []),
            ],
            keys="OFF",
        )

    def token(self, device):
        state = self.place.run("status", on=device.name)[1].get("recovery") or {}
        return ("--token", state["token"]) if state.get("token") else ()

    def person(self, device):
        """At the device: the archive, the queue, a recovery by hand, a copy that is put back."""
        place, rng = self.place, self.rng
        what = rng.random()
        if what < 0.5:
            which = rng.choice(["errors", "errors", "queue"])
            code, answer, _ = result = place.run(which, on=device.name)
            self.expect(result, which, 0)
            requests = answer.get("requests") or []
            if not requests:
                return
            request = rng.choice(requests)
            if which == "queue":
                words = ("queue", "withdraw", request["id"])
            else:
                words = ("errors",) + rng.choice(
                    [("retry", request["id"]), ("retry", "--all"), ("delete", request["id"]), ("show", request["id"])]
                )
                if words[1] == "delete" and request["state"] == "kept":
                    words += ("--kept",)
            # 1: it is under way.
            self.expect(place.run(*words, on=device.name), " ".join(words), 0, 1, 2)
        elif what < 0.7:
            strategy = rng.choice(STRATEGIES)
            if strategy == "recreate":
                device.has_chosen = False
            self.may_stop = True
            self.expect(place.run("recover", "--plan", "--strategy", strategy, on=device.name), "plan", 0, 2)
            self.expect(place.run("recover", "--strategy", strategy, *self.token(device), on=device.name), strategy, 0, 6)
        elif what < 0.8:
            backups = place.run("backups", on=device.name)[1].get("backups") or []
            if backups:
                self.may_stop = True
                self.put_back(device, rng.choice(backups)["id"])
        elif "put-back" in self.features and device.copy and rng.random() < 0.6:
            for ending in ("", "-wal", "-shm"):
                if os.path.exists(device.database + ending):
                    os.unlink(device.database + ending)
            shutil.copy(device.copy, device.database)
            if rng.random() < 0.5 and os.path.exists(device.database + ".salvor-identity"):
                os.unlink(device.database + ".salvor-identity")
            # What was written since the copy was made is gone with the file.
            self.excused.update(row for row, (who, _) in self.made.items() if who == device.name)
            self.may_stop = True
            place.log("put back", device.name)
        elif "put-back" in self.features:
            device.copy = place.path(device.name + ".copy")
            source, target = sqlite3.connect(device.database), sqlite3.connect(device.copy)
            source.backup(target)
            source.close()
            target.close()

    def put_back(self, device, backup):
        """What waits, or is in the archive, and is not in the backup, is in the copy that the answer names."""
        place = self.place
        tables = [place.found(device.database, key)[0] for key in place.schema.tables]
        reads = [f"SELECT * FROM {quoted(name)} ORDER BY id" for name in tables if name]
        before = [place.rows(device.database, read) for read in reads]
        _, answer, _ = result = place.run("backups", "restore", backup, on=device.name)
        self.expect(result, "backups restore", 0, 2)
        copies = place.run("backups", on=device.name)[1].get("backups") or []
        for path in [copy["path"] for copy in copies if copy["id"] == answer.get("copy")]:
            self.excused.update(row for row, (who, _) in self.made.items() if who == device.name)
            if [place.rows(path, read) for read in reads] != before:
                place.find(f"{device.name}: the copy of what was there before {backup} differs")

    def operate(self):
        """At the server: remotes, purges, conflict versions, what a restore waits for."""
        place, rng = self.place, self.rng
        what = rng.random()
        if what < 0.3:
            remotes = place.run("remotes")[1].get("remotes") or []
            if remotes:
                remote = rng.choice(remotes)
                words = rng.choice(
                    [("reset", remote["id"]), ("reset", "--all"), ("delete", remote["id"]), ("show", remote["id"])]
                )
                self.may_stop = self.may_stop or words[0] != "show"
                # 2: a restore has just taken it.
                self.expect(place.run("remotes", *words), "remotes " + words[0], 0, 2)
        elif what < 0.5:
            key = rng.choice(list(place.schema.tables))
            ids = place.ids(place.database, key)
            if ids and not place.schema.tables[key].composite:
                row = rng.choice(ids)
                code, _, _ = result = place.run("server", "purge", place.found(place.database, key)[0], row)
                # 1: a row below it needs it.
                self.expect(result, "purge", 0, 1)
                if code == 0:
                    self.purged[row] = key
                    self.marked.add(row)
        elif what < 0.8:
            versions = place.run("conflicts")[1].get("conflicts") or []
            if versions:
                words = ("conflicts", "resolve", str(rng.choice(versions)["id"]), "--keep", rng.choice(["client", "server"]))
                self.expect(place.run(*words), " ".join(words), 0, 2, 6)
        else:
            restores = place.run("server", "restores")[1].get("restores") or []
            if restores:
                words = rng.choice(
                    [(verb, str(rng.choice(restores)["id"])) for verb in ("accept", "reject", "show")]
                    + [("pause",), ("resume",)]
                )
                self.expect(place.run("server", "restores", *words), "restores " + words[0], 0, 2)

    def step(self):
        rng, place, features = self.rng, self.place, self.features
        device = rng.choice(self.devices)
        if "operator" in features and rng.random() < 0.1:
            return self.operate()
        if "people" in features and rng.random() < 0.1 and not device.watching:
            return self.person(device)
        what = rng.random()
        if what < 0.42:
            for _ in range(rng.randrange(1, 4)):
                self.write(device.database, device.name)
        elif what < 0.52 and "programs" in features:
            if "key-set" in features and rng.random() < 0.3:
                place.transact(
                    place.database,
                    [
                        rng.choice(
                            [
                                ("INSERT OR REPLACE INTO severity VALUES (?, ?)", [rng.randrange(9), f"s{self.count}"]),
                                ("DELETE FROM severity WHERE id = ?", [rng.randrange(9)]),
                            ]
                        )
                    ],
                )
            self.write(place.database, "program")
        elif what < 0.74:
            if not device.watching:
                self.synchronize(device)
        elif what < 0.80:
            self.evolve()
        elif what < 0.84:
            if "subscriptions" in features and "scopes" in features:
                self.subscribe(device)
        elif what < 0.88:
            if "watch" in features:
                self.watch(device)
        elif what < 0.92:
            if "restores" in features:
                self.restore()
        elif what < 0.94:
            if "kills" in features:
                place.stop(signal.SIGKILL)
                place.start()
        elif what < 0.96:
            if "updates" in features:
                place.write(device.name + ".schema.json5", place.schema.text())
        elif not device.watching:
            if what < 0.98 and "pauses" in features:
                self.migrate(device)
            elif "rebuilds" in features:
                self.rebuild(device)

    # What must hold

    def settle(self):
        """Everybody synchronizes until nothing is left to do; the operator decides what waits, people empty their archives."""
        place = self.place
        for device in self.devices:
            if device.watching:
                self.watch(device)
        place.start()
        place.run("server", "restores", "resume")
        for turn in range(12):
            for restore in place.run("server", "restores")[1].get("restores") or []:
                if turn in (2, 5):
                    place.run("server", "restores", "accept", str(restore["id"]))
                elif turn in (4, 7):
                    place.run("server", "restores", "reject", str(restore["id"]))
            is_busy = False
            for device in self.devices:
                code, answer, _ = result = place.run("sync", on=device.name)
                self.expect(result, f"the last syncs of {device.name}", 0, 6)
                if code == 5:
                    is_busy = True
                    result = place.run("recover", "--strategy", IN_PLACE[0], *self.token(device), on=device.name)
                    if result[0] == 5:
                        result = place.run("recover", "--strategy", "recreate", *self.token(device), on=device.name)
                        device.has_chosen = False
                    place.expect(result, f"the recovery of {device.name} by hand", (0, 6))
                state = place.run("status", on=device.name)[1]
                waits = any(state.get(key) for key in ("queued", "inError", "displaced"))
                if (code == 6 or (waits and turn > 2)) and turn < 9:
                    place.run("errors", "delete", "--all", on=device.name)
                loaded = answer.get("downloaded") or {}
                is_busy = is_busy or waits or any([answer.get("uploaded"), loaded.get("upserts"), loaded.get("deletes")])
            if not is_busy and turn > 0:
                return
        place.find("nothing comes to rest within twelve rounds")

    def contents(self, database, key, columns):
        """Rows by key, of the columns that both sides have."""
        name, known = self.place.found(database, key)
        selected = ", ".join(quoted(known[column]) for column in columns)
        return {row[0]: row for row in self.place.rows(database, f"SELECT {selected} FROM {quoted(name)}")}

    def compare(self, device):
        place = self.place
        self.expect(place.run("verify", on=device.name), f"verify of {device.name}", 0)
        for key, table in place.schema.tables.items():
            here, there = place.found(device.database, key), place.found(place.database, key)
            if not here[0]:
                place.find(f"{device.name} has no table {table.name}")
                continue
            if set(there[1]) - set(here[1]):
                place.find(f"{device.name}.{table.name} lacks {sorted(set(there[1]) - set(here[1]))}")
                continue
            columns = ["id"] + sorted(set(there[1]) - {"id", "IsDeleted"})
            ours, theirs = (self.contents(database, key, columns) for database in (device.database, place.database))
            if device.has_chosen:
                theirs = {row: values for row, values in theirs.items() if row in ours}
            if ours != theirs:
                different = [row for row in sorted(set(ours) | set(theirs)) if ours.get(row) != theirs.get(row)]
                place.find(f"{device.name}.{table.name} differs in {len(different)}: {different[:5]}")
        if "key-set" in self.features:
            lists = [place.rows(d, "SELECT * FROM severity ORDER BY id") for d in (device.database, place.database)]
            if lists[0] != lists[1]:
                place.find(f"severity differs on {device.name}")

    def is_excused(self, row):
        while row is not None:
            if row in self.excused or row in self.marked:
                return True
            row = self.parents.get(row)
        return False

    def check(self):
        place = self.place
        databases = [place.database] + [device.database for device in self.devices]
        for device in self.devices:
            self.compare(device)
        for database in databases:
            for pragma, wanted in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
                if place.rows(database, f"PRAGMA {pragma}") != wanted:
                    place.find(f"{pragma} of {os.path.basename(database)} fails")
            for row, key in self.purged.items():
                if row in place.ids(database, key):
                    place.find(f"the purged row {row} is in {os.path.basename(database)}")
        standing = self.everything(place.database)
        kept = json.dumps([place.run("errors", on=device.name)[1] for device in self.devices] + [place.run("conflicts")[1]])
        # What people gave up was named in an answer.
        given_up = [
            line
            for line in place.read("log").splitlines()
            if re.match(r"\$ \('(errors', 'delete'|queue', 'withdraw'|recover'|server', 'restores', 'reject')", line)
        ]
        kept += "".join(given_up)
        for row, (who, key) in self.made.items():
            if row in standing or self.is_excused(row) or f'"{row}"' in kept:
                continue
            # A row that came back to nobody: its only device had given its table away before a restore.
            if self.backups and any(device.name == who and device.has_chosen for device in self.devices):
                continue
            place.find(f"the row {row} of {who} in {place.schema.tables[key].name} is nowhere")

    def run(self, steps):
        place, rng = self.place, self.rng
        place.start()
        for index in range(rng.randrange(1, 4)):
            heal = rng.choice(["own", "own", "all", "review", "off"]) if "heal" in self.features else "own"
            strategy = rng.choice(STRATEGIES[:1] * 3 + STRATEGIES)
            device = Device(place, f"d{index}", strategy, heal, "people" in self.features)
            self.devices.append(device)
            self.expect(place.run("sync", on=device.name), f"the first sync of {device.name}", 0)
        for _ in range(steps):
            self.step()
            if place.findings:
                break
        self.settle()
        self.check()
