"""A schema that changes."""

import json

POLICIES = ["client-wins", "server-wins", "keep-versions"]


class Table:
    """A table of the schema, by whatever names it has had."""

    def __init__(self, name, parent, group):
        self.names = [name]
        self.parent = parent
        self.group = group
        self.columns = {"note": ["note"], "value": ["value"], "code": ["code"]}
        self.types = {"note": "text", "value": "integer = 0", "code": "text?"}
        self.dropped = []
        self.scope = None
        self.unique = self.flags = self.composite = False
        self.on_delete = None
        self.policy = "client-wins"

    @property
    def name(self):
        return self.names[-1]


class Schema:
    """What the schema file says, and how it may change."""

    def __init__(self, rng, features):
        group = "work" if "groups" in features else "default"
        self.version = 1
        self.dropped = []
        self.tables = {
            "a": Table("site", None, "default"),
            "b": Table("visit", "a", group),
            "c": Table("item", rng.choice(["b", None]), group),
        }
        self.features = features
        for table in self.tables.values():
            table.policy = rng.choice(POLICIES)
            if "references" in features:
                table.on_delete = rng.choice([None, "cascade", "set null"])
        if "scopes" in features:
            self.tables["a"].scope = "always"
        if "uniques" in features:
            self.tables["c"].unique = rng.random() < 0.5
        if "flags" in features:
            self.tables[rng.choice("abc")].flags = True
        if "blobs" in features:
            table = self.tables[rng.choice("abc")]
            table.columns["photo"], table.types["photo"] = ["photo"], "blob?"
        if "composite" in features:
            self.tables["c"].composite = True
        # Rows that a membership of the server's shows to a person.
        if "members" in features:
            self.tables["p"] = Table("plan", None, group)
            self.tables["p"].scope = "via"

    def is_scoped(self, key):
        table = self.tables[key]
        return table.scope in ("always", "on") or bool(table.parent and self.is_scoped(table.parent))

    def groups(self):
        return {table.group for table in self.tables.values()}

    def text(self):
        tables = {}
        for key, table in self.tables.items():
            columns = {"id": "text"}
            if table.composite:
                columns["line"] = "integer = 1"
            for column, names in table.columns.items():
                kind = table.types[column]
                columns[names[-1]] = {"type": kind, "renamedFrom": names[-2]} if len(names) > 1 else kind
            entry = {
                "maintained": "dual",
                "group": table.group,
                "conflicts": table.policy,
                "columns": columns,
                "primaryKey": ["id", "line"] if table.composite else "id",
            }
            if len(table.names) > 1:
                entry["renamedFrom"] = table.names[-2]
            if table.flags:
                columns.update({"IsDirty": "boolean = 0", "IsDeleted": "boolean = 0"})
                entry["flags"] = {"dirty": "IsDirty", "deleted": "IsDeleted"}
            if table.scope:
                columns["region"] = "text" if table.scope == "always" else "text?"
                if table.scope != "off":
                    entry["scope"] = {"region": "via:member.region" if table.scope == "via" else "parameter:region"}
            references = {"up": table.parent} if table.parent else {}
            if "self" in self.features and key in "ap":
                references["boss"] = key
            for column, parent in references.items():
                columns[column] = "text?"
                reference = entry.setdefault("references", {})[column] = {"table": self.tables[parent].name}
                if table.on_delete:
                    reference["onDelete"] = table.on_delete
                if column == "up" and self.is_scoped(parent):
                    reference["scope"] = "inherit"
                elif column == "boss" and ("scopes" in self.features or table.scope):
                    reference["soft"] = True
                    reference.pop("onDelete", None)
            if table.unique and "code" in table.columns:
                entry["unique"] = [[table.columns["code"][-1]]]
            if table.dropped:
                entry["dropped"] = table.dropped
            tables[table.name] = entry
        if "key-set" in self.features:
            tables["severity"] = {
                "maintained": "server",
                "group": "default",
                "download": "key-set",
                "primaryKey": "id",
                "columns": {"id": "integer", "name": "text?"},
            }
        if "members" in self.features:
            tables["member"] = {
                "maintained": "server",
                "primaryKey": "id",
                "columns": {"id": "text", "region": "text", "person": "text"},
                "scope": {"person": "principal"},
            }
        schema = {"version": self.version, "parameters": {"region": "text"}, "tables": tables}
        groups = self.groups() - {"default"}
        if groups:
            schema["groups"] = {group: {} for group in sorted(groups)}
        if not any(table.scope in ("always", "on") for table in self.tables.values()):
            del schema["parameters"]
        return json.dumps(schema, indent=1)

    def change(self, rng):
        """One difference; what was done, in a few words, or None."""
        key = rng.choice(list(self.tables))
        table = self.tables[key]
        kinds = ["column"] + [
            kind
            for kind in (
                "renames",
                "drops",
                "new-tables",
                "policies",
                "groups",
                "uniques",
                "references",
                "scopes",
                "flags",
            )
            if kind in self.features
        ]
        kind = rng.choice(kinds)
        if kind == "column":
            name = f"extra{self.version}{len(table.columns)}"
            table.columns[name], table.types[name] = [name], rng.choice(["text?", "integer = 7"])
        elif kind == "renames" and rng.random() < 0.5:
            if len(table.names) > 1:
                return None
            table.names.append(f"{table.name}_{self.version}")
        elif kind == "renames":
            column = rng.choice(["note", "value", "code"])
            if len(table.columns.get(column, [1, 1])) > 1:
                return None
            table.columns[column].append(f"{column}_{self.version}")
        elif kind == "drops":
            spare = [
                c for c in table.columns if c not in ("note", "value", "photo") and not (c == "code" and table.unique)
            ]
            if not spare:
                return None
            table.dropped += table.columns.pop(rng.choice(spare))
        elif kind == "new-tables":
            if len(self.tables) > 5:
                return None
            name = f"more{self.version}{len(self.tables)}"
            self.tables[name] = Table(name, rng.choice([None, "a"]), rng.choice(["default", "other"]))
        elif kind == "policies":
            table.policy = rng.choice(POLICIES)
        elif kind == "groups":
            table.group = rng.choice(["default", "work", "other"])
        elif kind == "uniques" and "code" in table.columns:
            table.unique = not table.unique
        elif kind == "references" and table.parent:
            table.on_delete = rng.choice([None, "cascade", "set null"])
        elif kind == "scopes" and key == "a" and table.scope != "always":
            table.scope = "off" if table.scope == "on" else "on"
        elif kind == "flags":
            table.flags = True
        else:
            return None
        return f"{kind} {table.name}"
