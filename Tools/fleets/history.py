"""What happens in a fleet, and what must hold in the end."""

import copy
import os
import re
import shutil
import signal
import sqlite3
import subprocess

from checks import IN_PLACE, Checks
from ledger import Ledger
from place import Device, quoted
from writes import REGIONS, Transaction

PEOPLE = ["anna", "ben"]
STRATEGIES = IN_PLACE + ["copy-and-resubscribe", "discard-unsynced-changes", "recreate"]


class History(Checks):
    def __init__(self, seed, place, rng, features):
        self.place, self.rng, self.features = place, rng, features
        self.seed = seed
        self.devices = []
        self.ledger = Ledger()
        self.backups = []
        self.jots = {}
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
        Transaction(self, database, who).run()

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
        place = self.place
        if "together" in self.features and self.rng.random() < 0.3:
            both = [place.begin("sync", on=device.name) for _ in range(2)]
            for child in both:
                # 3: it did not get its turn.
                self.expect(place.ended(child, "sync", on=device.name), f"one of two syncs of {device.name}", 0, 3, 6)
            return
        kill = self.rng.uniform(0.01, 0.25) if "kills" in self.features and self.rng.random() < 0.3 else None
        words = ["sync"]
        if "single" in self.features and self.rng.random() < 0.4:
            # One group alone; 2: this device's schema does not have it yet, or any more.
            words += ["--group", self.rng.choice(sorted(place.schema.groups()))]
        codes = (0, 6) if len(words) == 1 else (0, 2, 6)
        self.expect(place.run(*words, on=device.name, kill_after=kill), f"{' '.join(words)} of {device.name}", *codes)

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
            file = place.path(f"backup-{self.ledger.count}-{len(self.backups)}.db")
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
        self.ledger.forget("program")
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

    def clone(self, device):
        """A copy of the file becomes a device of its own, with the identity file or without."""
        place, rng = self.place, self.rng
        if len(self.devices) > 3 or device.watching:
            return
        name = f"d{len(self.devices)}"
        clone = Device(place, name, device.strategy, device.heal, device.individual, device.principal)
        clone.has_chosen = device.has_chosen
        place.write(f"{name}.schema.json5", place.read(f"{device.name}.schema.json5"))
        place.put_in_place(device.database, clone.database)
        if rng.random() < 0.5 and os.path.exists(device.database + ".salvor-identity"):
            shutil.copy(device.database + ".salvor-identity", clone.database + ".salvor-identity")
        self.devices.append(clone)
        self.may_stop = True
        place.log("clone", device.name, name)

    def replace(self):
        """Another, empty server is at the same address."""
        place = self.place
        place.stop()
        for file in os.listdir(place.folder):
            if file.startswith("server.db"):
                os.rename(place.path(file), place.path(f"replaced-{self.ledger.next()}-{file}"))
        self.backups, self.may_stop = [], True
        self.ledger.forget_all()
        self.ledger.purged.clear()
        place.log("replaced")
        place.start()

    def member(self):
        """A program of the server's lets somebody into a region, or takes him out."""
        rng = self.rng
        statement = rng.choice(
            [
                (
                    "INSERT OR REPLACE INTO member VALUES (?, ?, ?)",
                    [f"m{rng.randrange(5)}", rng.choice(REGIONS), rng.choice(PEOPLE)],
                ),
                ("DELETE FROM member WHERE id = ?", [f"m{rng.randrange(5)}"]),
            ]
        )
        self.place.transact(self.place.database, [statement])

    def jot(self, device):
        """The application's own table, beside the synchronized ones: its rows reference one of them, and each other, in circles, too."""
        place, rng = self.place, self.rng
        name, _ = place.found(device.database, "a")
        ids = place.ids(device.database, "a")
        rule = rng.choice(["ON DELETE SET NULL", "ON DELETE SET DEFAULT", ""])
        up = "(SELECT max(id) FROM jot)" if rng.random() < 0.5 else "NULL"
        if (
            name
            and place.transact(
                device.database,
                [
                    (
                        f"CREATE TABLE IF NOT EXISTS jot (id INTEGER PRIMARY KEY, site TEXT REFERENCES {quoted(name)} {rule},"
                        " up INTEGER REFERENCES jot DEFERRABLE INITIALLY DEFERRED)",
                        [],
                    ),
                    (f"INSERT INTO jot (site, up) VALUES (?, {up})", [rng.choice(ids) if ids else None]),
                    ("UPDATE jot SET up = (SELECT max(id) FROM jot) WHERE id = (SELECT max(id) - 1 FROM jot)", []),
                ],
            )
            is None
        ):
            self.jots[device.name] = self.jots.get(device.name, 0) + 1

    def add_triggers(self, database):
        """The application's, or the server's own: each insert is noted in the row above it."""
        place = self.place
        for below, above in (("b", "a"), ("c", place.schema.tables["c"].parent)):
            (name, _), (parent, columns) = place.found(database, below), place.found(database, above or "a")
            if (
                name
                and parent
                and above
                and "note" in columns
                and not place.rows(database, "SELECT 1 FROM sqlite_schema WHERE name = ?", [f"noted_{below}"])
            ):
                place.transact(
                    database,
                    [
                        (
                            f"CREATE TRIGGER noted_{below} AFTER INSERT ON {quoted(name)} BEGIN"
                            f" UPDATE {quoted(parent)} SET {quoted(columns['note'])} = 'last ' || NEW.id WHERE id = NEW.up; END",
                            [],
                        )
                    ],
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
                self.jots.pop(device.name, None)
            self.may_stop = True
            self.expect(place.run("recover", "--plan", "--strategy", strategy, on=device.name), "plan", 0, 2)
            self.expect(
                place.run("recover", "--strategy", strategy, *self.token(device), on=device.name), strategy, 0, 6
            )
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
            self.ledger.forget(device.name)
            self.may_stop = True
            self.jots.pop(device.name, None)
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
        # What does not fit any more is refused by this name.
        unfit = (answer.get("error") or {}).get("name") == "cannot-stand"
        self.expect(result, "backups restore", 0, 2, *([1] if unfit else []))
        copies = place.run("backups", on=device.name)[1].get("backups") or []
        for path in [copy["path"] for copy in copies if copy["id"] == answer.get("copy")]:
            self.ledger.forget(device.name)
            self.jots.pop(device.name, None)
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
                    self.ledger.purged[row] = key
                    self.ledger.marked.add(row)
        elif what < 0.8:
            versions = place.run("conflicts")[1].get("conflicts") or []
            if versions:
                words = (
                    "conflicts",
                    "resolve",
                    str(rng.choice(versions)["id"]),
                    "--keep",
                    rng.choice(["client", "server"]),
                )
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
        if "members" in features and rng.random() < 0.1:
            return self.member()
        if "local" in features and rng.random() < 0.05:
            return self.jot(device)
        if "triggers" in features and rng.random() < 0.05:
            return self.add_triggers(rng.choice([device.database, place.database]))
        if "clones" in features and rng.random() < 0.03:
            return self.clone(device)
        if "replaced" in features and rng.random() < 0.03:
            return self.replace()
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
                                (
                                    "INSERT OR REPLACE INTO severity VALUES (?, ?)",
                                    [rng.randrange(9), f"s{self.ledger.next()}"],
                                ),
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

    def run(self, steps):
        place, rng = self.place, self.rng
        place.start()
        if "members" in self.features:
            for _ in range(3):
                self.member()
        for index in range(rng.randrange(1, 4)):
            heal = rng.choice(["own", "own", "all", "review", "off"]) if "heal" in self.features else "own"
            more = ["upload-then-recreate", "manual"] if "strategies" in self.features else []
            self.may_stop = bool(more)
            strategy = rng.choice(STRATEGIES[:1] * 3 + STRATEGIES + more)
            principal = PEOPLE[index % 2] if "members" in self.features else "anna"
            device = Device(place, f"d{index}", strategy, heal, "people" in self.features, principal)
            self.devices.append(device)
            self.expect(place.run("sync", on=device.name), f"the first sync of {device.name}", 0)
        for _ in range(steps):
            self.step()
            if place.findings:
                break
        self.settle()
        self.check()
