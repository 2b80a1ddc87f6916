"""What must hold in the end."""

import json
import os
import re

from place import quoted

IN_PLACE = ["recover-unsynced-changes", "recover-or-discard-unsynced-changes"]


class Checks:
    """Of a history."""

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
                        self.jots.pop(device.name, None)
                    place.expect(result, f"the recovery of {device.name} by hand", (0, 6))
                state = place.run("status", on=device.name)[1]
                waits = any(state.get(key) for key in ("queued", "inError", "displaced"))
                if (code == 6 or (waits and turn > 2)) and turn < 9:
                    place.run("errors", "delete", "--all", on=device.name)
                loaded = answer.get("downloaded") or {}
                is_busy = (
                    is_busy or waits or any([answer.get("uploaded"), loaded.get("upserts"), loaded.get("deletes")])
                )
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
            if table.scope == "via":
                seen = {
                    region
                    for (region,) in place.rows(
                        place.database, "SELECT region FROM member WHERE person = ?", [device.principal]
                    )
                }
                at = columns.index("region")
                theirs = {row: values for row, values in theirs.items() if values[at] in seen}
            if device.has_chosen:
                theirs = {row: values for row, values in theirs.items() if row in ours}
            if ours != theirs:
                different = [row for row in sorted(set(ours) | set(theirs)) if ours.get(row) != theirs.get(row)]
                place.find(f"{device.name}.{table.name} differs in {len(different)}: {different[:5]}")
        if "key-set" in self.features:
            lists = [place.rows(d, "SELECT * FROM severity ORDER BY id") for d in (device.database, place.database)]
            if lists[0] != lists[1]:
                place.find(f"severity differs on {device.name}")

    def check(self):
        place = self.place
        databases = [place.database] + [device.database for device in self.devices]
        for device in self.devices:
            self.compare(device)
        for database in databases:
            for pragma, wanted in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
                if place.rows(database, f"PRAGMA {pragma}") != wanted:
                    place.find(f"{pragma} of {os.path.basename(database)} fails")
            for row, key in self.ledger.purged.items():
                if row in place.ids(database, key):
                    place.find(f"the purged row {row} is in {os.path.basename(database)}")
        for device in self.devices:
            if device.name in self.jots and not self.may_stop and device.strategy != "recreate":
                # What went aside waits for its parent.
                found = place.rows(
                    device.database,
                    "SELECT (SELECT count(*) FROM jot) + (SELECT count(*) FROM salvor_aside WHERE name = 'jot')",
                )[0][0]
                if found != self.jots[device.name]:
                    place.find(f"{device.name} has {found} rows of its own and wrote {self.jots[device.name]}")
        self.check_ledger()

    def check_ledger(self):
        place, ledger = self.place, self.ledger
        standing = self.everything(place.database)
        answers = [place.run("errors", on=device.name)[1] for device in self.devices]
        kept = json.dumps(answers + [place.run("conflicts", *words)[1] for words in ((), ("--settled",))])
        # What people gave up was named in an answer.
        given_up = [
            line
            for line in place.read("log").splitlines()
            if re.match(
                r"\$ \('(errors', 'delete'|queue', 'withdraw'|recover'|server', 'restores', 'reject'|conflicts', 'resolve')",
                line,
            )
        ]
        kept += "".join(given_up)
        for row, (who, key) in ledger.made.items():
            if row in standing or ledger.is_excused(row) or f'"{row}"' in kept:
                continue
            # A row that came back to nobody: its only device had given its table away before a restore.
            if self.backups and any(device.name == who and device.has_chosen for device in self.devices):
                continue
            place.find(f"the row {row} of {who} in {place.schema.tables[key].name} is nowhere")
        values = {}
        for key in place.schema.tables:
            if "value" in place.found(place.database, key)[1] and not place.schema.tables[key].composite:
                values.update(self.contents(place.database, key, ["id", "value"]).values())
        for row, who, value, there in ledger.missing_values(values, kept):
            place.find(f"the value {value} that {who} wrote into {row} last is nowhere: the server has {there}")
