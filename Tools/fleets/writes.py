"""What applications and other programs write: one transaction of SQL."""

from place import quoted

REGIONS = ["EU", "US", "AS"]


class Transaction:
    """Statements on one table of one file, and what they are meant to do."""

    def __init__(self, history, database, who):
        self.history, self.database, self.who = history, database, who
        self.place, self.rng, self.features = history.place, history.rng, history.features
        self.ledger = history.ledger
        self.key = self.rng.choice(list(self.place.schema.tables))
        self.table = self.place.schema.tables[self.key]
        self.name, self.columns = self.place.found(database, self.key)
        self.statements, self.made, self.gone, self.values, self.references = [], [], [], [], []

    def column(self, known):
        return quoted(self.columns[known])

    def add(self, sql, *values):
        self.statements.append((sql, list(values)))

    def new_row(self, ids):
        rng, count = self.rng, self.ledger.next()
        row = {"id": f"{self.who}-{count}", "note": f"n{count}", "value": 1000 + count}
        row["code"] = rng.choice([None, f"c{rng.randrange(6)}"])
        row["region"] = rng.choice(REGIONS)
        if rng.random() < 0.7:
            row["photo"] = rng.randbytes(rng.choice([3, 100, 5000, 70_000, 200_000]))
        if self.table.parent and rng.random() < 0.8:
            parents = self.place.ids(self.database, self.table.parent)
            row["up"] = rng.choice(parents) if parents else None
        if rng.random() < 0.5:
            row["boss"] = rng.choice([*ids, row["id"]])
        return row

    def insert(self, row, how="INSERT"):
        row = {self.columns[column]: value for column, value in row.items() if column in self.columns}
        names = ", ".join(map(quoted, row))
        self.add(f"{how} INTO {quoted(self.name)} ({names}) VALUES ({', '.join('?' * len(row))})", *row.values())

    def noted(self, row):
        """What the row says is looked for in the end."""
        self.values.append((row["id"], row["value"]))
        self.references += [(row["id"], row[column]) for column in ("up", "boss") if column in row]

    def inserts(self, ids):
        for _ in range(self.rng.choice([1, 1, 1, 3])):
            row = self.new_row(ids)
            self.insert(row)
            self.made.append(row["id"])
            self.noted(row)

    def changes(self, ids):
        rng, table = self.rng, quoted(self.name)
        column = rng.choice(["value", "value", "code", "region", "boss"])
        if column not in self.columns:
            return
        row, value = rng.choice(ids), 1000 + self.ledger.next()
        if column == "value":
            self.add(f"UPDATE {table} SET {self.column('value')} = ? WHERE id = ?", value, row)
            self.values.append((row, value))
        elif column == "boss":
            boss = rng.choice([None, *ids])
            self.add(f"UPDATE {table} SET {self.column('boss')} = ? WHERE id = ?", boss, row)
            self.references.append((row, boss))
        else:
            value = {"code": f"c{rng.randrange(6)}", "region": rng.choice(REGIONS)}[column]
            self.add(f"UPDATE {table} SET {self.column(column)} = ? WHERE id = ?", value, row)

    def odd_changes(self, ids):
        """What fewer applications do: whole tables, rows that are replaced or inserted over, several statements on one row."""
        rng, table, value = self.rng, quoted(self.name), 1000 + self.ledger.next()
        what, row = rng.randrange(4), rng.choice(ids)
        if what == 0:
            self.add(f"UPDATE {table} SET {self.column('value')} = ?", value)
            self.values += [(other, value) for other in ids]
        elif what == 1:
            # All that the row refers to, and all that refers to it, may go or be refused.
            whole = self.new_row(ids)
            whole["id"], whole["value"] = row, value
            self.insert(whole, "INSERT OR REPLACE")
            self.gone.append(row)
        elif what == 2 and not self.table.composite:
            names = f"(id, {self.column('value')}, {self.column('note')}" + (
                ", region)" if "region" in self.columns else ")"
            )
            self.add(
                f"INSERT INTO {table} {names} VALUES (?, ?, 'over'{', ?' if 'region' in self.columns else ''})"
                f" ON CONFLICT (id) DO UPDATE SET {self.column('value')} = excluded.{self.column('value')}",
                *([row, value] + (["EU"] if "region" in self.columns else [])),
            )
            self.values.append((row, value))
        else:
            for _ in range(3):
                value = 1000 + self.ledger.next()
                self.add(f"UPDATE {table} SET {self.column('value')} = ? WHERE id = ?", value, row)
            self.values.append((row, value))

    def moves(self, ids):
        """Another key for a row."""
        row, new = self.rng.choice(ids), f"{self.who}-{self.ledger.next()}"
        self.add(f"UPDATE {quoted(self.name)} SET id = ? WHERE id = ?", new, row)
        self.made.append(new)
        self.gone.append(row)
        self.references += [(new, parent) for parent in self.ledger.parents.get(row, ())]

    def deletes(self, ids):
        rng = self.rng
        if rng.random() < 0.1:
            self.gone = ids
            return self.add(f"DELETE FROM {quoted(self.name)}")
        self.gone = [rng.choice(ids)]
        if "IsDeleted" in self.columns and self.database != self.place.database and rng.random() < 0.5:
            self.add(f"UPDATE {quoted(self.name)} SET IsDeleted = ? WHERE id = ?", rng.choice([1, 1, 0]), *self.gone)
            self.ledger.marked.update(self.gone)
        else:
            self.add(f"DELETE FROM {quoted(self.name)} WHERE id = ?", *self.gone)

    def choose(self):
        ids, what = self.place.ids(self.database, self.key), self.rng.random()
        if what < 0.5 or not ids:
            self.inserts(ids)
        elif what < 0.75:
            self.changes(ids)
        elif what < 0.8:
            self.odd_changes(ids) if "statements" in self.features else self.changes(ids)
        elif what < 0.85:
            self.moves(ids) if "keys" in self.features else self.changes(ids)
        else:
            self.deletes(ids)

    def run(self):
        if not self.name:
            return
        self.choose()
        if not self.statements:
            return
        place = self.place
        if self.rng.random() < 0.2 and self.database != place.database:
            self.statements.insert(0, ("INSERT INTO salvor_request (tag) VALUES ('g')", []))
            self.add("DELETE FROM salvor_request")
        names = [place.found(self.database, key)[0] for key in place.schema.tables] if self.gone else []
        taken = set()
        refusal = place.transact(self.database, self.statements, taken=taken, tables=[name for name in names if name])
        if refusal is None:
            # With what the foreign keys took along, and what others had just written.
            self.ledger.note(self.who, self.key, self.made, {*self.gone, *taken}, self.values)
            for row, parent in self.references:
                self.ledger.refer(row, parent)
        elif "salvor" in refusal or "locked" in refusal:
            place.find(f"a write of {self.who} failed: {refusal} {self.statements[0][0]}")
